"""What is known before any data: laws, nominal machines, known and tied entries, natural sizes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from contextual_lqr import (
    BlockContext,
    ConfidenceSet,
    Decoder,
    DeterminantBeta,
    FeatureContext,
    InputError,
    LinearPolicy,
    LinearSystem,
    Prior,
    QuadraticCost,
    Trajectory,
    certify,
    policy_cost,
    simulate,
)
from contextual_lqr.belief.shrinkage import shrink, shrink_rows
from contextual_lqr.fleets import FLEETS, true_system

BOUNDS = {"mass": (1.0, 5.0)}
MAP = FeatureContext(["1", "1/mass"], states=2, inputs=1, bounds=BOUNDS)
A, B = np.array([[1.0, 0.1], [0.0, 0.98]]), np.array([[0.0], [0.5]])
THETA = np.array([[1, 0.1, 0, 0, 0, 0], [0, 0.98, 0, 0, 0, 0.5]])
SCALES = [1.0, 1.0, 1.0]
COST = QuadraticCost(Q=[np.eye(2)] * 30, R=[0.1 * np.eye(1)] * 29)


def cart(mass: float, noise: float = 0.01) -> LinearSystem:
    return LinearSystem(A, B / mass, noise=noise**2 * np.eye(2))


def episodes(n: int, seed: int, noise: float = 0.01) -> list[tuple[dict, Trajectory]]:
    rng, found = default_rng(seed), []
    for _ in range(n):
        mass = rng.uniform(*BOUNDS["mass"])
        policy = LinearPolicy(rng.normal(scale=0.3, size=(14, 1, 2)))
        found.append(({"mass": mass}, simulate(policy, cart(mass, noise), [1.0, 0.0], rng)))
    return found


def learnt(n: int, seed: int = 0, noise: float = 0.01, **options: object) -> Decoder:
    decoder = Decoder(MAP, **options)
    for context, run in episodes(n, seed, noise):
        decoder.update(context, run)
    return decoder


def nominal(off: float = 0.3, wrong: float = 1.0) -> Prior:
    return Prior.nominal(MAP, A, wrong * B / 2, {"mass": 2.0}, SCALES, off)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(-8, 8))
def test_the_posterior_is_that_of_the_textbook(seed: int, rows: int, size: int) -> None:
    """(C⁻¹ + ZᵀZ/v)⁻¹ (C⁻¹Θ₀ + Zᵀx'/v) of covariance (C⁻¹ + ZᵀZ/v)⁻¹, where the prior holds."""
    rng, p, d = default_rng(seed), 4, 2
    unit = 10.0**size
    theta, v = unit * rng.normal(size=(d, p)), unit**2 * rng.uniform(0.1, 2, d)
    roots = unit * rng.normal(size=(d, p, p))
    prior = Prior(theta, roots @ roots.swapaxes(1, 2))
    Z = rng.normal(size=(rows, p))
    truth = theta + 0.1 * np.einsum("rij,rj->ri", roots, rng.normal(size=(d, p)))
    X = Z @ truth.T + 0.1 * np.sqrt(v) * rng.normal(size=(rows, d))
    factors = np.stack([np.column_stack((Z, X[:, r])) for r in range(d)])
    found = shrink(factors, rows, prior, np.sqrt(v), v)
    for r in range(d):
        precision = np.linalg.inv(prior.covariances[r])
        covariance = np.linalg.inv(precision + Z.T @ Z / v[r])
        mean = covariance @ (precision @ theta[r] + Z.T @ X[:, r] / v[r])
        np.testing.assert_allclose(found.stretch, 1.0)
        scale = np.sqrt(np.diagonal(covariance))
        assert np.abs((found.theta[r] - mean) / scale).max() < 1e-4
        own = v[r] * found.W[r].T @ found.W[r]
        np.testing.assert_allclose(own, covariance, atol=1e-5 * np.outer(scale, scale).max())


@pytest.mark.parametrize("rows", [0, 2, 9])
@pytest.mark.parametrize("alike", [True, False])
def test_rows_of_one_prior_and_one_design_are_those_of_each(rows: int, alike: bool) -> None:
    rng, p, d = default_rng(rows), 4, 3
    roots = rng.normal(size=(1 if alike else d, p, p))
    C = np.broadcast_to(roots @ roots.swapaxes(1, 2), (d, p, p))
    prior = Prior(rng.normal(size=(d, p)), C)
    D, E, level = rng.normal(size=(rows, p)), rng.normal(size=(d, rows)), rng.uniform(0.1, 1, d)
    factors = np.stack([np.column_stack((D, one)) for one in E])
    each, together = (
        shrink(factors, rows, prior, level),
        shrink_rows(D[None], E, rows, prior, level),
    )
    for field in fields(each):
        one, other = getattr(each, field.name), getattr(together, field.name)
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12, err_msg=field.name)


