"""The whole of `contextual-lqr reproduce`: run what is missing, then summarise, draw and report."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from contextual_lqr.files import atomic_write, finite
from contextual_lqr.paper.reproduce.claims import Claim, claims, unsaid
from contextual_lqr.paper.reproduce.config import Trial
from contextual_lqr.paper.reproduce.figures import draw_figures
from contextual_lqr.paper.reproduce.store import Store
from contextual_lqr.paper.reproduce.summary import Measurements, summarise, versions
from contextual_lqr.paper.reproduce.trial import run
from contextual_lqr.paper.style import write_report
from contextual_lqr.parallel import Workers, WorkersLostError, in_parallel


class Reproduced(NamedTuple):
    """What a finished run has found, and where its report is."""

    claims: list[Claim]
    summary: dict[str, Any]
    report: Path


def run_missing(store: Store, workers: Workers, finished: Callable[[Trial], None]) -> None:
    """Run every trial that the store does not have yet; each is kept as it finishes."""
    results = in_parallel(partial(run, store.config), store.missing(), workers)
    try:
        with closing(results):
            for trial, columns in results:
                store.keep(trial, columns)
                finished(trial)
    except WorkersLostError as error:
        kept = f"{error}; what is finished is kept: the same command resumes"
        raise WorkersLostError(kept) from None


def conclude(store: Store, announce: Callable[[str], None] = lambda _: None) -> Reproduced:
    """Rows -> `summary.json`, figures and `report.html`, all in the store's folder."""
    announce("Summarising the rows")
    config, folder = store.config, store.folder
    measured = Measurements(config, store.rows())
    judged = claims(measured)
    summary = finite(summarise(measured) | {"claims": [one._asdict() for one in judged]})
    content = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    atomic_write(folder / "summary.json", content.encode())
    announce("Drawing the figures")
    report = write_report(
        folder,
        "reproduce.html",
        config=config,
        claims=judged,
        unsaid=unsaid(measured),
        captions=draw_figures(measured, folder),
        failures=[tuple(one.values()) for one in measured.failures],
        minutes=measured.rows["seconds"].sum() / 60,
        versions=versions(),
    )
    return Reproduced(judged, summary, report)
