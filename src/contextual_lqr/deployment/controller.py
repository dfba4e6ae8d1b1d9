"""A controller that runs on and on: a constant gain about a set-point, integrators, limits.

    u = limited(ū + K (x - x̄) + Kq q)        q' = q + x[integrated] - target

(x̄, ū) is at rest at the target. Anti-windup: q stands still as long as it would drive an input that
is at its limit further beyond it. A way to a target that is known beforehand is no error: q begins,
and goes on when the target changes, where what is to come, [x - x̄; q]ᵀP[x - x̄; q], is least.
Without that every step of the target would overshoot, so that q sums up to nothing. Where there are
disturbances w that are measured, rest moves with them: (x̄, ū) = (x̄₀, ū₀) + slope w. The C file
of `contextual-lqr export` does the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike
from scipy.linalg import solve_discrete_lyapunov

from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.certificates.limits import InputBounds
from contextual_lqr.checks import as_number, as_numbers, read_only, require
from contextual_lqr.deployment.at_rest import UNHELD, at_rest
from contextual_lqr.deployment.task import Task
from contextual_lqr.display import Displayed
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import LinearSystem
from contextual_lqr.lqr.python_control import state_space
from contextual_lqr.lqr.solve import solve
from contextual_lqr.lqr.stationary import StationaryCost

_ROUNDING = 1e-14  # what is so small beside the others at rest is 0


class Controller(Displayed):
    """The input for a state, step by step: gain, set-point, integrators and limits.

    Parameters
    ----------
    system : LinearSystem or MachineBelief
        The machine, or the belief about it.
    cost : StationaryCost
        What the gain is optimal for; states cost by their distance from equilibrium.
    target : number, list or mapping from names of states, optional
        What must be held: some states by name, or all of them.
    integral : list of names, or mapping from names to weights, optional
        The states whose distance to the target is accumulated, so that no steady error remains
        under a load that the model does not know. The weight of such a sum in the cost is by
        default a thousandth of its state's: an error takes some thirty steps to disappear.
    input_bounds : pair or mapping, optional
        What inputs may be, as `certify` takes it. Inputs are clipped to it, and integrators are
        held meanwhile.
    states : sequence of str, optional
        The names of the states; by default "state 1" and so on.
    constant : sequence of str
        Which of them are always 1.
    measured : sequence of str
        Which of them are disturbances, such as the weather: known when acting, not controlled, and
        expected to stay as they are. The input balances them.
    hedge : float
        How much of what is unknown about the machine the gain hedges against, as `design` does;
        with 0 it is optimal for the expected machine. For a `MachineBelief`.

    Attributes
    ----------
    gain : array, (m, n+k)
        [K, Kq], for the n states that move and the k integrators.
    saturated : bool
        Whether the last input met a limit.
    task : Task
        Cost, set-point, integrators and limits.

    Raises
    ------
    InputError
        If a name is unknown, limits cross, or no input within them holds the target.
    UnsolvableError
        If no gain stabilises the machine with its integrators.

    Examples
    --------
    >>> cart = clqr.LinearSystem([[1, 0.1], [0, 0.95]], [[0], [0.05]])
    >>> cost = clqr.StationaryCost(np.eye(2), [[0.1]])
    >>> names = ["position", "velocity"]
    >>> controller = clqr.Controller(
    ...     cart, cost, target={"position": 1.0}, integral=["position"],
    ...     input_bounds=(-2, 2), states=names,
    ... )
    >>> x = np.zeros(2)
    >>> for step in range(300):
    ...     u = controller.input(x)
    ...     x = cart.A @ x + cart.B @ (u - 0.5)  # a load that the model does not know
    >>> bool(abs(x[0] - 1.0) < 1e-4)
    True
    """

    saturated: bool
    _fresh: bool  # whether the integrators have not begun
    _integral: Float[Array, " k"]
    _last: Float[Array, " y"] | None  # [x; u] of the step before, with all states

    def __init__(
        self,
        system: LinearSystem | MachineBelief,
        cost: StationaryCost,
        *,
        target: ArrayLike | Mapping[str, float] | None = None,
        integral: Sequence[str] | Mapping[str, float] | None = None,
        input_bounds: InputBounds | None = None,
        states: Sequence[str] | None = None,
        constant: Sequence[str] = (),
        measured: Sequence[str] = (),
        hedge: float = 0.0,
    ) -> None:
        task = Task.of(cost, target, integral, input_bounds, states, constant, measured)
        self._begin(system, task, hedge)

    @classmethod
    def of(cls, system: LinearSystem | MachineBelief, task: Task, hedge: float = 0.0) -> Controller:
        """The controller of a machine for a task."""
        made = object.__new__(cls)
        made._begin(system, task, hedge)
        return made

    def _begin(self, system: LinearSystem | MachineBelief, task: Task, hedge: float) -> None:
        self.task, cost = task, task.cost
        machine = system.system if isinstance(system, MachineBelief) else system
        require(machine.batch_shape == (), "a controller is for one machine, not for a batch")
        sizes = (machine.state_size, machine.input_size)
        require(
            sizes == (cost.state_size, cost.input_size),
            f"the cost is for {cost.state_size} states and {cost.input_size} inputs, but the "
            f"machine has {sizes[0]} states and {sizes[1]} inputs",
        )
        hedge = as_number("hedge", hedge)
        require(hedge >= 0, f"hedge must be at least 0, not {hedge!r}")
        doubt = None
        if hedge and isinstance(system, MachineBelief):
            doubt = task.doubt(hedge * system.covariances)
        self.parts = task.parts(machine)  # A, B and the offset of the states that move
        self.disturbance = task.disturbance(machine)
        self._require_integrable()
        larger = task.with_integrators(*self.parts[:2])
        found, n = solve(*larger, uncertainty=doubt, check=True), len(task.moving)
        self.gain: Float[Array, "m size"] = found.policy.gain
        P = found.value_matrix
        # The integrators that make what is to come least, for states x - x̄: lead (x - x̄).
        self.lead: Float[Array, "k n"] = -np.linalg.solve(P[n:, n:], P[n:, :n])
        self._target, self._measured = task.target, np.zeros(len(task.measured))
        self._slope = self._slopes()
        self._base = self._at(self._target)
        self._rest = self._base
        self.reset()

    @property
    def target(self) -> dict[str, float]:
        """What is held, by name."""
        return dict(zip(self.task.held_names, self._target.tolist(), strict=True))

    @property
    def gain_columns(self) -> list[str]:
        """What each column of the gain multiplies: states, and integrals of states."""
        return self.task.free_names + [f"integral of {name}" for name in self.integral]

    @property
    def rest(self) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """(x̄, ū): the moving states and the inputs at equilibrium at the target.

        With the last measured disturbances, or 0 before the first step.
        """
        return self._rest

    @property
    def integral(self) -> dict[str, float]:
        """The integrators, by the names of their states."""
        names = [self.task.free_names[i] for i in self.task.integrated]
        return dict(zip(names, self._integral.tolist(), strict=True))

    def input(
        self, state: ArrayLike, *, target: ArrayLike | Mapping[str, float] | None = None
    ) -> Float[Array, " m"]:
        """The input in this state; the integrators take one step.

        Parameters
        ----------
        state : array_like, (d,)
            All states; or what is measured of them, without those that are constant or past: if
            only outputs are measured, the last of them are remembered here.
        target : optional
            A new target from now on, for the states that have one.

        Returns
        -------
        array, (m,)
            Within the limits.

        Raises
        ------
        InputError
            If the state is not finite, or no input holds the target; nothing has changed then.
        """
        task, d = self.task, len(self.task.names)
        given, n = as_numbers("state", state, "(d,)", 1), len(task.moving)
        many = f"{len(task.seen)} numbers" + f", or {d}" * (d != len(task.seen))
        require(
            given.shape in ((d,), (len(task.seen),)),
            f"state must be {many}, not of shape {given.shape}",
        )
        whole = given if len(given) == d else task.whole(given, self._last)
        x = whole[list(task.moving)]
        if target is not None:
            self.set_target(target)
        self.meet(whole)
        rest, feed = self._rest
        if self._fresh:
            self._integral, self._fresh = self.lead @ (x - rest), False
        asked = feed + self.gain[:, :n] @ (x - rest) + self.gain[:, n:] @ self._integral
        low, high = task.limits.low, task.limits.high
        u = np.clip(asked, low, high)
        own = [task.held.index(i) for i in task.integrated]
        away = x[list(task.integrated)] - self._target[own]
        push = self.gain[:, n:] @ away
        if not (((asked > high) & (push > 0)) | ((asked < low) & (push < 0))).any():
            self._integral = self._integral + away
        self.saturated, self._last = bool((u != asked).any()), np.concatenate((whole, u))
        return np.asarray(u)

    def set_target(self, target: ArrayLike | Mapping[str, float]) -> None:
        """Hold something else from now on; whatever a mapping does not name stays.

        Parameters
        ----------
        target : number, list or mapping from names
            For the states that have a target.

        Raises
        ------
        InputError
            If no input within the limits holds it. Nothing has changed then.
        """
        wanted = self.task.values(target, self._target)
        base = self._at(wanted)
        self._target = wanted
        self._move_rest(base)

    def meet(self, state: Float[Array, " d"]) -> None:
        """Move the equilibrium to that under the measured disturbances of this state."""
        if self.task.measured:
            self._measured = state[list(self.task.measured)]
            self._move_rest(self._base)

    def _move_rest(self, base: tuple[Float[Array, " n"], Float[Array, " m"]]) -> None:
        """Rest is elsewhere, for a target or a disturbance: the integrators go on from there."""
        before, self._base = self._rest[0], base
        if self.task.measured:
            moved = zip(base, self._slope, strict=True)
            base = tuple(part + by @ self._measured for part, by in moved)  # type: ignore[assignment]
        self._rest = base
        self._integral = self._integral + self.lead @ (before - base[0])

    def reset(self) -> None:
        """Forget outputs and what the integrators hold, as before the first step."""
        self._integral = np.zeros(len(self.task.integrated))
        self.saturated, self._fresh, self._last = False, True, None

    def moments(self, noise: Float[Array, "d d"]) -> Float[Array, "y y"]:
        """E[y yᵀ] of the loop in the long run under this noise, y = [x; u] with the constants."""
        task, m = self.task, len(self.gain)
        larger, _ = task.with_integrators(*self.parts[:2])
        moving, n, d = list(task.moving), len(task.moving), len(task.names)
        shocks = np.zeros_like(larger.A)
        shocks[:n, :n] = noise[np.ix_(moving, moving)]
        X = solve_discrete_lyapunov(larger.A + larger.B @ self.gain, shocks)
        both, places = np.concatenate((np.eye(n, len(X)), self.gain)), [*moving, *range(d, d + m)]
        mean = np.ones(d + m)
        mean[list(task.measured)] = self._measured
        mean[places] = np.concatenate(self._rest)
        found = np.outer(mean, mean)
        found[np.ix_(places, places)] += both @ X @ both.T
        return found

    def to_control(self, dt: float | bool = True) -> tuple[Any, Float[Array, "m size"]]:
        """The machine with its integrators for python-control, and the gain in its sign, u = -K x.

        Parameters
        ----------
        dt : float or True
            The sampling time; True means discrete time with an unspecified step.

        Returns
        -------
        control.StateSpace, array
            Deviations from equilibrium: its closed loop is A - B K.
        """
        larger, _ = self.task.with_integrators(*self.parts[:2])
        return state_space(larger.A, larger.B, dt), -self.gain

    def _at(self, target: Float[Array, " held"]) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """The state and input at rest there, or a sentence that says why there are none."""
        task, said = self.task, _said(self.task.held_names, target)
        found = self._resting(self.parts[2], target)
        require(
            found is not None, f"no input can hold {said}: the machine has no equilibrium there"
        )
        assert found is not None
        limits = task.limits
        ends = zip(limits.names, found[1], limits.low, limits.high, strict=True)
        for name, u, low, high in ends if not task.measured else ():  # of which rest depends
            room = UNHELD * abs(u)
            limit = low if u < low else high
            require(
                low - room <= u <= high + room,
                f"no input can hold {said}: {name} would have to be {u:.3g}, its limit is "
                f"{limit:.3g}",
            )
        state, given = (
            np.where(np.abs(part) > _ROUNDING * np.abs(part).max(), part, 0.0) for part in found
        )
        return read_only(state), read_only(given)

    def _slopes(self) -> tuple[Float[Array, "n w"], Float[Array, "m w"]]:
        """How far rest moves with each disturbance."""
        task, still = self.task, np.zeros(len(self.task.held))
        states, inputs = [], []
        for place, column in zip(task.measured, self.disturbance.T, strict=True):
            found = self._resting(column, still)
            require(
                found is not None,
                f"no input can balance {task.names[place]} at the target: leave the target or the "
                "integral out, or leave it out of [measured]",
            )
            assert found is not None
            states.append(found[0])
            inputs.append(found[1])
        n, m = len(task.moving), len(self.gain)
        return np.reshape(states, (-1, n)).T, np.reshape(inputs, (-1, m)).T

    def _resting(
        self, offset: Float[Array, " n"], target: Float[Array, " held"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]] | None:
        (A, B, _), task = self.parts, self.task
        Q = task.cost.Q[np.ix_(task.moving, task.moving)]
        return at_rest(A, B, offset, Q, np.asarray(task.cost.R), list(task.held), target)

    def _require_integrable(self) -> None:
        """What is integrated must be held at any value: rows of [A - I, B; I, 0] independent."""
        (A, B, _), task = self.parts, self.task
        n, places = len(A), list(task.integrated)
        for count, place in enumerate(places, 1):
            rows = np.zeros((n + count, n + B.shape[1]))
            rows[:n, :n], rows[:n, n:] = A - np.eye(n), B
            rows[n + np.arange(count), places[:count]] = 1.0
            if not _independent(rows, n):
                name = task.free_names[place]
                raise InputError(
                    f"the integral of {name} would never settle: no input can hold {name} at any "
                    "value" + (" together with the others" if count > 1 else "")
                )

    def _facts(self) -> dict[str, object]:
        n = len(self.task.moving)
        facts: dict[str, object] = {"states": n, "inputs": len(self.gain)}
        if self.target:
            facts["target"] = _said(list(self.target), self._target)
        if self.integral:
            facts["integral"] = ", ".join(self.integral)
        return {**facts, "limits": "yes" if self.task.limits.any else "none"}


def _said(names: list[str], values: Float[Array, " held"]) -> str:
    listed = [f"{name} at {value:.6g}" for name, value in zip(names, values, strict=True)]
    return ", ".join(listed) or "the machine still"


def _independent(rows: Float[Array, "r c"], n: int) -> bool:
    """Whether the last rows add as many dimensions as they are, in sizes that are equal."""
    left, right = np.ones(len(rows)), np.ones(rows.shape[1])
    for _ in range(10):
        scaled = np.abs(left[:, None] * rows * right)
        most = scaled.max(1), scaled.max(0)
        left /= np.sqrt(np.where(most[0] > 0, most[0], 1.0))
        right /= np.sqrt(np.where(most[1] > 0, most[1], 1.0))
    scaled = left[:, None] * rows * right
    ranks = [int(np.linalg.matrix_rank(part, tol=1e-9)) for part in (scaled, scaled[:n])]
    return ranks[0] - ranks[1] == len(rows) - n
