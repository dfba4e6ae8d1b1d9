"""The exported C file: compiled strictly, run under sanitizers, equal to the library."""

import functools
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.random import Generator, default_rng

from c_program import COMPILER, SANITIZED, STRICT, Program
from contextual_lqr import (
    BlockContext,
    ContextMap,
    Controller,
    Decoder,
    FeatureContext,
    FunctionContext,
    InputError,
    OutputHistory,
    StationaryCost,
    Trajectory,
    UnsolvableError,
)
from contextual_lqr.certificates.extrapolation import EDGE, extrapolations
from contextual_lqr.deployment.c_file import believed_law, c_file
from contextual_lqr.deployment.task import Task
from deviating_fleet import NOISE, contexts, episode, learnt, machines

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
COUNT = 25
EVERYTHING = "sqrt(abs(a)) + exp(-b)/log(3 + a) - sin(b)*cos(a)**2 + tan(b/4) - tanh(a)*pi/10"


@dataclass
class Case:
    """A fleet, some of whose states may be constant, and a task."""

    context_map: ContextMap
    options: dict[str, Any]
    cost: StationaryCost
    known: dict[int, Any] = field(default_factory=dict)
    hedge: float = 0.0
    history: OutputHistory | None = None

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        return dict(self.context_map.bounds or {})

    def learnt(self, rng: Generator) -> Decoder:
        """From logs in the middle half of the bounds."""
        p, d, m = self.context_map.shape or (0, 0, 0)
        theta = 0.5 * rng.standard_normal((d, p))
        for i, row in self.known.items():
            theta[i] = row
        decoder = Decoder(self.context_map, 1e-6, known=self.known, deviations=None)
        for _ in range(12):
            context = {
                name: (low + high) / 2 + (high - low) * rng.uniform(-0.2, 0.2)
                for name, (low, high) in self.bounds.items()
            }
            M = theta @ self.context_map.matrix(context)
            states, inputs = [rng.standard_normal(d)], rng.standard_normal((8, m))
            states[0][self.task().constants] = 1.0
            for u in inputs:
                noise = 0.01 * rng.standard_normal(d)
                noise[list(self.known)] = 0.0
                states.append(M @ np.concatenate((states[-1], u)) + noise)
            decoder.update(context, Trajectory(states, inputs))
        return decoder

    def task(self) -> Task:
        return Task.of(self.cost, **self.options)


