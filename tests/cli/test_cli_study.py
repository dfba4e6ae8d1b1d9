"""A study from the command line: what is asked can be played, what is told is learnt."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contextual_lqr import Study, Trajectory, cli
from contextual_lqr.data import TEMPLATE
from contextual_lqr.study.learner import agent_bytes


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("fleet.toml").write_text(TEMPLATE)

    def run(line: str, code: int = 0) -> str:
        capsys.readouterr()
        try:
            cli.main(["study", *line.split()])
            found = 0
        except SystemExit as left:
            found = int(left.code or 0)
        said = capsys.readouterr()
        assert found == code, said.err
        return said.err if code else said.out

    assert "is started" in run("create fleet.db fleet.toml")
    return run


def _play(plan: dict[str, Any]) -> tuple[Any, Any]:
    x, states, inputs = np.array([1.0, 0.0]), [[1.0, 0.0]], []
    for K, offset in zip(plan["gains"], plan["offsets"], strict=True):
        u = np.clip(np.array(K) @ x + offset, plan["low"], plan["high"])
        x = np.array([x[0] + 0.05 * x[1], x[1] + 0.05 * u[0] / plan["context"]["mass"]])
        states.append(x.tolist())
        inputs.append(u.tolist())
    return states, inputs


def test_a_machine_asks_plays_and_tells_and_another_study_takes_it_over(call: Any) -> None:
    plan = json.loads(call("ask fleet.db --context mass=2 --machine M-1 --key one --json"))
    assert (plan["key"], plan["states"]) == ("one", ["position", "velocity"])
    assert plan == json.loads(call("ask fleet.db --context mass=2 --machine M-1 --key one --json"))
    assert "1 out, 0 late" in call("status fleet.db")
    states, inputs = _play(plan)
    rows = [[*x, *u] for x, u in zip(states, [*inputs, [""]], strict=True)]
    text = "\n".join(",".join(map(str, row)) for row in rows)
    Path("played.csv").write_text(f"position,velocity,force\n{text}\n")
    assert call("tell fleet.db played.csv --ask one") == "episode 1: 29 steps\n"
    Path("played.json").write_text(json.dumps({"states": states, "inputs": inputs}))
    told = json.loads(call("tell fleet.db played.json --ask one --json"))
    assert told == {"number": 1, "new": False}  # the table and the JSON are the same episode
    assert json.loads(call("status fleet.db --json"))["machines"] == {"M-1": 1}
    call("tell fleet.db played.json --context mass=3 --key two")
    assert "2 episodes" in call("export fleet.db -o all.jsonl")
    call("create copy.db fleet.toml")
    assert json.loads(call("import copy.db all.jsonl --json")) == {"new": 2, "known": 0}
    assert json.loads(call("import copy.db all.jsonl --json")) == {"new": 0, "known": 2}
    with Study.open("sqlite:///fleet.db") as one, Study.open("sqlite:///copy.db") as other:
        ours, its = (agent_bytes(each._learner.agent) for each in (one, other))
    assert ours == its
    assert "finished asks dropped: 1" in call("compact fleet.db")
    text = call("ask fleet.db --context mass=2 --start position=2,velocity=0 --machine M-1")
    assert "u = K x + dither" in text
    assert "and 24 more steps" in text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ask fleet.db", "say which machine: --context mass=value"),
        ("ask fleet.db --context mas=2", "there is no context 'mas'"),
        ("ask fleet.db --context mass=2 --start speed=1", "there is no start 'speed'"),
        ("ask fleet.db --context mass=2 --lease -1", "for --lease. Must be > 0"),
        ("ask fleet.toml --context mass=2", "file is not a database"),
        ("tell fleet.db fleet.csv --context mass=2", "lacks the column 'velocity', 'force'"),
        ("tell fleet.db holes.csv --context mass=2", "row 2 of 'force' is not a finite number"),
        ("tell fleet.db short.csv --context mass=2", "has 1 rows, but an episode has at least two"),
        ("tell fleet.db odd.json --context mass=2", "odd.json is not JSON"),
        ("tell fleet.db list.json --context mass=2", 'must be JSON as {"states"'),
        ("tell fleet.db list.json --context mass=2 --ask x", "give --ask, or the --context"),
        ("tell fleet.db wide.json --context mass=2", "an episode here has states (H, 2)"),
        ("tell fleet.db good.json --ask none", "nobody asked under the key"),
        ("import fleet.db odd.json", "line 1 is not JSON"),
        ("import fleet.db list.json", "line 1: record must be a Mapping"),
        ("status .", "it is a folder"),
        ("status nosuch://x", "needs a driver"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(line: str, said: str, call: Any) -> None:
    Path("fleet.csv").write_text("position\n1\n2\n")
    Path("holes.csv").write_text("position,velocity,force\n1,2,3\n1,2,\n1,2,3\n")
    Path("short.csv").write_text("position,velocity,force\n1,2,3\n")
    Path("odd.json").write_text("{")
    Path("list.json").write_text("[1]")
    Path("wide.json").write_text(json.dumps({"states": [[1], [2]], "inputs": [[1]]}))
    Path("good.json").write_text(json.dumps({"states": [[1, 2], [2, 3]], "inputs": [[1]]}))
    code = 1 if "database" in said else 2
    assert said in call(line, code)
    assert json.loads(call("status fleet.db --json"))["episodes"] == 0


def test_a_key_that_is_taken(call: Any) -> None:
    with Study.open("sqlite:///fleet.db") as study:
        study.tell({"mass": 1.0}, Trajectory([[1, 0], [1, 1]], [[1]]), key="run")
    Path("good.json").write_text(json.dumps({"states": [[1, 2], [2, 3]], "inputs": [[1]]}))
    assert "the key 'run' belongs to episode 1" in call(
        "tell fleet.db good.json --context mass=1 --key run", 2
    )
