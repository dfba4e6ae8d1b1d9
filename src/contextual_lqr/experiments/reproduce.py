"""The whole of `contextual-lqr reproduce`: run what is missing, then summarise, draw and report."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from contextual_lqr.errors import ContextualLQRError
from contextual_lqr.experiments.claims import Claim, claims
from contextual_lqr.experiments.config import Trial
from contextual_lqr.experiments.parallel import in_parallel
from contextual_lqr.experiments.store import Store
from contextual_lqr.experiments.summary import Measurements, plain, summarise
from contextual_lqr.experiments.trial import run
from contextual_lqr.files import write_whole


class Reproduced(NamedTuple):
    """What a finished run has found, and where its report is."""

    measured: Measurements
    claims: list[Claim]
    summary: dict[str, Any]
    report: Path


class WorkersLostError(ContextualLQRError, RuntimeError):
    """A worker process died, for want of memory perhaps."""


def run_missing(store: Store, workers: int, finished: Callable[[Trial], None]) -> None:
    """Run every trial that the store does not have yet; each is kept as it finishes."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    results = in_parallel(partial(run, store.config), store.missing(), workers)
    try:
        with closing(results):
            for trial, columns in results:
                store.keep(trial, columns)
                finished(trial)
    except TerminatedWorkerError:
        raise WorkersLostError(
            "a worker process was killed, for want of memory perhaps; what is finished is kept: "
            "give the same command again, with fewer --jobs"
        ) from None


def conclude(store: Store, announce: Callable[[str], None]) -> Reproduced:
    """Rows -> `summary.json`, figures and `report.html`, all in the store's folder."""
    from contextual_lqr.experiments.figures import draw_figures
    from contextual_lqr.experiments.report import write_report

    announce("Summarising the rows")
    measured = Measurements(store.config, store.rows())
    judged = claims(measured)
    summary = plain(summarise(measured) | {"claims": [one._asdict() for one in judged]})
    content = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(store.folder / "summary.json", content.encode())
    announce("Drawing the figures")
    captions = draw_figures(measured, store.folder)
    report = write_report(measured, judged, captions, store.folder)
    return Reproduced(measured, judged, summary, report)