def cases() -> dict[str, Case]:
    half = default_rng(5).standard_normal((5, 5))
    W = half @ half.T + 0.1 * np.eye(5)
    bounds = {"a": (0.5, 2.0), "b": (-1.0, 1.0)}
    short = OutputHistory(2, 2, n=2, input_history=1)
    late = OutputHistory(1, 1, n=3, delay=1, measured=2, constant=True, spacing=2.5)
    laws = [
        FeatureContext(["1", "1/a"], states=one.state_size, inputs=one.inputs, bounds=bounds)
        for one in (short, late)
    ]
    return {
        "features": Case(
            FeatureContext(["1", EVERYTHING, "a"], states=3, inputs=2, bounds=bounds),
            {
                "states": ["x", "y", "z"],
                "target": {"x": 1.0, "z": -0.5},
                "integral": {"z": 0.1},
                "input_bounds": ([-6.0, -np.inf], [6.0, 4.0]),
            },
            StationaryCost(W[:3, :3], W[3:, 3:], W[:3, 3:], discount=0.97),
        ),
        "blocks": Case(
            BlockContext([[1, 0.5], [0, "1/a"], ["b", 0]], [["b", 1], [0, "a*b"]], bounds=bounds),
            {"states": ["x", "y"]},
            StationaryCost(np.diag([1.0, 0.2]), np.eye(2)),
        ),
        "offsets": Case(
            BlockContext([[1, 0, 0], [0, "a", 0], [0, 1, "1/a"]], [["1"], ["b"]], bounds=bounds),
            {
                "states": ["one", "x", "y"],
                "constant": ["one"],
                "target": {"x": 0.3},
                "integral": ["x"],
                "input_bounds": {"force": (-20.0, 20.0)},
            },
            StationaryCost(np.diag([0.0, 1.0, 0.5]), [[0.1]]),
            known={0: [1.0, 0.0, 0.0, 0.0, 0.0]},
            hedge=500.0,
        ),
        "outputs": Case(
            laws[0],
            {
                "states": ["x", "y", "x_1", "y_1"],
                "lags": [("x", 0), ("y", 0), ("x", 1), ("y", 1)],
                "integral": ["y"],
                "target": {"y": 0.2},
                "input_bounds": ([-3.0, -np.inf], [3.0, 4.0]),
            },
            StationaryCost(np.diag([1.0, 0.5, 0.0, 0.0]), 0.1 * np.eye(2)),
            known=short.known(laws[0]),
            hedge=500.0,
            history=short,
        ),
        "late inputs and weather": Case(
            laws[1],
            {
                "states": ["one", "sun", "wind", "x", "x_1", "x_2", "u_1", "u_2", "u_3"],
                "lags": [(name, 0) for name in ("one", "sun", "wind")]
                + [("x", 0), ("x", 1), ("x", 2), ("u", 1), ("u", 2), ("u", 3)],
                "fades": [0, 0, 0, 0, 0.6, 0.6, 0, 0.6, 0.6],
                "constant": ["one"],
                "measured": ["sun", "wind"],
                "target": {"x": 1.0},
                "integral": ["x"],
                "input_bounds": {"u": (-20.0, 20.0)},
            },
            StationaryCost(np.diag([0.0, 0, 0, 1, 0, 0, 0, 0, 0]), [[0.1]]),
            known=late.known(laws[1]),
            history=late,
        ),
    }


def expected(case: Case, decoder: Decoder, context: dict[str, float]) -> tuple[str, Any]:
    """What the library says of a context: a status as in C, and the controller if there is one."""
    if any(not low <= context[name] <= high for name, (low, high) in case.bounds.items()):
        return "out of bounds", None
    G = decoder.context_map.matrix(context)
    by_context = isinstance(decoder.context_map, FeatureContext)
    if by_context and _score(decoder, G, np.eye(G.shape[1])) > EDGE:
        return "outside data", None
    try:
        made = Controller.of(decoder.machine(context), case.task(), case.hedge)
    except UnsolvableError:
        return "no gain", None
    except InputError:
        return "not held", None
    if not by_context and _score(decoder, G, _moments(case.task(), decoder, context, made)) > EDGE:
        return "outside data", None
    return "ok", made


def _score(decoder: Decoder, G: Any, moments: Any) -> float:
    return extrapolations(decoder, G[None], moments[None])[0].score


def _moments(task: Task, decoder: Decoder, context: dict[str, float], made: Controller) -> Any:
    """E[y yᵀ] at rest and about it, y = [x; u] with the constants."""
    system = decoder.machine(context).system
    larger, _ = task.with_integrators(*task.parts(system)[:2])
    noise, n, d = np.zeros_like(larger.A), len(task.moving), len(task.names)
    moving, m = list(task.moving), len(made.gain)
    noise[:n, :n] = decoder.noise_estimate[np.ix_(moving, moving)]
    X = scipy.linalg.solve_discrete_lyapunov(larger.A + larger.B @ made.gain, noise)
    both = np.concatenate((np.eye(n, len(X)), made.gain))
    places = [*moving, *range(d, d + m)]
    mean = np.ones(d + m)
    mean[places] = np.concatenate(made.rest)
    moments = np.outer(mean, mean)
    moments[np.ix_(places, places)] += both @ X @ both.T
    return moments


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Decoder, Program]]:
    """What a case has learnt, and its controller under sanitizers."""

    @functools.cache
    def of(name: str) -> tuple[Decoder, Program]:
        decoder = cases()[name].learnt(default_rng(3))
        source = c_file(decoder, cases()[name].task(), hedge=cases()[name].hedge).source
        return decoder, Program(source, tmp_path_factory.mktemp(name), *SANITIZED)

    return of


