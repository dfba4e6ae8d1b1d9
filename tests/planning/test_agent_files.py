"""Agent files: an agent goes on from one bit for bit; what cannot be read is refused in words."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contextual_lqr import (
    Agent,
    BlockContext,
    Cautious,
    CertaintyEquivalence,
    ConstantBeta,
    DeterminantBeta,
    FormatError,
    FunctionContext,
    InputError,
    PaperBeta,
    SampledOptimism,
)
from contextual_lqr.files import load_arrays, save_arrays
from contextual_lqr.planning import Choice, PlanningProblem
from contextual_lqr.planning.agent_file import FORMAT_VERSION
from contextual_lqr.planning.problem import PlansEpisodes
from fleet_play import (
    FLEETS,
    STRATEGIES,
    agent_bits,
    off_policy,
    play_asked,
    play_many,
    play_plan,
    taught,
)

SMALL = FLEETS["small"]
GAIN = {"gain": 1.2}

# One new process goes on with all the files of a directory: to start it takes longer than to play.
GO_ON = """
import sys
from pathlib import Path
from contextual_lqr import Agent
from fleet_play import FLEETS, play_many
for file in sorted(Path(sys.argv[1]).glob("*.agent")):
    fleet, adapt, _ = file.name.split("-")
    agent = Agent.load(file)
    play_many(agent, FLEETS[fleet], range(2, 4), adapt)
    agent.save(file.with_suffix(".later"))
"""


def new_process(code: str, *arguments: str) -> None:
    here = Path(__file__).parent.parent / "support"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=here,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(here), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_agents_go_on_in_a_new_process_bit_for_bit(tmp_path: Path) -> None:
    expected = {}
    for k, strategy in enumerate(STRATEGIES.values()):
        for fleet, adapt in (("path", "episode"), ("small", "step")):
            one = FLEETS[fleet]
            whole, first = (
                Agent(
                    one.context_map, one.cost, one.start, strategy, 0.02, seed=k,
                    beta=[None, 2.5, DeterminantBeta(1.0, 0.1, 0.2)][k % 3],
                    input_bounds=(-3.0, 3.0) if k % 2 else None,
                )
                for _ in range(2)
            )  # fmt: skip
            play_many(whole, one, range(4), adapt)
            play_many(first, one, range(2), adapt)
            name = f"{fleet}-{adapt}-{k}"
            first.save(tmp_path / f"{name}.agent")
            expected[name] = agent_bits(whole)
    new_process(GO_ON, str(tmp_path))
    for name, bits in expected.items():
        assert agent_bits(Agent.load(tmp_path / f"{name}.later")) == bits, name


@pytest.mark.parametrize("episodes", [0, 3])
@pytest.mark.parametrize(
    "beta",
    [None, 2.5, ConstantBeta(3.0), PaperBeta(1, 0.1, 2, 0.1), DeterminantBeta(1, 0.1, 0.1)],
)
def test_a_file_holds_everything(beta: Any, episodes: int, tmp_path: Path) -> None:
    strategy = Cautious(draws=32, aversions=(1.0, 5.0), state_limit=(3.0, 4.0))
    agent = taught(
        SMALL, episodes, strategy, [0.0, 0.1], beta=beta, regularisation=0.3,
        input_bounds=([-0.5], 0.25), seed=9,
    )  # fmt: skip
    for _ in range(episodes):
        play_asked(agent, SMALL, GAIN, np.random.default_rng(1))
    agent.save(tmp_path / "one")
    loaded = Agent.load(str(tmp_path / "one"))
    assert agent_bits(loaded) == agent_bits(agent)
    assert loaded.strategy == strategy
    assert loaded.beta == beta
    for name in ("Q", "R", "N"):
        assert getattr(loaded.cost, name).tobytes() == getattr(agent.cost, name).tobytes()
    for _ in range(2):
        assert loaded.ask(GAIN).offsets.tobytes() == agent.ask(GAIN).offsets.tobytes()
    if episodes:
        assert loaded.output().optimistic.tobytes() == agent.output().optimistic.tobytes()
    assert os.listdir(tmp_path) == ["one"]


def test_a_plan_may_be_told_to_the_agent_that_was_loaded(tmp_path: Path) -> None:
    agent = taught(SMALL, 1, SampledOptimism(5, 1.0))
    plan = agent.ask(GAIN)
    agent.save(tmp_path / "one")
    loaded = Agent.load(tmp_path / "one")
    for one in (agent, loaded):
        one.tell(plan, play_plan(plan, SMALL, GAIN, np.random.default_rng(1)))
    assert agent_bits(loaded) == agent_bits(agent)
    np.testing.assert_array_equal(loaded.output().optimistic, plan.theta)


@dataclass(frozen=True)
class Own(PlansEpisodes):
    """A strategy that we cannot know."""

    dither: float = 0.1

    def choose(self, problem: PlanningProblem, rng: np.random.Generator) -> Choice:
        return CertaintyEquivalence(self.dither).choose(problem, rng)


def own_G(context: Any) -> np.ndarray:
    return np.vstack((np.eye(3), context["gain"] * np.eye(3)))


@pytest.mark.parametrize("episodes", [0, 2])
def test_what_cannot_be_written_is_given_again(episodes: int, tmp_path: Path) -> None:
    file = tmp_path / "one"
    agent = taught(SMALL, episodes, Own())
    agent.save(file)
    with pytest.raises(InputError, match=r"one .*strategy of your own.*strategy="):
        Agent.load(file)
    loaded = Agent.load(file, strategy=Own())
    assert agent_bits(loaded) == agent_bits(agent)
    assert loaded.ask(GAIN).offsets.tobytes() == agent.ask(GAIN).offsets.tobytes()

    agent = Agent(FunctionContext(own_G), SMALL.cost, SMALL.start)
    for k in range(episodes):
        agent.tell(GAIN, off_policy(SMALL, np.random.default_rng(k))[1])
    agent.save(file)
    with pytest.raises(InputError, match=r"Python functions.*context_map="):
        Agent.load(file)
    loaded = Agent.load(file, FunctionContext(own_G))
    assert loaded.ask(GAIN).offsets.tobytes() == agent.ask(GAIN).offsets.tobytes()
    play_many(loaded, SMALL, range(2), "step")
    with pytest.raises(InputError, match="context"):
        Agent.load(file, BlockContext(np.eye(5), np.eye(2)))


@pytest.mark.parametrize("where", ["agent", "strategy"])
def test_a_radius_of_ones_own_is_not_silently_another(where: str, tmp_path: Path) -> None:
    """It must be refused or asked for again: never replaced by the default."""
    mine = SampledOptimism(beta=own_beta) if where == "strategy" else SampledOptimism()
    agent = taught(SMALL, 1, mine, beta=own_beta if where == "agent" else None)
    with pytest.raises(InputError, match=r"beta|strategy="):
        saved_and_loaded(agent, tmp_path / "one")


def own_beta(decoder: Any) -> float:
    return 7.0


def saved_and_loaded(agent: Agent, file: Path) -> Agent:
    agent.save(file)
    return Agent.load(file)


def test_parameters_may_be_numpys_numbers(tmp_path: Path) -> None:
    """Run without the type checks of the tests, as users do."""
    code = """
