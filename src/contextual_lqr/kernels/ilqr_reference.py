"""Iterative LQR in NumPy: what is computed, and the fallback.

The problem, for each member of a batch, over T = H-1 steps (no sum is halved anywhere):

    x[t+1] = Θ φ(x[t], u[t]),  low ≤ u ≤ high         φ (p,) features, J = ∂φ/∂(x, u), (p, y)
    cost   = Σ eᵀQe + rᵀRr + 2eᵀNr over the steps, and eᵀQe of the last state
    e      = x - target, of states with a period the nearest way round;  r = u - its target

Where Θ itself is uncertain, row r with the covariance Σ_r, x' has the variance φᵀΣ_rφ in state r,
which costs P_rr of it: the hedge, Σ_t Σ_r w[t]_r φᵀΣ_rφ with w[t]_r = P[t+1]_rr.

A backward pass models the cost-to-go about the path as c + 2vᵀδx + δxᵀPδx. With F = ΘJ, y = [x; u],

    q = [Qe + Nr; Rr + Nᵀe] + Fᵀv + JᵀSφ,   M = [Q N; Nᵀ R] + FᵀPF + JᵀSJ,   S = Σ_r w_r Σ_r
    k = argmin 2q_uᵀk + kᵀHk within low ≤ u + k ≤ high,   H = M_uu with its diagonal damped
    K = -H⁻¹M_ux in the inputs that are free, 0 in those that press against a limit
    P = M_xx + KᵀM_uuK + KᵀM_ux + M_xuK,   v = q_x + Kᵀ(M_uu k + q_u) + M_xu k

(Gauss-Newton: the second derivatives of φ are left out, and M stays positive semi-definite.) The
next path is that of u + αk + K δx, clipped, for the first α of 1, 1/2, 1/4 ... which lowers the
cost and the hedge by enough of what the model expects, -(α 2q_uᵀk + α² kᵀM_uuk) summed over the
steps. If none does, the damping grows, as in Levenberg-Marquardt: in proportion to the diagonal,
which has no units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from contextual_lqr.kernels.reference import NOT_FINITE, NOT_POSITIVE_DEFINITE, SOLVED
from contextual_lqr.kernels.stationary_reference import NOT_CONVERGED

STALLED, DIVERGED = 8, 9

_SUFFICIENT, _ROUNDED = 1e-4, 1e-13
_LEAST_DAMPING, _MOST_DAMPING, _DAMPING_STEP = 1e-3, 1e8, 8.0
_HALVINGS, _SMALL, _NEWTON = 10, 4, 100


class PathProblem(NamedTuple):
    """One leading axis, of the batch's length or 1; `period` is one for all members, 0 for none."""

    theta: Float[Array, "n d p"]
    covariances: Float[Array, "n d p p"] | None
    Q: Float[Array, "n H d d"]
    R: Float[Array, "n T m m"]
    N: Float[Array, "n T d m"] | None
    target: Float[Array, "n H d"]
    input_target: Float[Array, "n T m"]
    low: Float[Array, "n m"] | None
    high: Float[Array, "n m"] | None
    period: Float[Array, " d"]


class Program(NamedTuple):
    """Features as instructions on registers: variables, constants, then one for each instruction.

    A line of `code` is an operation (a place in `OPERATIONS`) and the registers of its operands;
    `outputs` are the registers of the features, `contexts` what the last of the variables are.
    """

    code: Int[Array, "lines 3"]
    constants: Float[Array, " constants"]
    outputs: Int[Array, " p"]
    contexts: Float[Array, "n c"]


OPERATIONS = (
    *("add", "subtract", "multiply", "divide", "power", "negative", "sqrt", "exp", "log"),
    *("sin", "cos", "tan", "tanh", "abs", "asin", "acos", "atan", "sinh", "cosh", "sign"),
    *("atan2", "hypot", "min", "max"),
)
"""The operations of a program, by their names in expressions."""


class Features(NamedTuple):
    """φ and ∂φ/∂(x, u) of members, (n, p) and (n, p, y), from which=(n,), x=(n, d), u=(n, m)."""

    values: Callable[[Array, Array, Array], Array]
    jacobian: Callable[[Array, Array, Array], Array]
    program: Program | None = None


