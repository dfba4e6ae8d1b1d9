"""Another task than the fleet's, as options say it; and what a sweep over R shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.certificates.fleet_check import fleet_check
from contextual_lqr.certificates.plots import draw_tradeoff
from contextual_lqr.certificates.tradeoff import tradeoff
from contextual_lqr.cli.machines import Machines, shown
from contextual_lqr.cli.terminal import Console, plain_table, print_json
from contextual_lqr.data import FittedFleet, FleetDescription
from contextual_lqr.data.designing import retuned
from contextual_lqr.data.fleet_toml.set_point import read_targets
from contextual_lqr.data.forecast import with_measured
from contextual_lqr.errors import InputError
from contextual_lqr.figures import require_figure, write_figure


def retuned_task(
    task: FleetDescription,
    Q: str | None,
    R: str | None,
    target: str | None,
    horizon: int | None,
    integral: str | None = None,
    measured: str | None = None,
) -> FleetDescription:
    """The fleet with the weights, target, horizon and disturbances that options give."""
    aim: dict[str, float] | Array | None = None
    if target is not None:
        named = "=" in target
        aim = _named("target", target) if named else read_targets(Path(target), task.states)
    sums: list[str] | dict[str, float] | None = None
    if integral is not None:
        listed = [] if integral == "none" else [name.strip() for name in integral.split(",")]
        sums = _named("integral", integral) if "=" in integral else listed
    if measured is not None:
        task = with_measured(task, _named("measured", measured))
    return retuned(task, _weights("Q", Q), _weights("R", R), aim, horizon, sums)


def _weights(option: str, text: str | None) -> dict[str, float] | list[float] | None:
    if text is None:
        return None
    if "=" in text:
        return _named(option, text)
    return [_number(option, part) for part in text.split(",")]


def _named(option: str, text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for pair in text.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or name in found:
            raise InputError(f"--{option} is written name=value,name=value, not {text!r}")
        found[name] = _number(option, value)
    return found


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--{option} has {text.strip()!r} where a number belongs") from None


def show_tradeoff(
    fitted: FittedFleet,
    task: FleetDescription,
    machines: Machines,
    draws: int,
    seed: int,
    as_json: bool,
    output: Path | None,
) -> None:
    """Print, and draw if there is a file for it, what states and inputs cost over factors of R."""
    if len(machines) != 1:
        raise InputError("--sweep is for one machine: give --context or --machine")
    if output is not None:
        require_figure(output)
    (context,), (label,) = machines.rows, machines.own_labels
    belief = fitted.decoder.machine(context, label)
    hedge = fleet_check(fitted.decoder, task.cost, task.start).hedge
    rng = np.random.default_rng(seed)
    found = tradeoff(belief, task.cost, task.start, hedge=hedge, draws=draws, rng=rng)
    name = label or shown(context, task.units)
    if output is not None:
        title = f"{name}: {'an episode' if task.horizon else 'one constant gain'}"
        write_figure(output, lambda figure: draw_tradeoff(found, title=title, figure=figure))
    if as_json:
        print_json({"context": context, "horizon": task.horizon} | vars(found))
        return
    table = plain_table("R times", "states", "5..95 %", "inputs", "5..95 %", "held", left=0)
    for k, factor in enumerate(found.factors.tolist()):
        bands = [
            f"{low:.3g}..{high:.3g}" for low, high in (found.state_band[k], found.effort_band[k])
        ]
        parts = f"{found.state[k]:.3g}", f"{found.effort[k]:.3g}"
        table.add_row(f"{factor:g}", parts[0], bands[0], parts[1], bands[1], f"{found.held[k]:.0%}")
    console = Console()
    console.print(f"{name}: root mean squares per step, by the task's own Q and R", markup=False)
    console.print(table)
