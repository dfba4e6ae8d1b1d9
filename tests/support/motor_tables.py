"""Logs of geared motors as a test bench exports them: German, Latin-1, contexts in another file."""

import datetime
from pathlib import Path

import numpy as np
import polars as pl

from odd_tables import write_text

HEADINGS = {
    "machine": "Prüfling",
    "time": "Zeitstempel",
    "angle": "Winkel [rad]",
    "speed": "Drehzahl [rad/s]",
    "current": "Strom [A]",
    "inertia": "Trägheit [g m²]",
}
PERIOD = 0.01


def motor_tables(
    folder: Path, machines: int = 12, steps: int = 120, seed: int = 0
) -> tuple[str, str]:
    """A log and a table of inertias, semicolon-separated, with decimal commas, in Latin-1."""
    rng = np.random.default_rng(seed)
    inertia = rng.uniform(1.0, 5.0, machines).round(2)
    start, rows = datetime.datetime(2026, 5, 4, 8), []
    for i, J in enumerate(inertia):
        for run in range(2):
            x = rng.normal(size=2) * [0.2, 2.0]
            begin = start + datetime.timedelta(minutes=10 * (2 * i + run))
            for k in range(steps):
                u = float(rng.normal())
                stamp = begin + datetime.timedelta(seconds=k * PERIOD + rng.uniform(0, 2e-4))
                measured = [round(float(one), 6) for one in (*x, u)]
                rows.append((_name(i), stamp.isoformat(timespec="microseconds"), *measured))
                push = 0.5 * u / J + 0.01 * rng.normal()
                x = np.array([x[0] + PERIOD * x[1], 0.98 * x[1] + push])
    log = pl.DataFrame(rows, ["machine", "time", "angle", "speed", "current"], orient="row")
    table = pl.DataFrame({"machine": list(map(_name, range(machines))), "inertia": inertia})
    how = {"headings": HEADINGS, "separator": ";", "decimal": ",", "encoding": "latin-1"}
    return (
        write_text(log, folder / "motoren.csv", **how),  # type: ignore[arg-type]
        write_text(table, folder / "prueflinge.csv", **how),  # type: ignore[arg-type]
    )


def _name(i: int) -> str:
    return f"Getriebe Nr. {i + 1} größer"
