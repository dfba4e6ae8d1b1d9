"""`contextual-lqr export`."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.random import default_rng

from c_program import COMPILER, SANITIZED, Program
from command import COMMAND, run
from contextual_lqr import Controller, InputError
from contextual_lqr.cli.export import export
from contextual_lqr.data import FittedFleet, FleetDescription, fit
from fleet_logs import CARTS, cart_rows, write


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    log = write(cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=20), folder / "a.csv")
    text = CARTS.replace("R = [0.01] ", 'integral = ["position"]\nR = [0.01] ')
    fit(FleetDescription.parse(text), log, alarm=False).save(folder / "fleet.decoder")
    return folder / "fleet.decoder"


def test_it_says_what_the_file_needs(decoder: Path) -> None:
    folder = decoder.parent
    done = run(COMMAND, "export", decoder, "-o", folder / "cart.c", "--header", "--float", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["written"] == [str(folder / "cart.c"), str(folder / "cart.h")]
    assert told["step_operations"] == 6
    assert 0 < told["data_bytes"] < told["stack_bytes"]
    assert '#include "cart.h"' in (folder / "cart.c").read_text()
    assert "typedef float controller_real;" in (folder / "cart.h").read_text()


def test_json_has_the_model(decoder: Path) -> None:
    path = decoder.parent / "model.json"
    export(decoder, output=path, context=["mass=2"])
    model, fitted = json.loads(path.read_text()), FittedFleet.load(decoder)
    system = fitted.decoder.machine({"mass": 2.0}).system
    np.testing.assert_array_equal(model["A"], system.A)
    np.testing.assert_array_equal(model["B"], system.B)
    np.testing.assert_array_equal(model["gain"], fitted.controller({"mass": 2.0}).gain)
    G = fitted.decoder.context_map.matrix({"mass": 2.0})
    np.testing.assert_allclose(np.array(model["theta"]) @ G, np.hstack((system.A, system.B)))
    assert model["theta_columns"][-1] == "1/mass · force"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"output": Path("gains.csv")}, "say what to write"),
        ({"output": Path("a.json"), "header": True}, "--header, --float and --prefix are for"),
        ({"output": Path("a.json"), "prefix": "cart"}, "--header, --float and --prefix are for"),
        ({"output": Path("a.c"), "prefix": "2nd"}, "names in C begin with a letter"),
        ({"output": Path("a.c"), "machine": "cart 77"}, "no data of a machine 'cart 77'"),
        ({"output": Path("a.c"), "context": ["mass=9"]}, "mass = 9 is outside its declared"),
        ({"output": Path("a.json"), "context": ["mass=9"]}, "mass = 9 is outside its declared"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: dict[str, object], said: str, decoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(decoder.parent)
    with pytest.raises(InputError, match=said):
        export(decoder, **arguments)  # type: ignore[arg-type]
    assert not Path("a.json").exists()
    assert not Path("a.c").exists()


@pytest.fixture(scope="module")
def odd_carts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Carts that deviate from the law so much that a backtest asks for a hedge."""
    rng, rows = default_rng(0), []
    for i, mass in enumerate(np.linspace(0.6, 4.8, 15)):
        own = [0.2 * rng.normal(), 0.2 * rng.normal(), 0.03 * rng.normal()]
        for episode in range(3):
            x = rng.normal(size=2)
            for step in range(16):
                u = 3 * rng.normal()
                rows.append((f"cart {i}", 3 * i + episode, step, *x, u, mass))
                push = (own[0], 0.95 + own[1], 0.1 / mass + own[2]) @ np.array([*x, u])
                x = np.array([x[0] + 0.1 * x[1], push + 0.01 * rng.normal()])
    names = ["machine", "episode", "step", "position", "velocity", "force", "mass"]
    log = pl.DataFrame(rows, schema=names, orient="row")
    folder = tmp_path_factory.mktemp("odd")
    text = CARTS.replace("R = [0.01] ", "R = [0.3] ").replace("horizon = 30 ", "")
    fit(FleetDescription.parse(text), write(log, folder / "a.csv"), alarm=False).save(
        folder / "fleet.decoder"
    )
    return folder / "fleet.decoder"


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_gains_are_those_of_design(odd_carts: Path, tmp_path: Path) -> None:
    """Hedged, of a machine with data of its own, and of one never seen at the same context."""
    fitted, label, mass = FittedFleet.load(odd_carts), "cart 4", float(np.linspace(0.6, 4.8, 15)[4])
    export(odd_carts, output=tmp_path / "one.c", machine=label)
    export(odd_carts, output=tmp_path / "all.c")
    designed = fitted.design({"mass": mass}, machine=label, bounds=False, draws=2).policy.gain
    source = (tmp_path / "one.c").read_text()
    assert "CONTROLLER_CONTEXTS" not in source
    assert "cart 4: mass" in source
    (found,) = Program(source, tmp_path)([("c", [])])
    assert found[0] == "ok"
    np.testing.assert_allclose(found[1], designed.ravel(), rtol=1e-9)
    (zero_shot,) = Program((tmp_path / "all.c").read_text(), tmp_path)([("c", [mass])])
    never_seen = fitted.design({"mass": mass}, bounds=False, draws=2).policy.gain
    np.testing.assert_allclose(zero_shot[1], never_seen.ravel(), rtol=1e-9)
    plain = Controller.of(fitted.decoder.machine({"mass": mass}), fitted.description.control_task())
    assert fitted.hedge() > 0
    assert np.abs(zero_shot[1] / plain.gain.ravel() - 1).max() > 1e-3
    assert np.abs(designed / never_seen - 1).max() > 1e-2


OUTPUTS = """
[outputs]
position = "m"
history = 3
[inputs]
force = { unit = "N", low = -8.0, high = 8.0 }
[contexts]
mass = { low = 0.5, high = 5.0 }
[context_map]
kind = "features"
features = ["1", "1/mass"]
[task]
[cost]
Q = { position = 1.0 }
R = [0.01]
target = { position = 0.5 }
integral = ["position"]
[learning]
noise_level = 0.01
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_a_fleet_of_outputs_is_given_outputs(tmp_path: Path) -> None:
    """In Python and in C, which remember the rest; a lost measurement repeats the input."""
    log = write(cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=60).drop("velocity"), tmp_path / "a.csv")
    path = tmp_path / "fleet.decoder"
    fit(FleetDescription.parse(OUTPUTS), log, alarm=False).save(path)
    export(path, output=tmp_path / "a.c")
    program = Program((tmp_path / "a.c").read_text(), tmp_path, *SANITIZED)
    controller = FittedFleet.load(path).controller({"mass": 1.7})
    outputs = default_rng(0).normal(size=(40, 1))
    asked = [("c", [1.7]), *(("s", y) for y in outputs), ("s", [np.nan]), ("s", outputs[0])]
    (_, gain), *answers = program(asked)
    np.testing.assert_allclose(gain, controller.gain.ravel(), rtol=1e-9)
    ours = [controller.input(y) for y in outputs]
    np.testing.assert_allclose([u for _, u in answers[:40]], ours, rtol=1e-9, atol=1e-9)
    assert answers[40][0] == "not finite"
    np.testing.assert_allclose(answers[40][1], ours[-1], rtol=1e-9)
    np.testing.assert_allclose(answers[41][1], controller.input(outputs[0]), rtol=1e-9)
    controller.reset()
    np.testing.assert_allclose(
        program([("c", [1.7]), ("s", outputs[5])])[1][1], controller.input(outputs[5])
    )
