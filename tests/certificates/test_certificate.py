"""Certificates: intervals that hold, scores that mean something, verdicts that can be believed."""

import json
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray as Array
from numpy.random import Generator, default_rng

import deviating_fleet
from contextual_lqr import (
    ConstantBeta,
    Decoder,
    FeatureContext,
    InputError,
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    Trajectory,
    certify,
    certify_many,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.belief.bounds.cost_search import PlausibleMachines, triangles_of
from contextual_lqr.belief.bounds.lagrangian_bounds import lower_bounds, upper_bounds
from contextual_lqr.belief.bounds.row_radii import row_radii
from contextual_lqr.certificates.extrapolation import extrapolations, place
from contextual_lqr.certificates.stability import grows, largest_modes
from contextual_lqr.lqr.solve import policy_cost_and_gradient
from problem_instances import instance
from problems import random_cost, random_policy, random_system, seeds
from simulated_fleets import (
    FLEETS,
    SimulatedFleet,
    chain,
    learnt,
    log,
    path,
    spring,
)


def sampled(machines: PlausibleMachines, n: int, rng: Generator) -> Array:
    """X on the boundary of the set, and inside it."""
    X = rng.standard_normal((n, *machines.centre.shape[1:]))
    axes = (1, 2) if machines.joint else (2,)
    X /= np.sqrt((X * X).sum(axes, keepdims=True))
    return X * rng.choice([1.0, 0.5], (n, 1, 1))


def random_machines(
    seed: int, d: int, m: int, H: int, joint: bool, size: float, cross: bool
) -> tuple[PlausibleMachines, Array, Generator]:
    """Three machines whose rows may be off by about `size`."""
    rng = default_rng(seed)
    systems = [random_system(rng, d, m, radius=0.9) for _ in range(3)]
    k = int(rng.choice([1, d]))  # one shape for all rows, or one for each
    machines = PlausibleMachines(
        np.stack([np.concatenate((s.A, s.B), 1) for s in systems]),
        np.triu(rng.standard_normal((3, k, d + m, d + m))) / np.sqrt(d + m),
        size * rng.uniform(0, 1, d) * (rng.random(d) < 0.8),
        joint,
        random_cost(rng, d, m, H, cross),
        rng.standard_normal(d),
    )
    return machines, systems[0].noise, rng


@settings(max_examples=12, deadline=None)
@given(
    seed=seeds,
    d=st.integers(1, 4),
    m=st.integers(1, 3),
    H=st.integers(2, 8),
    joint=st.booleans(),
    size=st.sampled_from([1e-6, 0.01, 0.1, 0.5]),
    cross=st.booleans(),
)
def test_no_machine_of_the_set_is_beyond_the_bounds(
    seed: int, d: int, m: int, H: int, joint: bool, size: float, cross: bool
) -> None:
    machines, noise, rng = random_machines(seed, d, m, H, joint, size, cross)
    policy = solve(machines.systems(noise), machines.cost).policy
    gains = policy.gains * rng.uniform(0.7, 1.0)  # the upper bound is for any policy
    policy = LinearPolicy(gains)
    upper, multipliers = upper_bounds(machines, policy, noise)
    lower = lower_bounds(machines, noise, multipliers)
    highest, lowest = machines.highest(policy, noise), machines.lowest(noise)
    assert (highest <= upper * (1 + 1e-9)).all()
    assert (lower <= lowest * (1 + 1e-9) + 1e-9).all()
    nominal = policy_cost(policy, machines.systems(noise), machines.cost, machines.start)
    assert (highest >= nominal * (1 - 1e-12)).all()
    for i in range(3):
        one = machines.at(np.array([i]))
        own = LinearPolicy(gains[i])
        systems = one.systems(noise, sampled(machines, 200, rng))
        paid = policy_cost(own, systems, machines.cost, machines.start)
        best = optimal_cost(systems, machines.cost, machines.start)
        assert paid.max() <= upper[i] * (1 + 1e-9)
        assert best.min() >= lower[i] * (1 - 1e-9) - 1e-9


@settings(max_examples=6, deadline=None)
@given(seed=seeds, d=st.integers(1, 4), m=st.integers(1, 3), joint=st.booleans())
def test_the_interval_closes_when_nothing_is_uncertain(
    seed: int, d: int, m: int, joint: bool
) -> None:
    machines, noise, _ = random_machines(seed, d, m, 8, joint, 1e-8, False)
    solution = solve(machines.systems(noise), machines.cost)
    cost = solution.cost(machines.start)
    upper, multipliers = upper_bounds(machines, solution.policy, noise)
    lower = lower_bounds(machines, noise, multipliers)
    np.testing.assert_allclose(upper, cost, rtol=1e-4)
    np.testing.assert_allclose(lower, cost, rtol=1e-4)


def test_the_search_finds_what_many_samples_find() -> None:
    rng = default_rng(3)
    for joint in (False, True):
        machines, noise, _ = random_machines(11, 3, 2, 10, joint, 0.1, False)
        policy = solve(machines.systems(noise), machines.cost).policy
        highest, lowest = machines.highest(policy, noise), machines.lowest(noise)
        for i in range(3):
            systems = machines.at(np.array([i])).systems(noise, sampled(machines, 5000, rng))
            own = LinearPolicy(policy.gains[i])
            assert highest[i] >= policy_cost(own, systems, machines.cost, machines.start).max()
            assert lowest[i] <= optimal_cost(systems, machines.cost, machines.start).min()


@settings(max_examples=6, deadline=None)
@given(seed=seeds, d=st.integers(1, 4), m=st.integers(1, 3), H=st.integers(2, 8))
def test_the_gradient_of_a_policy(seed: int, d: int, m: int, H: int) -> None:
    rng = default_rng(seed)
    system, cost = random_system(rng, d, m), random_cost(rng, d, m, H)
    policy, start = random_policy(rng, d, m, H), rng.standard_normal(d)
    paid, (dA, dB) = policy_cost_and_gradient(policy, system, cost, start)
    assert paid == pytest.approx(policy_cost(policy, system, cost, start), rel=1e-12)
    towards = rng.standard_normal((d, d)), rng.standard_normal((d, m))

    def along(t: float) -> float:
        moved = LinearSystem(system.A + t * towards[0], system.B + t * towards[1], system.noise)
        return float(policy_cost(policy, moved, cost, start))

    slope = (along(1e-6) - along(-1e-6)) / 2e-6
    assert (dA * towards[0]).sum() + (dB * towards[1]).sum() == pytest.approx(
        slope, rel=1e-5, abs=1e-5 * (1 + abs(paid))
    )


@pytest.mark.parametrize("seed", [0, 4, 8])
def test_the_lower_bound_needs_no_upper_one_to_start_from(seed: int) -> None:
    now = instance(seed, episodes=10)
    plausible = now.confidence_set()
    triangles = triangles_of(now.decoder.posterior.half(now.context_matrix))
    machines = PlausibleMachines(
        now.machine.mean[None],
        triangles[None, None],
        np.full(5, np.sqrt(plausible.beta)),
        True,
        now.cost,
        now.start,
    )
    policy = solve(machines.systems(now.noise), now.cost).policy
    _, multipliers = upper_bounds(machines, policy, now.noise)
    ours = lower_bounds(machines, now.noise, multipliers)[0]
    assert ours >= 0.9 * lower_bounds(machines, now.noise)[0]
    costs = optimal_cost(
        now.systems(plausible.sample(2000, default_rng(seed))), now.cost, now.start
    )
    assert ours <= costs.min()


@pytest.mark.parametrize("name", FLEETS)
def test_intervals_contain_the_truth_and_trust_is_deserved(name: str) -> None:
    fleet, rng = FLEETS[name](), default_rng([41, len(name)])
    decoder = learnt(fleet, 50, rng)
    contexts = fleet.contexts(40, rng)
    declared = (-1e6, 1e6)  # the plans ask for far more than the inputs logged
    certificates = certify_many(
        decoder, contexts, fleet.cost, fleet.start, beta="regression", input_bounds=declared
    )
    paid, best = true_costs(fleet, contexts, certificates)
    low, high = np.array([one.interval for one in certificates]).T
    assert ((low <= paid) & (paid <= high)).mean() >= 0.95
    assert np.median(paid / best - 1) < 0.01
    assert np.mean([one.verdict == "trust" for one in certificates]) > 0.8
    for one in certificates:
        assert one.lower.certified <= one.lower.searched <= one.predicted_cost * (1 + 1e-9)
        assert one.predicted_cost * (1 - 1e-9) <= one.upper.searched <= one.upper.certified
        assert one.reason.startswith(one.extrapolation.place)

    contexts = fleet.outside(100, rng)
    certificates = certify_many(decoder, contexts, fleet.cost, fleet.start, bounds=False, draws=60)
    paid, best = true_costs(fleet, contexts, certificates)
    trusted = np.array([one.verdict == "trust" for one in certificates])
    assert (paid[trusted] <= 1.05 * best[trusted]).all()
    assert all(one.upper.certified == np.inf and one.upper.gap == np.inf for one in certificates)


def true_costs(
    fleet: SimulatedFleet, contexts: dict[str, Array], certificates: list
) -> tuple[Array, Array]:
    gains = LinearPolicy(np.stack([one.policy.gains for one in certificates]))
    truth = fleet.systems(contexts)
    paid = policy_cost(gains, truth, fleet.cost, fleet.start)
    return paid, optimal_cost(truth, fleet.cost, fleet.start)


def test_one_is_like_many() -> None:
    fleet, rng = spring(), default_rng(5)
    decoder = learnt(fleet, 10, rng)
    contexts = fleet.contexts(3, rng)
    many = certify_many(decoder, contexts, fleet.cost, fleet.start, draws=20)
    for i, one in enumerate(many):
        context = {name: float(values[i]) for name, values in contexts.items()}
        alone = certify(decoder, context, fleet.cost, fleet.start, draws=20)
        assert alone.context == one.context == context
        assert alone.verdict == one.verdict
        np.testing.assert_allclose(alone.interval, one.interval, rtol=1e-9)
        np.testing.assert_array_equal(alone.policy.gains, one.policy.gains)
        direct = solve(decoder.system(context), fleet.cost)
        np.testing.assert_allclose(alone.policy.gains, direct.policy.gains, rtol=1e-9)
        assert alone.predicted_cost == pytest.approx(float(direct.cost(fleet.start)), rel=1e-9)
        json.dumps(one.as_dict(), allow_nan=False)


def test_progress_counts_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("contextual_lqr.certificates.certification"), "_CHUNK", 8)
    fleet, rng, seen = spring(), default_rng(5), []
    decoder = learnt(fleet, 10, rng)
    contexts = fleet.contexts(20, rng)
    found = certify_many(
        decoder, contexts, fleet.cost, fleet.start, bounds=False, draws=2, progress=seen.append
    )
    assert seen == [8, 8, 4]
    assert [one.context["mass"] for one in found] == contexts["mass"].tolist()


