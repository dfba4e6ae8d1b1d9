"""What a controller that runs on and on is to do: cost, set-point, integrators, limits, by name.

Some states may be constant, 1 for ever, and carry offsets; some are disturbances w that are
measured, such as the weather, and expected to stay as they are. The others move:

    x' = A x + B u + W w + offset        q' = q + x[integrated] - target        low ≤ u ≤ high

    n, m    moving states, inputs        k    integrators q, each with a weight in the cost

If only outputs are measured, some states are what others, or inputs, were a step ago: `before` has
their places in [x; u]. If they fade, so much of a state stays, and the rest is what was there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.certificates.limits import InputBounds, InputLimits
from contextual_lqr.checks import as_number, as_numbers, record, require, shown
from contextual_lqr.lqr.problem import LinearSystem, ModelUncertainty
from contextual_lqr.lqr.stationary import StationaryCost

INTEGRAL_SHARE = 1e-3
"""The weight of an integrator as a part of its state's, if none is given: some thirty steps."""


@dataclass(frozen=True, eq=False)
class Task:
    """All that a controller is told but the machine. Places are those among the moving states."""

    cost: StationaryCost
    names: tuple[str, ...]  # of all states
    moving: tuple[int, ...]
    held: tuple[int, ...]
    target: Float[Array, " held"]
    integrated: tuple[int, ...]
    weights: Float[Array, " k"]
    limits: InputLimits
    measured: tuple[int, ...] = ()  # disturbances, among all states
    before: tuple[int | None, ...] = ()  # of all states; None for what is measured now
    fades: tuple[float, ...] = ()  # how much stays of each state that is past

    @classmethod
    def of(
        cls,
        cost: StationaryCost,
        target: Any = None,
        integral: Any = None,
        input_bounds: InputBounds | None = None,
        states: Sequence[str] | None = None,
        constant: Sequence[str] = (),
        measured: Sequence[str] = (),
        lags: Sequence[tuple[str, int]] = (),
        fades: Sequence[float] = (),
    ) -> Task:
        """The task, by the names of its states; whatever cannot be meant is refused.

        `lags` has for each state the name of what it is, and how many stages ago; `fades`, how much
        of it stays in a step.
        """
        d, m = cost.state_size, cost.input_size
        require(cost.batch_shape == (), "a controller has one cost: it must have no batch axes")
        names = tuple(f"state {i + 1}" for i in range(d)) if states is None else tuple(states)
        for name in (*names, *constant, *measured):
            require(isinstance(name, str), f"the name of a state must be text, not {shown(name)}")
        require(len(names) == d, f"there are {d} states, but {len(names)} names of states")
        for name in (*constant, *measured):
            require(name in names, f"there is no state '{name}'; there are {', '.join(names)}")
        still = {*constant, *measured}
        moving = tuple(i for i, name in enumerate(names) if name not in still)
        require(moving, "every state is constant or measured: there is nothing to control")
        free = [names[i] for i in moving]
        wanted = _by_name("target", target, free)
        weights = _weights(integral, free, cost, moving)
        held = dict.fromkeys([*wanted, *weights])  # what is integrated is held, at 0 unless said
        limits = InputLimits((-np.inf, np.inf) if input_bounds is None else input_bounds, m)
        return cls(
            cost,
            names,
            moving,
            tuple(free.index(name) for name in held),
            np.array([wanted.get(name, 0.0) for name in held]),
            tuple(free.index(name) for name in weights),
            np.array(list(weights.values())),
            limits,
            tuple(names.index(name) for name in measured),
            tuple(_before(column, lag, lags, limits.names) for column, lag in lags),
            tuple(fades) or (0.0,) * len(lags),
        )

    @property
    def free_names(self) -> list[str]:
        """The names of the moving states."""
        return [self.names[i] for i in self.moving]

    @property
    def held_names(self) -> list[str]:
        """The states that have targets."""
        return [self.free_names[i] for i in self.held]

    @property
    def constants(self) -> list[int]:
        """The places of the constant states among all."""
        still = (*self.moving, *self.measured)
        return [i for i in range(len(self.names)) if i not in still]

    @property
    def past(self) -> dict[int, int]:
        """The states that are past, among all, and their places in [x; u] a step before."""
        return {i: place for i, place in enumerate(self.before) if place is not None}

    @property
    def seen(self) -> list[int]:
        """The states that are measured at each step, among all: moving ones and disturbances."""
        return [i for i in range(len(self.names)) if i not in (*self.constants, *self.past)]

    def whole(
        self, seen: Float[Array, " s"], last: Float[Array, " y"] | None
    ) -> Float[Array, " d"]:
        """All states from what is measured now, and from [x; u] of the step before.

        At the first step the machine is taken to have been at rest there, with inputs of 0.
        """
        x = np.ones(len(self.names))
        x[self.seen] = seen
        for i, place in self.past.items():  # newer ones come first
            if last is not None:
                x[i] = last[place] + self.fades[i] * (last[i] - last[place])
            else:
                x[i] = x[place] if place < len(x) else 0.0
        return x

    def values(self, target: Any, before: Float[Array, " held"]) -> Float[Array, " held"]:
        """Another target for the same states; what it does not name stays as before."""
        now = dict(zip(self.held_names, before, strict=True))
        require(now, "this controller holds no target: name it when the controller is made")
        given = _by_name("target", target, list(now))
        return np.array([given.get(name, value) for name, value in now.items()])

    def parts(
        self, system: LinearSystem
    ) -> tuple[Float[Array, "*batch n n"], Float[Array, "*batch n m"], Float[Array, "*batch n"]]:
        """A and B of the moving states, and the offset that the constant ones make."""
        rows = system.A[..., list(self.moving), :]
        offset = rows[..., self.constants].sum(-1)
        return rows[..., list(self.moving)], system.B[..., list(self.moving), :], offset

    def disturbance(self, system: LinearSystem) -> Float[Array, "*batch n w"]:
        """W: what the disturbances do to the moving states."""
        return np.asarray(system.A[..., list(self.moving), :][..., list(self.measured)])

    def with_integrators(
        self, A: Float[Array, "*batch n n"], B: Float[Array, "*batch n m"]
    ) -> tuple[LinearSystem, StationaryCost]:
        """The moving states and the integrators as one system, and its cost."""
        (*batch, n, m), k = B.shape, len(self.integrated)
        larger_A, larger_B = np.zeros((*batch, n + k, n + k)), np.zeros((*batch, n + k, m))
        larger_A[..., :n, :n], larger_B[..., :n, :] = A, B
        larger_A[..., n:, n:] = np.eye(k)
        larger_A[..., n + np.arange(k), list(self.integrated)] = 1.0
        noise = np.zeros((n + k, n + k))
        return LinearSystem.unchecked(larger_A, larger_B, noise), self.cost_with_integrators

    def doubt(self, covariances: Float[Array, "d y y"]) -> ModelUncertainty:
        """That of the moving states and the integrators, which are known, by rows of [A, B]."""
        d, n, k, m = len(self.names), len(self.moving), len(self.integrated), self.cost.input_size
        places = [*self.moving, *range(d, d + m)]
        into = [*range(n), *range(n + k, n + k + m)]
        larger = np.zeros((n + k, n + k + m, n + k + m))
        own = covariances[np.ix_(self.moving, places, places)]
        larger[np.ix_(range(n), into, into)] = own
        return record(object.__new__(ModelUncertainty), covariances=larger)

    @property
    def cost_with_integrators(self) -> StationaryCost:
        """The cost of the moving states and the integrators."""
        n, k, m = len(self.moving), len(self.integrated), self.cost.input_size
        Q, N = np.zeros((n + k, n + k)), None
        Q[:n, :n] = self.cost.Q[np.ix_(self.moving, self.moving)]
        Q[n:, n:] = np.diag(self.weights)
        if self.cost.N is not None:
            N = np.zeros((n + k, m))
            N[:n] = self.cost.N[list(self.moving)]
        return StationaryCost(Q, self.cost.R, N, discount=self.cost.discount)