@pytest.mark.parametrize("name", cases())
def test_it_equals_the_library(name: str, compiled: Any) -> None:
    """Gains, targets and 20 steps of each context, and which are refused; 1000 were tried once.

    The history of outputs is `OutputMemory`'s, which knows nothing of the C file's.
    """
    case, rng = cases()[name], default_rng(4)
    (decoder, program), task = compiled(name), case.task()
    wider = {n: (low - 0.02, high + 0.02) for n, (low, high) in case.bounds.items()}
    asked: list[tuple[str, Any]] = []
    wanted: list[tuple[str, Any]] = []
    for _ in range(COUNT):
        context = {n: rng.uniform(low, high) for n, (low, high) in wider.items()}
        status, made = expected(case, decoder, context)
        asked += [("i", ()), ("c", list(context.values()))]
        wanted.append((status, None if made is None else made.gain.ravel()))
        memory, played = case.history and case.history.memory(), None
        for step in range(0 if made is None else 20):
            if step % 5 == 4 and task.held:
                target = task.target + 0.3 * rng.standard_normal(len(task.held))
                asked.append(("t", target))
                wanted.append(_retargeted(made, target))
            seen = 3 * rng.standard_normal(len(task.seen))
            state, w = seen, len(task.measured)
            if memory:
                state = memory.see(seen[w:], played, seen[:w] if w else None)
            played = made.input(state)
            asked.append(("s", seen))
            wanted.append(("ok", played))
    answers = program(asked)
    assert [said for said, _ in answers] == [said for said, _ in wanted]
    for (_, numbers), (_, ours) in zip(answers, wanted, strict=True):
        if ours is not None:
            scale = max(1.0, np.abs(ours).max())
            np.testing.assert_allclose(numbers, ours, rtol=1e-9, atol=1e-9 * scale)
    assert sum(said == "ok" for said, _ in wanted) > COUNT


def test_a_hedge_changes_the_gains() -> None:
    """Else nothing was compared above."""
    for name in ("offsets", "outputs"):
        case, decoder = cases()[name], cases()[name].learnt(default_rng(3))
        machine = decoder.machine({"a": 1.2, "b": 0.1})
        gains = [Controller.of(machine, case.task(), hedge).gain for hedge in (0.0, case.hedge)]
        assert np.abs(gains[1] - gains[0]).max() > 1e-3 * np.abs(gains[0]).max()


def test_machines_that_deviate_are_hedged_against(tmp_path: Path) -> None:
    """Rows in which machines deviate have a law of their own, and a spread about it."""
    rng = default_rng(1)
    bounded = FeatureContext(["1", "1/inertia"], states=2, inputs=1, bounds={"inertia": (0.4, 2.5)})
    decoder, truth = Decoder(bounded, 1e-4, noise_level=NOISE), machines(12, 0.1, rng)
    for i, (context, M) in enumerate(zip(contexts(12), truth, strict=True)):
        for _ in range(3):
            decoder.update(context, episode(M, 15, rng), machine=f"m{i}")
    assert decoder.deviations.any()
    task = Task.of(StationaryCost(np.eye(2), [[0.1]]), target={"state 1": 1.0})
    program = Program(c_file(decoder, task, hedge=3.0).source, tmp_path, *SANITIZED)
    for inertia in (0.6, 0.9, 1.3, 1.9):
        belief = decoder.machine({"inertia": inertia})
        gain, plain = (Controller.of(belief, task, hedge).gain.ravel() for hedge in (3.0, 0.0))
        ((status, found),) = program([("c", [inertia])])
        assert status == "ok"
        np.testing.assert_allclose(found, gain, rtol=1e-9)
        assert np.abs(gain / plain - 1).max() > 0.01


