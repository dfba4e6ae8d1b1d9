"""One vector of unknowns for all states, against the regression that it stands for."""

from typing import Any

import numpy as np
import pytest
from numpy import ndarray as Array

import contextual_lqr as clqr
from contextual_lqr.certificates.paths.path_calibration import calibrate
from contextual_lqr.errors import InputError

NOISE = np.array([1e-3, 0.05])
PI = np.array([1.0, 0.3, 0.2])


def carts(shared: bool = True, states: float = 1.0) -> clqr.FunctionDynamics:
    """Place and speed of a cart with friction: what pushes it moves both; `states` are units."""

    def features(context: Any, x: Array, u: Array) -> Array:
        place, speed, push = x[..., 0] / states, x[..., 1] / states, u[..., 0]
        pushed, slowed = push / context["mass"], -np.tanh(speed)
        first = np.stack([place + 0.1 * speed, 0.05 * pushed, 0.05 * slowed], -1)
        second = np.stack([speed, pushed, slowed], -1)
        return np.stack([first, second], -2) * states

    bounds = {"mass": (0.5, 2.0)}
    return clqr.FunctionDynamics(features, ["place", "speed"], 1, bounds=bounds, shared=shared)


def logs(machines: int, steps: int = 40, spread: float = 0.0, seed: int = 0) -> Any:
    rng, dynamics, found = np.random.default_rng(seed), carts(), []
    for _ in range(machines):
        context = {"mass": float(rng.uniform(0.5, 2.0))}
        pi = PI + spread * rng.normal(size=3) * [0, 1, 1]
        x, u = [rng.normal(size=2)], rng.normal(size=(steps, 1))
        for h in range(steps):
            phi = dynamics.features(context, x[-1], u[h]).reshape(2, 3)
            x.append(phi @ pi + NOISE * rng.normal(size=2))
        found.append((context, clqr.Trajectory(np.array(x), u), pi))
    return found


def taught(dynamics: Any, runs: Any, **options: Any) -> clqr.Decoder:
    decoder = clqr.Decoder(dynamics, **options)
    for i, (context, played, _) in enumerate(runs):
        decoder.update(context, played, machine=f"m{i}")
    return decoder


def stated(off: float = 0.3, known: bool = True) -> clqr.Prior:
    spread = np.array([0.0 if known else off, off, off])
    law = np.kron(np.eye(2), [1.0, 0.0, 0.0])
    return clqr.Prior(law, [np.diag(np.tile(spread, 2) ** 2)] * 2)


def test_it_is_the_regression_of_all_rows_in_units_of_their_noise() -> None:
    runs = logs(4)
    decoder = taught(carts(), runs, deviations=None, noise_level=NOISE)
    rows, after = [], []
    for context, played, _ in runs:
        phi = carts().features(context, played.states[:-1], played.inputs).reshape(-1, 2, 3)
        rows.append(phi / NOISE[:, None])
        after.append(played.states[1:] / NOISE)
    A, b = np.concatenate(rows).reshape(-1, 3), np.concatenate(after).reshape(-1)
    expected = np.linalg.lstsq(A, b, rcond=None)[0]
    spread = np.sqrt(np.diagonal(np.linalg.inv(A.T @ A)))
    belief = decoder.machine({"mass": 1.0})
    for r in range(2):
        own = slice(3 * r, 3 * r + 3)
        assert (np.abs(belief.mean[r, own] - expected) < 0.2 * spread).all()
        said = np.sqrt(np.diagonal(belief.covariances[r]))[own]
        assert np.allclose(said, spread, rtol=0.1)
    assert not belief.mean[0, 3:].any()
    assert np.allclose(np.sqrt(np.diagonal(belief.noise)), NOISE, rtol=0.15)
    assert np.array_equal(decoder.estimate, belief.mean)


def test_what_one_state_has_shown_counts_for_the_other() -> None:
    """The place, 50 times less noisy, tells what the speed alone would not."""
    runs, new = logs(3, steps=20), {"mass": 1.7}
    errors = {}
    for shared in (True, False):
        mean = taught(carts(shared), runs, deviations=None).machine(new).mean
        errors[shared] = np.abs(mean[1, 3:] - PI).max()
    assert errors[True] < 0.6 * errors[False]