def _before(
    column: str, lag: int, lags: Sequence[tuple[str, int]], inputs: Sequence[str]
) -> int | None:
    """The place in [x; u] where a state was a step ago."""
    if lag == 0:
        return None
    if lag == 1 and column in inputs:
        return len(lags) + inputs.index(column)
    return list(lags).index((column, lag - 1))


def _by_name(what: str, given: Any, names: list[str]) -> dict[str, float]:
    """Numbers by name; a list is for all of them, one number for the only one."""
    if given is None:
        return {}
    listed = ", ".join(names)
    if not isinstance(given, Mapping):
        values = np.atleast_1d(as_numbers(what, given, "(d,)", 0))
        require(
            values.shape == (len(names),),
            f"{what} must be {len(names)} number{'s' * (len(names) > 1)}, or some by name, as "
            f"{{{names[0]}: 1.0}}, not {shown(given)}",
        )
        given = dict(zip(names, values, strict=True))
    for name in given:
        require(name in names, f"{what}: there is no state '{name}' that moves; there are {listed}")
    return {name: as_number(f"{what} of {name}", value) for name, value in given.items()}


def _weights(
    integral: Any, names: list[str], cost: StationaryCost, moving: tuple[int, ...]
) -> dict[str, float]:
    """The integrators' weights: as given by name, or a thousandth of their states'."""
    if integral is None:
        return {}
    if isinstance(integral, str):
        integral = [integral]
    listed = list(integral)
    said = f"integral must be names of states, or their weights by name, not {shown(integral)}"
    require(all(isinstance(name, str) for name in listed), said)
    given = dict(integral) if isinstance(integral, Mapping) else dict.fromkeys(listed)
    found: dict[str, float] = {}
    for name, weight in given.items():
        said = f"integral: there is no state '{name}' that moves; there are {', '.join(names)}"
        require(name in names, said)
        place = moving[names.index(name)]
        usual = INTEGRAL_SHARE * float(cost.Q[place, place])
        found[name] = usual if weight is None else as_number(f"integral of {name}", weight)
    for name, weight in found.items():
        require(
            weight > 0,
            f"the integral of {name} must have a weight above 0: give one, as {{{name}: 0.01}}, or "
            f"let {name} cost something",
        )
    return found
