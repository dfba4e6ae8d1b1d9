"""The only simulator: x' = A x + B u + w, under a policy or under whoever acts step by step.

`simulate` draws the noise; `rollout` is given it, for one episode or a batch; `rollout_live` asks a
player (an agent's episode, say) for each input and shows it each state.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr import kernels
from contextual_lqr.checks import (
    as_count,
    as_input_bounds,
    as_numbers,
    broadcast_batches,
    record,
    require,
)
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.problem import LinearPolicy, Trajectory, apply, as_states, require_fit
from contextual_lqr.lqr.stationary import StationaryPolicy


@runtime_checkable
class Player(Protocol):
    """Who acts step by step: `act` on a state, then `observe` the next, until `finished`."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to play."""
        ...

    def act(self, state: Array, /) -> Array:
        """The input to play in this state."""
        ...

    def observe(self, state: Array, /) -> None:
        """The state that came of it."""
        ...


def simulate(
    policy: LinearPolicy | StationaryPolicy,
    system: Dynamics,
    start: ArrayLike,
    rng: np.random.Generator,
    *,
    steps: int | None = None,
    input_bounds: tuple[ArrayLike, ArrayLike] | None = None,
    state_bound: float | ArrayLike | None = None,
) -> Trajectory:
    """Play the policy on the system, with noise drawn from `rng`.

    Parameters
    ----------
    policy, system : LinearPolicy or StationaryPolicy, LinearSystem or TimeVaryingSystem
        What is played, and on what. Without a bound they may be batches, which broadcast.
    start : array_like, (..., d)
        The first state, or a batch of them.
    rng : numpy.random.Generator
        Where the noise comes from. An episode's noise is drawn all at once, so that how far the
        episode gets does not change what is drawn after it.
    steps : int, optional
        For how long a `StationaryPolicy` is played; a `LinearPolicy` knows its own steps.
    input_bounds : pair of array_like, optional
        The lowest and the highest inputs, to which all are clipped.
    state_bound : float or array_like, (d,), optional
        Stop one episode after the first state with a larger coordinate.

    Returns
    -------
    Trajectory
        As long as what was played. One episode whose state overflows is stopped before that.

    Raises
    ------
    InputError
        If sizes do not fit together, or an episode of a batch overflows.

    Examples
    --------
    >>> system = clqr.LinearSystem([[0.9]], [[1.0]], noise=[[0.01]])
    >>> policy = clqr.LinearPolicy(np.full((10, 1, 1), -0.4))
    >>> clqr.simulate(policy, system, [1.0], np.random.default_rng(0))
    <Trajectory: states 1, inputs 1, steps 10>
    """
    x = as_states("start", start, system.state_size)
    policy = _with_steps(policy, system, steps)
    batch, bound = _checked(policy, system, x, state_bound)
    drawn = rng.standard_normal((*batch, policy.gains.shape[-3], system.state_size))
    shocks = as_noise(system, drawn)
    return _played(policy, system, x, shocks, batch, None, input_bounds, bound)


def rollout(
    policy: LinearPolicy | StationaryPolicy,
    system: Dynamics,
    start: ArrayLike,
    shocks: Float[Array, "*shocks steps d"],
    *,
    offsets: Float[Array, "*offsets steps m"] | None = None,
    input_bounds: tuple[ArrayLike, ArrayLike] | None = None,
    state_bound: float | ArrayLike | None = None,
    largest: float | None = None,
) -> Trajectory:
    """Play the policy with the noise given: x' = A x + B u + shock, u = K x + offset.

    Parameters
    ----------
    policy, system, start, input_bounds, state_bound
        As for `simulate`.
    shocks : array, (..., H-1, d)
        The noise of each step.
    offsets : array, (..., H-1, m), optional
        What is added to the policy's inputs.
    largest : float, optional
        Hold states within ± this, so that a run of a batch that explodes stays finite.

    Returns
    -------
    Trajectory
        As of `simulate`.

    Raises
    ------
    InputError
        If an episode of a batch overflows and `largest` is not given.
    """
    x = as_states("start", start, system.state_size)
    if isinstance(policy, StationaryPolicy):
        policy = _with_steps(policy, system, shocks.shape[-2])
    others = {"shocks": shocks} if offsets is None else {"shocks": shocks, "offsets": offsets}
    for name, array in others.items():
        steps = policy.gains.shape[-3]
        size = system.state_size if name == "shocks" else system.input_size
        require(
            array.shape[-2:] == (steps, size),
            f"{name} must have shape (..., {steps}, {size}), not {array.shape}",
        )
    leading = {name: array.shape[:-2] for name, array in others.items()}
    batch, bound = _checked(policy, system, x, state_bound, leading)
    return _played(policy, system, x, shocks, batch, offsets, input_bounds, bound, largest)