import sys
import numpy as np
from contextual_lqr import Agent, Cautious, SampledOptimism
from fleet_play import FLEETS, taught
limit = np.array([3.0, 4.0])
for strategy in (SampledOptimism(np.int64(7)), Cautious(state_limit=limit),
                 Cautious(state_limit=[3.0, 4.0]), Cautious(doubt=np.float32(2))):
    taught(FLEETS["small"], 1, strategy).save(sys.argv[1])
    loaded = Agent.load(sys.argv[1]).strategy
    for name in ("samples", "state_limit", "trust"):
        np.testing.assert_array_equal(getattr(loaded, name, 0), getattr(strategy, name, 0))
"""
    new_process(code, str(tmp_path / "one"))


# ---- files that are no good ----------------------------------------------------------------------


def test_a_damaged_file_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "one"
    taught(SMALL, 1).save(file)
    whole = file.read_bytes()
    rng = np.random.default_rng(12)
    noise = [rng.bytes(int(n)) for n in rng.integers(1, 2000, 60)]
    cuts = [whole[:n] for n in [*range(0, len(whole), 61), len(whole) - 1]]
    for content in [*cuts, *noise, whole + b"more"]:
        file.write_bytes(content)
        with pytest.raises(FormatError, match=r"one is (damaged|not an? agent file)"):
            Agent.load(file)
    header = 8 + int.from_bytes(whole[:8], "little")
    for place in range(0, header, 5):  # a flipped bit may make another number, never a traceback
        bit = int(rng.choice([1, 2, 16, 64]))
        file.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        with suppress(InputError):
            Agent.load(file)


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "one"
    agent = taught(SMALL, 1)
    agent.decoder.save(file)
    with pytest.raises(FormatError, match=r"one is not an? agent file"):
        Agent.load(file)
    save_arrays(file, "agent", FORMAT_VERSION + 1, {}, {"Q": np.eye(2)})
    with pytest.raises(FormatError, match=r"has format version .*, but .* a newer one"):
        Agent.load(file)
    with pytest.raises(InputError, match="there is no file"):
        Agent.load(tmp_path / "nothing")
    with pytest.raises(InputError, match="cannot read"):
        Agent.load(tmp_path)


Change = Callable[[dict[str, Any], dict[str, np.ndarray]], Any]


def put(name: str, value: Any) -> Change:
    return lambda state, arrays: state.update({name: value})


def array(name: str, value: Any) -> Change:
    return lambda state, arrays: arrays.update({name: np.asarray(value)})


def rule(kind: str, **fields: Any) -> Change:
    return put("strategy", {"kind": kind, "fields": fields})


CONTRADICTIONS: dict[str, Change] = {
    "no strategy": lambda state, arrays: state.pop("strategy"),
    "no beta": lambda state, arrays: state.pop("beta"),
    "no decoder": lambda state, arrays: state.pop("decoder"),
    "no random state": lambda state, arrays: state.pop("random"),
    "no cost": lambda state, arrays: arrays.pop("Q"),
    "no data": lambda state, arrays: arrays.pop("data"),
    "unknown strategy": rule("Reckless"),
    "unknown field": rule("Cautious", speed=3),
    "bad field": rule("Cautious", draws="many"),
    "refused field": rule("SampledOptimism", samples=0),
    "a number as strategy": put("strategy", 5),
    "a list as strategy": put("strategy", [1, 2]),
    "a rule of another sort": rule("ConstantBeta", value=3.0),
    "a word as beta": put("beta", "large"),
    "a strategy as beta": put("beta", {"kind": "Cautious", "fields": {}}),
    "negative beta": put("beta", -1.0),
    "decoder is a list": put("decoder", []),
    "random is a list": put("random", []),
    "another generator": put("random", {"bit_generator": "MT19937", "state": {}}),
    "half a generator": put("random", {"bit_generator": "PCG64"}),
    "a number too large": put(
        "random",
        {"bit_generator": "PCG64", "state": {"state": 10**60, "inc": 1}, "has_uint32": 0,
         "uinteger": 0},
    ),
    "a negative number": put(
        "random",
        {"bit_generator": "PCG64", "state": {"state": -1, "inc": 1}, "has_uint32": 0,
         "uinteger": 0},
    ),
    "start of another size": array("start", np.zeros(3)),
    "start not finite": array("start", [np.nan, 0.0]),
    "noise of another size": lambda state, _: state["decoder"].update(noise_level=[1.0] * 3),
    "no noise": lambda state, _: state["decoder"].update(noise_level=[0.0, 0.0]),
    "another cost": array("Q", np.ones((8, 3, 3))),
    "another R": array("R", np.ones((3, 1, 1))),
    "another N": array("N", np.ones((7, 1, 1))),
    "many costs": array("Q", np.ones((2, 8, 2, 2))),
    "one bound": array("input_bounds", np.ones((1, 1))),
    "a bound": array("input_bounds", np.float64(1.0)),
    "bounds crossed": array("input_bounds", [[1.0], [-1.0]]),
    "three bounds": array("input_bounds", np.zeros((3, 1))),
    "played of another size": array("played", np.zeros((1, 3, 3))),
    "more played than estimates": array("played", np.zeros((2, 2, 6))),
    "played not finite": array("played", np.full((1, 2, 6), np.nan)),
}  # fmt: skip


@pytest.mark.parametrize("change", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_file_that_contradicts_itself_is_refused(change: Change, tmp_path: Path) -> None:
    file = tmp_path / "one"
    agent = taught(SMALL, 1, SampledOptimism(5, 1.0), input_bounds=(-1.0, 1.0))
    play_asked(agent, SMALL, GAIN, np.random.default_rng(1))
    agent.save(file)
    state, arrays = load_arrays(file, "agent", FORMAT_VERSION)
    save_arrays(file, "agent", FORMAT_VERSION, state, arrays)
    assert agent_bits(Agent.load(file)) == agent_bits(agent)
    change(state, arrays)
    save_arrays(file, "agent", FORMAT_VERSION, state, arrays)
    with pytest.raises(InputError) as refusal:
        Agent.load(file)
    assert len(str(refusal.value)) > 15


@pytest.mark.parametrize("where", ["os.replace", "os.fsync", "os.open"])
def test_a_failed_write_leaves_the_old_file(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "one"
    taught(SMALL, 1).save(file)
    old = file.read_bytes()

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    agent = taught(SMALL, 2)
    before = agent_bits(agent)
    with monkeypatch.context() as patch:
        patch.setattr(where, fail)
        with pytest.raises(InputError, match=r"cannot write .*one: No space left"):
            agent.save(file)
    assert os.listdir(tmp_path) == ["one"]
    assert file.read_bytes() == old
    assert agent_bits(agent) == before
    agent.save(file)
    assert Agent.load(file).decoder.episodes == 2
