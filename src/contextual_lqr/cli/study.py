"""`contextual-lqr study`: begin, ask, tell, watch and copy a study that a fleet shares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from contextual_lqr.cli.options import AsJson, Description, File, Output, Store
from contextual_lqr.cli.study_files import (
    address,
    context_of,
    episode_from,
    names_of,
    plan_facts,
    plan_tables,
    records_in,
    status_table,
)
from contextual_lqr.cli.terminal import Console, Progress, answer, print_json
from contextual_lqr.errors import InputError
from contextual_lqr.files import atomic_write, require_writable
from contextual_lqr.study import Study

Values = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
_PLAN = "Print JSON with all steps, for a machine to play."
Seconds = Annotated[float, Parameter(validator=Number(gt=0, lte=1e9))]


def create(store: Store, fleet: Description, /, *, as_json: AsJson = False) -> None:
    """Start a study of a fleet."""
    with Study.open(address(store), fleet) as study:
        status = study.status()
    begun = "is started" if not status.episodes else f"has {status.episodes:,} episodes already"
    facts = {"store": status.store, "episodes": status.episodes}
    answer(as_json, facts, f"the study of {fleet} at {store} {begun}")


def ask(
    store: Store,
    /,
    *,
    context: Values = None,
    machine: str | None = None,
    start: Values = None,
    key: str | None = None,
    lease: Seconds = 3600.0,
    worker: str | None = None,
    as_json: Annotated[AsJson, Parameter(help=_PLAN)] = False,
) -> None:
    """Plan an episode for a machine, while others are playing.

    Parameters
    ----------
    context
        The machine's context, as mass=2.5.
    machine
        Its label.
    start
        Where the episode starts, as position=1,velocity=0, if not at the fleet's start.
    key
        What the ask is known by: the same key gives the same plan again.
    lease
        How many seconds to wait for it; late results are accepted too.
    worker
        Who asks.
    """
    with Study.open(address(store, must_exist=True)) as study:
        where = context_of(study, context)
        begin = None
        if start is not None:
            values = context_of(study, start, names_of(study)[0], "start")
            begin = list(values.values())
        plan = study.ask(where, machine, start=begin, key=key, lease=lease, worker=worker)
        names = names_of(study)
    if as_json:
        print_json(plan_facts(plan, *names))
        return
    plan_tables(Console(), plan, *names)


def tell(
    store: Store,
    played: File,
    /,
    *,
    ask: str | None = None,
    context: Values = None,
    machine: str | None = None,
    key: str | None = None,
    worker: str | None = None,
    as_json: AsJson = False,
) -> None:
    """Add an episode to the study: all of it, on disk, or nothing.

    Parameters
    ----------
    played
        A CSV or Parquet table with one row per step and columns named as states and inputs, the
        last row without inputs; or JSON with "states" and "inputs". Without names: x1, …, u1, …
    ask
        The key of the ask that it answers.
    context
        The machine's context, as mass=2.5, if nobody asked.
    machine
        The label of the machine that played it; by default that of the ask.
    key
        What the episode is known by; by default a digest of its contents.
    worker
        Who tells.
    """
    if ask is not None and context is not None:
        raise InputError("give --ask, or the --context of an episode that nobody asked for")
    with Study.open(address(store, must_exist=True)) as study:
        trajectory = episode_from(played, *names_of(study))
        what: Any = ask if ask is not None else context_of(study, context)
        told = study.tell(what, trajectory, machine, key=key, worker=worker)
    again = "" if told.new else ", already told"
    sentence = f"episode {told.number:,}{again}: {len(trajectory)} steps"
    answer(as_json, told._asdict(), sentence)


def status(store: Store, /, *, as_json: AsJson = False) -> None:
    """Say how a study stands."""
    with Study.open(address(store, must_exist=True)) as study:
        found = study.status()
    if as_json:
        print_json(vars(found))
        return
    status_table(Console(), found)


def export(store: Store, /, *, output: Annotated[Path, Output], as_json: AsJson = False) -> None:
    """Write all episodes as JSON lines, for `import` here or elsewhere.

    Parameters
    ----------
    output
        The file to write, one line per episode.
    """
    require_writable(output)
    with Study.open(address(store, must_exist=True)) as study:
        total = study.status().episodes
        lines = list(_lines(study, total))
    atomic_write(output, "".join(lines).encode())
    facts = {"written": str(output), "episodes": len(lines)}
    answer(as_json, facts, f"{output} is written: {len(lines):,} episodes")


def import_(store: Store, episodes: File, /, *, as_json: AsJson = False) -> None:
    """Take in episodes that `export` wrote; those that are there count once.

    Parameters
    ----------
    episodes
        JSON lines.
    """
    new = known = 0
    with Study.open(address(store, must_exist=True)) as study:
        records = list(records_in(episodes))
        with Progress("importing", len(records), "episodes") as progress:
            for place, record in records:
                try:
                    told = study.import_(record)
                except InputError as error:
                    done = f"; the {new:,} before it were imported" if new else ""
                    raise InputError(f"{episodes}, line {place}: {error}{done}") from error
                new, known = new + told.new, known + (not told.new)
                progress.advance()
    sentence = f"{new:,} new episodes, {known:,} already there"
    answer(as_json, {"new": new, "known": known}, sentence)


def compact(store: Store, /, *, as_json: AsJson = False) -> None:
    """Make opening fast again, and drop asks that are answered or a week late."""
    with Study.open(address(store, must_exist=True)) as study:
        gone = study.compact()
        episodes = study.status().episodes
    sentence = f"{store} is compacted: {episodes:,} episodes, finished asks dropped: {gone:,}"
    answer(as_json, {"forgotten_asks": gone, "episodes": episodes}, sentence)


def _lines(study: Study, total: int) -> Iterator[str]:
    with Progress("exporting", max(total, 1), "episodes") as progress:
        for record in study.export():
            yield json.dumps(record, allow_nan=False) + "\n"
            progress.advance()