class Guess(NamedTuple):
    """The first path is that of u = inputs + feedback (x - states), clipped; or of the inputs."""

    inputs: Float[Array, "n T m"]
    states: Float[Array, "n H d"] | None = None
    feedback: Float[Array, "n T m d"] | None = None


class Paths(NamedTuple):
    """Where each member ended; `hedge` is what uncertainty adds to the cost of the path."""

    states: Float[Array, "n H d"]
    inputs: Float[Array, "n T m"]
    gains: Float[Array, "n T m d"]
    cost: Float[Array, " n"]
    hedge: Float[Array, " n"]
    status: Int[Array, " n"]
    iterations: Int[Array, " n"]


class Pass(NamedTuple):
    """What a backward pass finds; `expected` is (Σ 2q_uᵀk, Σ kᵀM_uuk)."""

    offsets: Float[Array, "n T m"]
    gains: Float[Array, "n T m d"]
    expected: Float[Array, "n 2"]
    weights: Float[Array, "n T d"]
    hedge: Float[Array, " n"]
    status: Int[Array, " n"]


Backward = Callable[[PathProblem, Array, Array, Array, Array, Array], Pass]


def backward(
    problem: PathProblem,
    states: Float[Array, "n H d"],
    inputs: Float[Array, "n T m"],
    phi: Float[Array, "n T p"],
    J: Float[Array, "n T p y"],
    damping: Float[Array, " n"],
) -> Pass:
    """One backward pass along the paths."""
    n, T, m = inputs.shape
    d = states.shape[-1]
    offsets, gains = np.zeros((n, T, m)), np.zeros((n, T, m, d))
    expected, weights = np.zeros((n, 2)), np.zeros((n, T, d))
    status = np.full(n, SOLVED, np.int8)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        e, r = _deviations(problem, states, inputs)
        P = np.broadcast_to(problem.Q[:, T], (n, d, d)).copy()
        v = _apply(P, e[:, T])
        for t in range(T - 1, -1, -1):
            F = problem.theta @ J[:, t]
            Q, R = problem.Q[:, t], problem.R[:, t]
            M = F.mT @ P @ F
            M[:, :d, :d] += Q
            M[:, d:, d:] += R
            q = _apply(F.mT, v)
            q[:, :d] += _apply(Q, e[:, t])
            q[:, d:] += _apply(R, r[:, t])
            if problem.N is not None:
                N = problem.N[:, t]
                M[:, :d, d:] += N
                M[:, d:, :d] += N.mT
                q[:, :d] += _apply(N, r[:, t])
                q[:, d:] += _apply(N.mT, e[:, t])
            weights[:, t] = np.maximum(np.diagonal(P, axis1=1, axis2=2), 0.0)
            if problem.covariances is not None:
                S = np.einsum("nr,nrij->nij", weights[:, t], _full(problem.covariances, n))
                M += J[:, t].mT @ S @ J[:, t]
                q += _apply(J[:, t].mT, _apply(S, phi[:, t]))
            finite = np.isfinite(M).all((1, 2)) & np.isfinite(q).all(1)
            status[~finite & (status == SOLVED)] = NOT_FINITE
            H = M[:, d:, d:] * (1 + damping[:, None, None] * np.eye(m))
            for i in np.flatnonzero(status == SOLVED).tolist():
                low = None if problem.low is None else _own(problem.low, i) - inputs[i, t]
                high = None if problem.high is None else _own(problem.high, i) - inputs[i, t]
                found = _boxed(H[i], q[i, d:], low, high)
                if found is None:
                    status[i] = NOT_POSITIVE_DEFINITE
                    continue
                offsets[i, t], free = found
                gains[i, t, free] = -np.linalg.solve(H[i][np.ix_(free, free)], M[i, d:, :d][free])
            k, K = offsets[:, t], gains[:, t]
            Hk = _apply(M[:, d:, d:], k)
            expected += np.stack((2 * np.vecdot(q[:, d:], k), np.vecdot(k, Hk)), 1)
            v = q[:, :d] + _apply(K.mT, Hk + q[:, d:]) + _apply(M[:, :d, d:], k)
            P = M[:, :d, :d] + K.mT @ (M[:, d:, d:] @ K + M[:, d:, :d]) + M[:, :d, d:] @ K
            P = (P + P.mT) / 2
        hedge = _hedge(problem, weights, phi)
    return Pass(offsets, gains, expected, weights, hedge, status)


