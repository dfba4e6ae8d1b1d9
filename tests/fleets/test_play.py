"""`contextual-lqr play`: what it prints, what it draws, and how it fails."""

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from command import COMMAND, output, run
from contextual_lqr import InputError
from contextual_lqr.cli.play import FleetName, StrategyName
from contextual_lqr.paper import watch
from contextual_lqr.paper.watch import (
    NAMES,
    STRATEGIES,
    Stage,
    animation_path,
    cost_along,
    episodes,
    frames,
)


def test_the_command_knows_every_fleet_and_strategy() -> None:
    assert get_args(FleetName) == NAMES
    assert get_args(StrategyName) == tuple(STRATEGIES)


def test_the_table_and_the_json_say_the_same(tmp_path: Path) -> None:
    arguments = ["play", "--fleet", "path-following", "--episodes", "1", "--adapt", "episode"]
    text = output(*arguments, "--render", str(tmp_path / "path.gif"))
    facts = json.loads(output(*arguments, "--json"))
    *table, written = text.splitlines()  # which names a long path, whole
    assert max(map(len, table)) <= 80
    assert written == f"{tmp_path / 'path.gif'}: 20 pictures"
    assert [fact["episode"] for fact in facts] == [1]
    for fact in facts:
        assert f"{fact['cost']:.3g}" in text
        assert set(fact["context"]) == {"mass"}
        assert fact["cost"] > 0.5 * fact["optimum"]
    with Image.open(tmp_path / "path.gif") as animation:
        assert animation.n_frames == 20
        assert animation.info["duration"] == watch.EACH
        assert animation.size == (480, 360)
    assert [path.name for path in tmp_path.iterdir()] == ["path.gif"]


def test_learning_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage("path-following")
    played = list(episodes(stage, number=5, adapt="episode"))
    assert played[-1].unseen < 0.05 < played[0].unseen
    assert played[-1].cost < played[0].cost
    again = list(episodes(stage, number=5, adapt="episode"))
    assert [one.cost for one in again] == [one.cost for one in played]
    monkeypatch.setattr(watch, "picture", lambda *arguments: arguments)
    drawn, times = zip(*frames(stage, played), strict=True)
    assert len(drawn) == 5 * 20  # all five episodes, all twenty states
    assert [len(states) for *_, states, _, _ in drawn] == 5 * list(range(1, 21))
    assert list(times) == 5 * ([watch.EACH] * 19 + [watch.PAUSE])  # each ends with a pause
    many = list(frames(stage, 30 * played[:1]))
    assert len({title for (*_, title), _ in many}) == 1
    assert len(many) == 8 * 20  # of many episodes, eight


def test_the_cost_of_an_episode_counts_every_stage() -> None:
    stage = Stage("vehicle")
    one = next(episodes(stage, strategy="certainty", number=1, adapt="episode"))
    x, u, cost = one.trajectory.states, one.trajectory.inputs, stage.fleet.cost
    total = x[-1] @ cost.Q[len(u)] @ x[-1]
    for h in range(len(u)):
        total += x[h] @ cost.Q[h] @ x[h] + u[h] @ cost.R[h] @ u[h]
    assert cost_along(stage.fleet, one.trajectory) == pytest.approx(total)


def test_the_engines_pendulum_can_be_watched() -> None:
    stage = Stage("inverted-pendulum")
    one = next(episodes(stage, number=1, adapt="episode"))
    assert one.optimum is None
    assert 1 <= one.unseen <= 250
    assert np.asarray(next(frames(stage, [one]))[0]).shape == (360, 480, 3)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--fleet", "boat"], 2, "boat"),
        (["--render", "nowhere/film.gif"], 2, "there is no folder nowhere"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], code: int, said: str) -> None:
    done = run(COMMAND, "play", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_wrong_name_is_refused_in_python_too() -> None:
    with pytest.raises(InputError, match="the fleets are path-following"):
        Stage("boat")
    with pytest.raises(InputError, match="the strategies are cautious"):
        next(episodes(Stage("heating"), strategy="hope"))
    with pytest.raises(InputError, match="at least 1 episode"):
        next(episodes(Stage("heating"), number=0))
    with pytest.raises(InputError, match="seed must be at least 0"):
        next(episodes(Stage("heating"), seed=-1))
    with pytest.raises(InputError, match=r"writes a \.gif"):
        animation_path("film.mp4")