def test_nothing_learnt_is_not_to_be_used() -> None:
    fleet = spring()
    decoder = Decoder(fleet.context_map, 1e-4, noise_level=0.01)
    one = certify(decoder, {"mass": 1.0, "stiffness": 1.0}, fleet.cost, fleet.start)
    assert one.verdict == "do not use"
    assert one.upper.certified > 100 * one.predicted_cost


def test_more_logs_narrow_the_interval() -> None:
    fleet, rng = spring(), default_rng(8)
    context, widths = {"mass": 1.2, "stiffness": 0.7}, []
    for episodes in (5, 20, 80):
        decoder = learnt(fleet, episodes, rng)
        one = certify(decoder, context, fleet.cost, fleet.start, draws=5)
        widths.append(np.diff(one.interval)[0])
    assert widths[0] > widths[1] > widths[2]


def test_the_sets_contain_the_truth() -> None:
    missed = {"determinant": 0, "regression": 0}
    for seed in range(40):
        fleet = spring()
        decoder = learnt(fleet, 5, default_rng([77, seed]))
        off = np.linalg.norm((fleet.theta - decoder.estimate) @ decoder.factor.T, axis=1)
        for kind in missed:
            missed[kind] += int((off > row_radii(decoder, kind, 0.05).rows).any())
    assert missed["determinant"] == 0
    assert missed["regression"] <= 4  # 2 are expected at most; more than 4 have probability 5 %


