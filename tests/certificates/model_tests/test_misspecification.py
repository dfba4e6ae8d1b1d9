"""Tests of misspecification: the right p-values, quiet where the model holds, loud where not."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray as Array
from scipy import stats

from contextual_lqr.belief.machines.lagged_steps import Columns, lagged_rows
from contextual_lqr.certificates.model_tests.misspecification import (
    Finding,
    misspecification,
)
from contextual_lqr.errors import InputError

D, M_INPUTS = 2, 1
COLUMNS = Columns.of(D, M_INPUTS)
NAMES = ["place", "speed", "valve"]
LAW = np.array([[1.0, 0.2, 0.0], [-0.2, 0.9, 0.2]])  # and how it changes with the context:
SLOPE = np.array([[0.0, 0.0, 0.0], [-0.1, 0.05, 0.1]])
GAIN = np.array([[-0.5, -0.8]])


class Machine(NamedTuple):
    """The rows of a machine, as `lagged_rows` has them, and its context matrix."""

    rows: Array
    G: Array


def machines(
    rng: np.random.Generator,
    count: int = 20,
    episodes: int = 2,
    steps: int = 25,
    *,
    noise: Array | float = 0.05,
    dither: float = 0.5,
    late: bool = False,
    error: float = 0.0,
    friction: float = 0.0,
    most: float = np.inf,
    weaker: float = 0.0,
    fading: float = 0.0,
    play: float = 0.0,
    offset: float = 0.0,
    memory: float = 0.0,
    variation: float = 0.0,
    degrees: float = np.inf,
) -> list[Machine]:
    """A fleet of [A, B] = LAW + c SLOPE, or one that breaks this in the way asked for."""
    found = []
    for c in rng.uniform(-1, 1, count):
        law = (LAW + c * SLOPE) * (1 + variation * rng.standard_normal(LAW.shape))
        rows = []
        for _ in range(episodes):
            x, w = rng.standard_normal(D), np.zeros(D)
            before, at = np.zeros(M_INPUTS), np.zeros(M_INPUTS)
            states, inputs = [x + error * rng.standard_normal(D)], []
            for t in range(steps):
                u = GAIN @ states[-1] + dither * rng.standard_normal(M_INPUTS)
                shock = rng.standard_normal(D) if np.isinf(degrees) else rng.standard_t(degrees, D)
                w = memory * w + noise * shock
                acting = np.clip(before if late else u, -most, most)
                acting = at = np.clip(at, acting - play / 2, acting + play / 2)
                acting = acting * (1 - fading * t) * (1 - weaker * (acting < 0))
                acting = acting + offset - friction * np.sign(x[1])
                x = law @ np.concatenate((x, acting)) + w
                before = u
                states.append(x + error * rng.standard_normal(D))
                inputs.append(u)
            played = np.array(states)
            rows.append(lagged_rows(np.hstack((played[:-1], inputs)), played[1:]))
        found.append(Machine(np.concatenate(rows), np.vstack((np.eye(3), c * np.eye(3)))))
    return found


def findings(fleet: list[Machine], **options: object) -> list[Finding]:
    """The findings of a fleet given by its rows, of each kind the most significant."""
    factors = []
    for one in fleet:
        R = np.linalg.qr(one.rows, mode="r")
        k = R.shape[1]
        factors.append(np.vstack((R, np.zeros((k - len(R), k)))))
    counts = np.array([len(one.rows) for one in fleet])
    told = np.stack(factors), counts, np.stack([m.G for m in fleet]), COLUMNS
    found = misspecification(*told, **options)  # type: ignore[arg-type]
    return list({one.kind: one for one in reversed(found)}.values())[::-1]


def p_values(fleet: list[Machine]) -> dict[str, float]:
    """Of all tests, by name."""
    names = {"late input": "omission", "memory": "omission"}
    found = reversed(findings(fleet, level=np.inf))
    return {names.get(f.kind, f.kind): f.p_value for f in found}


def kinds(fleet: list[Machine]) -> set[str]:
    """What was found."""
    return {f.kind for f in findings(fleet)}


# -- against an independent computation ----------------------------------------------------------


def residual(X: Array, y: Array) -> tuple[float, int]:
    """The squares that least squares leave, and the rank, by the pseudo-inverse."""
    scale = np.linalg.norm(X, axis=0)
    X = X / np.where(scale > 0, scale, 1)
    left = y - X @ (np.linalg.pinv(X, rcond=1e-9) @ y)
    return float(left @ left), int(np.linalg.matrix_rank(X, tol=1e-8)) if X.any() else 0


def by_rows(fleet: list[Machine]) -> dict[str, float]:
    """Textbook F tests of each machine, from the rows themselves, added up as χ²."""
    y = D + M_INPUTS
    Z = np.concatenate([m.rows[:, :y] @ m.G.T for m in fleet])
    after = np.concatenate([m.rows[:, -D:] for m in fleet])
    theta = np.linalg.lstsq(Z, after, rcond=None)[0].T
    total = sum(residual(m.rows[:, :y], m.rows[:, -1])[1] for m in fleet)
    spent = residual(Z, after[:, 0])[1] / total  # the share of freedom that goes into Θ
    found: dict[str, list[float]] = {}
    for r in range(D):
        names = ("correlated errors", "omission", "machines differ")
        pooled = {name: np.zeros(2) for name in names}
        for m in fleet:
            Y, before, x = m.rows[:, :y], m.rows[:, y : 2 * y], m.rows[:, r - D]
            law = (theta @ m.G)[r]
            own, rank = residual(Y, x)
            with_lag, more = residual(np.column_stack((Y, before @ law)), x)
            with_all, most = residual(np.hstack((Y, before)), x)
            off = float(((x - Y @ law) ** 2).sum())
            for name, explained, q, left, free in (
                ("correlated errors", own - with_lag, more - rank, with_lag, len(x) - more),
                ("omission", own - with_all, most - rank, with_all, len(x) - most),
                ("machines differ", off - own, rank * (1 - spent), own, len(x) - rank),
            ):
                if q > 0 and free > 0:
                    F = explained / q / (left / free)
                    pooled[name] += stats.chi2.isf(stats.f.sf(F, q, free), q), q
        for name, (chi, q) in pooled.items():
            found.setdefault(name, []).append(stats.chi2.sf(chi, q))
    found["nonlinear"] = [4 * by_one_coefficient(fleet, r) for r in range(D)]
    found["actuator"] = [by_the_input(fleet, theta) / D]
    return {name: min(1.0, D * min(p)) for name, p in found.items()}


def by_the_input(fleet: list[Machine], theta: Array) -> float:
    """The least p-value of what an actuator does instead, acting through each machine's B."""
    y = D + M_INPUTS
    own = [(m.rows[:, :y], *(residual(m.rows[:, :y], x) for x in m.rows[:, -D:].T)) for m in fleet]
    told = [len(Y) > rank for Y, (_, rank), _ in own]
    fleet, own = (
        [one for one, some in zip(all_of, told, strict=True) if some] for all_of in (fleet, own)
    )
    free = sum(len(Y) - rank for Y, (_, rank), _ in own)
    noise = np.array([sum(one[1 + r][0] for one in own) for r in range(D)]) / free
    found = []
    for place in (3 * y - 1, 4 * y - 1, 5 * y - 1, 5 * y, 6 * y, 6 * y + 1, 6 * y + 2):
        C, W = [], []
        for m, (Y, *_) in zip(fleet, own, strict=True):
            hat, B = Y @ np.linalg.pinv(Y, rcond=1e-9), theta @ m.G[:, D]
            for r in range(D):
                for many, column in ((C, B[r] * m.rows[:, place]), (W, m.rows[:, r - D])):
                    many.append((column - hat @ column) / np.sqrt(noise[r]))
        c, w = np.concatenate(C), np.concatenate(W)
        gamma = c @ w / (c @ c)
        slopes = np.array([a @ (b - gamma * a) for a, b in zip(C, W, strict=True)])
        variance, degrees = w @ w / (D * free) / (c @ c), D * free - 1
        if len(fleet) >= 8:
            by_machine = np.square(slopes.reshape(len(fleet), D).sum(1)).sum() / (c @ c) ** 2
            variance, degrees = max(variance, by_machine), len(fleet) - 1
        found.append(stats.f.sf(gamma**2 / variance, 1, degrees))
    return float(min(found)) * len(found) * M_INPUTS


