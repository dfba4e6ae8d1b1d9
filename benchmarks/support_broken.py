"""Machines that break the model's assumptions, and what controllers truly cost on them.

The truth about n machines, of which the model knows the first line at most:

    x' = A x + B (u - friction(x)) + w       A (n, d, d)   B (n, d, m)   E[w wᵀ] = W (d, d)
    delay         the input of the step before acts instead
    correlation   w' = ρ w + √(1-ρ²) e, from w = 0 at the start, E[e eᵀ] = W
    friction      Coulomb's, c_j sign(velocity_j), between an input and the velocity it drives
    error         what is seen is x + v, v of these standard deviations
    quantum       what is seen is x, rounded to multiples of this

`paid` is the expected cost of u = K · (what is seen), `best` that of the best controller that knows
this truth and remembers all that was seen: LQR with the delayed input and the noise's memory among
the states, and LQG where there is measurement error. With friction no such optimum is known: there
`best` is the cost of gains that were optimised on the machine itself, by simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray as Array

import contextual_lqr as clqr

RUNS = 100  # simulated for each machine where there is no formula; the same shocks for every policy
ROUNDS = 6  # of linearisation along the runs, to optimise gains under friction


@dataclass(frozen=True, eq=False)
class Machines:
    """The truth about n machines, as above; `drives` pairs inputs with velocities."""

    A: Array
    B: Array
    noise: Array
    delay: bool = False
    correlation: float = 0.0
    friction: Array | None = None  # (n, inputs)
    drives: tuple[tuple[int, int], ...] = ()
    error: Array | None = None  # (d,)
    quantum: Array | None = None  # (d,)
    degrees: float = np.inf  # of Student's t for the shocks, scaled to the same covariance
    smooth = False  # whether `least` finds the least cost with a fault (support_worn.py)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many machines, states, inputs."""
        return self.B.shape  # type: ignore[return-value]

    def shocks(self, runs: int, steps: int, rng: np.random.Generator) -> Array:
        """The process noise of `runs` episodes of every machine, (n, runs, steps, d)."""
        n, d, _ = self.sizes
        shape = (n, runs, steps, d)
        if np.isinf(self.degrees):
            e = rng.standard_normal(shape)
        else:
            e = rng.standard_t(self.degrees, shape) / np.sqrt(self.degrees / (self.degrees - 2))
        e *= np.sqrt(np.diagonal(self.noise))  # which is diagonal in all our fleets
        rho = self.correlation
        if rho:
            e *= np.sqrt(1 - rho**2)
            for t in range(1, steps):
                e[..., t, :] += rho * e[..., t - 1, :]
        return e

    def seen(self, x: Array, rng: np.random.Generator) -> Array:
        """The states as the sensors show them."""
        if self.error is not None:
            x = x + self.error * rng.standard_normal(x.shape)
        if self.quantum is not None:
            step = np.where(self.quantum > 0, self.quantum, 1.0)
            x = np.where(self.quantum > 0, np.round(x / step) * step, x)
        return x

    def run(
        self, gains: Array, start: Array, shocks: Array, rng: np.random.Generator, dither: float = 0
    ) -> tuple[Array, Array, Array]:
        """True states, seen states (n, runs, steps + 1, d) and inputs (n, runs, steps, m).

        Gains (n, steps, m, d); starts (n, runs, d) or a part of that; dither (m,) is a deviation.
        """
        n, runs, steps, d = shocks.shape
        m = self.B.shape[-1]
        x = np.broadcast_to(start, (n, runs, d))
        before = np.zeros((n, runs, m))
        states, shown, inputs = [x], [self.seen(x, rng)], []
        At, Bt = self.A.swapaxes(1, 2), self.B.swapaxes(1, 2)
        for t in range(steps):
            u = shown[-1] @ gains[:, t].swapaxes(1, 2)
            u = u + dither * rng.standard_normal(u.shape)
            acting = before if self.delay else u
            if self.friction is not None:
                acting = acting - self.resistance(x)
            x = x @ At + acting @ Bt + shocks[:, :, t]
            states.append(x)
            shown.append(self.seen(x, rng))
            inputs.append(u)
            before = u
        return np.stack(states, 2), np.stack(shown, 2), np.stack(inputs, 2)

    def resistance(self, x: Array) -> Array:
        """Coulomb's friction, as the input that would do the same."""
        force = np.zeros((*x.shape[:-1], self.B.shape[-1]))
        if self.friction is not None:
            for j, velocity in self.drives:
                against = self.friction[:, j] * np.sign(self.B[:, velocity, j])
                force[..., j] = (against * np.sign(x[..., velocity]).T).T
        return force

    @property
    def simulated(self) -> bool:
        """Whether costs have to be simulated."""
        return self.friction is not None or self.quantum is not None

    def paid(self, gains: Array, cost: clqr.QuadraticCost, start: Array) -> Array:
        """The expected cost of gains (n, steps, m, d) on each machine."""
        plain = self._paid_by_formula(gains, cost, start)
        if not self.simulated:
            return plain
        # Simulated is only the difference to the plain machine on the same shocks.
        shocks = self.shocks(RUNS, gains.shape[1], np.random.default_rng(0))
        twin = replace(self, friction=None, quantum=None)
        with np.errstate(over="ignore", invalid="ignore"):
            broken, usual = (
                _costs(one.run(gains, start, shocks, np.random.default_rng(1)), cost).mean(1)
                for one in (self, twin)
            )
            found = plain + broken - usual
        return np.where(np.isfinite(found), found, np.inf)

    def best(self, gains: Array, cost: clqr.QuadraticCost, start: Array) -> Array:
        """The expected cost of the best controller; `gains` are among those tried by simulation."""
        if self.friction is not None:
            return self._best_under_friction(gains, cost, start)
        system, wide, begin = self._augmented(cost, start)
        J = clqr.optimal_cost(system, wide, begin)
        error = _total_error(self)
        return J if error is None else J + self._price_of_not_knowing(error, cost)

    def _paid_by_formula(self, gains: Array, cost: clqr.QuadraticCost, start: Array) -> Array:
        system, wide, begin = self._augmented(cost, start)
        n, steps, m, d = gains.shape
        K = np.zeros((n, steps, m, begin.size))
        K[..., :d] = gains
        dither = None
        if self.error is not None:  # u = K x + K v
            dither = (gains * self.error**2) @ gains.swapaxes(-1, -2)
        return clqr.policy_cost(clqr.LinearPolicy(K), system, wide, begin, dither=dither)

    def _augmented(
        self, cost: clqr.QuadraticCost, start: Array
    ) -> tuple[clqr.LinearSystem, clqr.QuadraticCost, Array]:
        """The same machines with the delayed input and the noise's memory among the states."""
        (n, d, m), rho = self.sizes, self.correlation
        extra = (m if self.delay else 0) + (d if rho else 0)
        F, E = np.zeros((n, d + extra, d + extra)), np.zeros((n, d + extra, m))
        W = np.zeros((d + extra, d + extra))
        F[:, :d, :d] = self.A
        if self.delay:
            F[:, :d, d : d + m], E[:, d : d + m] = self.B, np.eye(m)
        else:
            E[:, :d] = self.B
        if rho:  # w' = ρ w + e, and x' = A x + B u + w'
            F[:, :d, -d:], F[:, -d:, -d:] = rho * np.eye(d), rho * np.eye(d)
            e = (1 - rho**2) * self.noise
            W[:d, :d] = W[:d, -d:] = W[-d:, :d] = W[-d:, -d:] = e
        else:
            W[:d, :d] = self.noise
        Q = np.zeros((cost.horizon, d + extra, d + extra))
        Q[:, :d, :d] = cost.Q
        begin = np.concatenate((start, np.zeros(extra)))
        return clqr.LinearSystem(F, E, W), clqr.QuadraticCost(Q, cost.R), begin

    def _price_of_not_knowing(self, error: Array, cost: clqr.QuadraticCost) -> Array:
        """What LQG pays beyond LQR: Σ tr Kᵀ (R + BᵀPB) K Σ_h, Kalman's covariance after seeing."""
        solution = clqr.solve(clqr.LinearSystem(self.A, self.B, self.noise), cost)
        K, P = solution.policy.gains, solution.value_matrices
        price, S, V = np.zeros(len(self.A)), np.zeros_like(self.A), np.diag(error**2)
        for h in range(K.shape[1]):
            if h:
                S = self.A @ S @ self.A.swapaxes(1, 2) + self.noise
                S = S - S @ np.linalg.pinv(S + V, hermitian=True) @ S
            weight = cost.R[h] + self.B.swapaxes(1, 2) @ P[:, h + 1] @ self.B
            price += np.einsum("nji,njk,nkl,nli->n", K[:, h], weight, K[:, h], S)
        return price

    def _best_under_friction(self, gains: Array, cost: clqr.QuadraticCost, start: Array) -> Array:
        """Of all gains tried, the cheapest: those given, and ever better linearisations.

        Along the runs of the gains before, the force of friction is regressed on the state, step
        by step; the optimal gains of the linear machine that results are the next to be tried.
        """
        system = clqr.LinearSystem(self.A, self.B, self.noise)
        K = clqr.solve(system, cost).policy.gains
        best = np.minimum(self.paid(gains, cost, start), self.paid(K, cost, start))
        shocks = self.shocks(RUNS, K.shape[1], np.random.default_rng(2))
        for _ in range(ROUNDS):
            states, _, _ = self.run(K, start, shocks, np.random.default_rng(3))
            force = self.resistance(states[:, :, :-1])
            K = _optimal_gains(self.A, self.B, _regressed(states[:, :, :-1], force), cost)
            best = np.minimum(best, self.paid(K, cost, start))
        return best


