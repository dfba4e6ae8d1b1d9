"""`contextual-lqr export`."""

import json
from pathlib import Path

import numpy as np
import pytest

from command import COMMAND, run
from contextual_lqr import InputError
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
        ({"output": Path("a.json"), "header": True}, "--header and --float are for C"),
        ({"output": Path("a.c"), "context": ["mass=2"]}, "takes the context at run time"),
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
