"""Control problems made by Hypothesis: it draws sizes, kinds and a seed; NumPy fills the arrays."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy import ndarray as Array
from numpy.random import Generator

from contextual_lqr.lqr import LinearPolicy, LinearSystem, QuadraticCost

NOISE_KINDS = ("absent", "full", "some coordinates")

seeds = st.integers(0, 2**32 - 1)
batch_shapes = (
    st.just(())
    | st.tuples(st.integers(1, 5))
    | st.tuples(st.integers(1, 3), st.integers(1, 3))
)


class Problem(NamedTuple):
    """A control problem whose members have the shape `batch`, and the generator that made it."""

    system: LinearSystem
    cost: QuadraticCost
    start: Array
    batch: tuple[int, ...]
    rng: Generator


def random_covariance(rng: Generator, d: int, kind: str, batch: tuple[int, ...] = ()) -> Array:
    factor = rng.standard_normal((*batch, d, d)) / np.sqrt(d)
    if kind == "some coordinates":
        factor[..., rng.random(d) < 0.5, :] = 0
    return factor @ factor.swapaxes(-1, -2) * (kind != "absent")


def random_dynamics(
    rng: Generator, d: int, m: int, radius: float, batch: tuple[int, ...] = ()
) -> tuple[Array, Array]:
    """A of exactly this spectral radius, and B."""
    A = rng.standard_normal((*batch, d, d))
    A *= radius / np.abs(np.linalg.eigvals(A)).max(-1)[..., None, None]
    return A, rng.standard_normal((*batch, d, m))


def random_system(
    rng: Generator,
    d: int,
    m: int,
    radius: float = 1.0,
    noise: str = "full",
    batch: tuple[int, ...] = (),
    own_noise: bool = True,
) -> LinearSystem:
    A, B = random_dynamics(rng, d, m, radius, batch)
    W = random_covariance(rng, d, noise, batch if own_noise else ())
    return LinearSystem(A, B, None if noise == "absent" else W)


def random_stages(
    rng: Generator, d: int, m: int, H: int, rank: int, batch: tuple[int, ...] = ()
) -> tuple[Array, Array, Array]:
    """Q (of this rank), R (positive definite) and N with [[Q, N], [Nᵀ, R]] convex, at every step."""
    Y = rng.standard_normal((*batch, H, d, rank)) / np.sqrt(d)
    Z = rng.standard_normal((*batch, H - 1, m, rank)) / np.sqrt(d)
    Yt, Zt = Y.swapaxes(-1, -2), Z.swapaxes(-1, -2)
    ridge = rng.uniform(0.1, 2, (*batch, H - 1, 1, 1)) * np.eye(m)
    return Y @ Yt, Z @ Zt + ridge, Y[..., :-1, :, :] @ Zt


def random_cost(
    rng: Generator,
    d: int,
    m: int,
    H: int,
    cross: bool = True,
    rank: int | None = None,
    batch: tuple[int, ...] = (),
) -> QuadraticCost:
    Q, R, N = random_stages(rng, d, m, H, d if rank is None else rank, batch)
    return QuadraticCost(Q, R, N if cross else None)


def random_policy(
    rng: Generator, d: int, m: int, H: int, batch: tuple[int, ...] = ()
) -> LinearPolicy:
    return LinearPolicy(rng.standard_normal((*batch, H - 1, m, d)) / (d + m))


@st.composite
def problems(
    draw: st.DrawFn,
    max_states: int = 8,
    max_inputs: int = 4,
    max_horizon: int = 40,
    max_radius: float = 2.0,
    batches: st.SearchStrategy[tuple[int, ...]] = batch_shapes,
) -> Problem:
    """Systems, costs and starts; each of the three is either a batch or shared by all members."""
    d, m = draw(st.integers(1, max_states)), draw(st.integers(1, max_inputs))
    H, batch = draw(st.integers(2, max_horizon)), draw(batches)
    rng = np.random.default_rng(draw(seeds))
    radius = draw(st.floats(0, max_radius) | st.just(max_radius))
    noise, own_noise = draw(st.sampled_from(NOISE_KINDS)), draw(st.booleans())
    system = random_system(rng, d, m, radius, noise, batch, own_noise)
    cross, rank, own_cost = draw(st.booleans()), draw(st.integers(0, d)), draw(st.booleans())
    cost = random_cost(rng, d, m, H, cross, rank, batch if own_cost else ())
    start = rng.standard_normal((*(batch if draw(st.booleans()) else ()), d))
    return Problem(system, cost, start, batch, rng)
