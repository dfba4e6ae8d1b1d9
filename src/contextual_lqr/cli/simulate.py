"""`contextual-lqr simulate`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated

import cyclopts
import numpy as np
from numpy import ndarray as Array
from rich.markup import escape
from rich.table import Table

from contextual_lqr.certificates.prediction import ClosedLoopPrediction, predict_closed_loop
from contextual_lqr.cli.machines import chosen_machines, shown
from contextual_lqr.cli.options import AsJson, Count, Fitted, Seed
from contextual_lqr.cli.terminal import Console, print_json
from contextual_lqr.data import FittedFleet, FleetDescription
from contextual_lqr.errors import InputError
from contextual_lqr.files import atomic_write, require_writable


def simulate(
    fleet: Fitted,
    /,
    *,
    context: Annotated[list[str] | None, cyclopts.Parameter(negative="")] = None,
    horizon: int | None = None,
    runs: Count = 500,
    band: float = 0.9,
    seed: Seed = 0,
    as_json: AsJson = False,
    output: Annotated[Path | None, cyclopts.Parameter(name=["--output", "-o"])] = None,
) -> None:
    """What the closed loop of a machine never tried will do.

    Parameters
    ----------
    fleet
        What `fit` wrote.
    context
        The machine, as name=value; several values with commas, or the option again.
    horizon
        Another number of states of an episode than the fleet's.
    runs
        The number of runs, each with a decoder drawn from the posterior.
    band
        The share of the runs that the band holds.
    seed
        Of the runs.
    as_json
        Print JSON: the band of every state and input at every step.
    output
        The figure to draw, a .png or .svg file.
    """
    if output is not None and output.suffix.lower() not in (".png", ".svg"):
        raise InputError(f"the figure must be a .png or .svg file, not {output}")
    if output is not None:
        require_writable(output)
    fitted = FittedFleet.load(fleet)
    described = fitted.description if horizon is None else fitted.description.with_horizon(horizon)
    machine = chosen_machines(fitted, context, None).rows[0]
    if not fitted.decoder.rows:
        raise InputError(f"{fleet} has learnt from no log yet: `contextual-lqr fit` comes first")
    seen = predict_closed_loop(
        fitted.decoder.machine(machine),
        described.cost,
        described.start,
        np.random.default_rng(seed),
        runs=runs,
        band=band,
    )
    if output is not None:
        suffix = output.suffix.lower()[1:]
        atomic_write(output, _drawn(described, machine, seen, band, runs, suffix))
    if as_json:
        _print_json(described, machine, seen, band)
    else:
        _show(described, machine, seen, band, runs)


def _quantities(
    described: FleetDescription, seen: ClosedLoopPrediction
) -> list[tuple[str, Array, Array]]:
    """(label, band (3, steps), expected) of every state and input that may change."""
    d = len(described.states)
    return [
        (label, seen.states[..., k], seen.expected_states[:, k])
        if k < d
        else (label, seen.inputs[..., k - d], seen.expected_inputs[:, k - d])
        for k, label in enumerate(described.labels)
        if label is not None
    ]


def _show(
    described: FleetDescription,
    machine: dict[str, float],
    seen: ClosedLoopPrediction,
    band: float,
    runs: int,
) -> None:
    console = Console()
    console.print(
        f"{escape(shown(machine, described.units))}: median of {runs} runs on posterior draws, "
        f"and the band of {band:.0%}",
        highlight=False,
    )
    last = described.horizon - 1
    steps = sorted({last // 3, 2 * last // 3, last - 1})
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("at step", min_width=10)
    for step in steps:
        table.add_column(str(step + 1), justify="right", no_wrap=True)
    for label, ends, _ in _quantities(described, seen):
        table.add_row(escape(label), *(_interval(*ends[:, step]) for step in steps))
    console.print(table)
    low, middle, high = np.quantile(seen.costs, [(1 - band) / 2, 0.5, (1 + band) / 2])
    console.print(f"cost of a run: {middle:.4g} ({low:.4g}..{high:.4g})", highlight=False)
    if seen.exploded:
        console.print(f"[red]{seen.exploded} of {runs} runs explode[/red]", highlight=False)


def _interval(low: float, middle: float, high: float) -> str:
    """The numbers to as many digits as the band has."""
    if max(abs(low), abs(high)) >= 1e5:
        return f"{middle:.1e} ({low:.1e}..{high:.1e})"
    places = int(np.clip(-np.floor(np.log10(max(high - low, 1e-6) / 2)), 0, 6))
    return f"{middle:.{places}f} ({low:.{places}f}..{high:.{places}f})"


def _print_json(
    described: FleetDescription, machine: dict[str, float], seen: ClosedLoopPrediction, band: float
) -> None:
    whole = {
        "context": machine,
        "band": band,
        "exploded": seen.exploded,
        "median_cost": float(np.median(seen.costs)),
        "quantities": {
            label: {
                "low": ends[0].tolist(),
                "median": ends[1].tolist(),
                "high": ends[2].tolist(),
                "expected": expected.tolist(),
            }
            for label, ends, expected in _quantities(described, seen)
        },
    }
    print_json(whole)


def _drawn(
    described: FleetDescription,
    machine: dict[str, float],
    seen: ClosedLoopPrediction,
    band: float,
    runs: int,
    suffix: str,
) -> bytes:
    """The figure: a panel a state and input, the band shaded."""
    from contextual_lqr.certificates.plots import plot_prediction
    from contextual_lqr.figures import figure_style

    title = f"{shown(machine, described.units)}: band of {band:.0%} over {runs} posterior draws"
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure()
        plot_prediction(seen, labels=described.labels, title=title, figure=figure)
        content = io.BytesIO()
        metadata = {"Date": None} if suffix == "svg" else {}
        figure.savefig(content, format=suffix, metadata=metadata, facecolor="white")
    return content.getvalue()
