"""What is certain about the costs of plausible machines, by Lagrange multipliers.

Any machine of the set moves a step by diag(s) ξ with ξ_i² ≤ yᵀY_iy, y = [x; u] (`cost_search.py`).
Let an adversary choose ξ anew at every step, and charge him for breaking that: for any λ_hi ≥ 0

    x' = A x + B u + diag(s) ξ + w,    stage cost ∓ Σ_i λ_hi (ξ_i² - yᵀY_iy)

is, maximised over ξ (sign -) with u = K x, at least what the policy costs on every machine of the
set, and minimised over ξ and u (sign +) at most what any policy costs on any of them. Both are
linear-quadratic, and solved by one backward pass. The search is for the multipliers that make the
bounds tight; whatever it finds, the bounds hold. A `joint` set has one constraint ‖ξ‖² ≤ yᵀYy, Y
the sum of the Y_i where rows differ in them.

    P, c       value xᵀPx + c of the adversary's problem      F = A + BK      closed loop
    E, e, U    Λ^-½ diag(s) P diag(s) Λ^-½ = U diag(e) Uᵀ     X = E[x xᵀ]     under the adversary
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.bounds.cost_search import PlausibleMachines
from contextual_lqr.belief.machine import as_system
from contextual_lqr.checks import record
from contextual_lqr.lqr.problem import LinearPolicy, QuadraticCost
from contextual_lqr.lqr.solve import optimal_cost, solve

_SCALES = np.array([0.05, 0.2, 0.4, 0.6, 0.8, 1.0, 1.4, 2.0, 4.0, 10.0, 100.0, 1e4])
_PARTS = (1.0, 0.4, 0.1)
_WIDE_SCALES = np.logspace(-3, 3, 13)
_POWERS = np.array([2.0, 1.0, 0.5, 0.2, 0.05])[:, None, None, None]


def upper_bounds(
    machines: PlausibleMachines,
    policy: LinearPolicy,
    noise: Float[Array, "d d"],
    rounds: int = 6,
    tolerance: float = 1e-2,
) -> tuple[Float[Array, " n"], Float[Array, "n steps k"]]:
    """What the policy of each machine costs at most, and the multipliers that prove it.

    The value of the maximum over ξ is xᵀ Fᵀ(P + P s (Λ - sPs)⁻¹ s P) F x, if Λ exceeds sPs. Going
    backwards, each step takes the λ that is best for the X of the adversary before; his new X
    comes from a forward pass, and so on, until the bound falls no more.
    """
    game = _Game(machines, policy, noise)
    X, weights = game.nominal_moments(), game.equal_weights()
    best, chosen, adversary = game.backward(X, weights)
    active = np.arange(len(best))  # machines whose bound may still fall
    for _ in range(rounds):
        if not len(active):
            break
        now = game.at(active)
        moments, balanced = now.forward(adversary[active], weights[active])
        before, tried = best[active].copy(), active
        for part in _PARTS:  # a whole step may overshoot; those for which it did try a shorter one
            X_part = X[tried] + part * (moments - X[tried])
            weights_part = weights[tried] ** (1 - part) * balanced**part
            bound, multipliers, strategy = now.backward(X_part, weights_part)
            better = bound < best[tried]
            kept = tried[better]
            best[kept], chosen[kept] = bound[better], multipliers[better]
            adversary[kept], X[kept] = strategy[better], X_part[better]
            weights[kept] = weights_part[better]
            if better.all():
                break
            tried, now = tried[~better], now.at(~better)
            moments, balanced = moments[~better], balanced[~better]
        with np.errstate(invalid="ignore"):
            gain = before - best[active]
        active = active[(gain > tolerance * np.abs(best[active])) | np.isnan(gain)]
    return best, chosen


def lower_bounds(
    machines: PlausibleMachines,
    noise: Float[Array, "d d"],
    multipliers: Float[Array, "n steps k"] | None = None,
    rounds: int = 4,
    tolerance: float = 1e-3,
) -> Float[Array, " n"]:
    """What every policy costs at least on each machine; `multipliers` are where the search starts.

    While little is uncertain the cost is linear in ξ, and the multipliers of the upper bound are
    right here too. From a multiple of them the fixed point E[ξ_i²] = E[yᵀY_iy] is sought.
    """
    floor = machines.cost.floor(machines.start, noise)
    if multipliers is None:
        n, d, steps = len(machines.centre), len(machines.reach), machines.episode_cost.horizon - 1
        best, multipliers = np.full(n, -np.inf), np.empty((n, steps, 1 if machines.joint else d))
    else:
        scaled = _SCALES[:, None, None, None] * multipliers
        best, multipliers = _Relaxed(machines, noise).best_of(scaled)
    lost = ~(best > floor)
    if lost.any():  # start these from the values of the estimate instead
        some = machines.at(lost)
        values = np.einsum(
            "nhii->nhi", solve(some.systems(noise), some.episode_cost).value_matrices
        )
        guess = np.where(np.isfinite(values), values, 1.0)[:, 1:] * machines.reach**2
        guess = guess.sum(-1, keepdims=True) if machines.joint else guess + guess.mean() * 1e-6
        again = _Relaxed(some, noise).best_of(_WIDE_SCALES[:, None, None, None] * guess)
        best[lost], multipliers[lost] = again
    active = np.flatnonzero(np.isfinite(best))
    for _ in range(rounds):
        if not len(active):
            break
        now, old = _Relaxed(machines.at(active), noise), multipliers[active]
        moved, allowed = now.moments(old)
        factor = np.log(np.maximum(moved, 1e-300) / np.maximum(allowed, 1e-300)) / 2
        factor = np.clip(np.where(np.isfinite(factor), factor, 0.0), -1.5, 1.5)
        bound, tried = now.best_of(old * np.exp(_POWERS * factor))
        gain = bound - best[active]
        better = gain > 0
        best[active[better]], multipliers[active[better]] = bound[better], tried[better]
        active = active[gain > tolerance * np.abs(best[active])]
    return np.asarray(np.maximum(best, floor))


class _Game:
    """The adversary against a given policy."""

    def __init__(self, machines: PlausibleMachines, policy: LinearPolicy, noise: Array) -> None:
        K, cost = policy.gains, machines.cost
        n, steps, _, d = K.shape
        y = np.concatenate((np.broadcast_to(np.eye(d), (n, steps, d, d)), K), 2)  # [x; u] = y x
        self.noise, self.start, self.reach = noise, machines.start, machines.reach
        self.joint = machines.joint
        self.F = machines.stages(machines.centre) @ y
        grams = machines.stages(machines.grams)
        self.Y = y.mT[:, :, None] @ grams @ y[:, :, None]  # (n, steps, k, d, d)
        self.C = cost.Q[:-1] + K.mT @ (cost.R @ K)
        if cost.N is not None:
            self.C = self.C + cost.N @ K + (cost.N @ K).mT
        self.last = np.broadcast_to(cost.Q[-1], (n, d, d))

    def at(self, members: Array) -> _Game:
        """The game of some machines."""
        twin = object.__new__(_Game)
        twin.__dict__.update(self.__dict__)
        for name in ("F", "Y", "C", "last"):
            setattr(twin, name, getattr(self, name)[members])
        return twin

    def nominal_moments(self) -> Float[Array, "n steps d d"]:
        """E[x xᵀ] at every step, without an adversary."""
        return self._moments(self.F)

    def equal_weights(self) -> Float[Array, "n steps k"]:
        return np.ones((*self.F.shape[:2], 1 if self.joint else len(self.start)))

    def backward(
        self, X: Float[Array, "n steps d d"], weights: Float[Array, "n steps k"]
    ) -> tuple[Float[Array, " n"], Float[Array, "n steps k"], Float[Array, "n steps d d"]]:
        """The bound, its multipliers λ = (scale found here) · weights, and ξ = adversary · x."""
        n, steps, d, _ = self.F.shape
        P, c = self.last, np.zeros(n)
        multipliers, adversary = np.empty_like(weights), np.empty_like(self.F)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for h in reversed(range(steps)):
                F, Y = self.F[:, h], _weighted(weights[:, h], self.Y[:, h])
                c = c + (P * self.noise).sum((1, 2))
                half = self.reach / np.sqrt(np.broadcast_to(weights[:, h], (n, d)))
                sPF = half[:, :, None] * (P @ F)
                e, U = _eigh(half[:, :, None] * P * half[:, None])
                T = U.mT @ sPF
                pull = np.maximum(((T @ X[:, h]) * T).sum(-1), 0.0)
                price = np.maximum((Y * X[:, h]).sum((1, 2)), 0.0)
                scale = _cheapest(e, pull, price)
                slack = 1 / (scale[:, None] - e)
                adversary[:, h] = half[:, :, None] * (U @ (slack[:, :, None] * T))
                multipliers[:, h] = scale[:, None] * weights[:, h]
                P = self.C[:, h] + F.mT @ P @ F + T.mT @ (slack[:, :, None] * T)
                P = P + scale[:, None, None] * Y
                P = (P + P.mT) / 2
            bound = self.start @ P @ self.start + c
        return np.where(np.isfinite(bound), bound, np.inf), multipliers, adversary

    def forward(
        self, adversary: Float[Array, "n steps d d"], weights: Float[Array, "n steps k"]
    ) -> tuple[Float[Array, "n steps d d"], Float[Array, "n steps k"]]:
        """E[x xᵀ] under the adversary, and weights nearer to those where E[ξ_i²] = E[yᵀY_iy]."""
        X = self._moments(self.F + adversary)
        if self.joint:
            return X, weights
        xi = adversary / np.where(self.reach > 0, self.reach, 1.0)[:, None]  # it was diag(s) ξ
        moved = np.maximum(((xi @ X) * xi).sum(-1), 0.0)
        if self.Y.shape[2] > 1:
            allowed = (self.Y * X[:, :, None]).sum((-2, -1))
            moved = moved / np.maximum(allowed, 1e-300)
        factor = np.sqrt(moved / np.maximum(moved.mean(-1, keepdims=True), 1e-300))
        weights = weights * np.clip(np.where(np.isfinite(factor), factor, 1.0), 0.1, 10.0)
        weights = weights / weights.mean(-1, keepdims=True)
        return X, np.maximum(weights, 1e-6)

    def _moments(self, F: Float[Array, "n steps d d"]) -> Float[Array, "n steps d d"]:
        X = np.empty_like(F)
        X[:, 0] = np.outer(self.start, self.start)
        with np.errstate(over="ignore", invalid="ignore"):
            for h in range(F.shape[1] - 1):
                X[:, h + 1] = F[:, h] @ X[:, h] @ F[:, h].mT + self.noise
        return np.clip(np.where(np.isfinite(X), X, 0.0), -1e150, 1e150)


def _cheapest(
    e: Float[Array, "n d"], pull: Float[Array, "n d"], price: Float[Array, " n"]
) -> Float[Array, " n"]:
    """The λ above all e that minimises Σ_j pull_j / (λ - e_j) + λ price, by bisection.

    No direction counts for nothing: a λ at the very edge would make the value there infinite.
    """
    pull = pull + 1e-3 * pull.mean(-1, keepdims=True) + 1e-300
    price = np.maximum(price, 1e-12 * pull.sum(-1) / np.maximum(e[:, -1] ** 2, 1e-280))
    price = np.maximum(price, 1e-300)
    room = e[:, -1:] - e  # λ = e_max + μ, and Σ pull / (μ + room)² = price
    low, high = np.sqrt(pull[:, -1] / price), np.sqrt(pull.sum(-1) / price)
    for _ in range(8):  # a minimum is flat: a λ right to some percent is as good
        middle = np.sqrt(low) * np.sqrt(high)
        above = (pull / (middle[:, None] + room) ** 2).sum(-1) < price
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    # Rounding of the eigenvalues must not let λ fall below the largest.
    return np.asarray(e[:, -1] + np.maximum(high, 1e-9 * np.abs(e[:, -1])))


class _Relaxed:
    """The adversary as the controller's friend: both minimise."""

    def __init__(self, machines: PlausibleMachines, noise: Array) -> None:
        n, (d, y), centre = len(machines.centre), machines.centre.shape[-2:], machines.centre
        self._cost, self._start, self._joint = machines.cost, machines.start, machines.joint
        self._d, self._m, self._noise = d, y - d, noise
        self._Y = machines.stages(machines.grams)
        friend = np.broadcast_to(np.diag(machines.reach), (*centre.shape[:-1], d))
        self._system = as_system(np.concatenate((centre, friend), -1), noise, machines.varying)
        # The arrays of a cost are large, so that those of one trial serve the next.
        steps, inputs = machines.episode_cost.horizon - 1, y
        self._Q = np.empty((n, steps + 1, d, d))
        self._R, self._N = np.zeros((n, steps, inputs, inputs)), np.zeros((n, steps, d, inputs))

    def bounds(self, multipliers: Float[Array, "n steps k"]) -> Float[Array, " n"]:
        """The relaxed problem's optimal cost; -inf where it has none."""
        J = optimal_cost(self._system, self._relaxed_cost(multipliers), self._start)
        return np.where(np.isfinite(J), J, -np.inf)

    def best_of(
        self, tried: Float[Array, "t n steps k"]
    ) -> tuple[Float[Array, " n"], Float[Array, "n steps k"]]:
        """For each machine the largest bound, and its multipliers."""
        bounds = np.stack([self.bounds(one) for one in tried])
        rows, top = np.arange(bounds.shape[1]), bounds.argmax(0)
        return bounds[top, rows], tried[top, rows]

    def moments(
        self, multipliers: Float[Array, "n steps c"]
    ) -> tuple[Float[Array, "n steps c"], Float[Array, "n steps k"]]:
        """E[ξ_i²] and E[yᵀY_iy] when the relaxed problem is played optimally."""
        gains = solve(self._system, self._relaxed_cost(multipliers)).policy.gains
        n, steps, d = len(gains), gains.shape[1], self._d
        Y = np.broadcast_to(self._Y, (n, steps, *self._Y.shape[2:]))
        X = np.broadcast_to(np.outer(self._start, self._start), (n, d, d))
        moved, allowed = np.zeros((n, steps, d)), np.zeros((n, steps, Y.shape[2]))
        with np.errstate(over="ignore", invalid="ignore"):
            for h in range(steps):
                K, (A, B) = gains[:, h], self._system.at(h)
                u, xi = K[:, : self._m], K[:, self._m :]
                y = np.concatenate((np.broadcast_to(np.eye(d), (n, d, d)), u), 1)
                moved[:, h] = ((xi @ X) * xi).sum(-1)
                allowed[:, h] = ((y @ X @ y.mT)[:, None] * Y[:, h]).sum((-2, -1))
                F = A + B @ K
                X = F @ X @ F.mT + self._noise
        if self._joint:  # ‖ξ‖² ≤ yᵀ(Σ_i Y_i)y
            return moved.sum(-1, keepdims=True), allowed.sum(-1, keepdims=True)
        return moved, allowed

    def _relaxed_cost(self, multipliers: Float[Array, "n steps k"]) -> QuadraticCost:
        d, m, base = self._d, self._m, self._cost
        Q, R, N = self._Q, self._R, self._N
        weighted = _weighted(multipliers, self._Y)
        np.subtract(base.Q[:-1], weighted[..., :d, :d], out=Q[:, :-1])
        Q[:, -1] = base.Q[-1]
        np.subtract(base.R, weighted[..., d:, d:], out=R[..., :m, :m])
        np.einsum("nhii->nhi", R[..., m:, m:])[...] = multipliers
        np.subtract(0.0 if base.N is None else base.N, weighted[..., :d, d:], out=N[..., :m])
        return record(object.__new__(QuadraticCost), Q=Q, R=R, N=N, indefinite=True)


def _weighted(
    weights: Float[Array, "*n c"], Y: Float[Array, "*#n k y y"]
) -> Float[Array, "*n y y"]:
    """Σ_i weights_i Y_i, also where one Y, k = 1, is that of all rows."""
    if Y.shape[-3] == 1:
        return np.asarray(weights.sum(-1)[..., None, None] * Y[..., 0, :, :])
    return np.asarray((weights[..., None, None] * Y).sum(-3))


def _eigh(E: Float[Array, "n d d"]) -> tuple[Float[Array, "n d"], Float[Array, "n d d"]]:
    """Eigenvalues, ascending, and eigenvectors; NaN for what is not finite."""
    finite = np.isfinite(E).all((1, 2))
    e, U = np.linalg.eigh(np.where(finite[:, None, None], E, 0.0))
    e[~finite] = np.nan
    return e, U
