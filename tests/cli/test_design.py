"""The commands design, simulate and advise, on a fitted fleet of carts."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from command import COMMAND, run
from contextual_lqr import InputError, Trajectory, certify, policy_cost
from contextual_lqr.certificates.prediction import predict_closed_loop
from contextual_lqr.cli.advise import advise
from contextual_lqr.cli.design import design
from contextual_lqr.cli.machines import one_machine, read_machines
from contextual_lqr.cli.simulate import simulate
from contextual_lqr.data import FittedFleet, FleetDescription
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem
from fleet_logs import CARTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted fleet, one that has learnt nothing, and tables of machines."""
    folder = tmp_path_factory.mktemp("carts")
    fitted = FittedFleet.new(FleetDescription.parse(CARTS))
    fitted.save(folder / "empty.decoder")
    rng, n = default_rng(0), 25
    masses = rng.uniform(1, 4, n)
    x, u = np.zeros((n, 30, 2)), np.zeros((n, 29, 1))
    x[:, 0] = [1, 0]
    for h in range(29):
        u[:, h, 0] = -2 * x[:, h].sum(-1) + 2 * rng.standard_normal(n)
        x[:, h + 1, 0] = x[:, h, 0] + 0.1 * x[:, h, 1]
        x[:, h + 1, 1] = 0.98 * x[:, h, 1] + 0.1 / masses * u[:, h, 0]
        x[:, h + 1] += 0.01 * rng.standard_normal((n, 2))
    fitted.decoder.update_many({"mass": masses}, Trajectory(x, u))
    fitted.context_range = {"mass": (1.0, 4.0)}
    fitted.save(folder / "fleet.decoder")
    rows = "".join(f"unit-{i},{0.5 + i / 4},red\n" for i in range(25))
    (folder / "machines.csv").write_text("machine,mass,colour\n" + rows)
    return folder


def test_one_machine_in_the_terminal(folder: Path) -> None:
    done = run(COMMAND, "design", str(folder / "fleet.decoder"), "--context", "mass=2.0")
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    for words in ("mass 2 kg", "trust", "inside the data", "predicted cost", "position"):
        assert words in done.stdout


