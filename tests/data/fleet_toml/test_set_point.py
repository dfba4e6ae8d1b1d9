"""Targets and integrals in `fleet.toml`, and what `design` and `simulate` make of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command import COMMAND, run
from contextual_lqr import InputError
from contextual_lqr.data import DescriptionError, FittedFleet, FleetDescription, fit
from contextual_lqr.data.designing import retuned
from fleet_logs import CARTS, cart_rows, write

ENDLESS = CARTS.replace("horizon = 30", "# horizon = 30")


def described(text: str, cost: str) -> FleetDescription:
    return FleetDescription.parse(text.replace("[cost]", f"[cost]\n{cost}\n#", 1))


def test_a_set_point_is_by_name_or_for_all() -> None:
    one = described(ENDLESS, 'target = { position = 2.0 }\nintegral = ["position"]')
    assert one.set_point == {"position": 2.0}
    assert one.integral == {"position": None}
    assert one.control_task().held_names == ["position"]
    assert described(ENDLESS, "target = [2.0, 0]").set_point == {"position": 2.0, "velocity": 0.0}
    assert described(ENDLESS, "integral = { position = 0.5 }").integral == {"position": 0.5}


def test_a_set_point_of_episodes_is_a_target_of_every_step() -> None:
    text = CARTS.replace("[inputs]", "one = { constant = true }\n[inputs]")
    one = described(text, "target = { position = 2.0 }")
    np.testing.assert_array_equal(one.targets, [[2.0, 0.0, 0.0]] * 30)
    assert one.control_task().constants == [2]


@pytest.mark.parametrize(
    ("text", "cost", "said"),
    [
        (ENDLESS, "target = 1.0", "some states by name, or 2 numbers, not 1.0"),
        (ENDLESS, "target = { positon = 1.0 }", "target: there is no state 'positon' that moves"),
        (ENDLESS, "target = { position = nan }", "target of position must be a finite number"),
        (ENDLESS, 'target = "path.csv"', "a target that changes step by step needs a horizon"),
        (CARTS, "target = { position = 1.0 }", "a target needs a state that is always 1"),
        (ENDLESS, 'integral = ["speed"]', "integral: there is no state 'speed' that moves; there"),
        (ENDLESS, "integral = 3", "integral must be a list of names of states, or their weights"),
        (ENDLESS, "integral = { position = 0 }", "integral of position must be a finite number ab"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, cost: str, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        described(text, cost)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    log = write(cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=20), folder / "a.csv")
    task = described(ENDLESS, 'target = { position = 1.0 }\nintegral = ["position"]')
    fit(task, log, alarm=False).save(folder / "fleet.decoder")
    return folder / "fleet.decoder"


def asked(*arguments: Any) -> dict[str, Any]:
    done = run(COMMAND, *arguments, "--context", "mass=2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


def test_design_and_simulate_play_the_controller(decoder: Path) -> None:
    fitted = FittedFleet.load(decoder)
    whole = asked("design", decoder, "--quick")
    assert whole["gain_columns"] == ["position", "velocity", "integral of position"]
    (machine,) = whole["machines"]
    np.testing.assert_allclose(machine["gain"], fitted.controller({"mass": 2.0}).gain)
    assert machine["verdict"] == "trust"
    other = asked(
        "design", decoder, "--quick", "--target", "position=99", "--integral", "position=5"
    )
    assert "saturated_steps" in other["machines"][0]
    assert not np.allclose(other["machines"][0]["gain"], machine["gain"])
    assert asked("design", decoder, "--quick", "--integral", "none")["gain_columns"] == [
        "position",
        "velocity",
    ]
    seen = asked("simulate", decoder, "--runs", "20")["quantities"]
    assert abs(seen["position [m]"]["median"][-1] - 1.0) < 0.05


def test_what_no_input_can_hold_is_not_to_be_used(decoder: Path) -> None:
    whole = asked("design", decoder, "--quick", "--target", "velocity=1")
    assert whole["machines"][0]["verdict"] == "do not use"
    assert whole["machines"][0]["reason"].startswith("no input can hold velocity at 1, position at")
    fitted = FittedFleet.load(decoder)
    with pytest.raises(InputError, match="no input can hold position at 1, velocity at 3"):
        fitted.controller({"mass": 2.0}, target={"position": 1.0, "velocity": 3.0})
    with pytest.raises(InputError, match="mass = 7 is outside its declared bounds"):
        fitted.controller({"mass": 7.0})
    done = run(COMMAND, "design", decoder, "--context", "mass=2", "--integral", "sped")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no state 'sped' that moves" in done.stderr
    done = run(
        COMMAND, "design", decoder, "--context", "mass=2", "--horizon", "9", "--integral", "x"
    )
    assert "--integral is for machines that run continuously" in done.stderr


def test_the_terminal_says_where_the_machine_will_rest(decoder: Path) -> None:
    done = run(COMMAND, "design", decoder, "--quick", "--context", "mass=2")
    assert (done.returncode, done.stderr) == (0, "")
    said = " ".join(done.stdout.split())
    assert "u = u0 + K [x - x0; q]: x0 is 1, 0, u0 -0.00" in said
    assert ", q the integrals." in said
    plain = run(COMMAND, "design", decoder, "--quick", "--context", "mass=2", "--integral", "none")
    assert "u = u0 + K (x - x0): x0 is 1, 0" in " ".join(plain.stdout.split())


def test_an_episode_is_given_another_target_in_python() -> None:
    text = CARTS.replace("[inputs]", "one = { constant = true }\n[inputs]")
    task = FleetDescription.parse(text)
    held = retuned(task, target={"position": 2.0})
    np.testing.assert_array_equal(held.targets, [[2.0, 0.0, 0.0]] * 30)
    path = np.linspace(0, 1, 4)[:, None] * [1.0, 0.0, 0.0]
    followed = retuned(task, target=path, horizon=6)
    np.testing.assert_array_equal(followed.targets[:4], path)
    np.testing.assert_array_equal(followed.targets[4:], [path[-1]] * 2)  # the last row is held
    with pytest.raises(InputError, match="a target is for states: position, velocity"):
        retuned(task, target={"one": 2.0})
    with pytest.raises(InputError, match="needs a state that is always 1"):
        retuned(FleetDescription.parse(CARTS), target={"position": 2.0})
    with pytest.raises(InputError, match="one row per step needs a horizon"):
        retuned(FleetDescription.parse(ENDLESS), target=path)
