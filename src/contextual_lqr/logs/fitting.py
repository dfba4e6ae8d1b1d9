"""From logs to a fitted fleet: one pass, bounded memory, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contextual_lqr.checks import require
from contextual_lqr.errors import InputError
from contextual_lqr.logs.description import FleetDescription
from contextual_lqr.logs.fitted import FittedFleet, joined
from contextual_lqr.logs.machines import Machines, machine_of
from contextual_lqr.logs.misfit import LEAST_MACHINES, MisfitReport, find_misfits, without
from contextual_lqr.logs.quarantine import Quarantine
from contextual_lqr.logs.reading import LinkedRows, LogReader, Report, Transitions


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
) -> Fit:
    """Learn a fleet from its logs; `into` is added to, on a copy.

    `robust` sets the machines aside that the alarm names. `only` learns from one machine alone.
    Bad rows are written to `quarantine`, if that is given; `strict` refuses them.
    """
    if into is not None and (odd := into.description.differences(description, task=False)):
        raise InputError(
            f"the fleet to add to is described differently, in {', '.join(odd)}: it can learn "
            "from logs of the same description"
        )
    require(not robust or alarm, "robust needs the alarm")
    aside = None if quarantine is None else Quarantine(quarantine)
    try:
        reader = LogReader(description, logs, strict=strict, sort=sort, quarantine=aside)
        empty = description.new_decoder()
        decoder = empty.copy() if into is None else into.decoder.copy()
        machines = Machines(empty.context_map, empty.noise_level)

        def learn(rows: LinkedRows) -> None:
            batch = rows.transitions()
            batch = batch if only is None else _of(batch, only)
            decoder.update_rows(
                batch.contexts, batch.states, batch.inputs, batch.after, episodes=batch.episodes
            )
            if alarm:
                machines.add(batch)

        with ThreadPoolExecutor(1) as pool:  # the next batch is read while this one is learnt
            running: Future[None] | None = None
            for rows in reader.batches(progress):
                if running is not None:
                    running.result()
                running = pool.submit(learn, rows)
            if running is not None:
                running.result()
        require(decoder.rows or decoder.ignored_rows, _nothing(reader.report, only))
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
            reader.report.quarantine = str(written)
    finally:
        if aside is not None:
            aside.discard()
    seen = joined({} if into is None else into.context_range, reader.report.context_range)
    return Fit(FittedFleet(description, decoder, seen), reader.report, misfit, why, named)


def _of(batch: Transitions, label: str) -> Transitions:
    whose = machine_of(batch)
    named = np.array([one == label for one in whose.labels.values()], dtype=bool)
    return batch.only(named[whose.index])


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
