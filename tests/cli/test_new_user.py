"""A new user with a bench's export: no line of Polars between the files and a controller."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from command import command
from contextual_lqr.data import FittedFleet, FleetDescription, describe_table, survey_logs
from contextual_lqr.data.survey import resolution
from contextual_lqr.errors import InputError
from fleet_logs import cart_rows, write
from motor_tables import motor_tables
from odd_tables import write_text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_from_an_export_to_a_controller(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    motor_tables(folder)
    assert command("new", "--from", "motoren.csv", "--contexts", "prueflinge.csv") == 0
    assert "guesses, marked" in capsys.readouterr().out
    assert command("check", "fleet.toml", "motoren.csv", "-o", "check.html") == 0
    said = capsys.readouterr().out
    assert "Latin-1 (Windows-1252), separated by semicolon, decimal comma" in said
    assert "12 machines, 24 episodes, 2,856 transitions, 0.476 minutes" in said
    page = Path("check.html").read_text()
    assert "data:image/svg+xml" in page
    assert "outputs the state holds" not in page  # which is of states
    assert command("fit", "fleet.toml", "motoren.csv", "-o", "motors.decoder") == 0
    assert "none of 12 machines stands out" in capsys.readouterr().out
    assert command("design", "motors.decoder", "--context", "traegheit=3", "--json") == 0
    (designed,) = json.loads(capsys.readouterr().out)["machines"]
    assert designed["verdict"] == "trust"
    system = FittedFleet.load("motors.decoder").decoder.system({"traegheit": 3.0})
    np.testing.assert_allclose(system.A, [[1, 0.01], [0, 0.98]], atol=0.01)
    np.testing.assert_allclose(system.B, [[0], [0.5 / 3]], atol=0.01)


def test_bounds_of_contexts_are_those_of_all_machines_in_their_table(folder: Path) -> None:
    """Also of machines of which this log has nothing yet."""
    motor_tables(folder, machines=4, steps=40)
    listed = Path("prueflinge.csv").read_text(encoding="latin-1").splitlines()
    name = listed[-1].split(";")[0]
    more = "\n".join([*listed, listed[-1].replace(name, name + "b").rsplit(";", 1)[0] + ";77,7"])
    Path("prueflinge.csv").write_text(more + "\n", encoding="latin-1")
    about = FleetDescription.parse(describe_table("motoren.csv", "prueflinge.csv"))
    assert about.contexts[0].high == 78.0


def test_what_is_found_is_in_the_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    motor_tables(folder, machines=4, steps=40)
    command("new", "fleet.toml", "--from", "motoren.csv", "--contexts", "prueflinge.csv")
    capsys.readouterr()
    assert command("check", "fleet.toml", "motoren.csv", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    (words,) = found["logs"]["tables"]["formats"]
    assert "decimal comma" in words
    assert found["logs"]["tables"]["time"]["gaps"] == 4
    assert found["survey"]["machines"] == 4
    units = {one["name"]: one["unit"] for one in found["survey"]["quantities"]}
    assert units == {"winkel": "rad", "drehzahl": "rad/s", "strom": "A", "traegheit": "g m²"}


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_plain_logs_describe_themselves(folder: Path, name: str) -> None:
    write(cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=20), folder / name)
    text = describe_table(name)
    Path("fleet.toml").write_text(text)
    fleet = FleetDescription.read("fleet.toml")
    assert fleet.state_names == ("position", "velocity")
    assert fleet.input_names == ("force",)
    assert fleet.context_names == ("mass",)
    assert 'features = ["1", "1/mass"]' in text
    assert survey_logs(fleet, name).report.bad_rows == 0
    assert command("check", "fleet.toml", name) == 0


def test_a_position_alone_is_an_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=40).drop("velocity")
    write(rows, folder / "log.csv")
    text = describe_table("log.csv")
    assert "[outputs] # guess: not a whole state" in text
    Path("fleet.toml").write_text(text)
    assert command("check", "fleet.toml", "log.csv") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == (
        "outputs   position; history as many as the logs need, delay found in the logs"
    )
    assert max(map(len, said)) <= 80
    assert len(said) <= 24


def test_inputs_are_guessed_without_words_and_counts_are_clocks(folder: Path) -> None:
    frame = cart_rows([0.7, 1.3, 2.0], steps=40).drop("episode").drop_nulls()
    names = {"position": "a", "velocity": "b", "force": "c", "mass": "size (kg)"}
    write_text(frame, folder / "log.csv", headings=names, separator="\t")
    text = describe_table("log.csv")
    fleet = FleetDescription.parse(text)
    assert (fleet.state_names, fleet.input_names) == (("a", "b"), ("c",))
    assert fleet.units["size"] == "kg"
    survey = survey_logs(fleet, "log.csv")
    assert (survey.report.bad_rows, survey.report.episodes) == (0, 6)


@pytest.mark.parametrize(
    ("drop", "said"),
    [
        (["mass"], "a fleet needs such a context"),
        (["step"], "no column of steps or time stamps"),
        (["position", "velocity"], "no two columns of numbers that move"),
    ],
)
def test_tables_that_cannot_be_described(folder: Path, drop: list[str], said: str) -> None:
    write(cart_rows([0.7, 1.3], steps=20).drop(drop), folder / "log.csv")
    with pytest.raises(InputError, match=said):
        describe_table("log.csv")


def test_tables_without_a_heading_in_common_or_without_rows(folder: Path) -> None:
    write(cart_rows([0.7, 1.3], steps=20), folder / "log.csv")
    pl.DataFrame({"serial": ["a"], "inertia": [1.0]}).write_csv("machines.csv")
    with pytest.raises(InputError, match="no heading in common"):
        describe_table("log.csv", "machines.csv")
    Path("empty.csv").write_text("")
    with pytest.raises(InputError, match="nothing to describe"):
        describe_table("empty.csv")


def test_machines_of_different_rates(tmp_path: Path) -> None:
    """`period` is a context: v' = v + period (-0.5 v + 2 u / mass)."""
    rng, rows = np.random.default_rng(0), []
    for i in range(12):
        period, mass = (0.01, 0.02, 0.05)[i % 3], float(rng.uniform(1, 4))
        v = 0.0
        for k in range(200):
            u = float(rng.normal())
            rows.append((f"M{i}", 5.0 + k * period, v, u, mass, period))
            v += period * (-0.5 * v + 2 * u / mass) + 1e-4 * float(rng.normal())
    names = ["machine", "t", "speed", "force", "mass", "period"]
    log = write(pl.DataFrame(rows, names, orient="row"), tmp_path / "log.parquet")
    fleet = FleetDescription.parse(
        """
        [states]
        speed = "m/s"
        [inputs]
        force = "N"
        [contexts]
        mass = { unit = "kg", low = 1.0, high = 4.0 }
        period = { unit = "s", low = 0.01, high = 0.05 }
        [context_map]
        kind = "features"
        features = ["1", "period", "period/mass"]
        [task]
        horizon = 20
        [cost]
        Q = [1.0]
        R = [1.0]
        [learning]
        noise_level = 1e-4
        [logs]
        time = "t"
        period = "period"
        """
    )
    from contextual_lqr.data import fit

    done = fit(fleet, log)
    assert done.report is not None
    assert done.report.transitions == 12 * 199
    for period in (0.01, 0.03):
        system = done.decoder.system({"mass": 2.0, "period": period})
        np.testing.assert_allclose(system.A, 1 - 0.5 * period, atol=2e-3)
        np.testing.assert_allclose(system.B, period, atol=2e-3)


