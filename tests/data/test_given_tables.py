"""Tables beside the logs: machines, forecasts, targets, in whatever units and form they come."""

from pathlib import Path

import polars as pl
import pytest

from contextual_lqr import InputError
from contextual_lqr.data import FleetDescription
from contextual_lqr.data.fleet_toml.set_point import read_targets
from contextual_lqr.data.forecast import read_forecast
from contextual_lqr.data.given_tables import read_given
from fleet_logs import CARTS

POUNDS = "[columns]\nmass = { column = 'HEADING', factor = 0.5, offset = 1 }\n"


def given(path: Path, text: str, columns: str = ""):
    path.write_bytes(text.encode("cp1252"))
    about = FleetDescription.parse(CARTS + columns)
    return read_given(path, about.layout, about.context_names, "Gerät")


@pytest.mark.parametrize(
    ("heading", "text", "mass", "said"),
    [
        ("mass", "mass\n4\n", 3, "mass is 0.5 times it + 1, as"),  # the very name of the logs
        ("Masse [lb]", "Masse [lb]\n4\n", 3, "the column 'Masse [lb]' is in the unit of the logs"),
        ("Masse [lb]", "mass\n4\n", 4, ""),  # our name is in our unit
        ("Masse [lb]", "a;Masse [lb]\nb;4,0\n", 3, "Masse"),
    ],
)
def test_a_table_is_in_the_units_of_its_headings(
    tmp_path: Path, heading: str, text: str, mass: float, said: str
) -> None:
    found = given(tmp_path / "m.csv", text, POUNDS.replace("HEADING", heading))
    assert found.columns["mass"].tolist() == [mass]
    assert said in "".join(found.said)
    assert bool(found.said) == bool(said)


def test_a_table_in_both_units_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'Masse'.* and 'mass': leave one of them out"):
        given(tmp_path / "m.csv", "mass,Masse\n1,2\n", POUNDS.replace("HEADING", "Masse"))


def test_headings_that_change_places(tmp_path: Path) -> None:
    """A name that is the heading of something else is not a second column of its own."""
    swapped = CARTS + "[columns]\nposition = 'velocity'\nvelocity = 'position'\n"
    (tmp_path / "t.csv").write_text("position,velocity\n1,2\n")
    layout = FleetDescription.parse(swapped).layout
    found = read_given(tmp_path / "t.csv", layout, ["position", "velocity"])
    assert {name: values[0] for name, values in found.columns.items()} == {
        "position": 2,
        "velocity": 1,
    }


def test_german_tables(tmp_path: Path) -> None:
    about = FleetDescription.parse(CARTS + "[measured]\noutdoor = 'C'\n")
    for text in ("outdoor\n5,5\n4,25\n", "step;outdoor\n0;5,5\n1;4,25\n"):
        (tmp_path / "weather.csv").write_text(text)
        forecast, _ = read_forecast(tmp_path / "weather.csv", about)
        assert forecast["outdoor"].tolist() == [5.5, 4.25]
    (tmp_path / "aim.csv").write_text("velocity;position\n0;1,5\n0;2,5\n")
    aims = read_targets(tmp_path / "aim.csv", about.states)
    assert aims[:, 0].tolist() == [1.5, 2.5]
    found = given(tmp_path / "machines.csv", "Gerät;mass\nA;1,5\n")
    assert (found.labels, found.columns["mass"].tolist()) == (["A"], [1.5])


def test_what_stands_for_no_number_is_located(tmp_path: Path) -> None:
    for text, said in (("", "is empty"), ("mass\n1\nNA\n", "row 2 of 'mass' is missing")):
        with pytest.raises(InputError, match=said):
            given(tmp_path / "m.csv", text)
    pl.DataFrame({"mass": [True]}).write_parquet(tmp_path / "m.parquet")
    with pytest.raises(InputError, match="must hold numbers, not Boolean"):
        read_given(tmp_path / "m.parquet", FleetDescription.parse(CARTS).layout, ["mass"])


def test_machines_have_labels_of_text(tmp_path: Path) -> None:
    """007 is not 7; and 1 is 1 also in a column of floats, here as in logs."""
    assert given(tmp_path / "m.csv", "machine,mass\n007,1\n,2\n").labels == ["007", ""]
    for labels, said in (
        ([1.0, 2.0], ["1", "2"]),
        ([1.5, 20.0], ["1.5", "20"]),
        ([3, 4], ["3", "4"]),
    ):
        column = pl.Series(labels)
        pl.DataFrame({"machine": column, "mass": [1.0, 2.0]}).write_parquet(tmp_path / "m.parquet")
        layout = FleetDescription.parse(CARTS).layout
        assert read_given(tmp_path / "m.parquet", layout, ["mass"], "machine").labels == said
