"""fleet.toml: what it describes, and everything that is wrong with it, at once."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_lqr import BlockContext, InputError
from contextual_lqr.data import DescriptionError, FittedFleet, FleetDescription
from contextual_lqr.files import load_arrays, save_arrays
from fleet_logs import CARTS, DESCRIPTION


def faults(text: str, **named: object) -> list[str]:
    with pytest.raises(DescriptionError) as refused:
        FleetDescription.parse(text, **named)  # type: ignore[arg-type]
    return refused.value.faults


def test_the_starting_file_describes_a_cart() -> None:
    assert DESCRIPTION.state_names == ("position", "velocity")
    assert DESCRIPTION.input_names == ("force",)
    assert DESCRIPTION.context_names == ("mass",)
    assert DESCRIPTION.units == {"position": "m", "velocity": "m/s", "force": "N", "mass": "kg"}
    assert (DESCRIPTION.contexts[0].low, DESCRIPTION.contexts[0].high) == (0.5, 5)
    assert DESCRIPTION.cost.horizon == DESCRIPTION.horizon == 30
    assert DESCRIPTION.regularisation is None
    assert list(DESCRIPTION.start) == [1, 0]
    assert DESCRIPTION.known[0].tolist() == [1, 0.1, 0, 0, 0, 0]
    assert DESCRIPTION.context_map.matrix({"mass": 50.0}).shape == (6, 3)  # outside, for a design
    assert DESCRIPTION.with_horizon(7).cost.horizon == 7
    for horizon in (1, 10**12, True):
        with pytest.raises(InputError, match="at least 2 and at most 1,000,000"):
            DESCRIPTION.with_horizon(horizon)
    assert repr(DESCRIPTION) == (
        "<FleetDescription: states position, velocity; inputs force; contexts mass; horizon 30>"
    )


Q, R, EQUATION = (
    "Q = { position = 1.0, velocity = 0.1 }",
    "R = [0.01]",
    '"position + 0.1 * velocity"',
)
FEATURES, NOISE, START = '["1", "1/mass"]', "noise_level = 0.01", "start = { position = 1.0 }"
HORIZON = "horizon = 30"
FORCE, TARGET = 'force = { unit = "N"', 'R = [0.01]\ntarget = "nothing.csv"'
WRONG = {  # what is replaced, by what, and what is said
    "an expression that is no arithmetic": (FEATURES, "[\"__import__('os')\"]", "calls __import__"),
    "a feature that divides by zero": (FEATURES, '["1/(mass - 0.5)"]', "is inf at mass=0.5"),
    "an unknown context": (FEATURES, '["1/weight"]', "weight"),
    "a singular R": (R, "R = [0.0]", "R is singular"),
    "an indefinite Q": (Q, "Q = { velocity = -0.1 }", "positive semi-definite"),
    "a matrix of a wrong shape": (R, "R = [[1, 0], [0, 1]]", "1 by 1"),
    "a diagonal of a wrong length": (R, "R = [1, 2]", "1 numbers"),
    "an asymmetric Q": (Q, "Q = [[1, 2], [0, 1]]", "symmetric"),
    "text for a number": (NOISE, 'noise_level = "low"', "finite number"),
    "nan": (NOISE, "noise_level = nan", "finite number"),
    "no noise": (NOISE, "noise_level = 0", "above 0"),
    "a short horizon": ("horizon = 30", "horizon = 1", "at least 2"),
    "a start elsewhere": (START, "start = { speed = 1.0 }", "unknown name, 'speed'"),
    "a start out of bounds": (START, "start = { velocity = 1e9 }", "outside"),
    "bounds in disorder": ("low = 0.5, high = 5.0", "low = 5, high = 0.5", "not in order"),
    "an unknown table": ("[task]", "[tasks]", "[tasks] is unknown"),
    "an unknown key": ("horizon = 30", "horizont = 30", "horizont is unknown"),
    "an equation that is not linear": (EQUATION, '"position * velocity"', "not linear"),
    "an equation of strangers": (EQUATION, '"position + dt * velocity"', "uses dt"),
    "an equation beyond the features": (EQUATION, '"mass * velocity"', "feature is missing"),
    "an equation with a constant": (EQUATION, '"position + 1"', "not 0 where"),
    "a known state that is none": (f"position = {EQUATION}", f"x = {EQUATION}", "no state 'x'"),
    "a reserved name": (FORCE, 'pi = { unit = "N"', "expressions"),
    "a name used twice": (FORCE, 'velocity = { unit = "N"', "already"),
    "a name of the logs": (FORCE, 'step = { unit = "N"', "already"),
    "no name": (FORCE, '"a b" = { unit = "N"', "is not a name"),
    "a target without a constant": (R, TARGET, "always 1"),
    "a wrong kind": ('kind = "features"', 'kind = "splines"', "must be"),
    "features for blocks": ('kind = "features"', 'kind = "block"', "needs C"),
    "a list as kind": ('kind = "features"', 'kind = ["features"]', "kind must be"),
    "a known equation that is none": (EQUATION, "true", "must be an equation as text"),
    "an integer of 400 digits": (NOISE, f"noise_level = {'9' * 400}", "finite number"),
    "a start of 400 digits": (START, f"start = [{'9' * 400}, 0]", "start of position must be"),
    "a noise whose square overflows": (NOISE, "noise_level = 1e200", "whose square"),
    "a noise whose square vanishes": (NOISE, "noise_level = 1e-200", "whose square"),
    "a horizon of 10¹²": (HORIZON, "horizon = 1000000000000", "at most 1,000,000"),
    "a truth value as horizon": (HORIZON, "horizon = true", "whole number"),
    "a date as noise": (NOISE, "noise_level = 2020-01-01", "finite number"),
    "a truth value as weight": (R, "R = [true]", "finite number"),
    "a date as bound": ("low = 0.5, high", "low = 2020-01-01, high", "finite number"),
    "a truth value as feature": (FEATURES, "[true]", "feature must be"),
    "a very deep value": (FORCE, f'force{".a" * 2000} = {{ unit = "N"', "force must be a unit"),
    "a column of machines that is no name": (NOISE, f"{NOISE}\n[logs]\nmachine = 3", "of its own"),
}


@pytest.mark.parametrize(("old", "new", "said"), WRONG.values(), ids=WRONG)
def test_a_fault_is_told_with_its_line(old: str, new: str, said: str) -> None:
    assert CARTS.count(old) == 1
    line = CARTS[: CARTS.index(old)].count("\n") + 1 + new.count("\n")
    found = faults(CARTS.replace(old, new))
    assert any(f.startswith(f"fleet.toml:{line}: ") and said in f for f in found), found


def test_all_faults_are_told_at_once_and_in_order() -> None:
    text = CARTS
    for old, new in (("R = [0.01]", "R = [0]"), ("horizon = 30", "horizon = 0"), ('"m"', "7")):
        text = text.replace(old, new, 1)
    found = faults(text)
    lines = text.splitlines()
    assert [lines[int(f.split(":")[1]) - 1][:5] for f in found] == ["posit", "horiz", "R = ["]


def test_a_slip_of_the_pen_has_line_and_column() -> None:
    assert faults("[states]\nposition = \n")[0].startswith("fleet.toml:2:")
    deep = f"x = {'[' * 3000}{']' * 3000}"
    assert faults(deep) == ["fleet.toml: this is nested too deeply to be read"]
    assert "5000 digits" in faults(f"x = {'9' * 5000}")[0]
    loose = CARTS.replace("[known]", "[knwn]")
    for known in ("3", "[1]", '"x"'):
        assert "fleet.toml:1: known must be a table, [known]" in faults(f"known = {known}\n{loose}")
    assert "[states] is missing" in "\n".join(faults("")).replace("the table ", "")


@settings(max_examples=15)
@given(st.text(max_size=60), st.integers(0, len(CARTS)))
def test_no_text_makes_a_traceback(piece: str, place: int) -> None:
    for text in (piece, CARTS[:place] + piece + CARTS[place:]):
        with contextlib.suppress(InputError):
            FleetDescription.parse(text)


POSITION, VELOCITY = 'position = "m"', 'velocity = { unit = "m/s"'
NOMINAL = """[prior]
context = { mass = 2.0 }
A = [[1.0, 0.1], [0.0, 0.98]]
B = [[0.0], [0.05]]
off = 0.2
entries = { velocity = { position = 0.0, force = "0.1/mass" } }
"""


def with_prior(
    text: str = NOMINAL, position: str = 'position = { unit = "m", scale = 2.0 }'
) -> str:
    return CARTS.replace(POSITION, position).replace("[known]", f"{text}\n[known]")


def test_a_nominal_machine_and_known_entries() -> None:
    told = FleetDescription.parse(with_prior())
    assert told.scales is not None
    assert told.prior is not None
    assert told.scales.tolist() == [2.0, 100.0, 50.0]  # as given, and from the bounds
    decoder = told.new_decoder()
    belief = decoder.machine({"mass": 2.0})
    np.testing.assert_allclose(belief.mean, [[1, 0.1, 0], [0, 0.98, 0.05]], atol=1e-9)
    for mass in (0.5, 2.0, 4.0):  # known at every context
        own = decoder.machine({"mass": mass})
        assert own.mean[1, 2] == pytest.approx(0.1 / mass, rel=1e-6)
        known = own.covariances[1, [0, 2], [0, 2]]
        assert (known <= 1e-16 * own.covariances[1, 1, 1]).all()
    assert "prior given" in repr(decoder)
    assert told.differences(FleetDescription.parse(with_prior(NOMINAL.replace("0.2", "0.3")))) == [
        "prior"
    ]
    entries = '[prior]\nentries = { velocity = { force = "0.1/mass" } }\n'
    alone = FleetDescription.parse(with_prior(entries)).new_decoder().machine({"mass": 4.0})
    assert alone.mean[1, 2] == pytest.approx(0.025)
    assert alone.covariances[1, 1, 1] > 0


WRONG_PRIOR = {
    "no size": (NOMINAL, POSITION, "the typical size of position too: give its scale"),
    "a scale of nothing": (NOMINAL, POSITION.replace('"m"', "{ scale = 0 }"), "above 0, not 0"),
    "a matrix of a wrong shape": (
        NOMINAL.replace("[[0.0], [0.05]]", "[[0.0, 0.05]]"),
        "",
        "2 rows",
    ),
    "half a machine": (NOMINAL.replace("B = ", "# B = "), "", "B is missing"),
    "nothing at all": ("[prior]\noff = 0.3\n", "", "needs A, B and context"),
    "a context that is none": (NOMINAL.replace("mass = 2.0", "weight = 2.0"), "", "weight"),
    "an unknown state": (NOMINAL.replace("{ velocity =", "{ speed ="), "", "the states are"),
    "an unknown input": (NOMINAL.replace("force =", "push ="), "", "no state or input 'push'"),
    "an unknown context": (
        NOMINAL.replace("0.1/mass", "0.1/load"),
        "",
        "load, which is not a context",
    ),
    "a missing feature": (NOMINAL.replace("0.1/mass", "mass**2"), "", "a feature is missing"),
    "off by nothing": (NOMINAL.replace("0.2", "0"), "", "off must be a finite number above 0"),
    "an unknown field": (NOMINAL.replace("off =", "of ="), "", "of is unknown in [prior]"),
    "no table": (NOMINAL.replace("entries = {", "entries = [] # {"), "", "entries must be a table"),
}


@pytest.mark.parametrize(("text", "position", "said"), WRONG_PRIOR.values(), ids=WRONG_PRIOR)
def test_a_prior_that_is_none_is_refused(text: str, position: str, said: str) -> None:
    named = {"position": position} if position else {}
    found = faults(with_prior(text, **named))
    assert any(said in fault for fault in found), found


def test_a_ridge_and_a_prior_are_one_too_many() -> None:
    text = with_prior().replace("noise_level = 0.01", "noise_level = 0.01\nregularisation = 1.0")
    assert any("leave it out" in fault for fault in faults(text))


@pytest.mark.parametrize("mark", ["\\n", "\\r", '\\"', "\\u0000", ";;", ""])
def test_what_separates_no_fields_is_refused(mark: str) -> None:
    (found,) = faults(f'{CARTS}\n[table]\nseparator = "{mark}"\n')
    assert 'separator must be one character, such as ";", other than a quotation mark' in found


BLOCK = """
[states]
one = { constant = true }
position = "m"
velocity = "m/s"
[inputs]
force = "N"
[contexts]
mass = { unit = "kg", low = 1, high = 4 }
[context_map]
kind = "block"
C = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
D = [["1/mass"]]
[task]
horizon = 3
[cost]
Q = { position = 2.0 }
R = [1.0]
target = "path.csv"
[learning]
noise_level = 0.1
"""


def test_a_target_is_followed_through_the_constant_state(tmp_path: Path) -> None:
    (tmp_path / "path.csv").write_text("step,position\n0,1\n1,2\n2,4\n")
    (tmp_path / "fleet.toml").write_text(BLOCK)
    fleet = FleetDescription.read(tmp_path / "fleet.toml")
    assert isinstance(fleet.context_map, BlockContext)
    assert [one.name for one in fleet.logged] == ["position", "velocity", "force", "mass"]
    assert fleet.known[0].tolist() == [1, 0, 0, 0]
    assert list(fleet.start) == [1, 0, 0]
    for h, target in enumerate((1, 2, 4)):
        x = np.array([1, 3.5, -2.0])
        assert np.isclose(x @ fleet.cost.Q[h] @ x, 2 * (3.5 - target) ** 2)
    longer = fleet.with_horizon(5)
    assert longer.targets is not None
    assert longer.targets[:, 1].tolist() == [1, 2, 4, 4, 4]
    for one in (fleet, longer):  # the path travels in the file
        FittedFleet.new(one).save(tmp_path / "fleet.decoder")
        again = FittedFleet.load(tmp_path / "fleet.decoder").description
        assert not again.differences(one)
        assert np.array_equal(again.cost.Q, one.cost.Q)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no file"),
        ("position\n1\n2\n", "2 rows, but the horizon is 3"),
        ("height\n1\n2\n3\n", "not states: height"),
        ("position\n1\nx\n3\n", "row 2 of 'position' is 'x'"),
        ("position\n1\nnan\n3\n", "row 2 of 'position' is 'nan'"),
        ("", "is empty"),
    ],
)
def test_a_wrong_target_is_refused(content: str | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "path.csv").write_text(content)
    (found,) = faults(BLOCK, folder=tmp_path)
    assert found.startswith("fleet.toml:19: ")
    assert said in found


def test_known_equations_hold_at_every_context() -> None:
    text = CARTS.replace(
        '"position + 0.1 * velocity"', '"position + 0.1*velocity + 0.005*force/mass"'
    )
    fleet = FleetDescription.parse(text)
    for mass in (0.5, 1.7, 40.0):
        row = fleet.known[0] @ fleet.context_map.matrix({"mass": mass})
        assert np.allclose(row, [1, 0.1, 0.005 / mass], rtol=1e-12, atol=1e-14)


def test_descriptions_are_told_apart() -> None:
    other = FleetDescription.parse(CARTS.replace("horizon = 30", "horizon = 20"))
    assert DESCRIPTION.differences(other) == ["horizon"]
    assert DESCRIPTION.differences(other, task=False) == []
    other = FleetDescription.parse(CARTS.replace('"1/mass"]', '"1/mass", "mass"]'))
    assert "context_map" in DESCRIPTION.differences(other, task=False)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contextual-lqr new"):
        FleetDescription.read(tmp_path / "nothing.toml")
    (tmp_path / "latin.toml").write_bytes(b"unit = '\xb0'")
    with pytest.raises(DescriptionError, match="UTF-8"):
        FleetDescription.read(tmp_path / "latin.toml")
    with pytest.raises(InputError, match="cannot read"):
        FleetDescription.read(tmp_path)


def test_bounds_as_wide_as_doubles_are_fine() -> None:
    wide = CARTS.replace("low = 0.5, high = 5.0", "low = 1e-300, high = 1.7e308")
    assert FleetDescription.parse(wide).known[0].tolist() == [1, 0.1, 0, 0, 0, 0]


STATES: dict[str, Any] = {  # what is changed in a file, as by a program that is not ours
    "a horizon of 10¹²": {"horizon": 10**12},
    "no horizon": {"horizon": 0},
    "text as horizon": {"horizon": "x"},
    "a number as text": {"description": 3},
    "a list as decoder": {"decoder": []},
    "a range of nothing": {"context_range": {"mass": [1, None]}},
    "ranges that are none": {"context_range": 3},
    "known that is a list": {"known": [1]},
    "known rows of another fleet": {"known": {"0": [1.0, 0.2, 0.0, 0.0, 0.0, 0.0]}},
    "known rows that were none": {"known": {}},
    "a regularisation of another fleet": {"regularisation": 7.0},
    "a noise of another fleet": {"noise_level": 7.0},
    "a noise of 400 digits": {"noise_level": 10**400},
}


@pytest.mark.parametrize("changed", STATES.values(), ids=STATES)
def test_a_decoder_file_that_makes_no_sense_is_refused(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "fleet.decoder"
    FittedFleet.new(DESCRIPTION).save(file)
    state, arrays = load_arrays(file, "fleet", 1)
    inner = {name: value for name, value in changed.items() if name in state["decoder"]}
    state |= {"decoder": state["decoder"] | inner} if inner else changed
    save_arrays(file, "fleet", 1, state, arrays)
    with pytest.raises(InputError, match=r"fleet.decoder is damaged: "):
        FittedFleet.load(file)


def test_a_truncated_decoder_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fleet.decoder"
    FittedFleet.new(DESCRIPTION).save(file)
    whole = file.read_bytes()
    for n in range(0, len(whole), 397):
        file.write_bytes(whole[:n])
        with pytest.raises(InputError, match=r"fleet.decoder is (damaged|not a fleet file)"):
            FittedFleet.load(file)
    said = []
    for place in range(8, len(whole), 101):  # a flipped bit: another number, or a sentence
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 2]) + whole[place + 1 :])
        try:
            FittedFleet.load(file)
        except InputError as error:
            said.append(str(error))
    assert said
    assert all("fleet.decoder" in one for one in said)