def test_without_data_the_belief_is_the_prior() -> None:
    decoder = Decoder(MAP, prior=nominal(), noise_level=0.01)
    belief = decoder.machine({"mass": 2.0})
    np.testing.assert_allclose(belief.mean, np.hstack((A, B / 2)), atol=1e-12)
    deviations = np.sqrt(np.einsum("rii->ri", belief.covariances))
    # B / 2 = 0.25 is off by 30 %, and by its share of what the row changes
    assert 0.3 * 0.25 < deviations[1, 2] < 0.3 * 0.25 * 1.3
    assert belief.identified
    at_4 = decoder.estimate @ MAP.matrix({"mass": 4.0})
    np.testing.assert_allclose(at_4, np.hstack((A, B / 2)), atol=1e-15)
    drawn = belief.draw(2000, default_rng(0))
    assert drawn.B[:, 1, 0].std() == pytest.approx(deviations[1, 2], rel=0.1)
    one = certify(decoder, {"mass": 2.0}, COST, [1.0, 0.0])
    assert one.verdict != "trust"
    assert "outside the data" in str(one.extrapolation)
    truth = float(policy_cost(one.policy, cart(2.0), COST, [1.0, 0.0]))
    assert one.interval[0] <= truth <= one.interval[1]


def test_a_law_wider_elsewhere_than_at_the_nominal_machine() -> None:
    decoder = Decoder(MAP, prior=nominal(), noise_level=0.01)
    here, there = (decoder.machine({"mass": m}).covariances[1, 2, 2] for m in (2.0, 5.0))
    assert there > 2 * here


def test_a_block_map_is_determined_by_its_nominal_machine() -> None:
    blocks = BlockContext(np.eye(2), [["1/mass"]])
    prior = Prior.nominal(blocks, A, B / 2, {"mass": 2.0}, SCALES)
    np.testing.assert_allclose(prior.theta, np.hstack((A, B)), atol=1e-12)


def test_few_data_do_better_about_a_good_prior() -> None:
    """One episode: nearer to the truth than without, and near it at last."""
    errors = np.zeros((2, 20))
    for seed in range(20):
        for k, options in enumerate(({"prior": nominal(wrong=1.2)}, {})):
            decoder = learnt(1, seed, noise_level=0.01, **options)
            M = decoder.estimate @ MAP.matrix({"mass": 3.0})
            errors[k, seed] = np.abs(M - np.hstack((A, B / 3))).max()
    assert np.median(errors[0]) < np.median(errors[1]) / 3
    np.testing.assert_allclose(learnt(200, prior=nominal()).estimate, THETA, atol=0.02)


def test_a_prior_that_data_contradict_gives_way() -> None:
    wrong = Prior.law(3 * THETA, off=0.01, sizes=np.full((2, 6), 0.1))
    decoder = learnt(40, prior=wrong, noise_level=0.01)
    assert (decoder.shrunk.stretch > 10).all()
    np.testing.assert_allclose(decoder.estimate, THETA, atol=0.05)


