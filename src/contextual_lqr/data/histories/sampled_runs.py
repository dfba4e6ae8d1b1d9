"""A sample of the logs, small enough to be looked at whole: runs of steps of some machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray as Array

from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.histories.lagged import unwrapped
from contextual_lqr.data.sources import Part
from contextual_lqr.data.transitions import LogReader, Transitions

_PARTS = 4  # of the logs that are read
_MACHINES = 100
_STEPS = 4000  # of a machine
_KNOWN = 10_000  # machines whose longest run is noted
_ROWS = 1 << 20  # of a part, after which no more is read once there are machines enough


@dataclass(frozen=True)
class Run:
    """Successive rows of one machine, its columns by name; inputs are one fewer than the rest."""

    machine: str
    context: dict[str, float]
    columns: dict[str, Array]

    def __len__(self) -> int:
        """The number of steps."""
        return len(next(iter(self.columns.values()))) - 1


class Sample(NamedTuple):
    """Runs of some machines, and the longest run of each that was seen on the way.

    No run of the logs is longer than `most`; it is None if not all of them were read.
    """

    runs: list[Run]
    longest: dict[str, int]
    most: int | None


def sampled_runs(about: FleetDescription, parts: Sequence[Part], *, sort: bool = False) -> Sample:
    """Runs of up to a hundred machines, out of up to four parts of the logs."""
    places = np.unique(np.linspace(0, len(parts) - 1, min(len(parts), _PARTS)).astype(int))
    found, longest, last, whole = Sample([], {}, None), 0, 0, len(places) == len(parts)
    for place in places.tolist():
        steps: dict[str, int] = {}  # of each machine
        most, rows = _MACHINES // len(places), 0
        for batch in LogReader(about, parts[place], sort=sort).transitions():
            _add_runs(found, about, batch, steps, most)
            lengths = np.diff(_starts(batch), append=len(batch))
            lengths[:1] += 0 if batch.begins[:1].all() else last  # it goes on where one ended
            longest, last = max(longest, *lengths.tolist()), int(lengths[-1])
            rows += len(batch)
            if len(steps) >= most and rows >= _ROWS:
                whole = False
                break
    return found._replace(most=longest if whole else None)


def _starts(batch: Transitions) -> Int[Array, " runs"]:
    return np.flatnonzero(~batch.follows | batch.begins)


def _add_runs(
    found: Sample, about: FleetDescription, batch: Transitions, steps: dict[str, int], most: int
) -> None:
    """Of machines that there is room for; `steps` counts how many there are of each."""
    continues = batch.follows & ~batch.begins
    starts = _starts(batch)
    ends = np.append(starts[1:], len(batch))
    machines, rows = batch.machines(), batch.rows
    values = dict(rows.values)
    for one in about.declared:
        if one.wraps is not None:
            values[one.name] = unwrapped(values[one.name], batch.at, continues, one.wraps)
    names = [one.name for one in about.declared] + list(about.input_names)
    labels = machines[starts].text
    for start, end, label in zip(starts.tolist(), ends.tolist(), labels, strict=True):
        if label in found.longest or len(found.longest) < _KNOWN:
            found.longest[label] = max(found.longest.get(label, 0), end - start)
        taken = steps.get(label, 0)
        if taken >= _STEPS or (label not in steps and len(steps) >= most):
            continue
        steps[label] = taken + end - start
        first, last = int(batch.at[start]), int(batch.at[end - 1]) + 2
        context = {name: float(values[name][first]) for name in about.context_names}
        columns = {name: np.array(values[name][first:last], float) for name in names}
        found.runs.append(Run(label, context, columns))