@pytest.mark.parametrize("name", ["features", "outputs", "late inputs and weather"])
def test_a_file_for_one_machine_equals_the_library(name: str, tmp_path: Path) -> None:
    """It holds the gain, and solves no equation but that of rest."""
    case, rng = cases()[name], default_rng(6)
    decoder, task = case.learnt(default_rng(3)), case.task()
    machine = Controller.of(decoder.machine({"a": 1.2, "b": 0.1}), task, case.hedge)
    made = c_file(decoder, task, machine=(machine, "number 7"))
    assert "Control of one machine, number 7." in made.source
    assert "riccati" not in made.source
    asked, wanted = [("c", ())], [("ok", machine.gain.ravel())]
    for step in range(60):
        if step % 10 == 7:
            target = task.target + 0.3 * rng.standard_normal(len(task.held))
            asked.append(("t", target))
            wanted.append(_retargeted(machine, target))
        seen = 3 * rng.standard_normal(len(task.seen))
        asked.append(("s", seen))
        wanted.append(("ok", machine.input(seen)))
    answers = Program(made.source, tmp_path, *SANITIZED)(asked)
    for (said, numbers), (status, ours) in zip(answers, wanted, strict=True):
        assert said == status
        if ours is not None:
            np.testing.assert_allclose(numbers, ours, rtol=1e-9, atol=1e-9)


