"""A decoder of dynamics that are not linear: the regression it stands for, and all its ways in."""

from typing import Any

import numpy as np
import pytest
from numpy import ndarray as Array

import contextual_lqr as clqr
from contextual_lqr.errors import InputError

BOUNDS = {"mass": (0.5, 2.0), "length": (0.5, 2.0)}
ROWS = {
    "angle": ["angle", "speed"],
    "speed": ["speed", "sin(angle)/length", "torque/(mass*length**2)"],
}
TRUE = np.array([[1, 0.05, 0, 0], [0, 0.995, 0.49, 0.05]])
TEXTS = ["angle", "speed", "sin(angle)/length", "torque/(mass*length**2)"]


def pendulum(features: Any = ROWS) -> clqr.FeatureDynamics:
    return clqr.FeatureDynamics(
        features, states=["angle", "speed"], inputs=["torque"], bounds=BOUNDS
    )


def fleet(n: int = 6, steps: int = 30, spread: float = 0.0, noise: float = 1e-3) -> Any:
    """Contexts and episodes of n pendulums; gravity differs from one to the other."""
    rng, dynamics, contexts, played, laws = np.random.default_rng(3), pendulum(), [], [], []
    for _ in range(n):
        context = {name: float(rng.uniform(*ends)) for name, ends in BOUNDS.items()}
        theta = TRUE.copy()
        theta[1, 2] += spread * rng.normal()
        x, u = np.zeros((steps + 1, 2)), rng.normal(size=(steps, 1))
        x[0] = rng.normal(size=2)
        for h in range(steps):
            phi = dynamics.features(context, x[h], u[h])
            x[h + 1] = theta @ phi + noise * rng.normal(size=2)
        contexts.append(context)
        played.append(clqr.Trajectory(x, u))
        laws.append(theta)
    return contexts, played, laws


def taught(dynamics: Any, contexts: Any, played: Any, **options: Any) -> clqr.Decoder:
    decoder = clqr.Decoder(dynamics, **options)
    decoder.update_many(contexts, played, [f"m{i}" for i in range(len(played))])
    return decoder


def stacked(dynamics: Any, contexts: Any, played: Any) -> tuple[Array, Array]:
    each = zip(contexts, played, strict=True)
    phi = [dynamics.features(c, one.states[:-1], one.inputs) for c, one in each]
    return np.concatenate(phi), np.concatenate([one.states[1:] for one in played])


def test_a_linear_fleet_written_as_dynamics_is_the_same() -> None:
    contexts, played, _ = fleet()
    law = clqr.FeatureContext(["1", "1/mass"], bounds=BOUNDS)
    names = ["angle", "speed", "torque"]
    written = [f"{f}*{name}" for f in ("1", "1/mass") for name in names]
    for options in ({}, {"regularisation": 1e-6}, {"noise_level": 0.01}):
        linear = taught(law, contexts, played, deviations=None, **options)
        as_features = taught(pendulum(written), contexts, played, deviations=None, **options)
        np.testing.assert_allclose(as_features.estimate, linear.estimate, rtol=1e-9, atol=1e-12)
        one, other = (d.machine(contexts[0]) for d in (linear, as_features))
        G = linear.context_map.matrix(contexts[0])
        np.testing.assert_allclose(other.mean @ G, one.mean, rtol=1e-9, atol=1e-12)
        covariances = G.T @ other.covariances @ G
        np.testing.assert_allclose(covariances, one.covariances, rtol=1e-7, atol=1e-14)
        np.testing.assert_allclose(other.noise, one.noise, rtol=1e-9)
        x, u = played[1].states[:-1], played[1].inputs
        found = [d.predict(contexts[1], x, u) for d in (linear, as_features)]
        np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


def linear_twice(tmp_path: Any) -> tuple[clqr.Decoder, clqr.Decoder]:
    """A linear fleet as [A, B] = Θ G and as features; saved, loaded, and merged from two halves."""
    rng, contexts = np.random.default_rng(1), fleet(8, 1)[0]
    law = clqr.FeatureContext(["1", "1/mass"], bounds=BOUNDS).sized(2, 1)
    written = [f"{f}*{name}" for f in ("1", "1/mass") for name in ("angle", "speed", "torque")]
    theta, played = np.array([[1, 0.05, 0, 0, 0, 0], [0.4, 0.98, 0, 0, 0, 0.3]]), []
    for context in contexts:
        x, u = [rng.normal(size=2)], 3 * rng.normal(size=(40, 1))
        for one in u:
            after = theta @ law.matrix(context) @ np.append(x[-1], one)
            x.append(after + 0.01 * rng.normal(size=2))
        played.append(clqr.Trajectory(x, u))
    found = []
    for i, kind in enumerate((law, pendulum(written))):
        taught(kind, contexts[:4], played[:4], deviations=None).save(tmp_path / f"{i}")
        decoder = clqr.Decoder.load(tmp_path / f"{i}")
        other = clqr.Decoder(kind, deviations=None)
        other.update_many(contexts[4:], played[4:], [f"n{k}" for k in range(4)])
        decoder.merge(other)
        found.append(decoder)
    return found[0], found[1]


