"""`contextual-lqr play`: what it prints, and how it fails."""

import json
from typing import get_args

import pytest

from command import COMMAND, output, run
from contextual_lqr import InputError
from contextual_lqr.cli.play import FleetName, StrategyName
from contextual_lqr.envs.inverted_pendulum import inverted_pendulum
from contextual_lqr.fleets import FLEETS, heating, path_following
from contextual_lqr.fleets.watch import STRATEGIES, episodes


def test_the_command_knows_every_fleet_and_strategy() -> None:
    assert get_args(FleetName) == (*FLEETS, "inverted-pendulum")
    assert get_args(StrategyName) == tuple(STRATEGIES)


def test_the_table_and_the_json_say_the_same() -> None:
    arguments = ["play", "--fleet", "path-following", "--episodes", "1", "--adapt", "episode"]
    text, facts = output(*arguments), json.loads(output(*arguments, "--json"))
    assert max(map(len, text.splitlines())) <= 80
    assert [fact["episode"] for fact in facts] == [1]
    for fact in facts:
        assert f"{fact['cost']:.3g}" in text
        assert set(fact["context"]) == {"mass"}
        assert fact["steps"] == 19
        assert fact["cost"] > 0.5 * fact["optimum"]


def test_learning_is_seen() -> None:
    fleet = path_following()
    played = list(episodes(fleet, number=5, adapt="episode"))
    assert played[-1].unseen < 0.05 < played[0].unseen
    assert played[-1].cost < played[0].cost
    again = list(episodes(fleet, number=5, adapt="episode"))
    assert [one.cost for one in again] == [one.cost for one in played]


def test_the_engines_pendulum_can_be_watched() -> None:
    one = next(episodes(inverted_pendulum(), number=1, adapt="episode"))
    assert one.optimum is None
    assert 1 <= one.unseen <= 250


def test_what_is_wrong_is_said() -> None:
    done = run(COMMAND, "play", "--fleet", "boat")
    assert (done.returncode, done.stdout) == (2, "")
    assert "boat" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_wrong_name_is_refused_in_python_too() -> None:
    with pytest.raises(InputError, match="the strategies are cautious"):
        next(episodes(heating(), strategy="hope"))
    with pytest.raises(InputError, match="at least 1 episode"):
        next(episodes(heating(), number=0))
    with pytest.raises(InputError, match="seed must be at least 0"):
        next(episodes(heating(), seed=-1))
