"""`contextual-lqr backtest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import cyclopts
import numpy as np
from rich.markup import escape
from rich.table import Table

from contextual_lqr.certificates.backtest import backtest as run
from contextual_lqr.certificates.backtest_records import Backtest
from contextual_lqr.certificates.model_tests.unmodelled import findings_of
from contextual_lqr.certificates.plots import plot_backtest
from contextual_lqr.cli.options import AsJson, Fitted
from contextual_lqr.cli.terminal import Console, percent, print_json
from contextual_lqr.context import Dynamics
from contextual_lqr.data import FittedFleet
from contextual_lqr.errors import InputError
from contextual_lqr.figures import rendered
from contextual_lqr.files import atomic_write, require_writable

_ROWS_SHOWN = 10
_SHARES = (16, 4, 2)  # of what a machine has usually shown


def backtest(
    fleet: Fitted,
    /,
    *,
    own: Annotated[list[int] | None, cyclopts.Parameter(negative="")] = None,
    horizon: int | None = None,
    as_json: AsJson = False,
    output: Annotated[Path | None, cyclopts.Parameter(name=["--output", "-o"])] = None,
) -> None:
    """Leave each machine out in turn; see whether its certificate would have been right.

    Parameters
    ----------
    fleet
        What `fit` wrote.
    own
        Also try with this many steps of a machine's own; by default, shares of what they have.
    horizon
        The number of states in an episode, if not the fleet's.
    as_json
        Print JSON, for a script to read.
    output
        The figure to write, .png, .svg or .pdf.
    """
    if output is not None:
        require_writable(output, [fleet])
        if output.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise InputError(f"the figure must be a .png, .svg or .pdf file, not {output}")
    fitted = FittedFleet.load(fleet)
    described = fitted.description if horizon is None else fitted.description.with_horizon(horizon)
    store = fitted.decoder.store
    if store is None or len(store) < 2:
        raise InputError(
            f"{fleet} has learnt from fewer than two machines, so none can be left out"
        )
    if isinstance(fitted.decoder.context_map, Dynamics):
        found = run(
            fitted.decoder,
            described.cost,
            described.start,
            own_steps=own or (),
            input_bounds=described.input_bounds,
        )
        return _written(found, [], output, as_json)
    if own is None:
        usual = float(np.median(store.counts))
        own = sorted({max(round(usual / share), 1) for share in _SHARES})
    found = run(fitted.decoder, described.cost, described.start, own_steps=own)
    findings = [one.sentence for one in findings_of(fitted.decoder, described.cost)]
    return _written(found, findings, output, as_json)


def _written(found: Backtest, findings: list[str], output: Path | None, as_json: bool) -> None:
    if output is not None:
        suffix = output.suffix[1:].lower()
        atomic_write(output, rendered(lambda figure: plot_backtest(found, figure=figure), suffix))
    if as_json:
        print_json(found.as_dict() | {"findings": findings})
    else:
        _show(found, findings)


def _show(found: Backtest, findings: list[str]) -> None:
    console = Console()
    console.print(f"{found}.", highlight=False)
    excess = np.array([one.realised_excess for one in found.machines])
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("own steps", justify="right")
    for name in ("excess: median", "90 %", "trusted", "wrongly"):
        table.add_column(name, justify="right", no_wrap=True)
    middle, most = np.quantile(excess, [0.5, 0.9], method="higher").tolist()
    rows = [(0, middle, most, found.trusted, found.wrongly)]
    rows += [
        (one.steps, one.median_excess, one.excess_90, one.trusted, one.wrongly)
        for one in found.few_shot
    ]
    for steps, middle, most, trusted, wrongly in rows:
        table.add_row(str(steps), percent(middle), percent(most), str(trusted), str(wrongly))
    console.print(table)
    worst = sorted(found.machines, key=lambda one: -one.realised_excess)[:_ROWS_SHOWN]
    console.print("\nThe machines that fared worst, before their first run:", highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("machine", "rows", "claimed excess", "by own data", "trusted"):
        table.add_column(name, justify="left" if name == "machine" else "right")
    for one in worst:
        table.add_row(
            escape(one.machine),
            f"{one.rows:,}",
            percent(one.claimed_excess),
            percent(one.realised_excess),
            "yes" if one.trusted else "no",
        )
    console.print(table)
    for sentence in findings:
        console.print(escape(f"Against the model: {sentence}."), highlight=False)
