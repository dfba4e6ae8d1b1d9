"""Advice: worth checked against the formula, blind directions against the rows themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from contextual_lqr import (
    Decoder,
    FeatureContext,
    InputError,
    LinearPolicy,
    Trajectory,
    optimal_cost,
    policy_cost,
    rank_candidates,
    solve,
    unexcited_directions,
)
from contextual_lqr.context.columns import column_names
from problems import seeds
from simulated_fleets import learnt, log, path, spring


@pytest.mark.parametrize(("make", "dither"), [(spring, 0.0), (spring, 0.5), (path, 0.1)])
def test_the_saving_is_that_of_its_definition(make: object, dither: float) -> None:
    """V is formed and inverted, and moments are found from many runs instead of a recursion."""
    fleet, rng = make(), default_rng(3)
    decoder = learnt(fleet, 3, rng)
    contexts = fleet.contexts(4, rng)
    ranked = rank_candidates(decoder, contexts, fleet.cost, fleet.start, dither=dither)

    V = decoder.factor.T @ decoder.factor
    variances = np.diagonal(decoder.noise_estimate)

    def moments(context: dict, added: float) -> tuple[np.ndarray, np.ndarray]:
        system, G = decoder.system(context), decoder.context_map.matrix(context)
        solution = solve(system, fleet.cost)
        n, d = 15_000, len(fleet.start)
        x = np.broadcast_to(fleet.start, (n, d))
        Z, M = 0.0, 0.0
        factor = np.linalg.cholesky(decoder.noise_estimate + 1e-18 * np.eye(d))
        for h, K in enumerate(solution.policy.gains):
            u = x @ K.T + added * rng.standard_normal((n, len(K)))
            z = np.concatenate((x, u), 1) @ G.T
            outer = z.T @ z / n
            Z = Z + outer
            M = M + variances @ np.diagonal(solution.value_matrices[h + 1]) * outer
            x = x @ system.A.T + u @ system.B.T + rng.standard_normal((n, d)) @ factor.T
        return Z, M

    price = sum(moments(one.context, 0.0)[1] for one in ranked)
    before = np.trace(np.linalg.inv(V) @ price)
    for one in ranked:
        after = np.trace(np.linalg.inv(V + moments(one.context, dither)[0]) @ price)
        assert one.saving == pytest.approx(1 - after / before, rel=0.05, abs=0.01)
    savings = [one.saving for one in ranked]
    assert savings == sorted(savings, reverse=True)
    assert all(0 <= saving <= 1 for saving in savings)
    given_order = sorted(ranked, key=lambda one: one.place)
    assert [one.context["mass"] for one in given_order] == contexts["mass"].tolist()


def test_what_is_advised_teaches_more() -> None:
    wins = 0
    for seed in range(12):
        fleet, rng = spring(), default_rng([5, seed])
        decoder = learnt(fleet, 2, rng)
        contexts = fleet.contexts(20, rng)
        ranked = rank_candidates(decoder, contexts, fleet.cost, fleet.start, dither=fleet.dither)
        after = []
        for one in (ranked[0], ranked[-1]):
            taught = decoder.copy()
            own = {name: (value, value) for name, value in one.context.items()}
            taught.update_many(*log(fleet._replace(ranges=own), 1, default_rng(seed)))
            policy = LinearPolicy(solve(taught.systems(contexts), fleet.cost).policy.gains)
            truth = fleet.systems(contexts)
            paid = policy_cost(policy, truth, fleet.cost, fleet.start)
            after.append(np.mean(paid / optimal_cost(truth, fleet.cost, fleet.start)))
        wins += after[0] < after[1]
    assert wins >= 9


def test_targets_decide_what_matters() -> None:
    fleet = spring()
    decoder = learnt(fleet, 2, default_rng(1))
    heavy = {"mass": np.array([2.0]), "stiffness": np.array([1.0])}
    candidates = {"mass": np.array([0.5, 2.0]), "stiffness": np.array([1.0, 1.0])}
    own = rank_candidates(decoder, heavy, fleet.cost, fleet.start)[0]
    ranked = rank_candidates(decoder, candidates, fleet.cost, fleet.start, targets=heavy)
    same = next(one for one in ranked if one.context["mass"] == 2.0)
    assert same.saving == pytest.approx(own.saving, rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(seed=seeds, rows=st.integers(0, 8), k=st.integers(1, 3))
def test_blind_directions_span_what_no_row_has(seed: int, rows: int, k: int) -> None:
    rng = default_rng(seed)
    features = ["1", "mass", "mass**2"][:k]
    decoder = Decoder(FeatureContext(features, states=2, inputs=1), 1e-3)
    masses = rng.choice([1.0, 2.0, 3.0], rows)
    z = []
    for mass in masses:
        y = rng.standard_normal(3)
        decoder.update({"mass": mass} if k > 1 else {}, Trajectory([y[:2], y[:2]], [y[2:]]))
        z.append(np.kron([1, mass, mass**2][:k], y))
    Z = np.array(z).reshape(-1, 3 * k)
    found = unexcited_directions(decoder)
    rank = np.linalg.matrix_rank(Z) if rows else 0
    assert len(found) == 3 * k - rank
    if found:
        basis = np.stack([one.direction for one in found])
        assert np.linalg.matrix_rank(basis) == len(found)
        np.testing.assert_allclose(Z @ basis.T, 0, atol=1e-6)
        labels = column_names(decoder.context_map, 3 * k)
        for one in found:
            assert set(one.columns) <= set(labels)


def test_features_that_never_vary_are_named() -> None:
    fleet = spring()
    decoder = Decoder(fleet.context_map, 1e-4, noise_level=0.01)
    same = fleet._replace(ranges={"mass": (1.0, 1.0), "stiffness": (0.5, 2.0)})
    decoder.update_many(*log(same, 20, default_rng(0)))
    found = [str(one) for one in unexcited_directions(decoder, ["position", "velocity", "force"])]
    assert sorted(found) == [
        f"the logs cannot tell apart 1 · {name}, 1/mass · {name}"
        for name in ("force", "position", "velocity")
    ]
    assert unexcited_directions(learnt(fleet, 20, default_rng(0))) == []


def test_an_input_never_used_is_named() -> None:
    decoder = Decoder(FeatureContext(["1"], states=1, inputs=2), 1e-4)
    u = default_rng(0).standard_normal((30, 2)) * [1, 0]
    decoder.update({}, Trajectory(default_rng(1).standard_normal((31, 1)), u))
    assert [str(one) for one in unexcited_directions(decoder)] == ["1 · input 2 is never excited"]
    before = Decoder(FeatureContext(["1"], states=1, inputs=2), 1e-4)
    assert len(unexcited_directions(before)) == 3


def test_refusals() -> None:
    fleet = spring()
    decoder = learnt(fleet, 2, default_rng(0))
    contexts = fleet.contexts(2, default_rng(0))
    with pytest.raises(InputError, match="no candidates"):
        rank_candidates(decoder, [], fleet.cost, fleet.start)
    with pytest.raises(InputError, match="no target machines"):
        rank_candidates(decoder, contexts, fleet.cost, fleet.start, targets=[])
    with pytest.raises(InputError, match="dither must be at least 0"):
        rank_candidates(decoder, contexts, fleet.cost, fleet.start, dither=-1.0)
    with pytest.raises(InputError, match="start must be 2 numbers"):
        rank_candidates(decoder, contexts, fleet.cost, [1.0])
    with pytest.raises(InputError, match="3 names of states and inputs"):
        unexcited_directions(decoder, ["position"])
