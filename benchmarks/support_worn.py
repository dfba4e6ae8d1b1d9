"""Machines with faults that are in no log, and for which nothing was built.

    x' = A x + B (a - f(x)) + w,  a what actuators make of the u they are asked for and logs hold

`paid` is simulated. `best` is the optimum of the machine without its fault, which no controller
reaches with it: so more are counted as bad than are. Noise that grows with the states is no fault
that a controller could avoid: there it is the optimum with that noise. Nor are limits of the
inputs: there the mean of the run keeps to them, which is still a lower bound.

That bound may be far too low: drag alone can double what a run costs. `least` is the least cost
found for one machine with its fault, where that is smooth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray as Array
from scipy.linalg import block_diag
from scipy.optimize import lsq_linear, minimize
from support_broken import RUNS, Machines, _costs

import contextual_lqr as clqr


@dataclass(frozen=True, eq=False)
class Worn(Machines):
    """All sizes are in units of inputs (m,) or of states (d,).

    play     backlash: an input moves the actuator only once it has crossed this width
    dead     inputs below this do nothing, larger ones so much less
    weaker   the actuator gives u / (1 + |u| / this)
    one_way  it gives this share less one way than the other
    rate     it moves by at most this in a step
    most     it gives at most this, while logs say what was asked of it
    offset   it gives so much more, always
    fading   it loses this share with every step of an episode
    drag     a force against the velocity that an input drives, v |v| of the usual v
    hardening  the same, x³ of the usual x, against the place (the state that starts farthest out)
    lag      dry friction that takes the usual way of a step to build up, of at most this
    speed    an input loses this share at the usual velocity, twice as much at twice that
    growing  noise of deviation this times the state itself, beside the usual one
    end      sensors show at most this
    drift    the zero of every sensor drifts by this from step to step
    ageing   actuators lose this share from one logged episode to the next; new ones are as new
    """

    usual: Array | None = None  # root mean squares of the states along the task
    place: int = 0
    episodes: int = 3
    play: Array | None = None
    dead: Array | None = None
    weaker: Array | None = None
    one_way: float = 0.0
    rate: Array | None = None
    most: Array | None = None
    offset: Array | None = None
    fading: float = 0.0
    drag: Array | None = None
    hardening: Array | None = None
    lag: Array | None = None
    speed: float = 0.0
    growing: Array | None = None
    end: Array | None = None
    drift: Array | None = None
    ageing: float = 0.0

    def run(
        self,
        gains: Array,
        start: Array,
        shocks: Array,
        rng: np.random.Generator,
        dither: float = 0,
        push: Array | None = None,
    ) -> tuple[Array, Array, Array]:
        """As of `Machines`; with a push (n, steps, m), that is added to the inputs."""
        n, runs, steps, d = shocks.shape
        m = self.B.shape[-1]
        x, zero = np.broadcast_to(start, (n, runs, d)), np.zeros((n, runs, d))
        at, bristle = np.zeros((2, n, runs, m))
        strength = 1 - self.ageing * np.arange(runs) if runs == self.episodes else np.ones(runs)
        states, shown, inputs = [x], [self._shown(x)], []
        for t in range(steps):
            u = shown[-1] @ gains[:, t].swapaxes(1, 2)
            u = u + dither * rng.standard_normal(u.shape)
            u = u if push is None else u + push[:, None, t]
            at = self._actuator(u, at)
            acting = at * strength[:, None] * max(1 - self.fading * t, 0.0)
            acting = acting - self._forces(x, acting)
            if self.lag is not None:
                moved = self._at(x, [v for _, v in self.drives])
                for k, (j, _) in enumerate(self.drives):
                    way = bristle[..., j] + self.lag[j] * moved[..., k]
                    bristle[..., j] = np.clip(way, -self.lag[j], self.lag[j])
                acting = acting - bristle * self._against()[:, None]
            shock = shocks[:, :, t]
            if self.growing is not None:
                shock = shock + self.growing * x * rng.standard_normal(x.shape)
            x = x @ self.A.swapaxes(1, 2) + acting @ self.B.swapaxes(1, 2) + shock
            if self.drift is not None:
                zero = zero + self.drift * rng.standard_normal(x.shape)
            states.append(x)
            shown.append(self._shown(x + zero))
            inputs.append(u)
        return np.stack(states, 2), np.stack(shown, 2), np.stack(inputs, 2)

    def _shown(self, x: Array) -> Array:
        return x if self.end is None else np.clip(x, -self.end, self.end)

    def _at(self, x: Array, states: list[int]) -> Array:
        """These states, in units of what is usual for them."""
        assert self.usual is not None
        return x[..., states] / self.usual[states]

    def _against(self) -> Array:
        """The sign (n, m) that a force has as an input, to be against a velocity."""
        sign = np.zeros(self.B.shape[::2])
        for j, velocity in self.drives:
            sign[:, j] = np.sign(self.B[:, velocity, j])
        return sign

    def _actuator(self, u: Array, at: Array) -> Array:
        """Where it goes from where it was."""
        if self.play is not None:
            u = np.clip(at, u - self.play / 2, u + self.play / 2)
        if self.dead is not None:
            u = u - np.clip(u, -self.dead, self.dead)
        if self.weaker is not None:
            u = u / (1 + np.abs(u) / self.weaker)
        if self.rate is not None:
            u = np.clip(u, at - self.rate, at + self.rate)
        if self.most is not None:
            u = np.clip(u, -self.most, self.most)
        u = u * np.where(u < 0, 1 - self.one_way, 1.0)
        return u if self.offset is None else u + self.offset

    def _forces(self, x: Array, acting: Array) -> Array:
        """What works against the inputs, as inputs."""
        force = np.zeros_like(acting)
        for j, velocity in self.drives:
            v, against = self._at(x, [velocity])[..., 0], self._against()[:, j, None]
            # In a step no drag turns a motion round, nor does a spring make one from nothing.
            stops = 0.5 * self.usual[velocity] / np.abs(self.B[:, velocity, j, None])  # type: ignore[index]
            if self.drag is not None:
                most = stops * np.abs(v)
                force[..., j] += against * np.clip(self.drag[j] * v * np.abs(v), -most, most)
            if self.hardening is not None:
                pull = self.hardening[j] * np.clip(self._at(x, [self.place])[..., 0], -9, 9) ** 3
                force[..., j] += against * np.clip(pull, -stops, stops)
            force[..., j] += acting[..., j] * np.clip(self.speed * np.abs(v), 0.0, 0.9)
        return force

    def paid(self, gains: Array, cost: clqr.QuadraticCost, start: Array) -> Array:
        """The formula of the plain machine, and what is simulated beyond that."""
        plain = Machines(self.A, self.B, self.noise)
        shocks = self.shocks(RUNS, gains.shape[1], np.random.default_rng(0))
        with np.errstate(over="ignore", invalid="ignore"):
            broken, usual = (
                _costs(one.run(gains, start, shocks, np.random.default_rng(1)), cost).mean(1)
                for one in (self, plain)
            )
            found = plain.paid(gains, cost, start) + broken - usual
        return np.where(np.isfinite(found), found, np.inf)

    def best(self, gains: Array, cost: clqr.QuadraticCost, start: Array) -> Array:
        """That of the plain machine: a bound."""
        if self.growing is None:
            plain = Machines(self.A, self.B, self.noise).best(gains, cost, start)
            return plain if self.most is None else plain + self._unavoidable(cost, start)
        (n, d, m), system = self.sizes, clqr.LinearSystem(self.A, self.B, self.noise)
        covariances = np.zeros((d, d + m, d + m))
        covariances[range(d), range(d), range(d)] = self.growing**2
        doubt = clqr.ModelUncertainty(np.broadcast_to(covariances, (n, *covariances.shape)))
        hedged = clqr.solve(system, cost, uncertainty=doubt).policy
        return np.minimum(self.paid(hedged.gains, cost, start), self.paid(gains, cost, start))

    @property
    def smooth(self) -> bool:
        """Whether the least cost can be searched for along slopes."""
        return self.speed > 0 or any(
            one is not None for one in (self.drag, self.hardening, self.weaker)
        )

    def least(self, i: int, gains: Array, cost: clqr.QuadraticCost, start: Array) -> float:
        """The least cost that a search finds for machine i with its fault, from its own gains.

        Pushes are added at each step to what these play. They move the mean of the run; what noise
        costs is what it costs under these gains.
        """
        (steps, m, d), small = gains.shape[1:], 1e-6 * np.abs(start).max()
        one = replace(self, A=self.A[i : i + 1], B=self.B[i : i + 1])

        def costs(pushes: Array) -> Array:
            n = len(pushes)
            many = replace(one, A=np.repeat(one.A, n, 0), B=np.repeat(one.B, n, 0))
            own, none = np.repeat(gains[i : i + 1], n, 0), np.zeros((n, 1, steps, d))
            push = pushes.reshape(n, steps, m)
            played = many.run(own, start, none, np.random.default_rng(0), push=push)
            return np.asarray(_costs(played, cost)[:, 0])

        def slopes(push: Array) -> tuple[float, Array]:
            moves = small * np.eye(len(push))
            found = costs(np.concatenate((push[None], push + moves, push - moves)))
            return found[0], (found[1 : 1 + len(push)] - found[1 + len(push) :]) / (2 * small)

        first = np.zeros(steps * m)
        search = minimize(slopes, first, jac=True, method="L-BFGS-B", options={"maxiter": 300})
        paid = one.paid(gains[i : i + 1], cost, start)[0]
        return float(paid - costs(first[None])[0] + search.fun)

    def _unavoidable(self, cost: clqr.QuadraticCost, start: Array) -> Array:
        """What limits of the inputs cost the mean of a run, at least: a quadratic programme.

        What the noise adds is the same with them, or more.
        """
        n, d, m = self.sizes
        steps = cost.horizon - 1
        most = np.tile(np.broadcast_to(self.most, (m,)), steps)
        rootQ, rootR = (_roots(part) for part in (cost.Q, cost.R))
        found = np.zeros(n)
        for i in range(n):
            x, moved = start, np.zeros((d, steps * m))  # x_t = x + moved u
            rows, right = [rootQ[0] @ moved], [rootQ[0] @ x]
            for t in range(steps):
                x, moved = self.A[i] @ x, self.A[i] @ moved
                moved[:, t * m : (t + 1) * m] += self.B[i]
                rows.append(rootQ[t + 1] @ moved)
                right.append(rootQ[t + 1] @ x)
            rows.append(block_diag(*rootR))
            M, b = np.concatenate(rows), -np.concatenate([*right, np.zeros(steps * m)])
            free = np.linalg.lstsq(M, b, rcond=None)[0]
            held = lsq_linear(M, b, (-most, most)).x
            found[i] = np.square(M @ held - b).sum() - np.square(M @ free - b).sum()
        return found


def _roots(matrices: Array) -> list[Array]:
    """C with CᵀC = Q, of semidefinite matrices."""
    values, turns = np.linalg.eigh(matrices)
    return [np.sqrt(np.maximum(v, 0.0))[:, None] * T.T for v, T in zip(values, turns, strict=True)]


def worn(machines: Machines, **fault: Any) -> Worn:
    """The same machines with a fault."""
    return Worn(machines.A, machines.B, machines.noise, drives=machines.drives, **fault)