@pytest.mark.parametrize("aversion", [0.0, 1.0])
def test_a_linear_fleet_written_as_dynamics_is_controlled_alike(
    tmp_path: Any, aversion: float
) -> None:
    linear, features = linear_twice(tmp_path)
    np.testing.assert_allclose(features.factor, linear.factor, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(features.log_det, linear.log_det, rtol=1e-12)
    new, cost = {"mass": 1.1, "length": 1.0}, clqr.QuadraticCost([np.eye(2)] * 13, [[[0.5]]] * 12)
    belief, start = linear.machine(new), np.array([0.5, -0.2])
    A, B = np.split(belief.mean, [2], 1)
    hedge = clqr.ModelUncertainty(aversion * belief.covariances) if aversion else None
    exact = clqr.solve(clqr.LinearSystem(A, B), cost, uncertainty=hedge)
    path = clqr.solve_trajectory(features.machine(new), cost, start, aversion=aversion)
    assert path.solved
    np.testing.assert_allclose(path.gains, exact.policy.gains, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(path.cost + path.hedge, exact.cost(start), rtol=1e-10)


def test_a_linear_fleet_written_as_dynamics_is_trusted_alike(tmp_path: Any) -> None:
    new, cost = {"mass": 1.1, "length": 1.0}, clqr.QuadraticCost([np.eye(2)] * 13, [[[0.5]]] * 12)
    proven, sampled = (clqr.certify(d, new, cost, [0.5, -0.2]) for d in linear_twice(tmp_path))
    assert (proven.verdict, sampled.verdict) == ("trust", "trust")
    assert sampled.predicted_cost == pytest.approx(proven.predicted_cost, rel=0.02)
    for own, other in ((proven, sampled), (sampled, proven)):
        low, high = own.interval
        assert low < other.predicted_cost < high


def test_with_the_identity_deviations_are_the_same_too() -> None:
    rng, played, contexts = np.random.default_rng(0), [], fleet(8, 1)[0]
    for _ in range(8):
        M = np.array([[1.0, 0.1, 0.0], [-0.2, 0.9, 0.1]]) + 0.05 * rng.normal(size=(2, 3))
        x, u = [rng.normal(size=2)], rng.normal(size=(30, 1))
        for one in u:
            x.append(M @ np.append(x[-1], one) + 0.01 * rng.normal(size=2))
        played.append(clqr.Trajectory(x, u))
    alike = {"": clqr.FeatureContext(["1"]), "f": pendulum(["angle", "speed", "torque"])}
    found = []
    for kind, one in alike.items():
        own = contexts if kind else [{}] * len(contexts)
        decoder = taught(one, own, played)
        found.append((decoder.deviations, decoder.machine(own[2], "m2").mean, decoder.estimate))
    assert found[0][0].any()
    for linear, features in zip(*found, strict=True):
        np.testing.assert_allclose(features, linear, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"deviations": None}, {"regularisation": 1e-9}])
def test_rows_of_their_own_are_regressions_of_their_own(options: Any) -> None:
    contexts, played, _ = fleet()
    dynamics = pendulum()
    decoder = taught(dynamics, contexts, played, **options)
    phi, after = stacked(dynamics, contexts, played)
    belief = decoder.machine(contexts[0])
    for r, own in enumerate(dynamics.used):
        theta, left = np.linalg.lstsq(phi[:, own], after[:, r], rcond=None)[:2]
        np.testing.assert_allclose(decoder.estimate[r, own], theta, rtol=1e-7)
        assert not decoder.estimate[r, ~own].any()
        variance = left[0] / (len(phi) - own.sum())
        assert decoder.noise_estimate[r, r] == pytest.approx(variance, rel=1e-6)
        inverse = np.linalg.inv(phi[:, own].T @ phi[:, own])
        found = belief.covariances[r] / belief.noise[r, r]
        np.testing.assert_allclose(found[np.ix_(own, own)], inverse, rtol=1e-4)
        assert not found[~own].any()