def test_two_files_in_one_program(tmp_path: Path) -> None:
    """With prefixes of their own nothing collides: neither names nor constants."""
    case = cases()["blocks"]
    decoder, task = case.learnt(default_rng(3)), case.task()
    for name in ("left", "right_Arm"):
        made = c_file(decoder, task, header=f"{name}.h", prefix=name)
        assert made.header is not None
        (tmp_path / f"{name}.c").write_text(made.source)
        (tmp_path / f"{name}.h").write_text(made.header)
    both = """
        #include "left.h"
        #include "right_Arm.h"
        int main(void) {
          left a; right_Arm b;
          const double context[LEFT_CONTEXTS] = {1.2, 0.1};
          left_init(&a); right_Arm_init(&b);
          if (left_context(&a, context) != LEFT_OK) return 1;
          if (right_Arm_context(&b, context) != RIGHT_ARM_OK) return 2;
          return a.gain[0] == b.gain[0] ? 0 : 3;
        }
    """
    (tmp_path / "main.c").write_text(both)
    sources = ["main.c", "left.c", "right_Arm.c"]
    command = [str(COMPILER), *STRICT, *sources, "-o", "both", "-lm"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([tmp_path / "both"], check=False).returncode == 0
    for bad in ("7up", "a-b", "", "int"):
        with pytest.raises(InputError, match="names in C begin with a letter"):
            c_file(decoder, task, prefix=bad)


def _retargeted(made: Controller, target: Any) -> tuple[str, Any]:
    try:
        made.set_target(target)
    except InputError:
        return "not held", None
    return "ok", made.rest[1]


def test_floats_do_nearly_the_same(tmp_path: Path) -> None:
    case, rng = cases()["offsets"], default_rng(4)
    decoder, task = case.learnt(rng), case.task()
    made = c_file(decoder, task, single=True)
    program = Program(made.source, tmp_path)
    context = {name: (low + high) / 2 + 0.1 for name, (low, high) in case.bounds.items()}
    controller = Controller(decoder.machine(context), case.cost, **case.options)
    (status, gain), (_, u) = program([("c", list(context.values())), ("s", [0.2, 0.1])])
    assert status == "ok"
    np.testing.assert_allclose(gain, controller.gain.ravel(), rtol=1e-3)
    np.testing.assert_allclose(u, controller.input([0.2, 0.1]), rtol=1e-3)
    assert made.counts.data_bytes < 0.6 * c_file(decoder, task).counts.data_bytes


def test_what_cannot_be_answered_leaves_everything_as_it_was(compiled: Any) -> None:
    _, program = compiled("features")
    inside, state = [1.25, 0.0], [0.1, 0.2, -0.3]
    answers = program(
        [
            ("s", state),
            ("c", inside),
            ("s", state),
            ("c", [np.nan, 0.0]),
            ("c", [3.0, 0.0]),
            ("t", [np.inf, 0.0]),
            ("t", [1e6, 0.0]),
            ("s", [np.nan, 0.0, 0.0]),
            ("r", ()),
            ("s", state),
        ]
    )
    statuses = ["not ready", "ok", "ok", "not finite", "out of bounds", "not finite", "not held"]
    assert [said for said, _ in answers] == [*statuses, "not finite", "ok"]
    numbers = [found for _, found in answers]
    np.testing.assert_array_equal(numbers[0], 0.0)
    np.testing.assert_array_equal(numbers[3], numbers[1])  # the gain
    np.testing.assert_array_equal(numbers[4], numbers[1])
    np.testing.assert_array_equal(numbers[7], numbers[2])  # the last input, and the same again
    np.testing.assert_array_equal(numbers[8], numbers[2])


@pytest.mark.parametrize("name", cases())
def test_the_stack_is_no_larger_than_said(name: str, tmp_path: Path) -> None:
    case = cases()[name]
    decoder, task = case.learnt(default_rng(0)), case.task()
    made = c_file(decoder, task, hedge=case.hedge, header="controller.h")
    assert made.header is not None
    (tmp_path / "controller.c").write_text(made.source)
    (tmp_path / "controller.h").write_text(made.header)
    strict = [*STRICT, "-fstack-usage", "-c", "controller.c"]
    done = subprocess.run(
        [str(COMPILER), *strict], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if "stack-usage" in done.stderr:
        pytest.skip("this compiler does not tell")
    assert (done.returncode, done.stderr) == (0, "")
    told = (tmp_path / "controller.su").read_text().splitlines()
    used = {line.split("\t")[0].split(":")[-1]: int(line.split("\t")[1]) for line in told}
    of = Counter(used)
    riccati = of["riccati"] + of["riccati_step"] + of["solve"]
    gain = of["stationary_gain"] + of["hedge"] + max(of["value"] + of["decays"], riccati)
    deepest = max(gain, of["covariances"], of["find_rest"] + of["slopes"] + of["at_rest"])
    deepest = max(deepest, of["score"])
    assert used["controller_context"] + deepest <= made.counts.stack_bytes


def test_a_map_with_a_function_of_your_own_is_refused() -> None:
    function = FunctionContext(
        lambda c: np.eye(2) * c["a"], states=1, inputs=1, bounds={"a": (1, 2)}
    )
    feature = FeatureContext({"own": lambda c: c["a"]}, states=1, inputs=1, bounds={"a": (1, 2)})
    for own in (function, feature):
        decoder = Decoder(own, 1e-3)
        task = Task.of(StationaryCost([[1.0]], [[1.0]]))
        with pytest.raises(InputError, match="has learnt from no log"):
            c_file(decoder, task)
        decoder.update({"a": 1.5}, Trajectory([[1.0], [0.5], [0.2]], [[0.1], [0.2]]))
        with pytest.raises(InputError, match="a function of your own, which cannot be written in"):
            c_file(decoder, task)


def test_the_law_is_that_of_a_machine_never_seen() -> None:
    """Also where machines deviate from it, which changes what is believed of the law."""
    decoder, _ = learnt(12, 0.3, default_rng(1), episodes=3)
    assert decoder.deviations.any()
    context = {"inertia": 1.1}
    G = decoder.context_map.matrix(context)
    np.testing.assert_allclose(believed_law(decoder) @ G, decoder.machine(context).mean, rtol=1e-12)
