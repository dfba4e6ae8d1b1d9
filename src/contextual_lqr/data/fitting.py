"""From logs to a fitted fleet: one pass, bounded memory, all or nothing.

The logs are cut in parts, always the same. Each part is reduced to factors by whoever is free, and
these are merged in a tree, always the same: the number of workers changes nothing.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from contextual_lqr import kernels
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.evidence.digests import Digests
from contextual_lqr.checks import require
from contextual_lqr.data.collector import Collector
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.fitted_fleet import FittedFleet, PathLike
from contextual_lqr.data.histories.history_choice import HistoryChoice, choose_history
from contextual_lqr.data.histories.sampled_runs import sampled_runs
from contextual_lqr.data.learning import Learning
from contextual_lqr.data.misfit import MisfitReport, find_misfits
from contextual_lqr.data.screening import LogReport, Quarantine, joined_ranges
from contextual_lqr.data.sources import Part, cut_in_parts, find_sources
from contextual_lqr.errors import InputError
from contextual_lqr.parallel import Workers, in_tree

MOST_SET_ASIDE = 1 / 3  # of the machines: where more stand out, it is the model that is wrong


def fit(
    description: FleetDescription | PathLike,
    logs: PathLike | Sequence[PathLike],
    *,
    into: FittedFleet | None = None,
    strict: bool = False,
    robust: bool = False,
    alarm: bool = True,
    sort: bool = False,
    only: str | None = None,
    allow_repeats: bool = False,
    quarantine: PathLike | None = None,
    progress: Callable[[float], None] | None = None,
    workers: Workers | None = None,
) -> FittedFleet:
    """Learn a fleet's decoder from its logs.

    Parameters
    ----------
    description
        The fleet, or the path of its `fleet.toml`.
    logs
        Parquet, CSV or Excel files, folders or globs of them, or `minari:ID`; one or several.
    into
        A fitted fleet to add to. It stays as it is; the result holds both.
    strict
        Refuse logs with bad rows, instead of setting these aside.
    robust
        Leave the machines out of the fit that the alarm names.
    alarm
        Look for machines that do not obey the fleet's model.
    sort
        Sort each log by episode and step first.
    only
        Learn from one machine alone: its label, or its context as `"mass=2"`.
    allow_repeats
        Learn again from episodes that were learnt before, among these logs or by `into`. Otherwise
        they are left out and counted.
    quarantine
        A CSV file for bad rows, each with its place and what is wrong with it. It is written only
        if there are any, and never over an older one: the name then gets a number.
    progress
        Called with the share that is done, by one thread at a time.
    workers
        The number of threads, as many as there are cores unless given; or the address of a Dask
        scheduler, whose workers read the logs by the same paths.

    Returns
    -------
    FittedFleet
        The decoder and its description, with `report`, what was found in the logs, and `alarm`,
        which machines stand out.

    Raises
    ------
    InputError
        If the description or a log cannot be used, or if the logs hold nothing to learn from.
        Nothing is written then.

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np, polars as pl
    >>> from contextual_lqr.data import TEMPLATE, FleetDescription, fit
    >>> carts = FleetDescription.parse(TEMPLATE)  # what `contextual-lqr new` writes
    >>> rng, rows = np.random.default_rng(0), []
    >>> for episode, mass in enumerate(rng.uniform(0.5, 5, 12)):
    ...     x = rng.normal(size=2)
    ...     for step in range(20):
    ...         force = rng.normal()
    ...         rows.append((episode, step, *x, force, mass))
    ...         push = 0.1 * force / mass + 0.01 * rng.normal()
    ...         x = np.array([x[0] + 0.1 * x[1], 0.95 * x[1] + push])
    >>> names = ["episode", "step", "position", "velocity", "force", "mass"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = pathlib.Path(folder) / "carts.parquet"
    ...     pl.DataFrame(rows, names, orient="row").write_parquet(log)
    ...     fleet = fit(carts, log)
    >>> fleet.report
    <LogReport: 240 rows, 228 transitions, 12 episodes, 0 bad rows, 0 gaps>
    >>> fleet.alarm
    <MisfitReport: 0 of 12 machines stand out>
    >>> bool(abs(fleet.decoder.system({"mass": 2.0}).B[1, 0] - 0.05) < 0.01)
    True
    """
    description, sources = described(description), find_sources(listed(logs))
    require(
        into is None or isinstance(into, FittedFleet),
        f"into takes a FittedFleet, such as FittedFleet.load makes, not {into!r}",
    )
    if into is not None and description.history is not None and into.description.history:
        found = into.description.history  # which is what "auto" stands for from now on
        description = description.with_history(found.outputs, found.delay, found.spacing)
    if into is not None and (odd := into.description.differences(description, task=False)):
        raise InputError(
            f"the fleet to add to is described differently, in {', '.join(odd)}: it can learn only "
            "from logs of the same description"
        )
    require(not robust or alarm, "robust needs the alarm")
    bad = None if quarantine is None else Quarantine(Path(quarantine))
    try:
        whole = sort or description.layout.time is not None  # steps are counted from row to row
        parts = cut_in_parts(sources, sort=whole)
        description, choice = with_history(description, parts, whole)
        before = None if into is None else into.decoder
        known = Digests() if before is None else before.evidence
        learning = Learning(
            description, strict, sort, only, allow_repeats, bad is not None, known, count=robust
        )
        work = learning.part
        collected = Collector([part.size for part in parts], bad, progress)
        if not isinstance(workers, str):  # in this process, which can be told more often
            work = partial(work, told=collected.within)
        try:
            learnt = in_tree(work, learning.merge, parts, workers or kernels.cores(), collected)
        finally:
            collected.stopped = True  # threads that still read end soon
        learning.finish(learnt)
        decoder, report = learnt.decoder, learnt.report
        report.history = choice
        report.require_rows()
        seen = report.context_range
        if into is not None and before is not None:
            decoder = before.copy()
            decoder.merge(learnt.decoder, allow_repeats=True)  # it was learnt beside this one
            seen = joined_ranges(into.context_range, seen)
        require(decoder.rows or decoder.ignored_rows, _nothing(report, only))
        misfit = MisfitReport(not_run="the misfit alarm is off")
        if alarm:
            misfit = _alarmed(description, decoder, seen)
        if robust:
            decoder, misfit = _set_aside(decoder, misfit, learnt.episodes)
        if bad is not None and (written := bad.close()):
            report.quarantine = str(written)
    finally:
        if bad is not None:
            bad.discard()
    gone = () if into is None else set(into.stand_out) - set(decoder.machine_labels)
    stand_out = tuple(one.label for one in misfit.named) + tuple(sorted(gone))
    doubts = [] if into is None else list(into.doubts)
    if choice is not None and description.history is not None:
        doubts += choice.doubts(description.history)
    once = (tuple(dict.fromkeys(some)) for some in (stand_out, doubts))
    return FittedFleet(description, decoder, seen, report, misfit, *once)


def with_history(
    description: FleetDescription, parts: Sequence[Part], sort: bool
) -> tuple[FleetDescription, HistoryChoice | None]:
    """What a sample of the logs says about history and delay, and the description with it."""
    if description.history is None:
        return description, None
    choice = choose_history(description, sampled_runs(description, parts, sort=sort))
    return description.with_history(choice.outputs, choice.delay, choice.spacing), choice


def _alarmed(
    description: FleetDescription, decoder: Decoder, seen: Mapping[str, tuple[float, float]]
) -> MisfitReport:
    """Which machines stand out; contexts are looked for where declared or, failing that, seen."""
    bounds = {}
    for one in description.contexts:
        low, high = seen[one.name]
        bounds[one.name] = (
            one.low if math.isfinite(one.low) else low,
            one.high if math.isfinite(one.high) else high,
        )
    return find_misfits(
        decoder, description.cost, description.start, states=description.state_names, bounds=bounds
    )


def _set_aside(
    decoder: Decoder, misfit: MisfitReport, episodes: Counter[str]
) -> tuple[Decoder, MisfitReport]:
    """What the machines that do not stand out have taught, unless these are too few."""
    require(not misfit.not_run, f"no machine can be set aside: {misfit.not_run}")
    named, count = tuple(dict.fromkeys(one.label for one in misfit.named)), len(misfit.machines)
    require(
        len(named) <= MOST_SET_ASIDE * count,
        f"{len(named)} of {count} machines stand out, too many to be set aside: the description, "
        "not the machines, is likely wrong; is a feature missing?",
    )
    if not named:
        return decoder, misfit
    left = decoder.without(named)
    left.episodes -= sum(episodes.get(label, 1) for label in named)
    return left, replace(misfit, set_aside=named)


def described(description: FleetDescription | PathLike) -> FleetDescription:
    """The description, read if its path is given."""
    if isinstance(description, FleetDescription):
        return description
    require(
        isinstance(description, str | os.PathLike),
        f"a fleet is a FleetDescription or the path of its fleet.toml, not {description!r}",
    )
    return FleetDescription.read(description)


def listed(logs: PathLike | Sequence[PathLike]) -> list[str]:
    """The paths of one log or several."""
    listed = list(logs) if isinstance(logs, Iterable) and not isinstance(logs, str) else [logs]
    try:
        return [os.fspath(log) for log in listed]
    except TypeError as error:
        raise InputError(f"logs are given by their paths: {error}") from None


def _nothing(report: LogReport, only: str | None) -> str:
    if only is not None and report.transitions:
        return f"no machine in the logs is called '{only}'"
    if report.short:
        return (
            f"all {report.short} episodes are shorter than the history: there is nothing to learn"
        )
    bad = f", {report.bad_rows} of them bad" if report.bad_rows else ""
    first = "".join(f"; {places[0]}: {reason}" for reason, places in report.first_bad.items())
    return (
        f"the logs have {report.rows} rows{bad}, but no two successive steps of an episode: "
        f"there is nothing to learn from{first}"
    )
