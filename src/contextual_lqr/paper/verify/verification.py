"""The whole verification: runs side by side, then checks, figures and the report."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from contextual_lqr.checks import require
from contextual_lqr.errors import InputError
from contextual_lqr.files import atomic_write, finite
from contextual_lqr.paper.verify.checks import Check, all_checks
from contextual_lqr.paper.verify.document import supervision, write_page
from contextual_lqr.paper.verify.pictures import draw
from contextual_lqr.paper.verify.runs import (
    VerifySettings,
    constants_of,
    jobs,
    joined,
    run,
)
from contextual_lqr.parallel import Workers, in_parallel
from contextual_lqr.theory import Regularity


@dataclass(frozen=True)
class Verification:
    """What was set, what was found, and how long it took."""

    settings: VerifySettings
    constants: dict[str, Regularity]
    checks: list[Check]
    supervision: list[dict[str, Any]]
    seconds: float

    def plain(self) -> dict[str, Any]:
        """All of it as JSON can hold it; a number that is not finite is null."""
        plain: dict[str, Any] = finite(
            {
                "holds": all(check.holds for check in self.checks),
                "settings": asdict(self.settings),
                "constants": {name: asdict(r) for name, r in self.constants.items()},
                "checks": [asdict(check) for check in self.checks],
                "supervision": self.supervision,
                "seconds": round(self.seconds, 1),
            }
        )
        return plain


def verification(
    settings: VerifySettings,
    folder: Path,
    workers: Workers,
    progress: Callable[[int], object] = lambda _: None,
) -> Verification:
    """Run everything, and write rows, checks, figures and the report into the folder.

    `progress` is told how many episodes of `settings.total_episodes` more have been played.
    """
    require(
        isinstance(workers, str) or workers >= 1, f"workers must be at least 1, not {workers!r}"
    )
    began = time.perf_counter()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from error
    constants = {name: constants_of(name, settings.margin) for name in settings.fleets}
    rows = _rows(settings, workers, progress)
    checks = all_checks(rows, constants, settings.delta, settings.fit_from)
    acted = supervision(rows, constants)
    content = io.BytesIO()
    rows.write_parquet(content)
    atomic_write(folder / "rows.parquet", content.getvalue())
    figures = draw(rows, constants, settings.delta, folder)
    write_page(folder / "report.html", settings, constants, checks, acted, figures)
    found = Verification(settings, constants, checks, acted, time.perf_counter() - began)
    atomic_write(folder / "checks.json", (json.dumps(found.plain(), indent=2) + "\n").encode())
    return found


def _rows(
    settings: VerifySettings, workers: Workers, progress: Callable[[int], object]
) -> pl.DataFrame:
    """The rows of all runs."""
    frames = []
    with closing(in_parallel(run, jobs(settings), workers)) as results:
        for _, frame in results:
            frames.append(frame)
            progress(len(frame))
    return joined(frames)
