"""On a machine of which only outputs are measured: what is remembered, and the controller on it.

Before its first output a machine is taken to have been at rest there, with inputs of 0. If the
sensor is noisy, it was at rest near there: the first output is off by what it calls a step's error,
e. With the machine's own law, y' = M [x; u] + e, the level r of its rest is known better with each
output: the state is linear in it, with slope G, and so are predictions; so recursively

    K = P Hᵀ (H P Hᵀ + N)⁻¹      H = M [G; 0]      N = cov e, and P = N at first
    r += K (y' - M [x; u])       P -= K H P        x' += G' K (y' - M [x; u])

which is the Kalman filter of a level that stays. G fades as the past does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.output_history import OutputHistory
from contextual_lqr.checks import as_input_bounds, as_numbers, frozen, require
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem


class OutputMemory:
    """The last outputs and inputs of a running machine.

    Before the first output it is assumed to have been at rest there, with inputs of 0; or near
    there, if the belief about the `machine` is given: then where it rested is estimated.
    """

    def __init__(
        self, history: OutputHistory, machine: LinearSystem | MachineBelief | None = None
    ) -> None:
        self.history, self._shift = history, history.shift
        self._state: Array | None = None
        self._law: tuple[Array, Array] | None = None
        if machine is not None:
            self._law = _law(history, machine)

    def see(
        self, outputs: ArrayLike, played: ArrayLike | None = None, measured: ArrayLike | None = None
    ) -> Float[Array, " d"]:
        """The state now that these outputs were measured.

        `played` is the input since the previous outputs, and is left out for the first.
        """
        about, before = self.history, self._state
        if (before is None) != (played is None):
            raise InputError(
                "say what was played since the outputs before"
                if played is None
                else "nothing can have been played before the first outputs"
            )
        x = about.at_rest(outputs, played, measured)
        first, d = about.newest + about.outputs, about.state_size
        if before is None:
            self._slope = np.zeros((d, about.outputs))
            self._slope[first : about.newest + about.n * about.outputs] = np.tile(
                np.eye(about.outputs), (about.n - 1, 1)
            )
            if self._law is not None:
                self._doubt = self._law[1]
        else:
            z = np.concatenate((before, np.ravel(np.asarray(played, float))))
            x[first:] = self._shift[first:] @ z
            if self._law is not None:
                x = self._levelled(x, z, *self._law)
        self._state = frozen(x)
        return self._state

    def _levelled(
        self, x: Float[Array, " d"], z: Float[Array, " y"], M: Float[Array, "q y"], N: Array
    ) -> Float[Array, " d"]:
        """The state with a better guess at where the machine was at rest."""
        about, d = self.history, len(x)
        off = x[about.newest : about.newest + about.outputs] - M @ z
        H = M[:, :d] @ self._slope
        # Least squares: outputs without noise tell nothing of the level, and leave S singular.
        K = np.linalg.lstsq(H @ self._doubt @ H.T + N, H @ self._doubt, rcond=None)[0].T
        self._slope = self._shift[:, :d] @ self._slope
        self._doubt = self._doubt - K @ H @ self._doubt
        return np.asarray(x + self._slope @ (K @ off))


def _law(
    history: OutputHistory, machine: LinearSystem | MachineBelief
) -> tuple[Float[Array, "q y"], Float[Array, "q q"]]:
    """M and N of a machine."""
    said = f"machine must be one LinearSystem or MachineBelief, not {machine!r}"
    require(isinstance(machine, LinearSystem | MachineBelief), said)
    system = machine.system if isinstance(machine, MachineBelief) else machine
    require(system.batch_shape == (), said)
    sizes, want = (system.state_size, system.input_size), (history.state_size, history.inputs)
    require(
        sizes == want,
        f"the machine has {sizes[0]} states and {sizes[1]} inputs, but this history {want[0]} and "
        f"{want[1]}",
    )
    now = slice(history.newest, history.newest + history.outputs)
    return np.concatenate((system.A, system.B), axis=1)[now], system.noise[now, now]


class OutputController:
    """A controller that takes outputs, and remembers what it needs of them.

    An episode's policy ends with it, and is refused beyond; a `StationaryPolicy` goes on for ever.
    `restart` starts over.
    """

    def __init__(
        self,
        history: OutputHistory,
        policy: LinearPolicy | Callable[[int, Any], Any],
        input_bounds: Any = None,
        machine: LinearSystem | MachineBelief | None = None,
    ) -> None:
        if isinstance(policy, LinearPolicy):
            shape, want = policy.gains.shape, (history.inputs, history.state_size)
            require(
                len(shape) == 3 and shape[1:] == want,
                f"the policy's gains have shape {shape}, but this history needs (steps, "
                f"{want[0]}, {want[1]})",
            )
        self.history, self.policy, self._machine = history, policy, machine
        m = history.inputs
        self._bounds = None if input_bounds is None else as_input_bounds(input_bounds, m)
        self.restart()

    def restart(self) -> None:
        """Forget: the next output is the first of an episode."""
        self._memory, self._step = self.history.memory(self._machine), 0
        self._last: Array | None = None

    def input(self, outputs: ArrayLike, measured: ArrayLike | None = None) -> Float[Array, " m"]:
        """The input to play now that these outputs, and disturbances, are measured."""
        x = self._memory.see(outputs, self._last, measured)
        u = as_numbers("the policy's input", self.policy(self._step, x), "(inputs,)", 1)
        if self._bounds is not None:
            u = np.clip(u, *self._bounds)
        self._last, self._step = frozen(u), self._step + 1
        return u.copy()
