"""`contextual-lqr simulate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from numpy import ndarray as Array
from rich.markup import escape

from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.certificates.backtest import hedged_policy
from contextual_lqr.certificates.fleet_check import fleet_check
from contextual_lqr.certificates.paths.path_certificate import predict_path
from contextual_lqr.certificates.plots import plot_prediction
from contextual_lqr.certificates.prediction import ClosedLoopPrediction, predict_closed_loop
from contextual_lqr.cli.machines import chosen_machines, load_learnt, own_data, shown
from contextual_lqr.cli.options import AsJson, Context, Count, Fitted, Machine, Output, Seed
from contextual_lqr.cli.terminal import Console, percent, plain_table, print_json, say
from contextual_lqr.data import FleetDescription
from contextual_lqr.data.description import RUN
from contextual_lqr.data.designing import hedge_of
from contextual_lqr.deployment.controller import Controller
from contextual_lqr.deployment.trial import predicted_run
from contextual_lqr.figures import require_figure, write_figure
from contextual_lqr.files import require_writable
from contextual_lqr.lqr.solve import solve
from contextual_lqr.lqr.stationary import Cost, Policy

_JSON = "Print JSON: the band of every state and input at every step."


def simulate(
    fleet: Fitted,
    /,
    *,
    context: Context = None,
    machine: Machine = None,
    horizon: int | None = None,
    runs: Count = 500,
    band: float = 0.9,
    seed: Seed = 0,
    as_json: Annotated[AsJson, Parameter(help=_JSON)] = False,
    output: Annotated[Path | None, Output] = None,
) -> None:
    """What the closed loop of a machine will do, before its first run or with data of its own.

    Parameters
    ----------
    horizon
        The number of states, if not the fleet's; 100 for a constant gain, if the fleet has none.
    runs
        The number of runs, each with a decoder drawn from the posterior.
    band
        The share of the runs that the band holds.
    seed
        The seed of the runs.
    output
        The figure to draw, a .png or .svg file.
    """
    if output is not None:
        require_figure(output)
        require_writable(output, [fleet])
    fitted = load_learnt(fleet)
    task = fitted.description
    described = task if horizon is None or task.horizon is None else task.with_horizon(horizon)
    chosen = chosen_machines(fitted, context, None, machine)
    (values,) = chosen.rows
    belief = fitted.decoder.machine(values, machine)
    rng = np.random.default_rng(seed)
    if isinstance(belief, DynamicsBelief):
        seen = predict_path(
            fitted.decoder,
            values,
            described.cost,
            described.start,
            rng,
            machine=machine,
            input_bounds=described.input_bounds,
            runs=runs,
            band=band,
        )
    elif described.runs_to_a_set_point:
        hedge = hedge_of(fitted, described)
        controller = Controller.of(belief, described.control_task(), hedge)
        steps = (horizon or RUN) - 1
        seen = predicted_run(controller, belief, described.start, steps, rng, runs=runs, band=band)
    else:
        hedge = fleet_check(fitted.decoder, described.cost, described.start).hedge
        seen = predict_closed_loop(
            belief,
            described.episode_cost if horizon is None else task.with_horizon(horizon).episode_cost,
            described.start,
            rng,
            policy=_policy(belief, described.cost, hedge),
            input_bounds=described.input_bounds,
            runs=runs,
            band=band,
        )
    name = shown(values, described.units) if machine is None else machine
    outside = fitted.decoder.context_map.outside(values)
    if output is not None:
        title = f"{name}: band of {band:.0%} over {runs} posterior draws"
        draw = partial(plot_prediction, seen, labels=described.labels, title=title)
        write_figure(output, lambda figure: draw(figure=figure))
    if as_json:
        named = {} if machine is None else {"machine": machine}
        about = named | {"context": values, "own_rows": chosen.own_rows[0]}
        about |= {"outside": outside} if outside else {}
        _print_json(described, about, seen, band)
    else:
        _show(described, name, seen, band, runs)
        if outside:
            say(Console(), outside)
        if machine is not None:
            say(Console(), own_data(fitted.decoder, chosen.own_rows[0]))


def _policy(belief: MachineBelief, cost: Cost, hedge: float) -> Policy:
    """The controller that `design` gives."""
    if hedge:
        return hedged_policy(belief, cost, hedge)
    return solve(belief.system, cost, check=True).policy


def _quantities(
    described: FleetDescription, seen: ClosedLoopPrediction
) -> list[tuple[str, Array, Array]]:
    """(label, band (3, steps), expected) of every state and input that may change."""
    names = enumerate(described.labels)
    return [(label, *seen.quantity(k)) for k, label in names if label is not None]


def _show(
    described: FleetDescription, name: str, seen: ClosedLoopPrediction, band: float, runs: int
) -> None:
    console = Console()
    console.print(
        f"{escape(name)}: median of {runs} runs on posterior draws, and the band of {band:.0%}"
    )
    last = len(seen.expected_inputs)
    steps = sorted({last // 3, 2 * last // 3, last - 1})
    table = plain_table("at step", *(str(step + 1) for step in steps))
    table.columns[0].min_width = 10
    for label, ends, _ in _quantities(described, seen):
        table.add_row(escape(label), *(_interval(*ends[:, step]) for step in steps))
    console.print(table)
    low, middle, high = np.quantile(seen.costs, [(1 - band) / 2, 0.5, (1 + band) / 2])
    console.print(f"cost of a run: {middle:.4g} ({low:.4g}..{high:.4g})")
    if seen.saturated:
        often = percent(seen.saturated)
        console.print(f"inputs are at their limits in {often} of the steps")
    if seen.exploded:
        console.print(f"[red]{seen.exploded} of {runs} runs explode[/red]")


def _interval(low: float, middle: float, high: float) -> str:
    """The numbers to as many digits as the band has."""
    if low == high:  # such as an input at its limit
        return f"{middle:.4g}"
    if max(abs(low), abs(high)) >= 1e5:
        return f"{middle:.1e} ({low:.1e}..{high:.1e})"
    places = int(np.clip(-np.floor(np.log10(max(high - low, 1e-6) / 2)), 0, 6))
    return f"{middle:.{places}f} ({low:.{places}f}..{high:.{places}f})"


def _print_json(
    described: FleetDescription, about: dict[str, Any], seen: ClosedLoopPrediction, band: float
) -> None:
    whole = about | {
        "band": band,
        "exploded": seen.exploded,
        "saturated_steps": seen.saturated,
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