def test_a_survey_tells_what_is_wrong_with_sensors_and_loops(tmp_path: Path) -> None:
    """A coarse sensor, an input by feedback, one that acts late, and known noise."""
    rng = np.random.default_rng(3)
    from fleet_logs import DESCRIPTION

    def log(*, late: bool = False, feedback: bool = False, grid: float = 0.0) -> str:
        rows = []
        for i, mass in enumerate(np.linspace(0.7, 4.4, 8)):
            x, before = rng.normal(size=2), 0.0
            for k in range(150):
                u = float(-0.5 * x[0] - x[1]) if feedback else float(rng.normal() * 3)
                shown = np.round(x[0] / grid) * grid if grid else x[0]
                rows.append((f"cart {i}", i, k, float(shown), float(x[1]), u, float(mass)))
                push = 0.1 * (before if late else u) / mass + 0.02 * rng.normal()
                x, before = np.array([x[0] + 0.1 * x[1], 0.95 * x[1] + push]), u
        names = ["machine", "episode", "step", "position", "velocity", "force", "mass"]
        return write(pl.DataFrame(rows, names, orient="row"), tmp_path / f"{rng.random()}.parquet")

    def by_name(log: str) -> dict[str, object]:
        return {one.name: one for one in survey_logs(DESCRIPTION, log).quantities}

    plain = survey_logs(DESCRIPTION, log())
    found = {one.name: one for one in plain.quantities}
    assert plain.machines == 8
    assert abs((found["velocity"].noise or 0) - 0.02) < 0.002
    assert found["position"].noise is None  # its row is known
    assert (found["force"].free or 0) > 0.99
    assert found["position"].resolution is None
    assert plain.delay == []
    assert survey_logs(DESCRIPTION, log(late=True)).delay != []
    assert by_name(log(feedback=True))["force"].free < 1e-6  # type: ignore[attr-defined]
    coarse = by_name(log(grid=0.25))["position"].resolution  # type: ignore[attr-defined]
    assert abs(coarse - 0.25) < 1e-9
    step = 360 / 4096  # an encoder in degrees, of which the table has four decimals
    encoder = np.round(step * np.random.default_rng(1).integers(-900, 900, size=4000), 4)
    assert abs((resolution(encoder) or 0) / step - 1) < 1e-6
    assert resolution(np.random.default_rng(2).normal(size=4000)) is None


def test_the_page_shows_how_long_a_history_must_be(folder: Path) -> None:
    rows = cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=40).drop("velocity")
    write(rows, folder / "log.csv")
    Path("fleet.toml").write_text(describe_table("log.csv"))
    assert command("check", "fleet.toml", "log.csv", "-o", "check.html") == 0
    page = Path("check.html").read_text()
    assert "by how many outputs the state holds" in page
    assert page.count("data:image/svg+xml") == 2
