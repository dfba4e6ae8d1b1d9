"""Control problems made by Hypothesis, and the slow ways to solve them that tests compare with.

Hypothesis draws sizes, kinds and a seed; NumPy fills the arrays.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy import ndarray as Array
from numpy.random import Generator
from scipy.linalg import block_diag

from contextual_lqr import LinearPolicy, LinearSystem, QuadraticCost, Status

NOISE_KINDS = ("absent", "full", "some coordinates")

seeds = st.integers(0, 2**32 - 1)
batch_shapes = (
    st.just(()) | st.tuples(st.integers(1, 5)) | st.tuples(st.integers(1, 3), st.integers(1, 3))
)


class Problem(NamedTuple):
    """A control problem whose members have the shape `batch`, and the generator that made it."""

    system: LinearSystem
    cost: QuadraticCost
    start: Array
    batch: tuple[int, ...]
    rng: Generator

    def member(self, i: tuple[int, ...]) -> tuple[LinearSystem, QuadraticCost, Array]:
        """One member, as a problem of its own."""

        def pick(M: Array, core: int) -> Array:
            return np.broadcast_to(M, self.batch + M.shape[M.ndim - core :])[i]

        system, cost = self.system, self.cost
        N = None if cost.N is None else pick(cost.N, 3)
        return (
            LinearSystem(pick(system.A, 2), pick(system.B, 2), pick(system.noise, 2)),
            QuadraticCost(pick(cost.Q, 3), pick(cost.R, 3), N, indefinite=True),
            pick(self.start, 1),
        )


class Recipe(NamedTuple):
    """What Hypothesis draws (and prints). `make` is for the test: there types are checked at random
    places, which Hypothesis does not let a strategy do.
    """

    d: int
    m: int
    H: int
    batch: tuple[int, ...]
    radius: float
    noise: str
    own_noise: bool  # each member has its own, or all share one; so below
    cross: bool
    rank: int
    own_cost: bool
    own_start: bool
    seed: int

    def make(self) -> Problem:
        d, m, rng = self.d, self.m, np.random.default_rng(self.seed)
        system = random_system(rng, d, m, self.radius, self.noise, self.batch, self.own_noise)
        batch = self.batch if self.own_cost else ()
        cost = random_cost(rng, d, m, self.H, self.cross, self.rank, batch)
        start = rng.standard_normal((*(self.batch if self.own_start else ()), d))
        return Problem(system, cost, start, self.batch, rng)


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
    """Q (of this rank), R (positive definite) and N, with [[Q, N], [Nᵀ, R]] convex."""
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
def recipes(
    draw: st.DrawFn,
    max_horizon: int = 40,
    max_radius: float = 2.0,
    batches: st.SearchStrategy[tuple[int, ...]] = batch_shapes,
) -> Recipe:
    """Systems, costs and starts; each of the three is either a batch or shared by all members."""
    d, yes = draw(st.integers(1, 8)), st.booleans()
    return Recipe(
        d=d,
        m=draw(st.integers(1, 4)),
        H=draw(st.integers(2, max_horizon)),
        batch=draw(batches),
        radius=draw(st.floats(0, max_radius) | st.just(max_radius)),
        noise=draw(st.sampled_from(NOISE_KINDS)),
        own_noise=draw(yes),
        cross=draw(yes),
        rank=draw(st.integers(0, d)),
        own_cost=draw(yes),
        own_start=draw(yes),
        seed=draw(seeds),
    )


def unsolvable_at(
    i: tuple[int | slice, ...], kind: str, batch: tuple[int, ...]
) -> tuple[Problem, Status, int]:
    """Problems with 5 steps; those at index i fail, with the status and at the step returned."""
    rng = np.random.default_rng(8)
    A, B = random_dynamics(rng, 3, 2, 1.2, batch)
    Q, R, N = random_stages(rng, 3, 2, 6, 3, batch)
    step, status = 5, Status.NOT_POSITIVE_DEFINITE
    if kind == "overflow":
        A[i], status = 1e200, Status.NOT_FINITE
    elif kind == "negative R":
        step = 3
        R[(*i, step - 1)] = -1e6 * np.eye(2)
    else:  # singular: nothing penalises inputs that cancel each other
        R[i], N[i], B[i] = 0, 0, 1
    cost = QuadraticCost(Q, R, N, indefinite=True)
    problem = Problem(LinearSystem(A, B, np.eye(3)), cost, rng.standard_normal(3), batch, rng)
    return problem, status, step


# ---- slow ways to the same numbers ---------------------------------------------------------------


def cross_term(system: LinearSystem, cost: QuadraticCost) -> Array:
    shape = (cost.horizon - 1, system.state_size, system.input_size)
    return np.zeros(shape) if cost.N is None else cost.N


def dense_solution(
    system: LinearSystem, cost: QuadraticCost, starts: Array, first: int = 0
) -> tuple[Array, Array]:
    """(costs, first inputs) without noise from step `first` on, by one linear system of equations.

    Unknowns are all states, inputs and multipliers: the optimality conditions of the quadratic
    programme over the whole horizon. Eliminating the states would give the smaller programme in the
    inputs alone, but that holds powers of A up to 2^40: this one stays well-conditioned.
    """
    d, m, H = system.state_size, system.input_size, cost.horizon - first
    Q, R, N = cost.Q[first:], cost.R[first:], cross_term(system, cost)[first:]
    n, k = H * d, (H - 1) * m
    hessian = block_diag(*Q, *R) if k else block_diag(*Q)
    dynamics = np.zeros((n, n + k))
    dynamics[:, :n] = np.eye(n)
    for h in range(H - 1):
        x, after, u = h * d, (h + 1) * d, n + h * m
        hessian[x : x + d, u : u + m], hessian[u : u + m, x : x + d] = N[h], N[h].T
        dynamics[after : after + d, x : x + d] = -system.A
        dynamics[after : after + d, u : u + m] = -system.B
    conditions = np.block([[hessian, dynamics.T], [dynamics, np.zeros((n, n))]])
    given_starts = np.zeros((len(conditions), len(starts)))
    given_starts[n + k : n + k + d] = starts.T
    played = np.linalg.solve(conditions, given_starts)[: n + k]
    return ((hessian @ played) * played).sum(0), played[n : n + m].T


def lifted_policy_cost(
    policy: LinearPolicy, system: LinearSystem, cost: QuadraticCost, start: Array
) -> float:
    """Expected cost by moments: all states as one linear map of the start and all noises."""
    d, H, N = system.state_size, cost.horizon, cross_term(system, cost)
    response = [np.eye(d, H * d)]  # of state h to (start, noises)
    total = 0.0
    shocks = block_diag(np.outer(start, start), *[system.noise] * (H - 1))
    for h in range(H):
        K = policy.gains[h] if h < H - 1 else np.zeros((1, d))
        weight = cost.Q[h]
        if h < H - 1:
            weight = weight + K.T @ cost.R[h] @ K + N[h] @ K + (N[h] @ K).T
            after = system.A @ response[h] + system.B @ (K @ response[h])
            after[:, (h + 1) * d : (h + 2) * d] += np.eye(d)
            response.append(after)
        total += np.trace(weight @ response[h] @ shocks @ response[h].T)
    return total
