"""Episodes whose context changes: they teach the law what they say, deviations included."""

from pathlib import Path

import numpy as np
import pytest
from numpy import ndarray as Array
from numpy.random import Generator, default_rng

from contextual_lqr import Decoder, FeatureContext, Schedule, Trajectory
from contextual_lqr.errors import InputError

NOISE, STEPS = 0.01, 25
LAW = np.array([[1, 0.1, 0, 0, 0, 0], [0, 1, 0, 0, -0.05, 0.1]])  # of 1 and 1/inertia
CONTEXTS = FeatureContext(["1", "1/inertia"], states=2, inputs=1)


def episode(rng: Generator, inertia: Array, deviation: Array) -> Trajectory:
    G = CONTEXTS.matrices({"inertia": inertia})
    states, inputs = [rng.standard_normal(2)], rng.standard_normal((STEPS, 1))
    for h, u in enumerate(inputs):
        y = np.concatenate((states[-1], u))
        states.append((LAW @ G[h] + deviation) @ y + NOISE * rng.standard_normal(2))
    return Trajectory(np.array(states), inputs)


def fleet(
    seed: int, machines: int, size: float, episodes: int = 2, stays: bool = False
) -> list[tuple[str, Schedule, Trajectory]]:
    """Labels, schedules and episodes of machines whose second row deviates."""
    rng, played = default_rng(seed), []
    for i in range(machines):
        deviation = np.zeros((2, 3))
        deviation[1] = size * rng.standard_normal(3)
        for _ in range(episodes):
            first, last = rng.uniform(0.5, 2.0, 2)
            inertia = np.full(STEPS, first) if stays else np.linspace(first, last, STEPS)
            played.append(
                (f"m{i}", Schedule({"inertia": inertia}), episode(rng, inertia, deviation))
            )
    return played


def learnt(played: list[tuple[str, Schedule, Trajectory]], **options: object) -> Decoder:
    decoder = Decoder(CONTEXTS, 1e-4, noise_level=NOISE, **options)  # type: ignore[arg-type]
    for label, schedule, trajectory in played:
        decoder.update(schedule, trajectory, machine=label)
    return decoder


def test_the_law_is_that_of_generalised_least_squares_over_all_rows() -> None:
    S = np.array([np.zeros((3, 3)), np.diag([0.04, 0.01, 0.09]) ** 2 * 25])
    played = fleet(0, 6, 0.05)
    decoder = learnt(played, deviations=S)
    population = decoder.population
    assert population is not None
    r, variance = 1, population.variances[1]
    V, right = 1e-4 * np.eye(6), np.zeros(6)
    for label in sorted({label for label, *_ in played}):
        own = [(s, t) for name, s, t in played if name == label]
        y = np.concatenate([np.concatenate((t.states[:-1], t.inputs), 1) for _, t in own])
        G = np.concatenate([CONTEXTS.matrices(s.contexts) for s, _ in own])
        z, after = (G @ y[..., None])[..., 0], np.concatenate([t.states[1:, r] for _, t in own])
        covariance = np.eye(len(y)) + y @ S[r] @ y.T / variance
        V += z.T @ np.linalg.solve(covariance, z)
        right += z.T @ np.linalg.solve(covariance, after)
    np.testing.assert_allclose(population.pooled.theta[r], np.linalg.solve(V, right), rtol=1e-6)
    U = population.pooled.U[r]
    np.testing.assert_allclose(U.T @ U, V, rtol=1e-6, atol=1e-9 * np.abs(V).max())


def test_a_schedule_that_stays_says_what_its_context_says() -> None:
    played = fleet(1, 25, 0.1, episodes=1, stays=True)
    changing, constant = learnt(played), Decoder(CONTEXTS, 1e-4, noise_level=NOISE)
    for label, schedule, trajectory in played:
        constant.update(schedule.one_by_one[0], trajectory, machine=label)
    np.testing.assert_allclose(changing.estimate, constant.estimate, rtol=1e-9, atol=1e-12)
    S = constant.deviations
    assert S[1].any()
    np.testing.assert_allclose(changing.deviations, S, atol=1e-3 * np.abs(S).max())
    a, b = (one.machine({"inertia": 1.3}) for one in (changing, constant))
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-5)
    np.testing.assert_allclose(a.covariances, b.covariances, atol=2e-3 * b.covariances.max())


def test_deviations_are_found_and_machines_never_seen_lie_within_them() -> None:
    """Rows pooled as if machines did not deviate would claim far too much."""
    inside, claimed = [], []
    for seed in range(4):
        decoder = learnt(fleet(10 + seed, 12, 0.1))
        spread = np.sqrt(np.einsum("rii->ri", decoder.deviations))
        assert 0.04 < spread[1].max() < 0.25
        assert not decoder.deviations[0].any()
        belief, off = decoder.machine({"inertia": 1.0}), default_rng(seed).standard_normal((50, 3))
        truth = (LAW @ CONTEXTS.matrix({"inertia": 1.0}))[1] + 0.1 * off
        error = (truth - belief.mean[1]) / np.sqrt(np.diagonal(belief.covariances[1]))
        inside.append((np.abs(error) < 2).mean())
        plain = learnt(fleet(10 + seed, 12, 0.1), deviations=None)
        claimed.append(plain.machine({"inertia": 1.0}).covariances[1].max())
        assert claimed[-1] < belief.covariances[1].max() / 10
    assert np.mean(inside) > 0.85


def test_what_was_learnt_is_saved_merged_left_out_and_not_learnt_twice(tmp_path: Path) -> None:
    played = fleet(2, 5, 0.1)
    all_at_once = learnt(played)
    rng = default_rng(3)
    for _ in range(3):  # machines of a constant context beside them
        own = episode(rng, np.full(STEPS, 0.7), np.zeros((2, 3)))
        all_at_once.update({"inertia": 0.7}, own, machine="still")
    before = all_at_once.rows
    all_at_once.update(*played[0][1:], machine="m0")
    assert (all_at_once.rows, all_at_once.repeats) == (before, 1)
    all_at_once.save(tmp_path / "one.decoder")
    again = Decoder.load(tmp_path / "one.decoder")
    np.testing.assert_array_equal(again.deviations, all_at_once.deviations)
    parts = learnt(played[:5])
    parts.merge(learnt(played[5:]))
    whole = learnt(played)
    np.testing.assert_allclose(parts.deviations, whole.deviations, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(parts.estimate, whole.estimate, rtol=1e-9, atol=1e-12)
    fewer = all_at_once.without(["m1", "still"])
    rest = learnt([one for one in played if one[0] != "m1"])
    np.testing.assert_allclose(fewer.estimate, rest.estimate, rtol=1e-9, atol=1e-12)
    assert fewer.rows == rest.rows
    twin = whole.copy()
    twin.update(*fleet(9, 1, 0.0)[0][1:], machine="m0")
    assert whole.rows < twin.rows
    np.testing.assert_array_equal(whole.deviations, learnt(played).deviations)


def test_a_schedule_must_have_a_context_for_each_step() -> None:
    ((_, schedule, trajectory), _) = fleet(4, 1, 0.0)
    decoder = Decoder(CONTEXTS, 1e-4)
    with pytest.raises(InputError, match="has 25 steps, but the schedule 3 contexts"):
        decoder.update(Schedule({"inertia": [1.0, 2.0, 3.0]}), trajectory)
    assert decoder.rows == 0
    decoder.update(schedule, trajectory)  # without a label it is a machine too
    assert decoder.rows == STEPS
