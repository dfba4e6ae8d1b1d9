"""The decoder: exact oracles, any split merged, states of 1e12, refusals that change nothing."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextual_lqr import (
    BlockContext,
    Decoder,
    FeatureContext,
    InputError,
    Trajectory,
)
from episodes import GOOD, MAP, THETA, Episode, episode, learnt, snapshot

EPS = float(np.finfo(float).eps)


def rows_of(episodes: list[Episode]) -> tuple[np.ndarray, np.ndarray]:
    """z and x' by hand: z holds [x, u], then gain times [x, u]."""
    Z, after = [], []
    for context, t in episodes:
        y = np.concatenate((t.states[:-1], t.inputs), 1)
        Z.append(np.concatenate((y, context["gain"] * y), 1))
        after.append(t.states[1:])
    return np.concatenate(Z), np.concatenate(after)


def exactly(Z: np.ndarray, after: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Θ̂, V and log det V of the normal equations, in rational arithmetic: no rounding at all."""
    p, d = Z.shape[1], after.shape[1]
    rows = [[Fraction(v) for v in row] for row in np.concatenate((Z, after), 1).tolist()]
    V = [
        [sum((r[i] * r[j] for r in rows), Fraction(lam) * (i == j)) for j in range(p + d)]
        for i in range(p)
    ]
    rounded = np.array([[float(v) for v in row[:p]] for row in V])
    log_det = 0.0
    for k in range(p):
        log_det += math.log(V[k][k].numerator) - math.log(V[k][k].denominator)
        V[k] = [v / V[k][k] for v in V[k]]
        for i in set(range(p)) - {k}:
            V[i] = [a - V[i][k] * b for a, b in zip(V[i], V[k], strict=True)]
    return np.array([[float(v) for v in row[p:]] for row in V]).T, rounded, log_det


def assert_same_belief(one: Decoder, other: Decoder, size: float, even: bool) -> None:
    """To rounding: compared in the metric of V, where eps times the largest row is the unit."""
    for count in ("rows", "episodes", "ignored_rows", "repeats"):
        assert getattr(one, count) == getattr(other, count)
    V, W = one.factor.T @ one.factor, other.factor.T @ other.factor
    lengths = np.sqrt(np.diag(V))
    assert np.all(np.abs(V - W) <= 1e-13 * np.outer(lengths, lengths))
    room = 50 * EPS * (1 + size)
    assert np.abs((one.estimate - other.estimate) @ one.factor.T).max() <= room
    if even:  # else which columns are determined is itself a question of rounding
        found, known = one.noise_estimate, other.noise_estimate
        assert found == pytest.approx(known, rel=1e-6, abs=room * (0.01 + room))


exponents = st.lists(st.integers(-8, 12), min_size=1, max_size=5)
seeds = st.integers(0, 2**32 - 1)


# -- right -------------------------------------------------------------------------------------


@given(seeds, exponents, st.integers(2, 6), st.sampled_from([1.0, 1e-4, 30.0]))
def test_estimate_factor_and_determinant_are_those_of_rational_arithmetic(
    seed: int, powers: list[int], H: int, lam: float
) -> None:
    rng = np.random.default_rng(seed)
    episodes = [episode(rng, 10.0**power, H) for power in powers]
    decoder = learnt(episodes, lam, noise_level=0.01)
    Z, after = rows_of(episodes)
    theta, V, log_det = exactly(Z, after, lam)
    R, size = decoder.factor, max(np.abs(Z).max(), np.abs(after).max())
    assert np.array_equal(R, np.triu(R))
    assert (np.diagonal(R) >= math.sqrt(lam) * (1 - 1e-12)).all()
    lengths = np.sqrt(np.diag(V))
    assert np.all(np.abs(R.T @ R - V) <= 1e-14 * np.outer(lengths, lengths))
    # Even at 1e12, where eps times the size is 2e-4, this is below the noise of 0.01.
    assert np.abs((decoder.estimate - theta) @ R.T).max() <= 20 * EPS * (1 + size)
    assert decoder.log_det == pytest.approx(log_det, abs=1e-11 + 20 * EPS * size / math.sqrt(lam))
    assert (decoder.rows, decoder.episodes) == (len(Z), len(powers))
    assert decoder.ignored_rows == 0


def test_before_any_data_the_belief_is_the_prior() -> None:
    decoder = Decoder(MAP, 4.0)
    assert np.array_equal(decoder.factor, 2 * np.eye(6))
    assert np.array_equal(decoder.estimate, np.zeros((2, 6)))
    assert decoder.log_det == pytest.approx(6 * math.log(4))
    assert np.array_equal(decoder.noise_estimate, 4 * np.eye(2))
    with pytest.raises(InputError, match="size of Θ is not known before the first episode"):
        _ = Decoder(FeatureContext(["1", "gain"])).estimate


def test_large_states_do_not_spoil_small_ones_as_they_do_in_normal_equations() -> None:
    rng = np.random.default_rng(0)
    theta, along, across = np.array([[0.7, -0.3]]), np.array([1.0, 1.0]), np.array([1.0, -1.0])
    z = [1e10 * rng.uniform(1, 2) * along for _ in range(30)] + [1e3 * across] * 100
    z = rng.permutation(np.array(z))
    after = z @ theta.T
    decoder = Decoder(BlockContext([[1.0]], [[1.0]]), 1.0, noise_level=0.01)
    for (x, u), y in zip(z, after, strict=True):
        decoder.update({}, Trajectory([[x], y], [[u]]))
    normal = np.linalg.solve(np.eye(2) + z.T @ z, z.T @ after).T
    assert abs((decoder.estimate - theta) @ across).max() < 1e-6
    assert abs((normal - theta) @ across).max() > 1e-5
    assert decoder.ignored_rows == 0


@given(seeds, exponents, st.data())
def test_any_split_merged_in_any_order_is_learning_in_one_go(
    seed: int, powers: list[int], data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    episodes = [episode(rng, 10.0**power) for power in powers * 2]
    size = max(np.abs(part).max() for part in rows_of(episodes))
    parts = [Decoder(MAP, 1.0, noise_level=0.01) for _ in range(data.draw(st.integers(1, 5)))]
    for one in data.draw(st.permutations(episodes)):
        data.draw(st.sampled_from(parts)).update(*one)
    while len(parts) > 1:  # any two of those left: chains, trees, and empty ones among them
        i, j = data.draw(st.permutations(range(len(parts))))[:2]
        before = snapshot(parts[j])
        parts[i].merge(parts[j])
        assert snapshot(parts[j]) == before
        del parts[j]
    assert_same_belief(
        parts[0], learnt(episodes, 1.0, noise_level=0.01), size, max(powers) - min(powers) < 7
    )


@given(seeds, exponents)
def test_one_by_one_is_many_at_once(seed: int, powers: list[int]) -> None:
    rng = np.random.default_rng(seed)
    unequal = [episode(rng, 10.0**power, 2 + i % 3) for i, power in enumerate(powers * 2)]
    equal = [episode(rng, 10.0**power) for power in powers]
    for episodes in (unequal, equal):
        one_by_one = learnt(episodes, 1.0, noise_level=0.01)
        size = max(np.abs(part).max() for part in rows_of(episodes))
        listed = [c for c, _ in episodes]
        named = {"gain": np.array([c["gain"] for c in listed])}
        runs: list[Any] = [[t for _, t in episodes]]
        if episodes is equal:
            runs.append(Trajectory(*(np.stack([getattr(t, part) for _, t in equal])
                                     for part in ("states", "inputs"))))  # fmt: skip
        for trajectories in runs:
            for contexts in (listed, named):
                many = Decoder(MAP, 1.0, noise_level=0.01)
                many.update_many(contexts, trajectories)
                assert_same_belief(many, one_by_one, size, max(powers) - min(powers) < 7)


def test_thousands_of_rows_give_the_ridge_estimate_of_all() -> None:
    rng = np.random.default_rng(3)
    episodes = [episode(rng, 1.0, 2 + i % 9) for i in range(600)]  # several blocks
    decoder = Decoder(MAP, 1.0, noise_level=0.01)
    decoder.update_many([c for c, _ in episodes], [t for _, t in episodes])
    Z, after = rows_of(episodes)
    padded = np.concatenate((Z, np.eye(Z.shape[1]))), np.concatenate((after, np.zeros((6, 2))))
    ridge, *_ = np.linalg.lstsq(*padded)
    assert decoder.estimate == pytest.approx(ridge.T, rel=1e-12, abs=1e-14)
    assert decoder.rows == len(Z) > 2000

    # What is wrong in the last block is found before the first is learnt.
    before = snapshot(decoder)
    huge = Trajectory(np.full((12, 2), 1e308), np.full((11, 1), 1e308))  # a group of its own
    steep = [{"gain": 100.0} if i == 600 else c for i, (c, _) in enumerate([*episodes, GOOD])]
    with pytest.raises(InputError, match="overflow"):
        decoder.update_many(steep, [*(t for _, t in episodes), huge])
    assert snapshot(decoder) == before


def test_merge_counts_the_prior_once_and_takes_an_empty_one() -> None:
    a, b = (learnt([episode(np.random.default_rng(s))], 5.0) for s in (1, 2))
    rows = [x.factor.T @ x.factor - 5 * np.eye(6) for x in (a, b)]
    a.merge(b)
    assert a.factor.T @ a.factor == pytest.approx(5 * np.eye(6) + rows[0] + rows[1], abs=1e-12)
    before = snapshot(a)
    a.merge(Decoder(FeatureContext(["1", "gain"], bounds={"gain": (0, 1e200)}), 5.0))
    _ = a.estimate
    assert snapshot(a) == before
    empty = Decoder(FeatureContext(["1", "gain"], bounds={"gain": (0, 1e200)}), 5.0)
    empty.merge(a)
    assert np.array_equal(empty.estimate, a.estimate)
    assert (empty.rows, empty.episodes) == (a.rows, a.episodes)


def test_merge_accepts_one_map_however_it_came_to_know_its_size() -> None:
    def C(context: Any) -> np.ndarray:
        return np.eye(2)

    map_ = BlockContext(C, [[1.0]])
    trajectory = episode(np.random.default_rng(0))[1]
    early, late = Decoder(map_), Decoder(map_)
    early.update({}, trajectory)
    map_.matrix({})  # from here on the shape of the map is known, though its sizes are not declared
    late.update({}, trajectory)
    late.merge(early, allow_repeats=True)
    assert late.episodes == 2


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (Decoder(FeatureContext(["1", "gain"], states=2, inputs=1)), "context map"),
        (Decoder(FeatureContext(["1", "gain"], states=3, inputs=1)), "context map"),
        (Decoder(BlockContext(np.eye(3), np.eye(2))), "context map"),
        (Decoder(MAP, 2.0, noise_level=1.0), "regularisation"),
        (Decoder(MAP, noise_level=0.5), "noise level"),
    ],
)
def test_merge_refuses_another_kind_and_changes_nothing(other: Decoder, match: str) -> None:
    decoder = learnt([episode(np.random.default_rng(3))])
    _, before = decoder.estimate, snapshot(decoder)
    with pytest.raises(InputError, match=match):
        decoder.merge(other)
    assert snapshot(decoder) == before


def test_merge_refuses_pairs_of_another_size() -> None:
    small, large = Decoder(BlockContext()), Decoder(BlockContext())
    trajectory = episode(np.random.default_rng(0))[1]
    small.update((np.eye(2), np.eye(1)), trajectory)
    large.update((np.ones((3, 2)), np.eye(1)), trajectory)
    before = snapshot(small)
    with pytest.raises(InputError, match=r"context map|size|shape"):
        small.merge(large)
    assert snapshot(small) == before


@pytest.mark.parametrize("machine", [None, "a"])
def test_an_episode_that_has_grown_is_learnt_once(machine: str | None) -> None:
    """Told after three steps, after four, and as a whole; alone and among others."""
    rng = np.random.default_rng(5)
    episodes = [episode(rng, H=9) for _ in range(3)]
    context, whole = episodes[0]
    parts = [Trajectory(whole.states[: k + 1], whole.inputs[:k]) for k in (3, 4)]
    right = Decoder(MAP, 1e-4)
    right.update_many(*map(list, zip(*episodes, strict=True)), machine)
    grown, together = Decoder(MAP, 1e-4), Decoder(MAP, 1e-4)
    for part in parts:
        grown.update(context, part, machine)
    grown.update_many(*map(list, zip(*episodes, strict=True)), machine)
    told = [(context, part) for part in parts] + episodes
    together.update_many(*map(list, zip(*reversed(told), strict=True)), machine)
    for decoder in (grown, together):
        assert (decoder.rows, decoder.episodes, decoder.repeats) == (right.rows, 3, 2)
        np.testing.assert_allclose(decoder.estimate, right.estimate, rtol=1e-9, atol=1e-12)
        decoder.update(context, whole, machine)
        assert (decoder.rows, decoder.repeats) == (right.rows, 3)
    grown.update(context, parts[0], machine)  # a beginning that was told as such
    assert (grown.rows, grown.repeats) == (right.rows, 4)


def test_an_old_copy_that_ends_earlier_is_a_repeat(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    context, whole = episode(rng, H=9)
    parts = [Trajectory(whole.states[: k + 1], whole.inputs[:k]) for k in (1, 3, 7)]
    decoder = learnt([(context, whole)])
    decoder.save(tmp_path / "learnt")
    for one in (decoder, Decoder.load(tmp_path / "learnt"), decoder.copy()):
        before = one.rows, one.estimate.tolist()
        for part in parts:
            one.update(context, part)
        one.update_many([context] * 3, parts)
        assert ((one.rows, one.estimate.tolist()), one.repeats) == (before, 6)
    for part in parts:  # of which one decoder has the beginning, another the whole
        beginning = learnt([(context, part)])
        for left, right in ((beginning, decoder), (decoder, beginning)):
            with pytest.raises(InputError, match="the same data"):
                left.copy().merge(right)
    # Another end after the same beginning is another episode.
    u = np.concatenate((whole.inputs[:-1], whole.inputs[-1:] + 1))
    decoder.update(context, Trajectory(whole.states, u))
    assert decoder.episodes == 2


def test_repeats_are_counted_saved_and_merged(tmp_path: Path) -> None:
    one, other = (episode(np.random.default_rng(i)) for i in (1, 2))
    decoder, elsewhere = learnt([one, one, one]), learnt([other])
    elsewhere.update_many([other[0]] * 2, [other[1]] * 2)
    assert (decoder.episodes, decoder.repeats) == (1, 2)
    assert (elsewhere.episodes, elsewhere.repeats) == (1, 2)
    decoder.save(tmp_path / "learnt")
    decoder = Decoder.load(tmp_path / "learnt")
    assert decoder.repeats == 2
    decoder.merge(elsewhere)
    assert (decoder.episodes, decoder.repeats) == (2, 4)
    decoder.update(*other)  # also what came by merging is known
    assert (decoder.episodes, decoder.repeats) == (2, 5)


def test_a_copy_is_independent() -> None:
    rng = np.random.default_rng(4)
    decoder = learnt([episode(rng)])
    _, before = decoder.estimate, snapshot(decoder)
    twin = decoder.copy()
    assert snapshot(twin) == before
    twin.update(*episode(rng))
    twin.merge(decoder, allow_repeats=True)
    assert snapshot(decoder) == before
    assert (twin.episodes, decoder.episodes) == (3, 1)


# -- the noise ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("machines", "push", "unknowns"), [(3, 1.0, 6), (1, 1.0, 3), (3, 0.0, 4)])
def test_noise_estimate_is_unbiased(machines: int, push: float, unknowns: int) -> None:
    """Also where the data leave columns undetermined: one machine alone, or inputs of zero."""
    rng, found = np.random.default_rng(5), []
    for _ in range(300):
        episodes = [episode(rng, 1.0, 1 + 12 // machines, 0.3, push) for _ in range(machines)]
        Z, after = rows_of(episodes)
        left = after - Z @ np.linalg.lstsq(Z, after, rcond=1e-12)[0]
        noise = learnt(episodes).noise_estimate
        assert noise == pytest.approx(left.T @ left / (12 - unknowns), rel=1e-8, abs=1e-12)
        found.append(noise / 0.3**2)
    assert (np.abs(np.mean(found, 0) - np.eye(2)) < 4 * np.std(found, 0) / math.sqrt(300)).all()


def test_noise_estimate_of_long_data_sees_no_prior() -> None:
    rng, variance = np.random.default_rng(5), 0.09
    episodes = [episode(rng, 1.0, 2000, 0.3) for _ in range(5)]
    noise = learnt(episodes, 1.0).noise_estimate
    assert np.abs(noise - variance * np.eye(2)).max() < 4 * variance * math.sqrt(2 / 1e4)
    assert np.array_equal(noise, learnt(episodes, 1e6).noise_estimate)


def test_noise_estimate_waits_for_rows_and_an_exact_coordinate_has_none() -> None:
    rng = np.random.default_rng(6)
    decoder = Decoder(BlockContext(np.eye(2), np.eye(1)), noise_level=0.2)
    for steps in range(1, 8):
        x = np.stack((np.ones(2), rng.standard_normal(2)), 1)
        decoder.update({}, Trajectory(x, rng.standard_normal((1, 1))))
        if steps <= 3:
            assert np.array_equal(decoder.noise_estimate, 0.2**2 * np.eye(2))
    noise = decoder.noise_estimate
    assert abs(noise[0]).max() < 1e-15
    assert noise[1, 1] > 0.1


# -- machines ----------------------------------------------------------------------------------


def test_systems_are_the_estimate_times_the_context_matrix() -> None:
    rng = np.random.default_rng(7)
    decoder = learnt([episode(rng) for _ in range(4)])
    gains = rng.uniform(0, 5, 1000)
    many = decoder.systems({"gain": gains})
    for i, g in enumerate(gains):
        by_hand = decoder.estimate[:, :3] + g * decoder.estimate[:, 3:]
        one = decoder.system({"gain": g})
        assert np.hstack((one.A, one.B)) == pytest.approx(by_hand, rel=1e-13, abs=1e-15)
        assert many.A[i] == pytest.approx(one.A, rel=1e-14, abs=1e-16)
        assert many.B[i] == pytest.approx(one.B, rel=1e-14, abs=1e-16)
    assert np.array_equal(many.noise, decoder.noise_estimate)
    listed = decoder.systems([{"gain": g} for g in gains])
    assert np.array_equal(listed.A, many.A)


# -- large states ------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "ignored"), [(1e12, 0), (1e14, 1), (1e200, 1)])
def test_a_step_that_drowns_the_noise_is_counted_and_not_learnt(size: float, ignored: int) -> None:
    rng = np.random.default_rng(8)
    episodes = [episode(rng) for _ in range(5)]
    plain, both = learnt(episodes, 1.0, noise_level=0.01), learnt(episodes, 1.0, noise_level=0.01)
    x = np.array([size, 1.0])
    both.update({"gain": 0.0}, Trajectory([x, THETA[:, :2] @ x], [[0.0]]))
    assert (both.ignored_rows, both.rows) == (ignored, plain.rows + 1 - ignored)
    assert both.episodes == 6
    if ignored:
        assert both.estimate == pytest.approx(plain.estimate, rel=1e-13)
    else:
        assert both.estimate[:, 0] == pytest.approx(THETA[:, 0], abs=1e-11)


# -- refusals ----------------------------------------------------------------------------------


SHORT = Trajectory(np.ones((1, 2)), np.zeros((0, 1)))
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "three states": ({"gain": 1.0}, Trajectory(np.ones((4, 3)), np.ones((3, 1))), "states of 3"),
    "two inputs": ({"gain": 1.0}, Trajectory(np.ones((4, 2)), np.ones((3, 2))), "inputs of 2"),
    "unknown name": ({"gain": 1.0, "mass": 2.0}, GOOD[1], "'mass' is unknown"),
    "missing name": ({}, GOOD[1], "'gain' is missing"),
    "no mapping": (3.0, GOOD[1], "a context must be a mapping"),
    "nan context": ({"gain": math.nan}, GOOD[1], "'gain' is nan, which is not finite"),
    "outside": ({"gain": -1.0}, GOOD[1], r"'gain' is -1.0, outside its bounds"),
    "one state": ({"gain": 1.0}, SHORT, "states holds only one state"),
    "a batch": ({"gain": 1.0}, Trajectory(np.ones((3, 4, 2)), np.ones((3, 3, 1))), "of shape"),
    "overflow": ({"gain": 1e200}, Trajectory([[1e200, 0], [1, 1]], [[0]]), "states.* overflow"),
}


@pytest.mark.parametrize(("context", "trajectory", "match"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("taught", [False, True])
def test_a_bad_episode_is_refused_and_changes_nothing(
    taught: bool, context: Any, trajectory: Any, match: str
) -> None:
    decoder = learnt([GOOD] * taught)
    _, before = decoder.estimate, snapshot(decoder)
    with pytest.raises(InputError, match=match):
        decoder.update(context, trajectory)
    assert snapshot(decoder) == before
    with pytest.raises(InputError, match=match):
        decoder.update_many([GOOD[0], GOOD[0], context], [GOOD[1], GOOD[1], trajectory])
    assert snapshot(decoder) == before


@pytest.mark.parametrize("name", ["states", "inputs"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_cannot_even_become_a_trajectory(name: str, value: float) -> None:
    parts = {"states": np.ones((4, 2)), "inputs": np.ones((3, 1))}
    parts[name][1, 0] = value
    with pytest.raises(InputError, match=f"{name} must be finite, but holds {value} at index"):
        Trajectory(**parts)


def test_update_many_refuses_what_does_not_belong_together() -> None:
    decoder = learnt([GOOD])
    _, before = decoder.estimate, snapshot(decoder)
    for contexts, trajectories, match in (
        ([GOOD[0]] * 2, [GOOD[1]] * 3, "3 trajectories, but 2 contexts"),
        ([GOOD[0]] * 2, [], "0 trajectories, but 2 contexts"),
        ([GOOD[0]], GOOD[1], r"shape \(n, H, d\), not \(5, 2\)"),
    ):
        with pytest.raises(InputError, match=match):
            decoder.update_many(contexts, trajectories)
        assert snapshot(decoder) == before
    decoder.update_many([], [])
    assert snapshot(decoder) == before
    unsized = Decoder(FeatureContext(["1", "gain"]))
    with pytest.raises(InputError, match="states of 3"):
        unsized.update_many([GOOD[0]] * 2, [GOOD[1], REFUSED["three states"][1]])
    assert snapshot(unsized) == snapshot(Decoder(FeatureContext(["1", "gain"])))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_decoder_needs_positive_numbers(bad: float) -> None:
    with pytest.raises(InputError, match="regularisation must be a positive number"):
        Decoder(MAP, bad)
    with pytest.raises(InputError, match="noise_level must be"):
        Decoder(MAP, noise_level=bad)


MASK = np.ma.array(np.ones((3, 2)), mask=[[True, False]] * 3)


@pytest.mark.slow  # without the checks of types, which would refuse some of these first
@pytest.mark.parametrize("odd", [MASK, np.ones((3, 2), bool), np.ones((3, 2)).astype("M8[D]")])
@pytest.mark.parametrize("where", ["states", "next_states", "contexts"])
def test_what_is_masked_true_or_a_date_is_not_learnt(odd: Any, where: str) -> None:
    decoder = learnt([GOOD])
    before = snapshot(decoder)
    rows: dict[str, Any] = {
        "contexts": {"gain": np.ones(3)}, "states": np.ones((3, 2)), "inputs": np.ones((3, 1)),
        "next_states": np.ones((3, 2)),
    }  # fmt: skip
    rows[where] = {"gain": odd[:, 0]} if where == "contexts" else odd
    with pytest.raises(InputError, match=f"{where} (must be|has masked)|values of 'gain'"):
        decoder.update_rows(**rows)
    with pytest.raises(InputError, match="a column has masked values"):
        decoder.update_columns({"gain": np.ones(3)}, list(MASK.T), [np.ones(3)], [np.ones(3)] * 2)
    assert snapshot(decoder) == before


@pytest.mark.slow  # without the checks of types, which would refuse these first
@pytest.mark.parametrize("label", [7, ("a",), b"a"])
def test_a_label_that_is_no_word_leaves_nothing_behind(label: Any) -> None:
    decoder = learnt([GOOD])
    before = snapshot(decoder)
    with pytest.raises(InputError, match="machine must be a word or None"):
        decoder.update(*episode(np.random.default_rng(1)), machine=label)
    assert snapshot(decoder) == before