def rollout_live(
    player: Player, system: Dynamics, start: ArrayLike, shocks: Float[Array, "steps d"]
) -> Trajectory:
    """One episode of a player, until it is finished, the noise is used up, or a state overflows."""
    states, inputs = [as_states("start", start, system.state_size)], []
    for step, shock in enumerate(shocks):
        if player.finished:
            break
        u, (A, B) = player.act(states[-1]), system.at(step)
        with np.errstate(over="ignore", invalid="ignore"):
            x = A @ states[-1] + B @ u + shock
        if not np.isfinite(x).all():
            break
        player.observe(x)
        states.append(x)
        inputs.append(u)
    return Trajectory(np.array(states), np.array(inputs).reshape(-1, system.input_size))


def as_noise(
    system: Dynamics, drawn: Float[Array, "*batch steps d"]
) -> Float[Array, "*batch steps d"]:
    """Standard normal numbers as noise of the system."""
    if system.steps is None:
        return np.asarray(np.einsum("...ij,...hj->...hi", system.noise_factor, drawn))
    return apply(system.noise_factor, drawn)  # one for each step


def _with_steps(
    policy: LinearPolicy | StationaryPolicy, system: Dynamics, steps: int | None
) -> LinearPolicy:
    if isinstance(policy, LinearPolicy):
        own = policy.gains.shape[-3]
        require(steps in (None, own), f"the policy has {own} steps of its own, not {steps!r}")
        return policy
    require(steps is not None, "a constant gain can be played for ever: say for how many `steps`")
    require_fit(policy, system)
    return policy.over(as_count("steps", steps))


def _checked(
    policy: LinearPolicy,
    system: Dynamics,
    x: Array,
    state_bound: float | ArrayLike | None,
    leading: dict[str, tuple[int, ...]] | None = None,
) -> tuple[tuple[int, ...], Array | None]:
    """The common batch shape, and the bound as an array of d."""
    require_fit(policy, system)
    batches = {"policy": policy.gains.shape[:-3], "system": system.batch_shape}
    batch = broadcast_batches({**batches, "start": x.shape[:-1], **(leading or {})})
    if state_bound is None:
        return batch, None
    d, bound = system.state_size, as_numbers("state_bound", state_bound, "(d,)", 0)
    require(not batch, f"a state bound stops one episode, but these are a batch of {batch}")
    require(
        bound.shape in ((), (d,)) and bool((bound > 0).all()),
        f"state_bound must be positive, a number or {d} of them, not {state_bound!r}",
    )
    return batch, np.full(d, bound)


def _played(
    policy: LinearPolicy,
    system: Dynamics,
    x: Array,
    shocks: Array,
    batch: tuple[int, ...],
    offsets: Array | None = None,
    input_bounds: tuple[ArrayLike, ArrayLike] | None = None,
    bound: Array | None = None,
    largest: float | None = None,
) -> Trajectory:
    K = policy.gains
    steps, m, d = K.shape[-3:]
    if input_bounds is not None:
        input_bounds = as_input_bounds(input_bounds, m)
    if not batch and input_bounds is None and largest is None:
        found = kernels.roll_out(system.A, system.B, K, x, shocks, offsets=offsets, bound=bound)
        states, inputs = found
        return record(object.__new__(Trajectory), states=states, inputs=inputs)  # ours, and finite
    states, inputs = np.empty((*batch, steps + 1, d)), np.empty((*batch, steps, m))
    states[..., 0, :] = x
    with np.errstate(over="ignore", invalid="ignore"):
        for h in range(steps):
            u = apply(K[..., h, :, :], states[..., h, :])
            if offsets is not None:
                u = u + offsets[..., h, :]
            if input_bounds is not None:
                u = np.clip(u, *input_bounds)
            A, B = system.at(h)
            x = apply(A, states[..., h, :]) + apply(B, u) + shocks[..., h, :]
            if largest is not None:
                x = np.clip(np.where(np.isnan(x), largest, x), -largest, largest)
            states[..., h + 1, :], inputs[..., h, :] = x, u
    if batch:
        fine = np.isfinite(states).all() and np.isfinite(inputs).all()
        require(fine, "an episode of this batch overflows: simulate it alone, or with a bound")
        return Trajectory(states, inputs)
    # One episode ends before a step that overflows, and after a state beyond the bound.
    overflows = ~(np.isfinite(states[1:]).all(-1) & np.isfinite(inputs).all(-1))
    beyond = np.zeros(steps + 1, bool) if bound is None else (np.abs(states) > bound).any(-1)
    ends = [*np.flatnonzero(overflows)[:1], *np.flatnonzero(beyond)[:1], steps]
    n = int(min(ends))
    return Trajectory(states[: n + 1], inputs[:n])
