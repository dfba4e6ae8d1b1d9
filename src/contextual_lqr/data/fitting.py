"""From logs to a fitted fleet: one pass, bounded memory, all or nothing.

The logs are cut in parts, always the same. Each part is reduced to factors by whoever is free, and
these are merged in a tree, always the same: the number of workers changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.checks import require
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.fitted import FittedFleet
from contextual_lqr.data.machines import Machines, label_of, machine_of
from contextual_lqr.data.misfit import LEAST_MACHINES, MisfitReport, find_misfits, without
from contextual_lqr.data.partitions import Part, parts
from contextual_lqr.data.quarantine import BadRows, Quarantine
from contextual_lqr.data.reading import LogReader
from contextual_lqr.data.report import Report, joined
from contextual_lqr.data.rows import Transitions
from contextual_lqr.data.sources import find_sources
from contextual_lqr.errors import InputError
from contextual_lqr.parallel import Workers, in_tree


@dataclass(frozen=True)
class Fit:
    """A fitted fleet, what was found in its logs, and which machines do not fit in.

    `misfit` is None if it was not looked for; `why_no_alarm` then says why.
    """

    fleet: FittedFleet
    report: Report
    misfit: MisfitReport | None
    why_no_alarm: str
    set_aside: tuple[str, ...]


def fit(
    description: FleetDescription,
    logs: Sequence[str],
    *,
    into: FittedFleet | None = None,
    strict: bool = False,
    robust: bool = False,
    alarm: bool = True,
    sort: bool = False,
    only: str | None = None,
    quarantine: Path | None = None,
    progress: Callable[[float], None] | None = None,
    workers: Workers | None = None,
) -> Fit:
    """Learn a fleet from its logs; `into` is added to, on a copy.

    `robust` sets the machines aside that the alarm names. `only` learns from one machine alone.
    Bad rows are written to `quarantine`, if that is given; `strict` refuses them. `workers` are so
    many threads here, as many as there are cores unless given, or those of a Dask scheduler, which
    read the logs by the same paths. `progress` is told the part that is done, by one thread at a
    time.
    """
    if into is not None and (odd := into.description.differences(description, task=False)):
        raise InputError(
            f"the fleet to add to is described differently, in {', '.join(odd)}: it can learn "
            "from logs of the same description"
        )
    require(not robust or alarm, "robust needs the alarm")
    aside = None if quarantine is None else Quarantine(quarantine)
    try:
        todo = parts(find_sources(logs), sort=sort)
        work = partial(_learnt, description, strict, alarm, sort, only, aside is not None)
        taking = _Taking([part.size for part in todo], aside, progress)
        if not isinstance(workers, str):  # in this process, which can be told more often
            work = partial(work, told=taking.within)
        with taking:
            learnt = in_tree(work, _merged, todo, workers or kernels.cores(), taking)
        report, machines, empty = taking.report, learnt.machines, description.new_decoder()
        report.require_rows()
        decoder = learnt.decoder
        if into is not None:
            decoder = into.decoder.copy()
            decoder.merge(learnt.decoder)
        require(decoder.rows or decoder.ignored_rows, _nothing(report, only))
        misfit, why = None, _why_not(alarm, machines)
        named: tuple[str, ...] = ()
        if not why:
            before = None if into is None else into.decoder
            misfit = find_misfits(machines.found, empty, description.state_names, before=before)
            if robust and misfit.named:
                named = tuple(one.label for one in misfit.named)
                decoder = without(machines.found, named, empty, before)
        elif robust:
            raise InputError(f"no machine can be set aside: {why}")
        if aside is not None and (written := aside.close()):
            report.quarantine = str(written)
    finally:
        if aside is not None:
            aside.discard()
    seen = joined({} if into is None else into.context_range, report.context_range)
    return Fit(FittedFleet(description, decoder, seen), report, misfit, why, named)


class Learnt(NamedTuple):
    """What a part of the logs teaches: factors, whose size does not depend on its rows."""

    decoder: Decoder
    machines: Machines


class Found(NamedTuple):
    """What is to be said of a part of the logs."""

    report: Report
    bad: BadRows | None


def _learnt(
    description: FleetDescription,
    strict: bool,
    alarm: bool,
    sort: bool,
    only: str | None,
    keep_bad: bool,
    part: Part,
    told: Callable[[int, float], None] | None = None,
) -> tuple[Learnt, Found]:
    """Read a part of the logs and reduce it."""
    bad = BadRows() if keep_bad else None
    reader = LogReader(description, part, strict=strict, sort=sort, quarantine=bad)
    decoder = description.new_decoder()
    machines = Machines(decoder.context_map, float(np.min(decoder.noise_level)))

    for rows in reader.batches(told and partial(told, part.number)):
        if only is not None:
            rows = rows.only(_of(rows.transitions(), only))
        rows.teach(decoder)
        if alarm and not machines.too_many:
            machines.add(rows.transitions())
    return Learnt(decoder, machines), Found(reader.report, bad)


def _merged(several: list[Learnt]) -> Learnt:
    """What successive parts of the logs teach together."""
    decoder = several[0].decoder.copy()
    machines = Machines(decoder.context_map, float(np.min(decoder.noise_level)))
    for one in several[1:]:
        decoder.merge(one.decoder)
    for one in several:
        machines.merge(one.machines)
    return Learnt(decoder, machines)


class _Taking:
    """Takes what was found in parts, in their order, however they arrive; counts what is done.

    Threads tell it how far they are. Left before the end, it tells them to stop.
    """

    def __init__(
        self,
        sizes: list[float],
        quarantine: Quarantine | None,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.report = Report()
        self._sizes, self._quarantine, self._progress = sizes, quarantine, progress
        self._waiting: dict[int, Found] = {}
        self._next = 0
        self._size, self._total, self._done = sum(sizes), 0.0, [0.0] * len(sizes)
        self._lock = Lock()
        self._stopped = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._stopped = True

    def __call__(self, number: int, found: Found) -> None:
        self.within(number, 1.0)
        self._waiting[number] = found
        while self._next in self._waiting:
            report, bad = self._waiting.pop(self._next)
            self.report.add(report)
            if bad is not None and self._quarantine is not None:
                bad.give(self._quarantine)
            self._next += 1

    def within(self, number: int, part: float) -> None:
        """So much of a part is read."""
        if self._stopped:
            raise InterruptedError
        if self._progress is not None:
            with self._lock:
                self._total += (part - self._done[number]) * self._sizes[number]
                self._done[number] = part
                self._progress(min(round(self._total / self._size, 9), 1.0))


def _of(batch: Transitions, label: str) -> Array:
    """Which transitions are of the machine with this label."""
    whose = machine_of(batch)
    named = np.array([label_of(key, batch) == label for key in whose.keys], dtype=bool)
    return np.asarray(named[whose.index])


def _why_not(alarm: bool, machines: Machines) -> str:
    if not alarm:
        return "the misfit alarm is off"
    if machines.too_many:
        return (
            "there are too many machines for the misfit alarm; a column `machine` says which "
            "episodes are of one"
        )
    if len(machines.found) < LEAST_MACHINES:
        return f"the misfit alarm needs at least {LEAST_MACHINES} machines"
    return ""


def _nothing(report: Report, only: str | None) -> str:
    if only is not None and report.transitions:
        return f"no machine in the logs is called '{only}'"
    bad = f", {report.bad_rows} of them bad" if report.bad_rows else ""
    return (
        f"the logs have {report.rows} rows{bad}, but no two successive steps of an episode: "
        "there is nothing to learn from"
    )