def by_one_coefficient(fleet: list[Machine], r: int) -> float:
    """The least p-value of four F tests on the residuals of all machines' own regressions."""
    y, blocks = D + M_INPUTS, []
    for m in fleet:
        Y, x = m.rows[:, :y], m.rows[:, r - D]
        curves = (np.sign(Y), Y * np.abs(Y), np.column_stack((np.abs(Y), np.ones(len(Y)))))
        bent, both = (
            np.column_stack((*curves, m.rows[:, 5 * y + 1 : 6 * y + 1])),
            m.rows[:, : 2 * y],
        )
        bent = bent - both @ np.linalg.lstsq(both, bent, rcond=1e-9)[0]  # and the step before
        one = np.column_stack((x - Y @ np.linalg.lstsq(Y, x, rcond=1e-9)[0], bent))
        left, rank = residual(Y, x)
        if left <= 1e-20 * float(x @ x):  # it says nothing
            continue
        blocks.append((one, len(x) - rank, rank**2))
    rows, free = sum(len(b[0]) for b in blocks), sum(b[1] for b in blocks)
    noise = sum(float(b[0][:, 0] @ b[0][:, 0]) for b in blocks) / free
    stack = np.concatenate(
        [b / np.sqrt((b[:, 0] @ b[:, 0] + 5 * noise) / (v + 5)) for b, v, _ in blocks]
    )
    z, C, bias = stack[:, 0], stack[:, 1:], 1.5 * sum(b[2] / len(b[0]) for b in blocks) / rows
    total, found = float(z @ z), []
    ends = (0, y, 2 * y, 3 * y + 1, 4 * y + 1)
    for some in (slice(*pair) for pair in pairwise(ends)):
        left, rank = residual(C[:, some], z)
        F = max(total - left - bias * total, 0.0) / rank / (left / (free - rank))
        found.append(float(stats.f.sf(F, rank, free - rank)))
    return min(found)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("broken", [{}, {"memory": 0.1}, {"variation": 0.02}])