@pytest.mark.parametrize("level", [1e-4, 0.01, 1.0])
def test_a_wrong_noise_level_is_corrected(level: float) -> None:
    """λ = 1 would have said that entries of Θ are of the order of the noise."""
    decoder = learnt(30, scales=SCALES, noise_level=level)
    factor = 2 if level < 1 else 3  # that counts as an observation of 1
    assert (np.abs(np.log(decoder.shrunk.variances / 1e-4)) < np.log(factor) + 1e-4).all() or (
        level == 1.0
    )
    np.testing.assert_allclose(decoder.estimate, THETA, atol=0.05)


def test_known_and_tied_entries() -> None:
    prior = Prior.natural(np.abs(MAP.matrix({"mass": 1.0})), np.array(SCALES), np.zeros((2, 6)))
    known = prior.knowing(0, np.eye(6)[0], 1.0).knowing(0, np.eye(6)[3], 0.0)
    tied = known.knowing(1, np.eye(6)[1] - 2 * np.eye(6)[5], 0.0)  # 0.98 ≈ 2 · 0.5, not quite
    for n in (0, 5):
        decoder = learnt(n, prior=tied, noise_level=0.01)
        assert decoder.estimate[0, 0] == 1.0
        assert decoder.estimate[0, 3] == 0.0
        assert decoder.estimate[1, 1] == pytest.approx(2 * decoder.estimate[1, 5], abs=1e-9)
        thetas, _ = decoder.posterior.draw(50, default_rng(0))
        assert (thetas[:, 0, 0] == 1.0).all()
        np.testing.assert_allclose(thetas[:, 1, 1], 2 * thetas[:, 1, 5], rtol=1e-6, atol=1e-6)
        plausible = ConfidenceSet(decoder, 1.0)
        samples = plausible.sample(20, default_rng(1))
        assert (samples[:, 0, 0] == 1.0).all()
        assert plausible.contains(samples).all()
        off = decoder.estimate.copy()
        off[0, 0] += 0.1
        assert not plausible.contains(off)
    both = Prior.law(THETA, off=0.3)  # zeros are known to be zero
    assert (learnt(3, prior=both, noise_level=0.01).estimate[THETA == 0] == 0).all()
    with pytest.raises(InputError, match="row 0 is known, and contradicts 2"):
        known.knowing(0, np.eye(6)[0], 2.0)


def test_known_rows_go_with_a_prior() -> None:
    decoder = learnt(5, prior=nominal(), noise_level=0.01, known={0: THETA[0]})
    assert (decoder.estimate[0] == THETA[0]).all()
    assert not decoder.machine({"mass": 3.0}).covariances[0].any()


def test_the_confidence_set_holds_the_truth() -> None:
    """Of 100 fleets drawn from the prior, with 0, 1 and 3 episodes, δ = 0.1."""
    rng, missed = default_rng(0), 0
    prior = nominal()
    for k in range(100):
        draw = prior.theta + np.einsum("rij,rj->ri", prior.roots, rng.normal(size=(2, 6)))
        decoder = Decoder(MAP, prior=prior, noise_level=0.01)
        for _ in range((0, 1, 3)[k % 3]):
            mass = rng.uniform(1, 5)
            M = draw @ MAP.matrix({"mass": mass})
            system = LinearSystem(M[:, :2], M[:, 2:], noise=1e-4 * np.eye(2))
            policy = LinearPolicy(rng.normal(scale=0.3, size=(10, 1, 2)))
            decoder.update({"mass": mass}, simulate(policy, system, [1.0, 0.0], rng))
        rule = DeterminantBeta(1.0, 0.01, 0.1)
        missed += not ConfidenceSet(decoder, rule).contains(draw)
    assert missed <= 10


