"""For a machine never tried: its controller, what it will cost, and whether to trust it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from contextual_lqr.belief.confidence import BetaRule
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.evidence.episodes import machine_labels
from contextual_lqr.certificates.certificate import Certificate
from contextual_lqr.certificates.certification import CertificationTask
from contextual_lqr.certificates.limits import InputBounds
from contextual_lqr.certificates.paths.path_certificate import certify_path
from contextual_lqr.context import Dynamics, Schedule
from contextual_lqr.context.variables import each, one_by_one
from contextual_lqr.lqr.stationary import Cost


def certify(
    decoder: Decoder,
    context: Any,
    cost: Cost,
    start: ArrayLike,
    *,
    machine: str | None = None,
    noise: ArrayLike | None = None,
    input_bounds: InputBounds | None = None,
    states: Sequence[str] | None = None,
    beta: str | float | BetaRule = "determinant",
    delta: float = 0.05,
    draws: int = 200,
    bounds: bool = True,
    rng: np.random.Generator | None = None,
    forecast: Mapping[Any, ArrayLike] | None = None,
) -> Certificate:
    """The controller for the machine with this context, and how far to trust it.

    Parameters
    ----------
    decoder
        What was learnt from the fleet.
    context
        The machine's context, or a `Schedule` if it changes during the episode.
    cost
        What the controller is for.
    start
        The state in which episodes start.
    machine
        The label of a machine that has data of its own; without one, it was never seen.
    noise, input_bounds, states, beta, delta, draws, bounds, rng, forecast
        As for `certify_many`.

    Returns
    -------
    Certificate
        With the controller as its `policy`. Of `Dynamics` a `PathCertificate`, by roll-outs of
        posterior draws: sampled, not proven.

    Raises
    ------
    InputError
        If something does not fit together, or there are no data for such a machine.
    """
    if isinstance(decoder.context_map, Dynamics):
        options: Any = {"noise": noise, "input_bounds": input_bounds, "draws": draws, "rng": rng}
        return certify_path(decoder, context, cost, start, machine=machine, **options)
    task = CertificationTask(
        decoder, cost, start, noise, input_bounds, states, beta, delta, draws, bounds, rng, forecast
    )
    if isinstance(context, Schedule):
        return task.along(context, machine)
    return task.all_of([context], [machine])[0]


def certify_many(
    decoder: Decoder,
    contexts: Sequence[Any] | Mapping[str, Any],
    cost: Cost,
    start: ArrayLike,
    *,
    machine: str | Sequence[str | None] | None = None,
    noise: ArrayLike | None = None,
    input_bounds: InputBounds | None = None,
    states: Sequence[str] | None = None,
    beta: str | float | BetaRule = "determinant",
    delta: float = 0.05,
    draws: int = 200,
    bounds: bool = True,
    rng: np.random.Generator | None = None,
    forecast: Mapping[Any, ArrayLike] | None = None,
    progress: Callable[[int], object] | None = None,
) -> list[Certificate]:
    """The certificates of many machines.

    Parameters
    ----------
    decoder
        What was learnt from the fleet.
    contexts
        A sequence of contexts, or a mapping from names to arrays.
    cost
        What the controllers are for: an episode, or with a `StationaryCost` (without a discount)
        machines that run continuously, each with one constant gain.
    start
        The state in which episodes start.
    machine
        The label of each machine that has data of its own, None for one that was never seen.
    noise
        The covariance of a step's noise if it is known; otherwise it is estimated.
    input_bounds
        What inputs may be, as an `Agent` takes it, or a mapping from the names of all inputs, in
        their order, to (low, high). What clipping to them costs is added to the likely excess, and
        so counts in the verdict.
    states
        The names of the states, for people. If the expected run takes a state or an input beyond
        1.25 times the largest logged, the verdict is at most `caution`, unless only inputs do and
        it would cost little if these gave less there than is asked of them; an input with limits
        both ways in `input_bounds` may go up to these.
    beta
        Which Θ are plausible: "determinant" holds however the logs came about; "regression" is
        sharper, and assumes that inputs were chosen without regard to the noise; a number or a rule
        is the β of a `ConfidenceSet`.
    delta
        The probability that the interval may miss the true cost.
    draws
        The number of plausible machines that a controller is tried on.
    bounds
        Whether to prove the ends of the interval; otherwise they are found by search, in less than
        half the time, and are not certain. Those of a `StationaryCost` are always found by search.
    rng
        Where the draws come from; by default they are always the same.
    forecast
        How disturbances will change, by the names or indices of their states: a value for each step
        of the episode, the first for now (that of `start` does not count). The controllers act on
        what is to come. Such a state must be known to stay as it is except for that, and another
        must always be 1.
    progress
        Called with the number of machines done since the last call.

    Returns
    -------
    list[Certificate]
        One for each context, in their order.

    Raises
    ------
    InputError
        If something does not fit together, or there are no data for such a machine.
    """
    if isinstance(decoder.context_map, Dynamics):
        every = one_by_one(contexts)
        labels = machine_labels(machine, len(every), "contexts")
        options: Any = {"noise": noise, "input_bounds": input_bounds, "draws": draws, "rng": rng}

        def certified(asked: tuple[Any, str | None]) -> Certificate:
            one, label = asked
            found = certify_path(decoder, one, cost, start, machine=label, **options)
            if progress is not None:
                progress(1)
            return found

        return each(certified, zip(every, labels, strict=True))
    task = CertificationTask(
        decoder, cost, start, noise, input_bounds, states, beta, delta, draws, bounds, rng, forecast
    )
    return task.all_of(contexts, machine, progress)