def test_a_known_noise_leaves_less_open() -> None:
    fleet = spring()
    decoder = learnt(fleet, 5, default_rng(1))
    known = row_radii(decoder, "determinant", 0.05, fleet.noise)
    guessed = row_radii(decoder, "determinant", 0.05)
    assert (known.most_noise == known.least_noise).all()
    assert (np.diagonal(guessed.least_noise) < np.diagonal(guessed.noise)).all()
    assert (np.diagonal(guessed.noise) < np.diagonal(guessed.most_noise)).all()
    context = {"mass": 1.0, "stiffness": 1.0}
    one = certify(decoder, context, fleet.cost, fleet.start, noise=fleet.noise)
    assert one.lower.certified < one.predicted_cost < one.upper.certified


def test_a_radius_of_the_confidence_set_is_a_joint_ball() -> None:
    fleet = spring()
    decoder = learnt(fleet, 20, default_rng(1))
    joint = row_radii(decoder, ConstantBeta(4.0), 0.05)
    assert joint.joint
    assert (joint.rows == 2.0).all()
    context = {"mass": 1.0, "stiffness": 1.0}
    small = certify(decoder, context, fleet.cost, fleet.start, beta=1e-4)
    large = certify(decoder, context, fleet.cost, fleet.start, beta=1e-2)
    assert small.upper.certified < large.upper.certified
    assert small.lower.certified > large.lower.certified