def test_a_prior_counts_once_when_decoders_merge(tmp_path: Path) -> None:
    runs = episodes(6, 3)
    sites = [Decoder(MAP, prior=nominal(), noise_level=0.01) for _ in range(2)]
    whole = Decoder(MAP, prior=nominal(), noise_level=0.01)
    for i, (context, run) in enumerate(runs):
        sites[i % 2].update(context, run)
        whole.update(context, run)
    sites[0].merge(sites[1])
    np.testing.assert_allclose(sites[0].estimate, whole.estimate, rtol=1e-8, atol=1e-10)
    with pytest.raises(InputError, match="only decoders of one prior"):
        whole.merge(Decoder(MAP, prior=nominal(off=0.2), noise_level=0.01))
    with pytest.raises(InputError, match="only decoders of one prior"):
        whole.merge(Decoder(MAP, noise_level=0.01))
    with pytest.raises(InputError, match="set of scales"):
        Decoder(MAP, scales=SCALES).merge(Decoder(MAP, scales=[1, 1, 2]))
    for i, one in enumerate((whole, learnt(3, scales=SCALES), Decoder(MAP, prior=nominal()))):
        one.save(tmp_path / f"{i}")
        again = Decoder.load(tmp_path / f"{i}")
        assert np.array_equal(again.estimate, one.estimate)
        assert np.array_equal(again.shrunk.W, one.shrunk.W)
        assert repr(again) == repr(one)
        if one.logged is not None and again.logged is not None:
            assert np.array_equal(again.logged.array(), one.logged.array())


@pytest.mark.parametrize("deviations", [None, "estimated"])
def test_many_data_forget_the_prior(deviations: str | None) -> None:
    wide, none = (
        learnt(60, noise_level=0.01, deviations=deviations, **options)
        for options in ({"prior": nominal(off=1.0, wrong=2.0)}, {})
    )
    np.testing.assert_allclose(wide.estimate, none.estimate, atol=2e-3)
    ours, its = (one.machine({"mass": 2.5}) for one in (wide, none))
    for r in range(2):
        mine, theirs = (np.sqrt(np.diagonal(one.covariances[r])) for one in (ours, its))
        np.testing.assert_allclose(mine, theirs, rtol=0.15)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(-6, 6), min_size=5, max_size=5), st.booleans(), st.integers(0, 4))
def test_priors_mean_the_same_in_all_units(powers: list[int], informed: bool, n: int) -> None:
    """States, inputs, features and contexts by powers of ten."""
    unit = 10.0 ** np.array(powers)
    x, u, (feature, context) = unit[:2], unit[2:3], unit[3:].tolist()
    y = np.concatenate((x, u))
    bounds = {"mass": (1.0 * context, 5.0 * context)}
    other_map = FeatureContext(
        ["1", f"{feature!r}*{context!r}/mass"], states=2, inputs=1, bounds=bounds
    )
    own: dict = {"scales": SCALES}
    its: dict = {"scales": y}
    if informed:
        own = {"prior": nominal()}
        M = np.hstack((A, B / 2)) * x[:, None] / y
        its = {"prior": Prior.nominal(other_map, M[:, :2], M[:, 2:], {"mass": 2.0 * context}, y)}
    usual = Decoder(MAP, noise_level=[0.01, 0.01], **own)
    other = Decoder(other_map, noise_level=0.01 * x, **its)
    for given_context, run in episodes(n, 7):
        usual.update(given_context, run)
        mass = {"mass": given_context["mass"] * context}
        other.update(mass, Trajectory(run.states * x, run.inputs * u))
    one, scaled = usual.machine({"mass": 3.0}), other.machine({"mass": 3.0 * context})
    size = np.sqrt(np.einsum("rii->ri", one.covariances))
    back = scaled.mean / x[:, None] * y
    assert np.abs((back - one.mean) / size).max() < 1e-4
    C = scaled.covariances / np.square(x)[:, None, None] * y[:, None] * y
    relative = (C - one.covariances) / size[:, :, None] / size[:, None, :]
    assert np.abs(relative).max() < 1e-4


