"""From what is measured to a state: the last outputs and the last inputs.

A machine whose state is not measured is still a linear recursion in what is. With a delay of k
samples,

    y' = Σ_{i<n} a_i y₋ᵢ + Σ_{j<r} b_j u₋ₖ₋ⱼ + g w + h + e      y₋ᵢ: i steps ago; w a disturbance

so that x = [1, w, y, y₋₁, …, y₋ₙ₊₁, u₋₁, …, u₋₍ₖ₊ᵣ₋₁₎] is a state: the row of the next output is
learnt, every other row shifts what is there by a step, and is known exactly. The regression is the
same as ever.

Noise of measurement is in the outputs on both sides, and makes least squares wrong if the history
is short: then e remembers. It does not if the history is long. The best predictor from outputs, a
Kalman filter's, is

    y' = Σᵢ C (A - LC)ⁱ (L y₋ᵢ + B u₋ᵢ) + innovation

of all that was seen, whose weights die out like (A - LC)ⁱ, and innovations are white. So least
squares on a history that is long enough is least squares on that predictor, without bias, and the
LQR of this state is the filter and the LQR of the machine in one. How long is enough can be told:
e is white, and a longer history predicts no better.

The noisier a sensor is for its sampling time, the longer a history must be. It need not be wide:
with a spacing above 1, y₋ᵢ and u₋ⱼ are means of the past that fade (`fading.py`), so many samples
apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.fading import faded, forgotten_after, keep_of
from contextual_lqr.checks import as_count, as_number, as_numbers, require
from contextual_lqr.context import ContextMap
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, QuadraticCost, Trajectory

if TYPE_CHECKING:
    from contextual_lqr.belief.machine import MachineBelief
    from contextual_lqr.belief.output_memory import OutputController, OutputMemory

LONGEST = 10_000  # steps


@dataclass(frozen=True)
class OutputHistory:
    """The state of machines whose outputs alone are measured: the last outputs and inputs.

    The state is [1, w, y, y₋₁, …, u₋₁, …], newest first; 1 and w only if requested.

    Parameters
    ----------
    outputs, inputs : int
        How many there are of each.
    n : int
        How many outputs the state holds, the newest included.
    delay : int
        How many samples pass before an input begins to act: 0 if the next output feels it.
    input_history : int, optional
        How many inputs act on the next output, the newest of them `delay` samples old; n by
        default.
    measured : int
        How many disturbances are measured, such as the weather: known when acting, not controlled.
        They are expected to stay as they are.
    constant : bool
        Whether 1 is a state, for offsets and targets.
    spacing : float
        How many samples apart the past outputs and inputs are. Above 1 they are fading means of the
        past, and a few of them reach far back, as noisy sensors need.

    Raises
    ------
    InputError
        If one is not a whole number in its range.

    Examples
    --------
    >>> history = clqr.OutputHistory(outputs=1, inputs=1, n=3)
    >>> history.trajectory([[1.0], [0.9], [0.7], [0.6]], [[-0.1], [-0.2], [0.1]]).states[0]
    array([ 0.7,  0.9,  1. , -0.2, -0.1])
    >>> motors = clqr.FeatureContext(["1", "1/inertia"], states=history.state_size, inputs=1)
    >>> sorted(history.known(motors))  # rows of Θ that need not be learnt
    [1, 2, 3, 4]
    """

    outputs: int
    inputs: int
    n: int
    delay: int = 0
    input_history: int | None = None
    measured: int = 0
    constant: bool = False
    spacing: float = 1.0

    def __post_init__(self) -> None:
        for name, least in (("outputs", 1), ("inputs", 1), ("n", 1), ("delay", 0), ("measured", 0)):
            as_count(name, getattr(self, name), least, LONGEST)
        if self.input_history is not None:
            as_count("input_history", self.input_history, 1, LONGEST)
        spacing = as_number("spacing", self.spacing)
        require(1 <= spacing <= LONGEST, f"spacing must be from 1 to {LONGEST}, not {spacing!r}")

    @property
    def past_inputs(self) -> int:
        """How many inputs the state holds: those that still act once the next is chosen."""
        return (self.n if self.input_history is None else self.input_history) - 1 + self.delay

    @property
    def lost(self) -> int:
        """How many steps of an episode pass before there is a whole history."""
        late, outputs = self.delay, self.n - 1
        inputs = self.past_inputs - late
        return max(
            forgotten_after(outputs, self.spacing), late + forgotten_after(inputs, self.spacing)
        )

    @property
    def newest(self) -> int:
        """The index of the newest output in the state."""
        return int(self.constant) + self.measured

    @property
    def state_size(self) -> int:
        """The number of states, d."""
        return self.newest + self.n * self.outputs + self.past_inputs * self.inputs

    # -- learning ----------------------------------------------------------------------------------

    def trajectory(
        self, outputs: ArrayLike, inputs: ArrayLike, measured: ArrayLike | None = None
    ) -> Trajectory:
        """An episode of outputs as one of states; it begins once there is a whole history.

        Parameters
        ----------
        outputs : array_like, (..., H, outputs)
            What was measured, the first and the last included.
        inputs : array_like, (..., H-1, inputs)
            What was played in between.
        measured : array_like, (..., H, measured), optional
            The disturbances.

        Returns
        -------
        Trajectory
            Of H - lost states.

        Raises
        ------
        InputError
            If the shapes do not fit, or the episode is shorter than the history.
        """
        y = self._columns("outputs", outputs, self.outputs)
        u = self._columns("inputs", inputs, self.inputs)
        *batch, H, _ = y.shape
        w = np.zeros((*batch, H, 0))
        if measured is not None:
            w = self._columns("measured", measured, self.measured)
        require(w.shape[-1] == self.measured, "the measured disturbances are missing")
        fits = u.shape[:-1] == (*batch, H - 1) and w.shape[:-1] == (*batch, H)
        require(
            fits,
            "an episode has one more output than inputs, and as many disturbances as outputs, but "
            f"outputs has shape {y.shape}, inputs {u.shape} and measured {w.shape}",
        )
        first = self.lost
        require(
            first + 2 <= H,
            f"the episode is shorter than the history: {H} outputs, but {first + 2} are needed "
            "for a step",
        )
        parts = [np.ones((*batch, H - first, int(self.constant))), w[..., first:, :]]
        late = self.delay
        held = np.concatenate((u, u[..., -1:, :]), axis=-2)  # a row for the last output
        past = self.stages(y, self.n - 1)
        past += [held[..., first - j : H - j, :] for j in range(1, late + 1)]
        lagged = np.concatenate((held[..., :1, :].repeat(late, -2), held[..., : H - late, :]), -2)
        past += self.stages(lagged, self.past_inputs - late)[1:]
        parts += [one[..., one.shape[-2] - (H - first) :, :] for one in past]
        return Trajectory(np.concatenate(parts, axis=-1), u[..., first:, :])

    def stages(self, column: Float[Array, "*batch T q"], many: int) -> list[Array]:
        """What a column is, and was: as many stages of its past, further and further back."""
        past = faded(np.moveaxis(column, -2, 0), many, self.spacing)
        return [np.moveaxis(one, 0, -2) for one in past]

    def known(self, context_map: ContextMap) -> dict[int, Float[Array, " p"]]:
        """The rows of Θ that shift the history, for `Decoder(known=...)`.

        Parameters
        ----------
        context_map : ContextMap
            The map, which must be able to express "the same at every context", as the feature 1
            does.

        Returns
        -------
        dict
            By the index of the state, all but those of the newest outputs.
        """
        if (context_map.states, context_map.inputs) != (self.state_size, self.inputs):
            context_map = context_map.sized(self.state_size, self.inputs)
        shift = self.shift
        rows = context_map.constant_rows(shift[list(self.known_states)])
        require(
            rows is not None,
            "known rows are found by trying contexts: the map must have names and bounds",
        )
        assert rows is not None
        require(
            np.isfinite(rows).all(),
            "the context map cannot keep past outputs as they were at every context: a feature "
            '"1" is missing',
        )
        return dict(zip(self.known_states, rows, strict=True))

    @property
    def known_states(self) -> tuple[int, ...]:
        """The states whose next value is known: all but the newest outputs."""
        learnt = range(self.newest, self.newest + self.outputs)
        return tuple(i for i in range(self.state_size) if i not in learnt)

    @property
    def shift(self) -> Float[Array, "d y"]:
        """[A, B] of machines whose newest output does not depend on anything."""
        d, q, m, y0 = self.state_size, self.outputs, self.inputs, self.newest
        rows = np.zeros((d, d + m))
        rows[range(y0), range(y0)] = 1.0  # 1 and the disturbances stay
        old, keep = y0 + self.n * q, keep_of(self.spacing)
        late = old + self.delay * m  # inputs that are on their way do not fade
        fading = [*range(y0 + q, old), *range(late, d)]
        rows[range(y0 + q, old), range(y0, old - q)] = 1.0
        if self.past_inputs:
            rows[range(old, old + m), range(d, d + m)] = 1.0
            rows[range(old + m, d), range(old, d - m)] = 1.0
        rows[fading] *= 1.0 - keep
        rows[fading, fading] = keep
        return rows

    # -- the task ----------------------------------------------------------------------------------

    def cost(
        self, Q: ArrayLike, R: ArrayLike, horizon: int, final_Q: ArrayLike | None = None
    ) -> QuadraticCost:
        """The cost Σ yᵀ Q y + uᵀ R u over an episode, of the newest outputs alone.

        Parameters
        ----------
        Q : array_like, (outputs, outputs)
            The weight of the outputs.
        R : array_like, (inputs, inputs)
            The weight of the inputs.
        horizon : int
            How many outputs an episode has.
        final_Q : array_like, optional
            The weight of the last output, if it differs.

        Returns
        -------
        QuadraticCost
            For states of this history.
        """
        H, q, d = as_count("horizon", horizon, 2), self.outputs, self.state_size
        each = as_numbers("Q", Q, "(outputs, outputs)", 2)
        last = each if final_Q is None else as_numbers("final_Q", final_Q, "Q's", 2)
        r = as_numbers("R", R, "(inputs, inputs)", 2)
        for name, one, size in (("Q", each, q), ("final_Q", last, q), ("R", r, self.inputs)):
            require(one.shape == (size, size), f"{name} must be {size} by {size}, not {one.shape}")
        weights = np.zeros((H, d, d))
        now = slice(self.newest, self.newest + q)
        weights[:, now, now] = each
        weights[-1, now, now] = last
        return QuadraticCost(weights, np.broadcast_to(r, (H - 1, *r.shape)))

    def at_rest(
        self, outputs: ArrayLike, inputs: ArrayLike | None = None, measured: ArrayLike | None = None
    ) -> Float[Array, " d"]:
        """The state of a machine that has had these outputs and inputs for a long time.

        Parameters
        ----------
        outputs : array_like, (outputs,)
            What it shows.
        inputs : array_like, (inputs,), optional
            What it has been given; 0 by default.
        measured : array_like, (measured,), optional
            The disturbances now.

        Returns
        -------
        array, (d,)
            Where an episode starts.
        """
        y = self._vector("outputs", outputs, self.outputs)
        u = np.zeros(self.inputs)
        if inputs is not None:
            u = self._vector("inputs", inputs, self.inputs)
        w = np.zeros(0)
        if measured is not None:
            w = self._vector("measured", measured, self.measured)
        require(len(w) == self.measured, "the measured disturbances are missing")
        one = np.ones(int(self.constant))
        return np.concatenate((one, w, np.tile(y, self.n), np.tile(u, self.past_inputs)))

    # -- on the machine (output_memory.py) ---------------------------------------------------------

    def memory(self, machine: LinearSystem | MachineBelief | None = None) -> OutputMemory:
        """What a controller must remember at run time; empty, as before an episode.

        With a `machine`, where it rests at the start is estimated, for noisy sensors.
        """
        from contextual_lqr.belief.output_memory import OutputMemory

        return OutputMemory(self, machine)

    def controller(
        self,
        policy: LinearPolicy | Callable[[int, Any], Any],
        *,
        input_bounds: Any = None,
        machine: LinearSystem | MachineBelief | None = None,
    ) -> OutputController:
        """A policy of the history, as a controller that takes outputs alone.

        Parameters
        ----------
        policy : LinearPolicy or function
            From the step and the state to the input, as `certify(...).policy` is.
        input_bounds : optional
            What inputs may be, (low, high): they are clipped, and what was clipped is remembered.
        machine : LinearSystem or MachineBelief, optional
            The belief about the machine, such as `decoder.machine(context)`. An episode begins at
            rest, but the first output is noisy; with this, where the machine rests is estimated
            from the following outputs too.

        Returns
        -------
        OutputController
            With an empty memory.
        """
        from contextual_lqr.belief.output_memory import OutputController

        return OutputController(self, policy, input_bounds, machine)

    def _columns(self, name: str, value: ArrayLike, size: int) -> Array:
        found = as_numbers(name, value, f"(..., H, {size})", 1)
        require(
            found.ndim >= 2 and found.shape[-1] == size,
            f"{name} must have shape (..., H, {size}), not {found.shape}",
        )
        return found

    def _vector(self, name: str, value: ArrayLike, size: int) -> Float[Array, " k"]:
        found = as_numbers(name, value, f"({size},)", 1)
        require(
            found.shape == (size,),
            f"{name} must be {size} number{'s' if size != 1 else ''}, but has shape {found.shape}",
        )
        return found