@pytest.mark.parametrize("beta", ["determinant", "regression"])
def test_however_sure_one_wants_to_be_the_set_is_bounded(beta: str) -> None:
    """Where 1 - δ is 1 in doubles, too."""
    decoder = learnt(spring(), 20, default_rng(1))
    found = [row_radii(decoder, beta, delta) for delta in (0.05, 1e-10, 1e-20, 1e-100, 1e-300)]
    for wide, wider in pairwise(found):
        assert np.isfinite(wider.rows).all()
        assert (wide.rows < wider.rows).all()
        assert np.trace(wide.most_noise) < np.trace(wider.most_noise) < np.inf


def test_growth_is_a_mode_that_doubles_and_need_not() -> None:
    rng = default_rng(4)
    A, B = rng.standard_normal((300, 3, 3)) * 0.6, rng.standard_normal((300, 3, 1)) * 0.2
    gains = rng.standard_normal((6, 1, 3)) * 0.3
    cost = QuadraticCost([np.eye(3)] * 7, [0.1 * np.eye(1)] * 6)
    modes, expected = [], []
    for a, b in zip(A, B, strict=True):
        best = solve(LinearSystem(a, b), cost).policy.gains
        mode, least = (
            np.abs(np.linalg.eigvals(np.linalg.multi_dot([a + b @ K for K in both[::-1]]))).max()
            for both in (gains, best)
        )
        modes.append(mode)
        expected.append(mode > 2 * max(least, 1))
    assert 0 < np.mean(expected) < np.mean(np.array(modes) > 2)
    assert (grows(LinearSystem(A, B), gains, cost) == expected).all()
    found = largest_modes(A, B, gains, 2.0)
    assert np.allclose(np.where(found > 2, found, 0), np.where(np.array(modes) > 2, modes, 0))


@pytest.mark.parametrize(("factor", "growing"), [(1.0, False), (1e200, True)])
def test_a_constant_does_not_grow(factor: float, growing: bool) -> None:
    cost = QuadraticCost([np.eye(2)] * 51, [np.eye(1)] * 50)
    system = LinearSystem(factor * np.eye(2)[None], np.zeros((1, 2, 1)))
    assert grows(system, np.zeros((50, 1, 2)), cost).all() == growing


def logged(features: list[str], masses: Array, scale: Array, rng: Generator) -> Decoder:
    """Rows of a cart with states and inputs of these sizes."""
    decoder = Decoder(FeatureContext(features, states=2, inputs=1), 1e-6)
    y = rng.standard_normal((len(masses), 20, 3)) * scale
    steps = Trajectory(
        np.repeat(y[:, :, None, :2], 2, 2).reshape(-1, 2, 2), y.reshape(-1, 1, 3)[..., 2:]
    )
    decoder.update_many({"mass": np.repeat(masses, 20)}, steps)
    return decoder