def test_what_may_be_off_by_anything_says_nothing() -> None:
    before = Prior.law(THETA, off=0.3)
    after = before.knowing(0, np.ones(THETA.shape[1]), 0.0, off=1e308)
    np.testing.assert_allclose(after.theta, before.theta)
    np.testing.assert_allclose(after.covariances, before.covariances, atol=1e-12)


def test_nominal_machines_in_the_largest_and_smallest_units() -> None:
    """Only the ratios of scales count; where not even these are doubles, that is said."""
    wide = FeatureContext(["1", "gain"], bounds={"gain": (0.0, 1e200)})
    A, B, context = [[0.9, 0.1], [0.0, 0.8]], [[0.0], [1.0]], {"gain": 1.5}
    right = Prior.nominal(wide, A, B, context, np.ones(3))
    for scale in (1e-300, 1e300, 1e308):
        found = Prior.nominal(wide, A, B, context, scale * np.ones(3))
        np.testing.assert_allclose(found.theta, right.theta, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.covariances, right.covariances, rtol=1e-9)
    for scales in ([1e-308, 1e308, 1.0], [1e308, 1e-308, 1e-308]):
        with suppress(InputError):
            Prior.nominal(wide, A, B, context, scales)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Prior([[1.0]], [[[-1.0]]]), "positive semi-definite"),
        (lambda: Prior([[1.0, 2.0]], [[[1.0]]]), r"covariances must have shape \(1, 2, 2\)"),
        (lambda: Prior([1.0], [[[1.0]]]), "theta must have"),
        (lambda: Prior.law([[1.0]], off=0.0), "off must be above 0"),
        (lambda: Prior.law([THETA]), "theta must be one matrix"),
        (lambda: Prior.law(THETA, sizes=np.ones((6, 2))), r"sizes must be \(2, 6\) numbers"),
        (lambda: Prior.law(THETA, sizes=np.ones((1, 2, 6))), r"sizes must be \(2, 6\) numbers"),
        (lambda: Prior.nominal(MAP, A, B, {"mass": 2.0}, [1, 0, 1]), "all above 0"),
        (lambda: Prior.nominal(MAP, A, B.T, {"mass": 2.0}, SCALES), r"A must be \(d, d\)"),
        (lambda: Prior.law([[1.0]]).knowing(1, [1.0], 0.0), "row must be one of 1"),
        (lambda: Prior.law([[1.0]]).knowing(0, [1.0, 2.0], 0.0), "direction must be 1 numbers"),
        (lambda: Decoder(MAP, prior=Prior.law([[1.0]])), "the prior is for a Θ of"),
        (lambda: Decoder(MAP, 1.0, prior=nominal()), "give regularisation, or a prior"),
        (lambda: Decoder(MAP, prior=Prior(THETA, np.zeros((2, 6, 6)))), "nothing to learn"),
        (lambda: Decoder(MAP, scales=[1.0, 2.0]), "scales must be the typical sizes"),
        (lambda: Decoder(FeatureContext(["1"]), prior=Prior.law([[1.0]])), "size the map first"),
        (
            lambda: Prior.nominal(FeatureContext(["mass - 2"]), A, B, {"mass": 2.0}, SCALES),
            "no law of this context map",
        ),
    ],
)
def test_refusals(make: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()  # type: ignore[operator]


def test_a_nominal_machine_whose_entries_span_many_sizes() -> None:
    """Masses in a chain: far neighbours move one another by 1e-10 of what they do themselves."""
    fleet = FLEETS["chain"]()
    context = {"mass": 1.0, "stiffness": 1.0, "damping": 0.1}
    truth = true_system(fleet, context)
    prior = Prior.nominal(fleet.context_map, truth.A, truth.B, context, np.ones(12))
    G = fleet.context_map.matrix(context)
    np.testing.assert_allclose(prior.theta @ G, np.hstack((truth.A, truth.B)), atol=1e-9)