def _total_error(machines: Machines) -> Array | None:
    """The deviation of what is seen; rounding counts as uniform, and so does its variance."""
    if machines.error is None and machines.quantum is None:
        return None
    error = 0.0 if machines.error is None else machines.error
    quantum = 0.0 if machines.quantum is None else machines.quantum
    return np.sqrt(error**2 + quantum**2 / 12)


def _costs(run: tuple[Array, Array, Array], cost: clqr.QuadraticCost) -> Array:
    """The cost of each run, by the true states."""
    x, _, u = run
    return np.einsum("nrhi,hij,nrhj->nr", x, cost.Q, x, optimize=True) + np.einsum(
        "nrhi,hij,nrhj->nr", u, cost.R, u, optimize=True
    )


def _regressed(x: Array, force: Array) -> Array:
    """The gain L (n, steps, m, d) with force ≈ L x over the runs of each machine and step."""
    x, force = x.swapaxes(1, 2), force.swapaxes(1, 2)
    solution = np.linalg.pinv(x, rcond=1e-9) @ force
    return solution.swapaxes(-1, -2)


def _optimal_gains(A: Array, B: Array, L: Array, cost: clqr.QuadraticCost) -> Array:
    """Riccati's recursion for x' = (A - B L[h]) x + B u."""
    gains = np.empty_like(L)
    P = np.broadcast_to(cost.Q[-1], A.shape)
    Bt = B.swapaxes(1, 2)
    for h in reversed(range(L.shape[1])):
        F = A - B @ L[:, h]
        gains[:, h] = K = -np.linalg.solve(cost.R[h] + Bt @ P @ B, Bt @ P @ F)
        P = cost.Q[h] + F.swapaxes(1, 2) @ P @ (F + B @ K)
        P = (P + P.swapaxes(1, 2)) / 2
    return gains