def test_the_score_is_one_on_average_and_has_no_units() -> None:
    rng = default_rng(9)
    masses = rng.uniform(1, 3, 400)
    unit, nothing = np.ones(3), np.zeros((400, 3, 3))
    first = logged(["1", "mass"], masses, unit, default_rng(1))
    scores = [
        [
            one.score
            for one in extrapolations(decoder, decoder.context_map.matrices(contexts), nothing)
        ]
        for decoder, contexts in (
            (first, {"mass": masses}),
            (logged(["1", "mass"], masses, 1e4 * unit, default_rng(1)), {"mass": masses}),
            (logged(["2", "1000*mass"], masses, unit, default_rng(1)), {"mass": masses}),
            (logged(["1", "3+mass"], masses, unit, default_rng(1)), {"mass": masses}),
        )
    ]
    assert np.mean(scores[0]) == pytest.approx(1, rel=0.02)
    for others in scores[1:]:
        np.testing.assert_allclose(others, scores[0], rtol=1e-4)
    # Uniform on [1, 3], with t in [-1, 1]: the leverage of (1, mass) is 1 + 3t², 2 on average.
    t = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])
    contexts = first.context_map.matrices({"mass": 2 + t})
    found = extrapolations(first, contexts, nothing[:5])
    np.testing.assert_allclose([one.score for one in found], (1 + 3 * t**2) / 2, rtol=0.1)
    places = [one.place.split()[0] for one in found]
    assert (places[0], places[2], places[4]) == ("outside", "inside", "outside")


def test_the_score_names_the_feature() -> None:
    fleet, rng = chain(), default_rng(2)
    decoder = learnt(fleet, 50, rng)
    usual = {"mass": 1.0, "stiffness": 1.0, "damping": 0.3}
    for name, feature in (("stiffness", "stiffness/mass"), ("damping", "damping/mass")):
        one = certify(decoder, usual | {name: 10.0}, fleet.cost, fleet.start, bounds=False)
        assert one.extrapolation.place == "outside the data"
        assert one.extrapolation.feature == feature
        assert f"outside the data, along {feature}" in one.reason
        assert one.verdict != "trust"
    inside = certify(decoder, usual, fleet.cost, fleet.start, bounds=False)
    assert str(inside.extrapolation) == "inside the data"
    assert place(1.0) == "inside the data"


def test_the_block_form_is_scored_by_its_steps() -> None:
    fleet, rng = path(), default_rng(2)
    decoder = learnt(fleet, 30, rng)
    small = certify(decoder, {"mass": 1.0}, fleet.cost, fleet.start, bounds=False)
    far = np.array([1.0, 1e3, 1e3, 0, 0])
    large = certify(decoder, {"mass": 1.0}, fleet.cost, far, bounds=False)
    assert large.extrapolation.score > 100 * small.extrapolation.score
    assert str(large.extrapolation).startswith("outside the data, ")
    assert large.extrapolation.feature in ("1 (states)", "1/mass (inputs)")