def test_draws_have_one_vector_for_all_states() -> None:
    decoder = taught(carts(), logs(3), prior=stated())
    belief = decoder.machine({"mass": 1.0})
    theta = belief.draw(4000, np.random.default_rng(0))
    assert np.array_equal(theta[:, 0, :3], theta[:, 1, 3:])
    assert not theta[:, 0, 3:].any()
    middle = np.quantile(theta[:, 0, 1], [0.16, 0.84])
    width = np.sqrt(belief.covariances[0, 1, 1])
    assert np.allclose(middle - belief.mean[0, 1], [-width, width], rtol=0.35)


def test_machines_deviate_in_what_all_states_share() -> None:
    runs = logs(12, spread=0.1, seed=2)
    decoder = taught(carts(), runs, prior=stated())
    S = decoder.deviations
    assert np.array_equal(S[0, :3, :3], S[1, 3:, 3:])
    assert not S[0, 0].any()  # the first is known
    assert np.allclose(np.sqrt(np.diagonal(S[0])[1:3]), 0.1, rtol=0.5)
    for i, (context, _, pi) in enumerate(runs[:4]):
        own = decoder.machine(context, f"m{i}")
        assert np.abs(own.mean[1, 4:] - pi[1:]).max() < 0.05
        assert np.array_equal(own.mean[0, :3], own.mean[1, 3:])
    batch = decoder.machines([context for context, _, _ in runs], [f"m{i}" for i in range(12)])
    assert np.allclose(batch.mean[3], decoder.machine(runs[3][0], "m3").mean)
    assert calibrate(decoder, 8).stretch < 3


def test_other_units_say_the_same() -> None:
    runs = logs(5, spread=0.1)
    large = [
        (context, clqr.Trajectory(1e3 * np.asarray(played.states), played.inputs), pi)
        for context, played, pi in runs
    ]
    one = taught(carts(), runs, prior=stated()).machine({"mass": 1.2})
    other = taught(carts(states=1e3), large, prior=stated()).machine({"mass": 1.2})
    assert np.allclose(one.mean, other.mean, rtol=1e-6, atol=1e-12)
    assert np.allclose(one.covariances, other.covariances, rtol=1e-4, atol=1e-12)
    assert np.allclose(1e6 * one.noise, other.noise, rtol=1e-6)


def test_merged_decoders_are_as_one() -> None:
    runs = logs(4, spread=0.1)
    whole = taught(carts(), runs, prior=stated())
    parts = [clqr.Decoder(whole.context_map, prior=stated()) for _ in range(2)]
    for i, (context, played, _) in enumerate(runs):
        parts[i % 2].update(context, played, machine=f"m{i}")
    parts[0].merge(parts[1])
    both = [one.machine({"mass": 1.2}).mean for one in (whole, parts[0])]
    assert np.allclose(*both, atol=1e-9)


def test_refused() -> None:
    flat = clqr.FunctionDynamics(lambda c, x, u: x, 2, 1, bounds={"mass": (1, 2)}, shared=True)
    with pytest.raises(InputError, match=r"\(\.\.\., d, p\)"):
        flat.features({"mass": 1.0}, [0.0, 0.0], [0.0])
    law = np.kron(np.eye(2), [1.0, 0.0, 0.0])
    with pytest.raises(InputError, match="no row of Θ can be known on its own"):
        clqr.Decoder(carts(), known={0: law[0]})
    law[1, 4] = 0.5
    uneven = clqr.Prior(law, [np.eye(6)] * 2)
    with pytest.raises(InputError, match="all rows of the prior must say the same"):
        clqr.Decoder(carts(), prior=uneven).machine({"mass": 1.0})
    changing = clqr.Decoder(carts(), prior=stated())
    played = logs(1)[0][1]
    changing.update(clqr.Schedule({"mass": np.linspace(1, 2, 40)}), played)
    with pytest.raises(InputError, match="does not go with shared unknowns"):
        changing.machine({"mass": 1.0})
    assert carts() != carts(shared=False)