def test_p_values_are_those_of_textbook_regressions(seed: int, broken: dict[str, float]) -> None:
    fleet = machines(np.random.default_rng(seed), 5, **broken)  # type: ignore[arg-type]
    expected, found = by_rows(fleet), p_values(fleet)
    many = machines(np.random.default_rng(seed), 9, **broken)  # type: ignore[arg-type]
    expected["actuator"] = by_rows(many)["actuator"]
    found["actuator"] = p_values(many)["actuator"]
    assert found.keys() == expected.keys()
    for name, p in expected.items():
        assert found[name] == pytest.approx(p, rel=1e-6, abs=1e-12), name


def test_inputs_without_dither_cost_no_degree_of_freedom_twice() -> None:
    """u = K x makes columns dependent: ranks are counted, as the pseudo-inverse counts them."""
    fleet = machines(np.random.default_rng(1), 6, dither=0.0)
    expected, found = by_rows(fleet), p_values(fleet)
    for name, p in expected.items():
        assert found[name] == pytest.approx(p, rel=1e-6), name


def test_a_machine_at_rest_and_one_with_few_rows_say_no_more_than_they_know() -> None:
    fleet = machines(np.random.default_rng(2), 6)
    usual = p_values(fleet)
    resting = Machine(np.zeros((40, 23)), fleet[0].G)
    short = Machine(fleet[0].rows[:2], fleet[0].G)  # two rows, which any law fits
    assert p_values([*fleet, resting]) == pytest.approx(usual, rel=1e-9)
    assert by_rows([*fleet, short]) == pytest.approx(p_values([*fleet, short]), rel=1e-6)
    assert set(p_values([short, resting]).values()) <= {1.0}


