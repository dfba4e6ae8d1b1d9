"""`contextual-lqr backtest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import cyclopts
import numpy as np
from rich.markup import escape

from contextual_lqr.certificates.backtest import backtest as run
from contextual_lqr.certificates.backtest_records import Backtest
from contextual_lqr.certificates.model_tests.unmodelled import findings_of
from contextual_lqr.certificates.plots import plot_backtest
from contextual_lqr.cli.options import AsJson, Fitted, Output
from contextual_lqr.cli.terminal import Console, percent, plain_table, print_json
from contextual_lqr.context import Dynamics
from contextual_lqr.data import FittedFleet
from contextual_lqr.errors import InputError
from contextual_lqr.figures import require_figure, write_figure
from contextual_lqr.files import require_writable

_ROWS_SHOWN = 10
_SHARES = (16, 4, 2)  # of what a machine has usually shown


def backtest(
    fleet: Fitted,
    /,
    *,
    own: Annotated[list[int] | None, cyclopts.Parameter(negative="")] = None,
    horizon: int | None = None,
    as_json: AsJson = False,
    output: Annotated[Path | None, Output] = None,
) -> None:
    """Leave each machine out in turn; see whether its certificate would have been right.

    Parameters
    ----------
    own
        Also try with this many steps of a machine's own; by default, shares of what they have.
    horizon
        The number of states in an episode, if not the fleet's.
    output
        The figure to write, .png, .svg or .pdf.
    """
    if output is not None:
        require_writable(output, [fleet])
        require_figure(output, ".png, .svg or .pdf")
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
    names = (*described.state_names, *described.input_names)
    findings = [one.said(names) for one in findings_of(fitted.decoder, described.cost)]
    return _written(found, findings, output, as_json)


def _written(found: Backtest, findings: list[str], output: Path | None, as_json: bool) -> None:
    if output is not None:
        write_figure(output, lambda figure: plot_backtest(found, figure=figure))
    if as_json:
        print_json(found.as_dict() | {"findings": findings})
    else:
        _show(found, findings)


def _show(found: Backtest, findings: list[str]) -> None:
    console = Console()
    console.print(f"{found}.")
    excess = np.array([one.realised_excess for one in found.machines])
    table = plain_table("own steps", "excess: median", "90 %", "trusted", "wrongly", left=0)
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
    console.print("\nThe machines that fared worst, before their first run:")
    table = plain_table("machine", "rows", "claimed excess", "by own data", "trusted")
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
        console.print(escape(f"Against the model: {sentence}."))