@pytest.mark.parametrize("mass", ["-2", "0.49", "7", "1e308"])
def test_a_machine_outside_the_declared_bounds_is_not_trusted(
    mass: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    design(folder / "fleet.decoder", context=[f"mass={mass}"], as_json=True, draws=20, quick=True)
    (machine,) = json.loads(capsys.readouterr().out)["machines"]
    assert machine["verdict"] in ("caution", "do not use")
    bound = f"mass = {float(mass):g} is outside its declared bounds, 0.5 to 5"
    assert machine["reason"].startswith(f"{bound}; ")
    design(folder / "fleet.decoder", context=[f"mass={mass}"], draws=20, quick=True)
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(bound) == 1


def test_what_is_said_of_such_a_machine_names_the_bound(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = folder / "fleet.decoder"
    bound = "mass = 5.000001 is outside its declared bounds, 0.5 to 5"
    (tmp_path / "machines.csv").write_text("mass\n5.000001\n2\n")
    for as_json in (False, True):
        simulate(fleet, context=["mass=5.000001"], runs=5, as_json=as_json)
        assert " ".join(capsys.readouterr().out.split()).count(bound) == 1
        advise(fleet, candidates=tmp_path / "machines.csv", as_json=as_json)
        assert " ".join(capsys.readouterr().out.split()).count(bound) == 1
    simulate(fleet, context=["mass=5"], runs=5)
    assert "outside" not in capsys.readouterr().out


def test_a_force_beyond_its_declared_limit_is_not_trusted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = FittedFleet.load(folder / "fleet.decoder")
    weak = CARTS.replace("low = -50.0, high = 50.0", "low = -5.0, high = 5.0")
    fitted.description = FleetDescription.parse(weak)
    fitted.save(folder / "weak.decoder")
    design(folder / "weak.decoder", contexts=folder / "machines.csv", as_json=True, draws=20)
    machines = json.loads(capsys.readouterr().out)["machines"]
    limited = [one for one in machines if "its limit is -5" in one["reason"]]
    assert limited
    assert all(one["verdict"] != "trust" for one in limited)
    assert all("force would reach -" in one["reason"] for one in limited)
    design(folder / "fleet.decoder", contexts=folder / "machines.csv", as_json=True, draws=20)
    free = json.loads(capsys.readouterr().out)["machines"]
    assert {one["machine"] for one in free if one["verdict"] == "trust"} & {
        one["machine"] for one in limited
    }


def test_json_is_what_the_library_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    design(folder / "fleet.decoder", context=["mass=2.0"], as_json=True, draws=50)
    whole = json.loads(capsys.readouterr().out)
    fitted = FittedFleet.load(folder / "fleet.decoder")
    task = fitted.description
    one = certify(
        fitted.decoder,
        {"mass": 2.0},
        task.cost,
        task.start,
        beta="regression",
        draws=50,
        input_bounds={"force": (-50.0, 50.0)},
    )
    machine = whole["machines"][0]
    assert machine["verdict"] == one.verdict == "trust"
    assert machine["lower_cost"] == pytest.approx(one.lower.certified)
    assert machine["upper_cost"] == pytest.approx(one.upper.certified)
    np.testing.assert_allclose(machine["gains"], one.policy.gains)
    assert (whole["states"], whole["inputs"]) == (["position", "velocity"], ["force"])
    truth = LinearSystem([[1, 0.1], [0, 0.98]], [[0], [0.05]], 1e-4 * np.eye(2))
    policy = LinearPolicy(machine["gains"])
    paid = policy_cost(policy, truth, task.cost, task.start)
    assert machine["lower_cost"] <= paid <= machine["upper_cost"]


def test_tables_of_machines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet, table = folder / "fleet.decoder", folder / "machines.csv"
    design(fleet, contexts=table, csv=True, quick=True, draws=20)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 25
    assert rows[3]["machine"] == "unit-3"
    assert float(rows[3]["mass"]) == 1.25
    assert rows[0]["beyond_logs"] == "mass"
    assert rows[0]["certified"] == "false"
    assert rows[3]["upper_cost"] == ""  # nothing is certain with --quick

    out = folder / "designed.npz"
    design(fleet, contexts=table, output=out, quick=True, draws=20)
    arrays = np.load(out)
    assert arrays["gains"].shape == (25, 29, 1, 2)
    assert float(rows[3]["K2.force.velocity"]) == pytest.approx(arrays["gains"][3, 1, 0, 1])
    assert arrays["predicted_cost"].dtype == np.float64
    assert "25 machines" in capsys.readouterr().err

    design(fleet, contexts=table, quick=True, draws=20, horizon=10)
    text = capsys.readouterr().out
    assert "and 5 more" in text
    assert "not proven" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"context": ["mas=2"]}, "there is no context 'mas'"),
        ({"context": ["mass"]}, "written name=value"),
        ({"context": ["mass=two"]}, "must be a number, not 'two'"),
        ({"context": ["mass=1", "mass=2"]}, "given twice"),
        ({"context": ["mass=inf"]}, "must be finite"),
        ({"context": ["mass=0"]}, "'1/mass' is inf"),
        ({}, "say which machine"),
        ({"context": ["mass=1"], "contexts": Path("x.csv")}, "say which machine"),
        ({"contexts": Path("nowhere.csv")}, "no file nowhere.csv"),
        ({"context": ["mass=1"], "as_json": True, "csv": True}, "one format at a time"),
        ({"context": ["mass=1"], "npz": True}, "--npz writes arrays to a file"),
        ({"context": ["mass=1"], "output": Path("x.txt")}, "say the format of x.txt"),
        ({"context": ["mass=1"], "horizon": 1}, "horizon must be"),
        ({"context": ["mass=1"], "output": Path("no/where.json"), "draws": 2}, "cannot write"),
    ],
)
def test_what_design_refuses(folder: Path, options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        design(folder / "fleet.decoder", **options)


def test_a_fleet_without_logs_is_refused(folder: Path) -> None:
    for command in (design, simulate):
        with pytest.raises(InputError, match="has learnt from no log yet"):
            command(folder / "empty.decoder", context=["mass=1"])
    with pytest.raises(InputError, match="no file"):
        design(folder / "missing.decoder", context=["mass=1"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("machine,weight\na,1\n", "lacks the column 'mass'"),
        ("mass\n", "names no machine"),
        ("mass\n1\nheavy\n", "row 2 of 'mass' is 'heavy', which is not a finite number"),
        ("mass,b\n1,2\n,3\n", "row 2 of 'mass' is missing"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_machines(tmp_path / "bad.csv", FleetDescription.parse(CARTS))


def test_a_table_in_the_units_of_the_logs_is_converted_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The headings of the logs have their units; what is typed has those of the description."""
    pounds = CARTS + "\n[columns]\nmass = { column = 'mass', factor = 0.5 }\n"
    (tmp_path / "pounds.csv").write_text("machine;mass\n007;4,5\n")
    found = read_machines(tmp_path / "pounds.csv", FleetDescription.parse(pounds))
    assert (found.contexts["mass"].tolist(), found.labels) == ([2.25], ["007"])
    said = capsys.readouterr().err
    assert "'mass' is in the unit of the logs: mass is 0.5 times it, as [columns] says" in said
    assert one_machine(["mass=4.5"], ["mass"]) == {"mass": 4.5}


def test_contexts_with_commas() -> None:
    found = one_machine(["mass=2.0, length=1", "speed=3e1"], ["mass", "length", "speed"])
    assert found == {"mass": 2.0, "length": 1.0, "speed": 30.0}
    with pytest.raises(InputError, match="lacks 'length'"):
        one_machine(["mass=1"], ["mass", "length"])


def test_simulate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix, begins in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        out = folder / f"loop.{suffix}"
        simulate(folder / "fleet.decoder", context=["mass=2"], runs=50, output=out)
        assert out.read_bytes().startswith(begins)
    text = capsys.readouterr().out
    assert "position [m]" in text.replace("\n", " ")
    assert max(map(len, text.splitlines())) <= 80
    simulate(folder / "fleet.decoder", context=["mass=2"], runs=50, as_json=True)
    whole = json.loads(capsys.readouterr().out)
    band = whole["quantities"]["position [m]"]
    assert len(band["low"]) == 30
    assert (np.array(band["low"]) <= band["median"]).all()
    assert (np.array(band["median"]) <= band["high"]).all()
    with pytest.raises(InputError, match=r"must be a \.png or \.svg"):
        simulate(folder / "fleet.decoder", context=["mass=2"], output=Path("x.pdf"))


def test_the_band_holds_the_true_machine(folder: Path) -> None:
    fitted = FittedFleet.load(folder / "fleet.decoder")
    task, rng = fitted.description, default_rng(3)
    seen = predict_closed_loop(
        fitted.decoder.machine({"mass": 2.0}), task.cost, task.start, rng, runs=2000
    )
    A, B = np.array([[1, 0.1], [0, 0.98]]), np.array([0, 0.05])
    x, inside = np.broadcast_to(task.start, (500, 2)), []
    for h, K in enumerate(seen.policy.gains):
        x = x @ A.T + (x @ K.T) * B + 0.01 * rng.standard_normal((500, 2))
        low, _, high = seen.states[:, h + 1]
        inside.append(((low <= x) & (x <= high)).mean())
    assert 0.85 < np.mean(inside) < 0.97
    middle = np.median(seen.costs)
    expected = certify(fitted.decoder, {"mass": 2.0}, task.cost, task.start, bounds=False, draws=2)
    assert middle == pytest.approx(expected.predicted_cost, rel=0.05)
    wild = predict_closed_loop(
        fitted.decoder.machine({"mass": 1e-9}), task.cost, task.start, rng, runs=50
    )
    assert np.isfinite(wild.states).all()


def test_advise(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet, table = folder / "fleet.decoder", folder / "machines.csv"
    advise(fleet, candidates=table, dither=0.5, as_json=True)
    whole = json.loads(capsys.readouterr().out)
    assert whole["blind"] == []
    savings = [one["saving"] for one in whole["candidates"]]
    assert len(savings) == 25
    assert savings == sorted(savings, reverse=True)
    advise(fleet, candidates=table, targets=table)
    text = capsys.readouterr().out
    assert "excite every direction" in text
    assert "unit-" in text
    advise(folder / "empty.decoder")
    assert "1/mass · force is never excited" in capsys.readouterr().out