def test_one_by_one_in_tables_and_merged_is_the_same() -> None:
    contexts, played, _ = fleet(spread=0.05)
    whole = taught(pendulum(), contexts, played)
    single, table, left, right = (clqr.Decoder(pendulum()) for _ in range(4))
    for i, (context, one) in enumerate(zip(contexts, played, strict=True)):
        single.update(context, one, machine=f"m{i}")
        columns = {name: np.full(len(one), value) for name, value in context.items()}
        rows = one.states[:-1], one.inputs, one.states[1:]
        table.update_rows(columns, *rows, machine=f"m{i}", episodes=1)
        (left if i % 2 else right).update(context, one, machine=f"m{i}")
    left.merge(right)
    for other in (single, table, left):
        np.testing.assert_allclose(other.estimate, whole.estimate, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other.deviations, whole.deviations, rtol=1e-5, atol=1e-9)
        own = [d.machine(contexts[3], "m3").mean for d in (whole, other)]
        np.testing.assert_allclose(*own, rtol=1e-7, atol=1e-10)
    single.update(contexts[0], played[0], machine="m0")
    assert single.repeats == 1
    with pytest.raises(InputError, match="learnt from the same data"):
        left.merge(right)


def test_machines_that_deviate_in_what_their_row_uses() -> None:
    contexts, played, laws = fleet(12, 120, spread=0.05)
    decoder = taught(pendulum(), contexts, played)
    spread = np.sqrt(np.einsum("rii->ri", decoder.deviations))
    assert not spread[0].any()
    assert spread[1, 0] == 0.0
    assert 0.02 < spread[1, 2] < 0.1
    for i in (0, 7):
        own, shared = decoder.machine(contexts[i], f"m{i}"), decoder.machine(contexts[i])
        assert abs(own.mean - laws[i])[1, 2] < 0.01
        assert own.covariances[1, 2, 2] < shared.covariances[1, 2, 2] / 10
    drawn = decoder.machine(contexts[0]).draw(4000, np.random.default_rng(0))
    assert drawn.shape == (4000, 2, 4)
    assert not drawn[:, 1, 0].any()
    middle = np.quantile(drawn[:, 1, 2], [0.16, 0.84])
    assert np.diff(middle)[0] / 2 == pytest.approx(spread[1, 2], rel=0.35)


@pytest.mark.parametrize("units", [(1e3, 1e-2, 1e4), (1e-4, 1e3, 1e-3)])
def test_units_change_nothing(units: tuple[float, float, float]) -> None:
    contexts, played, _ = fleet(5)
    a, s, t = units
    rows = [
        [f"angle/{a}", f"speed/{s}"],
        [f"speed/{s}", f"sin(angle/{a})/length", f"(torque/{t})/(mass*length**2)"],
    ]
    moved = [clqr.Trajectory(one.states * [a, s], one.inputs * t) for one in played]
    for sized in (False, True):
        scales = [1.0, 2.0, 1.0]
        plain = taught(pendulum(), contexts, played, **({"scales": scales} if sized else {}))
        own = {"scales": np.array(scales) * units} if sized else {}
        other = taught(pendulum(rows), contexts, moved, **own)
        x, u = played[2].states[:-1], played[2].inputs
        here = plain.predict(contexts[2], x, u)
        there = other.predict(contexts[2], x * [a, s], u * t)
        np.testing.assert_allclose(there / [a, s], here, rtol=1e-6, atol=1e-9)
        beliefs = (d.machine(contexts[2]).covariances for d in (plain, other))
        sizes = [np.sqrt(np.einsum("rii->ri", one)) for one in beliefs]
        np.testing.assert_allclose(sizes[1] / [[a], [s]], sizes[0], rtol=1e-5, atol=1e-12)


def test_it_is_saved_and_loaded_to_the_bit(tmp_path: Any) -> None:
    contexts, played, _ = fleet(spread=0.05)
    decoder = taught(pendulum(), contexts, played)
    decoder.save(tmp_path / "a")
    again = clqr.Decoder.load(tmp_path / "a")
    np.testing.assert_array_equal(again.estimate, decoder.estimate)
    own = [d.machine(contexts[1], "m1").mean for d in (decoder, again)]
    np.testing.assert_array_equal(*own)
    assert again.context_map == decoder.context_map
    again.update(contexts[0], played[0], machine="m0")
    assert again.repeats == 1