@pytest.mark.parametrize("scale", [1e-8, 1e12])
def test_extreme_units_change_nothing(scale: float) -> None:
    """States and inputs in other units: the same verdict, and a cost in those units."""
    fleet = spring()
    contexts, episodes = {"mass": np.linspace(0.5, 2, 8), "stiffness": np.linspace(2, 0.5, 8)}, []
    systems = fleet.systems(contexts)
    rng = default_rng(6)
    states, inputs = np.zeros((8, 21, 2)), rng.standard_normal((8, 20, 1))
    for h in range(20):
        y = np.concatenate((states[:, h], inputs[:, h]), 1)[..., None]
        M = np.concatenate((systems.A, systems.B), -1)
        states[:, h + 1] = (M @ y)[..., 0] + 0.01 * rng.standard_normal((8, 2))
    for size in (1.0, scale):
        decoder = Decoder(fleet.context_map, 1e-4 * size**2, noise_level=0.01 * size)
        decoder.update_many(contexts, Trajectory(size * states, size * inputs))
        episodes.append(
            certify(decoder, {"mass": 1.0, "stiffness": 1.0}, fleet.cost, size * fleet.start)
        )
    usual, other = episodes
    assert other.verdict == usual.verdict
    np.testing.assert_allclose(np.array(other.interval) / scale**2, usual.interval, rtol=1e-3)
    assert other.extrapolation.score == pytest.approx(usual.extrapolation.score, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delta": 0.0}, "delta must be a probability"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"draws": 10**400}, "draws must be at most"),
        ({"beta": "large"}, "beta must be"),
        ({"beta": -1.0}, "beta must be a finite number"),
        ({"noise": np.eye(3)}, r"noise must have shape \(2, 2\)"),
        ({"noise": -np.eye(2)}, "positive semi-definite"),
    ],
)
def test_refusals(options: dict, said: str) -> None:
    fleet = spring()
    decoder = learnt(fleet, 2, default_rng(0))
    context = {"mass": 1.0, "stiffness": 1.0}
    with pytest.raises(InputError, match=said):
        certify(decoder, context, fleet.cost, fleet.start, **options)
    with pytest.raises(InputError, match="start must be 2 numbers"):
        certify(decoder, context, fleet.cost, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("beta", ["determinant", 1e300])
def test_machines_beyond_all_numbers_are_not_to_be_used(beta: str | float) -> None:
    fleet = spring()
    decoder = learnt(fleet, 2, default_rng(0))
    contexts = {"mass": np.array([1e-150, 1e-8]), "stiffness": np.array([1e150, 1e12])}
    for one in certify_many(decoder, contexts, fleet.cost, fleet.start, beta=beta, draws=5):
        assert one.verdict == "do not use"
        low, high = one.interval
        assert low <= high
        json.dumps(one.as_dict(), allow_nan=False)
        assert np.isfinite(one.policy.gains).all()


def test_known_rows_do_not_move() -> None:
    fleet = spring()
    known = Decoder(fleet.context_map, 1e-4, noise_level=0.01, known={0: fleet.theta[0]})
    free = Decoder(fleet.context_map, 1e-4, noise_level=0.01)
    for decoder in (known, free):
        decoder.update_many(*log(fleet, 10, default_rng(2)))
    assert row_radii(known, "determinant", 0.05).rows[0] == 0
    assert row_radii(known, 1.0, 0.05).rows.tolist() == [0.0, 1.0]
    context = {"mass": 1.0, "stiffness": 1.0}
    sharp, wide = (certify(d, context, fleet.cost, fleet.start, draws=5) for d in (known, free))
    assert wide.interval[0] < sharp.interval[0] < sharp.interval[1] < wide.interval[1]


@pytest.mark.parametrize("seed", range(3))
def test_certificates_are_the_same_in_all_units(seed: int) -> None:
    """States and inputs in other units, by powers of ten from 1e-6 to 1e6."""
    rng = default_rng(seed)
    scale = 10.0 ** rng.integers(-6, 7, 3)
    x, u = scale[:2], scale[2:]
    same, other = (Decoder(deviating_fleet.context_map()) for _ in range(2))
    truth = deviating_fleet.machines(24, 0.05 * seed, rng)
    for i, (context, M) in enumerate(zip(deviating_fleet.contexts(24), truth, strict=True)):
        for _ in range(2):
            run = deviating_fleet.episode(M, 15, rng)
            same.update(context, run, machine=f"m{i}")
            other.update(context, Trajectory(run.states * x, run.inputs * u), machine=f"m{i}")
    cost = QuadraticCost([np.eye(2)] * 10, [0.1 * np.eye(1)] * 9)
    units = QuadraticCost(cost.Q / x[:, None] / x, cost.R / u[:, None] / u)
    contexts = {"inertia": [0.8, 1.0, 1.3]}
    usual = certify_many(same, contexts, cost, [1.0, 0.0])
    found = certify_many(other, contexts, units, x * [1.0, 0.0])
    for one, its in zip(usual, found, strict=True):
        assert its.verdict == one.verdict
        assert its.likely_excess == pytest.approx(one.likely_excess, rel=1e-5)
        assert its.predicted_cost == pytest.approx(one.predicted_cost, rel=1e-8)
        # Its ends are proven by a search for multipliers, which stops here or there.
        assert its.interval[0] == pytest.approx(one.interval[0], rel=0.05)
        assert its.interval[1] == pytest.approx(one.interval[1], rel=0.5)
        gains = its.policy.gains * x / u[:, None]
        np.testing.assert_allclose(gains, one.policy.gains, rtol=1e-6, atol=1e-9)