@given(sizes=st.lists(st.integers(-8, 12), min_size=3, max_size=3), seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_units_do_not_matter(sizes: list[int], seed: int) -> None:
    fleet = machines(np.random.default_rng(seed), 9, 1, 15)
    unit = 10.0 ** np.array(sizes)
    parts = (
        unit,
        unit,
        np.ones(3),
        unit**2,
        unit,
        [1.0],
        unit,
        np.ones(1),
        unit[D:] ** 5,
        unit[:D],
    )
    columns = np.concatenate(parts)
    scaled = [Machine(m.rows * columns, m.G) for m in fleet]  # G = φ ⊗ I, in any units
    assert p_values(scaled) == pytest.approx(p_values(fleet), rel=1e-5)


def test_the_order_of_machines_does_not_matter() -> None:
    fleet = machines(np.random.default_rng(3), 12)
    assert p_values(fleet[::-1]) == pytest.approx(p_values(fleet), rel=1e-9)


# -- quiet where the model holds -----------------------------------------------------------------


@pytest.mark.parametrize("degrees", [np.inf, 3.0])
@pytest.mark.parametrize(("count", "episodes", "steps"), [(2, 3, 40), (12, 1, 12), (40, 2, 20)])
def test_few_false_alarms(count: int, episodes: int, steps: int, degrees: float) -> None:
    """Five tests at 1 % on 30 fleets: 1.5 alarms are expected, six are improbable (4e-3)."""
    alarms = 0
    for seed in range(30):
        rng = np.random.default_rng([seed, count])
        alarms += len(findings(machines(rng, count, episodes, steps, degrees=degrees)))
    assert alarms <= 5


def test_nothing_comes_of_nothing() -> None:
    k = COLUMNS.size
    none = np.zeros((0, k, k)), np.zeros(0, int), np.zeros((0, 6, 3))
    assert misspecification(*none, COLUMNS) == []
    assert misspecification(np.zeros((4, k, k)), np.full(4, 30), np.ones((4, 6, 3)), COLUMNS) == []


# -- loud where it does not ----------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 20])
@pytest.mark.parametrize("seed", range(3))
def test_a_late_input_is_named(seed: int, count: int) -> None:
    found = findings(machines(np.random.default_rng(seed), count, late=True))
    late = next(f for f in found if f.kind == "late input")
    assert late.regressor == D
    assert late.said(NAMES).startswith("valve acts late")
    assert late.p_value < 1e-6
    assert late.effect > 0.5


@pytest.mark.parametrize("seed", range(3))
def test_noise_that_remembers_is_found_and_is_no_late_input(seed: int) -> None:
    found = kinds(machines(np.random.default_rng(seed), memory=0.9))
    assert "correlated errors" in found
    assert "late input" not in found


@pytest.mark.parametrize("seed", range(3))
def test_errors_of_measurement_are_found(seed: int) -> None:
    assert kinds(machines(np.random.default_rng(seed), error=0.05)) & {
        "correlated errors",
        "memory",
    }


@pytest.mark.parametrize("seed", range(3))
def test_friction_is_named(seed: int) -> None:
    fleet = machines(np.random.default_rng(seed), 20, friction=0.3)
    found = next(f for f in findings(fleet) if f.kind == "nonlinear")
    assert (found.state, found.regressor) == (1, 1)
    assert "that of speed" in found.said(NAMES)


@pytest.mark.parametrize(
    ("fault", "regressor", "power", "words"),
    [
        ({"most": 0.6}, D, 2, "squares, above all that of valve"),
        ({"weaker": 0.5}, D, 1, "sizes, above all that of valve"),
        ({"offset": 0.3}, None, 0, "an offset"),
    ],
)
def test_what_actuators_do_is_named(
    fault: dict[str, float], regressor: int | None, power: int, words: str
) -> None:
    fleet = machines(np.random.default_rng(0), 20, **fault)  # type: ignore[arg-type]
    found = findings(fleet)
    one = next(f for f in found if f.kind == "nonlinear")
    assert (one.state, one.regressor, one.power) == (1, regressor, power)
    assert words in one.said(NAMES)
    assert one.found
    if regressor is not None:
        values = np.concatenate([m.rows[:, regressor] for m in fleet])
        assert one.usual == pytest.approx(np.sqrt(np.mean(values**2)), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("fault", "way", "words", "rate"),
    [
        ({"fading": 0.02}, "steps", "valve changes by ", 0.02),
        ({"play": 0.4}, "turns", "valve has a play", 0.2),
        ({"weaker": 0.3}, "sizes", "valve is ", 0.15),
        ({"offset": 0.1}, "offset", "valve is off by ", 0.1),
    ],
)
def test_what_an_actuator_does_instead_is_named_and_bounded(
    seed: int, fault: dict[str, float], way: str, words: str, rate: float
) -> None:
    """One coefficient, whatever each machine's B; what fades does so from more than its mean."""
    fleet = machines(np.random.default_rng(seed), 20, **fault)  # type: ignore[arg-type]
    found = findings(fleet)
    one = next(f for f in found if f.kind == "actuator")
    assert one.found
    assert (one.way, one.regressor) == (way, D)
    assert one.said(NAMES).startswith(words)
    assert 0.9 * rate < one.limit < 1.9 * rate


@pytest.mark.parametrize("seed", range(3))
def test_an_actuator_that_ends_is_found_by_the_few_steps_that_meet_it(seed: int) -> None:
    """One in two hundred. What is said of the largest input is at least what it lost."""
    fleet = machines(np.random.default_rng(seed), 300, most=2.0)
    one = next(f for f in findings(fleet) if f.kind == "actuator")
    assert one.found
    assert one.said(NAMES) == "valve is nonlinear where it is largest, as when actuators saturate"
    largest = max(np.abs(m.rows[:, D]).max() for m in fleet)
    assert largest - 2 < one.limit * largest**5 < largest


@pytest.mark.parametrize("count", [3, 20, 200])
def test_machines_that_differ_are_found_and_nothing_else(count: int) -> None:
    fleet = machines(np.random.default_rng(5), count, variation=0.1)
    found = findings(fleet)
    assert [f.kind for f in found] == ["machines differ"]
    assert found[0].effect > 2
    assert found[0].said(NAMES).startswith(f"machines differ in {NAMES[found[0].state]} by more")


def test_one_odd_machine_among_many_is_not_the_fleet() -> None:
    """Its own sum is left out of F; two among forty are, too."""
    rng = np.random.default_rng(6)
    fleet = machines(rng, 40)
    odd = machines(rng, 1, late=True)[0]
    assert "late input" not in kinds([*fleet[1:], Machine(odd.rows, fleet[0].G)])


def test_without_noise_machines_differ_or_do_not() -> None:
    """The first state follows from the others exactly; in one fleet differently by machine."""
    rng = np.random.default_rng(27)
    noise = np.array([0.0, 0.05])
    assert kinds(machines(rng, noise=noise)) == set()
    (found,) = findings(machines(rng, noise=noise, variation=0.01))
    assert (found.kind, found.state, found.p_value) == ("machines differ", 0, 0.0)


def test_a_known_row_is_held_against_the_data() -> None:
    fleet = machines(np.random.default_rng(8), noise=np.array([0.01, 0.05]))
    right, wrong = np.concatenate((LAW[0], SLOPE[0])), np.array([1.0, 0.21, 0, 0, 0, 0])
    assert findings(fleet, known={0: right}) == []
    (found,) = findings(fleet, known={0: wrong})
    assert (found.kind, found.state) == ("known row", 0)
    assert found.said(NAMES).startswith("the known row of place is contradicted")


def test_few_machines_contradict_a_known_row_too() -> None:
    """Eight of them: how far machines spread cannot be told, but that all disagree can."""
    fleet = machines(np.random.default_rng(11), 8, noise=np.array([0.01, 0.05]))
    right, wrong = np.concatenate((LAW[0], SLOPE[0])), np.array([1.0, 0.21, 0, 0, 0, 0])
    assert findings(fleet, known={0: right}) == []
    assert [one.kind for one in findings(fleet, known={0: wrong})] == ["known row"]


def test_a_known_row_without_noise_is_held_against_the_data() -> None:
    fleet = machines(np.random.default_rng(9), noise=np.array([0.0, 0.05]))
    right, wrong = np.concatenate((LAW[0], SLOPE[0])), np.array([1.0, 0.201, 0, 0, 0, 0])
    assert findings(fleet, known={0: right}) == []
    assert [f.kind for f in findings(fleet, known={0: wrong})] == ["known row"]


def test_known_rows_may_be_right_on_average_where_machines_differ() -> None:
    """Deviations of single machines do not contradict the row that is their mean."""
    right = np.concatenate((LAW[0], SLOPE[0]))
    alarms = 0
    for seed in range(20):
        fleet = machines(np.random.default_rng([10, seed]), 30, variation=0.05)
        alarms += any(f.kind == "known row" for f in findings(fleet, known={0: right}))
    assert alarms <= 2


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="3 factors of 8 columns, but 3 counts"):
        misspecification(np.ones((3, 8, 8)), np.ones(3, int), np.ones((3, 6, 4)), Columns.of(2, 2))