def ilqr(
    problem: PathProblem,
    features: Features,
    start: Float[Array, "n d"],
    guess: Guess,
    *,
    iterations: int,
    tolerance: float,
    threads: int = 1,
    backward: Backward = backward,
) -> Paths:
    """The path of least cost near the guess, for every member; see the head of this file."""
    n, (T, m), d = len(start), guess.inputs.shape[1:], start.shape[1]
    everyone = np.arange(n)
    K = np.zeros((n, T, m, d))
    w, damping = np.zeros((n, T, d)), np.zeros(n)
    status, used = np.full(n, NOT_CONVERGED, np.int8), np.zeros(n, np.int32)

    def first(t: int, x: Array) -> Array:
        u = guess.inputs[:, t]
        if guess.states is None or guess.feedback is None:
            return u
        off = _wrapped(x - guess.states[:, t], problem.period)
        return np.asarray(u + _apply(guess.feedback[:, t], off))

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        x, u, phi, cost = _roll_out(problem, features, everyone, start, first)
        status[~np.isfinite(cost)] = DIVERGED
        J = np.zeros((n, T, problem.theta.shape[-1], d + m))
        moved = np.isfinite(cost)
        opened = np.flatnonzero(moved)
        while opened.size:
            fresh = np.flatnonzero(moved & np.isin(everyone, opened))
            J[fresh] = _jacobians(features, fresh, x, u)
            part = _members(problem, opened)
            found = backward(part, x[opened], u[opened], phi[opened], J[opened], damping[opened])
            K[opened], w[opened] = found.gains, found.weights
            status[opened] = found.status
            good = found.status == SOLVED
            before, decrease = cost[opened] + found.hedge, -found.expected.sum(1)
            share = np.divide((1 + damping[opened]) * decrease, np.abs(before))
            ended = good & ((~(decrease > 0)) | (share <= tolerance))
            limit = good & ~ended & (used[opened] == iterations)
            status[opened[limit]] = NOT_CONVERGED
            search = good & ~ended & ~limit
            halvings = np.full(len(opened), _HALVINGS)
            moved[:] = False
            for half in range(_HALVINGS):
                left = np.flatnonzero(search & (halvings == _HALVINGS))
                if not left.size:
                    break
                ids, size = opened[left], 0.5**half
                one = _members(problem, ids)
                old_x, old_u = x[ids], u[ids] + size * found.offsets[left]

                def step(
                    t: int, now: Array, at: Array = old_x, base: Array = old_u, who: Array = ids
                ) -> Array:
                    return np.asarray(base[:, t] + _apply(K[who, t], now - at[:, t]))

                nx, nu, nphi, then = _roll_out(one, features, ids, start[ids], step)
                expects = -found.expected[left] @ np.array([size, size**2])
                after = then + _hedge(one, w[ids], nphi)
                better = before[left] - after >= _SUFFICIENT * expects
                at = ids[better]
                x[at], u[at], phi[at], cost[at] = nx[better], nu[better], nphi[better], then[better]
                halvings[left[better]] = half
                moved[at] = True
            used[opened[halvings < _HALVINGS]] += 1
            ended |= search & (halvings == _HALVINGS) & (share <= _ROUNDED)
            hold = ended | limit | (found.status == NOT_FINITE)
            more = damping[opened]
            grown = np.where(more > 0, more * _DAMPING_STEP, _LEAST_DAMPING)
            less = np.where(more > _LEAST_DAMPING, more / _DAMPING_STEP, 0.0)
            more = np.where(halvings >= _SMALL, grown, np.where(halvings == 0, less, more))
            damping[opened] = np.where(hold, damping[opened], more)
            stalled = ~hold & (more > _MOST_DAMPING)
            status[opened[stalled]] = STALLED
            opened = opened[~hold & ~stalled]
        again = np.flatnonzero((damping > 0) & (status != NOT_FINITE))
        if again.size:  # the gains to play are not damped
            part, none = _members(problem, again), np.zeros(len(again))
            last = backward(part, x[again], u[again], phi[again], J[again], none)
            K[again], w[again] = last.gains, last.weights
        hedge = _hedge(problem, w, phi)
    return Paths(x, u, K, cost, hedge, status, used)


