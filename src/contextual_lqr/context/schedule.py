"""A context that changes during an episode: one for each step, known when the episode begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from contextual_lqr.checks import as_numbers, frozen, require
from contextual_lqr.context.variables import one_by_one
from contextual_lqr.display import Displayed, context_fact


class Schedule(Displayed):
    """The contexts of an episode, one for each step: a speed profile, a temperature forecast.

    Where a decoder or `certify` takes the context of a machine that changes, it takes this:
    [A, B] of step h is Θ G(context of step h).

    Parameters
    ----------
    contexts : mapping or sequence
        A mapping from names to arrays of H-1 values, or to one number that all steps share; or a
        sequence of H-1 contexts, as the context map takes them.

    Raises
    ------
    InputError
        If there is no step, or arrays differ in length.

    Examples
    --------
    >>> clqr.Schedule({"speed": np.linspace(10, 30, 50), "mass": 1500.0})
    <Schedule: steps 50, first speed=10, mass=1500, last speed=30, mass=1500>
    """

    contexts: Mapping[str, Any] | Sequence[Any]

    def __init__(self, contexts: Mapping[str, Any] | Sequence[Any]) -> None:
        if isinstance(contexts, Mapping):
            columns = {
                name: as_numbers(f"{name} of the schedule", values, "() or (H-1,)", 0)
                for name, values in contexts.items()
            }
            lengths = {name: len(column) for name, column in columns.items() if column.ndim == 1}
            require(
                lengths
                and len(set(lengths.values())) == 1
                and all(c.ndim < 2 for c in columns.values()),
                "a schedule has one value for each step, or one number for all steps: at least one "
                f"array, and all of one length, not {lengths or 'numbers alone'}",
            )
            steps = next(iter(lengths.values()))
            self.contexts = {
                name: frozen(np.broadcast_to(column, (steps,)).copy())
                for name, column in columns.items()
            }
        else:
            self.contexts = list(contexts)
        require(len(self), "a schedule must have at least one step")

    def __len__(self) -> int:
        if isinstance(self.contexts, Mapping):
            return len(next(iter(self.contexts.values())))
        return len(self.contexts)

    @property
    def one_by_one(self) -> list[Any]:
        """The contexts as a list, one for each step."""
        return one_by_one(self.contexts)

    def _facts(self) -> dict[str, object]:
        first, last = (context_fact(self.one_by_one[i])["context"] for i in (0, -1))
        return {"steps": len(self), "first": first, "last": last}
