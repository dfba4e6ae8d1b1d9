"""The commands design and simulate for machines that have data of their own."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.random import default_rng

from command import COMMAND, command, run
from contextual_lqr import InputError, certify
from contextual_lqr.cli.backtest import backtest
from contextual_lqr.cli.design import design
from contextual_lqr.cli.simulate import simulate
from contextual_lqr.data import TEMPLATE, FittedFleet, FleetDescription, fit
from fleet_logs import cart_rows, write

STEPS = 12
MASSES = [round(float(mass), 3) for mass in np.geomspace(0.6, 4.5, 24)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Carts that do not quite obey their labels: each behaves as if it had another mass."""
    folder = tmp_path_factory.mktemp("carts")
    actual = {i: m * float(np.exp(0.3 * x)) for i, (m, x) in enumerate(_off())}
    log = write(cart_rows(MASSES, actual=actual, steps=STEPS), folder / "log.parquet")
    # One label with two contexts, and episodes of nobody.
    more = cart_rows([1.0, 2.0], 1, steps=STEPS, first=100)
    again = write(more.with_columns(machine=pl.lit("loaded")), folder / "again.parquet")
    fit(FleetDescription.parse(TEMPLATE), [log, again]).save(folder / "fleet.decoder")
    return folder / "fleet.decoder"


def _off() -> list[tuple[float, float]]:
    return list(zip(MASSES, default_rng(5).standard_normal(len(MASSES)).tolist(), strict=True))


def test_design_for_a_label_is_the_certificate_given_its_own_data(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    design(fleet, machine="cart 3", as_json=True, draws=50)
    (machine,) = json.loads(capsys.readouterr().out)["machines"]
    fitted, context = FittedFleet.load(fleet), {"mass": MASSES[3]}
    assert machine["context"] == context  # looked up
    assert machine["machine"] == "cart 3"
    assert machine["own_rows"] == 2 * (STEPS - 1)
    task = fitted.description
    own, new = (
        certify(
            *(fitted.decoder, context, task.cost, task.start),
            machine=label,
            beta="regression",
            draws=50,
            rng=default_rng(0),
        )
        for label in ("cart 3", None)
    )
    np.testing.assert_array_equal(machine["gains"], own.policy.gains)
    assert machine["likely_excess"] == own.likely_excess < new.likely_excess
    design(fleet, machine="cart 3", context=[f"mass={MASSES[3]}"], as_json=True, draws=50)
    assert json.loads(capsys.readouterr().out)["machines"] == [machine]
    design(fleet, context=[f"mass={MASSES[3]}"], as_json=True, draws=50)
    (unseen,) = json.loads(capsys.readouterr().out)["machines"]
    assert unseen["own_rows"] == 0
    np.testing.assert_array_equal(unseen["gains"], new.policy.gains)


def test_the_terminal_says_how_many_rows_were_its_own(fleet: Path) -> None:
    done = run(COMMAND, "design", fleet, "--machine", "cart 3", "--quick", "--draws", "20")
    assert (done.returncode, done.stderr) == (0, "")
    said = " ".join(done.stdout.split())
    assert f"cart 3: mass {MASSES[3]:g} kg" in said
    assert "own data 22 rows of its own" in said


def test_a_table_uses_the_data_of_those_it_knows(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "machines.csv"
    nearly = MASSES[5] * (1 + 1e-12)  # written down by something that rounds
    table.write_text(
        f"machine,mass\ncart 3,{MASSES[3]}\nnew,{MASSES[3]}\ncart 3,2.5\ncart 5,{nearly}\n,2\n"
    )
    design(fleet, contexts=table, csv=True, quick=True, draws=20)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["own_rows"] for row in rows] == ["22", "0", "0", "22", "0"]
    assert [row["machine"] for row in rows] == ["cart 3", "new", "cart 3", "cart 5", ""]
    gains = [row["K1.force.position"] for row in rows]
    assert gains[0] != gains[1]
    design(fleet, contexts=table, quick=True, draws=20)
    assert "2 of them have data of their own, 44 rows in all" in capsys.readouterr().out


def test_simulate_for_a_label(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for label in ("cart 3", None):
        context = None if label else [f"mass={MASSES[3]}"]
        simulate(fleet, machine=label, context=context, as_json=True, runs=200)
        found[label] = json.loads(capsys.readouterr().out)
    own, new = found["cart 3"], found[None]
    assert (own["machine"], own["own_rows"], new["own_rows"]) == ("cart 3", 22, 0)
    assert own["context"] == new["context"] == {"mass": MASSES[3]}

    def width(one: dict) -> float:
        ends = one["quantities"]["velocity [m/s]"]
        return float(np.mean(np.subtract(ends["high"], ends["low"])))

    assert width(own) < width(new)
    simulate(fleet, machine="cart 3", runs=20)
    assert "22 rows of its own" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"machine": "cart 33"}, "no data of a machine 'cart 33'; did you mean 'cart 3'"),
        ({"machine": "zebra"}, "'zebra'; there are 'cart 0', .* and 20 more"),
        ({"machine": ""}, "no data of a machine ''"),
        (
            {"machine": "cart 3", "context": ["mass=2"]},
            f"no data of 'cart 3' with this context: its data are from mass {MASSES[3]:g}",
        ),
        (
            {"machine": "loaded"},
            "'loaded' has been logged with 2 contexts, among them mass 1; mass 2: say which",
        ),
    ],
)
def test_labels_that_are_refused(fleet: Path, options: dict, said: str) -> None:
    for called in (design, simulate):
        with pytest.raises(InputError, match=said):
            called(fleet, **options)


def test_a_label_and_a_table_are_one_too_many(fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("mass\n1\n")
    with pytest.raises(InputError, match="say which machine"):
        design(fleet, machine="cart 3", contexts=tmp_path / "t.csv")


def test_logs_without_labels_name_no_machine(tmp_path: Path) -> None:
    log = write(cart_rows(MASSES).drop("machine"), tmp_path / "log.csv")
    fit(FleetDescription.parse(TEMPLATE), log).save(tmp_path / "fleet.decoder")
    with pytest.raises(InputError, match="the logs name no machines"):
        design(tmp_path / "fleet.decoder", machine="cart 3")


@pytest.mark.parametrize("own", [[], ["--own", "4", "--own", "8"]])
def test_a_backtest_is_a_table_and_a_figure(fleet: Path, tmp_path: Path, own: list[str]) -> None:
    figure = tmp_path / "backtest.svg"
    assert command("backtest", str(fleet), "-o", str(figure), *own) == 0
    assert figure.read_text().startswith("<?xml")
    with pytest.raises(InputError, match=r"must be a \.png, \.svg or \.pdf"):
        backtest(fleet, output=tmp_path / "backtest.txt")


def test_of_one_machine_there_is_no_backtest(tmp_path: Path) -> None:
    log = write(cart_rows([1.0], steps=STEPS), tmp_path / "log.parquet")
    fit(FleetDescription.parse(TEMPLATE), [log], alarm=False).save(tmp_path / "one.decoder")
    with pytest.raises(InputError, match="fewer than two machines"):
        backtest(tmp_path / "one.decoder")