def test_a_function_is_any_context() -> None:
    contexts, played, _ = fleet()

    def f(context: Any, x: Array, u: Array) -> Array:
        mass, length = context
        last = u[..., 0] / (mass * length**2)
        return np.stack([x[..., 0], x[..., 1], np.sin(x[..., 0]) / length, last], -1)

    pairs = [(c["mass"], c["length"]) for c in contexts]
    decoder = taught(clqr.FunctionDynamics(f, 2, 1), pairs, played)
    wanted = taught(pendulum(TEXTS), contexts, played)
    np.testing.assert_allclose(decoder.estimate, wanted.estimate, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        decoder.machine(pairs[2], "m2").mean, wanted.machine(contexts[2], "m2").mean, atol=1e-10
    )
    with pytest.raises(InputError, match="no data of a machine 'm2' with this context"):
        decoder.machine(pairs[3], "m2")
    batch = decoder.machines(pairs[:3])
    x, u = played[0].states[:3], played[0].inputs[:3]
    each = [decoder.predict(pair, x[i], u[i]) for i, pair in enumerate(pairs[:3])]
    np.testing.assert_allclose(batch.step(x, u), each, rtol=1e-12)


def test_a_path_is_linearised() -> None:
    contexts, played, _ = fleet()
    belief = taught(pendulum(), contexts, played).machine(contexts[0])
    x, u, h = played[0].states[:-1], played[0].inputs, 1e-6
    about = belief.linearise(x, u)
    assert about.steps == len(x)
    for j in range(2):
        ends = [belief.step(x + e * np.eye(2)[j], u) for e in (h, -h)]
        np.testing.assert_allclose(about.A[..., j], (ends[0] - ends[1]) / (2 * h), atol=1e-8)
    ends = [belief.step(x, u + e) for e in (h, -h)]
    np.testing.assert_allclose(about.B[..., 0], (ends[0] - ends[1]) / (2 * h), atol=1e-8)


def test_a_schedule_of_contexts_is_learnt_from() -> None:
    contexts, played, _ = fleet(4)
    one, rng = played[0], np.random.default_rng(0)
    masses = rng.uniform(0.5, 2.0, len(one))
    decoder = taught(pendulum(), contexts, played)
    decoder.update(clqr.Schedule({"mass": masses, "length": 1.0}), one, machine="s")
    own = {"mass": masses, "length": np.ones(len(one))}
    phi = np.stack(pendulum().encode(own, list(one.states[:-1].T), list(one.inputs.T)), 1)
    all_phi, after = stacked(pendulum(), contexts, played)
    phi, after = np.concatenate((all_phi, phi)), np.concatenate((after, one.states[1:]))
    used = pendulum().used[1]
    wanted = np.linalg.lstsq(phi[:, used], after[:, 1], rcond=None)[0]
    np.testing.assert_allclose(decoder.estimate[1, used], wanted, rtol=1e-6)


def test_what_is_for_linear_machines_is_refused() -> None:
    contexts, played, _ = fleet()
    decoder = taught(pendulum(), contexts, played)
    cost = clqr.QuadraticCost([np.eye(2)] * 5, [np.eye(1)] * 4)
    for wrong in (
        lambda: decoder.system(contexts[0]),
        lambda: decoder.systems(contexts),
        lambda: decoder.schedule({"mass": np.ones(4), "length": 1.0}),
        lambda: clqr.rank_candidates(decoder, contexts, cost, [1.0, 0.0]),
    ):
        with pytest.raises(InputError, match="is for linear machines"):
            wrong()
    with pytest.raises(InputError, match="is nonlinear, and has no A and B"):
        _ = decoder.machine(contexts[0]).system
    with pytest.raises(InputError, match=r"states must be \(..., 2\) and inputs \(..., 1\)"):
        taught(clqr.FeatureContext(["1"]), [{}] * 6, played).predict({}, [1.0], [1.0])
    with pytest.raises(InputError, match="6 trajectories, but 2 contexts"):
        decoder.update_many(contexts[:2], played)
    f = clqr.FunctionDynamics(lambda c, x, u: x, 2, 1)
    f.features(None, [1.0, 1.0], [1.0])
    with pytest.raises(InputError, match="declare bounds of the contexts"):
        clqr.Decoder(f, scales=[1, 1, 1]).machine(None)


def test_what_no_log_excites_is_named() -> None:
    contexts, played, _ = fleet(3)
    still = [clqr.Trajectory(one.states, 0 * one.inputs) for one in played]
    found = clqr.unexcited_directions(taught(pendulum(), contexts, still))
    assert [str(one) for one in found] == ["torque/(mass*length**2) is never excited"]
    assert not clqr.unexcited_directions(taught(pendulum(), contexts, played))
    same = [contexts[0]] * 3
    both = pendulum([*TEXTS, "sin(angle)/length**2"])
    (one,) = clqr.unexcited_directions(taught(both, same, played))
    assert set(one.columns) == {"sin(angle)/length", "sin(angle)/length**2"}