def _roll_out(
    problem: PathProblem,
    features: Features,
    which: Array,
    start: Array,
    inputs: Callable[[int, Array], Array],
) -> tuple[Array, Array, Array, Array]:
    """States, inputs, features and costs; a member that leaves the finite numbers has none."""
    n, d = start.shape
    T, m, p = problem.R.shape[1], problem.R.shape[-1], problem.theta.shape[-1]
    x, u, phi = np.zeros((n, T + 1, d)), np.zeros((n, T, m)), np.zeros((n, T, p))
    x[:, 0] = start
    alive = np.ones(n, bool)
    for t in range(T):
        u[:, t] = inputs(t, x[:, t])
        if problem.low is not None:
            u[:, t] = np.clip(u[:, t], problem.low, problem.high)
        some = np.flatnonzero(alive)
        phi[some, t] = features.values(which[some], x[some, t], u[some, t])
        x[:, t + 1] = _apply(problem.theta, phi[:, t])
        alive &= np.isfinite(x[:, t + 1]).all(1) & np.isfinite(phi[:, t]).all(1)
        x[~alive, t + 1 :] = 0.0
        u[~alive, t:] = 0.0
    e, r = _deviations(problem, x, u)
    cost = np.einsum("nti,ntij,ntj->n", e, _full(problem.Q, n), e)
    cost += np.einsum("nti,ntij,ntj->n", r, _full(problem.R, n), r)
    if problem.N is not None:
        cost += 2 * np.einsum("nti,ntij,ntj->n", e[:, :T], _full(problem.N, n), r)
    return x, u, phi, np.where(alive, cost, np.nan)


def _jacobians(features: Features, which: Array, x: Array, u: Array) -> Array:
    n, (T, m), d = len(which), u.shape[1:], x.shape[-1]
    flat = features.jacobian(
        np.repeat(which, T), x[which, :T].reshape(-1, d), u[which].reshape(-1, m)
    )
    return flat.reshape(n, T, *flat.shape[1:])


def _boxed(
    H: Float[Array, "m m"], q: Float[Array, " m"], low: Array | None, high: Array | None
) -> tuple[Float[Array, " m"], Bool[Array, " m"]] | None:
    """k of least 2qᵀk + kᵀHk within its limits, and which inputs are free: projected Newton."""
    low = np.full(len(q), -np.inf) if low is None else low
    high = np.full(len(q), np.inf) if high is None else high
    k = np.clip(np.zeros(len(q)), low, high)
    free = np.ones(len(q), bool)
    for _ in range(_NEWTON):
        slope, now = q + H @ k, k @ (2 * q + H @ k)
        free = ~(((k <= low) & (slope > 0)) | ((k >= high) & (slope < 0)))
        try:
            L = np.linalg.cholesky(H[np.ix_(free, free)])
        except np.linalg.LinAlgError:
            return None
        step = np.zeros(len(q))
        step[free] = -np.linalg.solve(L.T, np.linalg.solve(L, slope[free]))
        if not -step @ slope > 1e-14 * abs(now):
            break
        for half in range(40):
            tried = np.clip(k + 0.5**half * step, low, high)
            if tried @ (2 * q + H @ tried) < now:
                k = tried
                break
        else:
            break
    return k, free


def _hedge(problem: PathProblem, weights: Array, phi: Array) -> Array:
    """Σ_r w_r φᵀΣ_rφ along the path."""
    if problem.covariances is None:
        return np.zeros(len(phi))
    S = _full(problem.covariances, len(phi))
    return np.asarray(np.einsum("ntr,nti,nrij,ntj->n", weights, phi, S, phi, optimize=True))


def _deviations(problem: PathProblem, x: Array, u: Array) -> tuple[Array, Array]:
    return _wrapped(x - problem.target, problem.period), u - problem.input_target


def _wrapped(off: Array, period: Array) -> Array:
    turn = np.where(period > 0, period, 1.0)
    return off - np.where(period > 0, turn * np.floor(off / turn + 0.5), 0.0)


def _members(problem: PathProblem, which: Array) -> PathProblem:
    each = {
        name: array[which]
        for name, array in problem._asdict().items()
        if name != "period" and array is not None and len(array) != 1
    }
    return problem._replace(**each)


def _own(array: Array, i: int) -> Array:
    return np.asarray(array[0 if len(array) == 1 else i])


def _full(array: Array, n: int) -> Array:
    return np.broadcast_to(array, (n, *array.shape[1:]))


def _apply(M: Array, v: Array) -> Array:
    return np.asarray((M @ v[..., None])[..., 0])
