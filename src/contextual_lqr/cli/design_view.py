"""How `contextual-lqr design` shows controllers and certificates in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array
from rich.markup import escape
from rich.table import Table

from contextual_lqr.certificates.beyond_logs import LOGGED
from contextual_lqr.certificates.certificate import Certificate
from contextual_lqr.certificates.paths.path_certificate import PathCertificate
from contextual_lqr.cli.machines import Machines, beyond_logs, own_data, shown
from contextual_lqr.cli.terminal import Console, percent, plain_table
from contextual_lqr.data import FittedFleet, FleetDescription
from contextual_lqr.data.designing import hedge_of
from contextual_lqr.deployment.controller import Controller
from contextual_lqr.errors import InputError, UnsolvableError
from contextual_lqr.lqr.problem import LinearPolicy
from contextual_lqr.lqr.stationary import StationaryPolicy
from contextual_lqr.planning.paths.trajectory import TrajectorySolution

_COLOURS = {"trust": "green", "caution": "yellow", "do not use": "red"}
ROWS_SHOWN = 20


class Designed(NamedTuple):
    """Certificates, and what they are of: the fleet, its task, the machines, and what was asked."""

    fitted: FittedFleet
    described: FleetDescription
    machines: Machines
    certificates: list[Certificate]
    beta: str
    delta: float
    quick: bool

    @property
    def controllers(self) -> list[Controller]:
        """With set-point and integrators, without a horizon; none if one machine has none."""
        fitted, described, found = self.fitted, self.described, list[Controller]()
        if not described.runs_to_a_set_point:
            return found
        task, hedge = described.control_task(), hedge_of(fitted, described)
        for context, label in zip(self.machines.rows, self.machines.own_labels, strict=True):
            try:
                found.append(Controller.of(fitted.decoder.machine(context, label), task, hedge))
            except (InputError, UnsolvableError):
                return []
        return found


def show(designed: Designed) -> None:
    """Print one machine at length, or a table of many."""
    console = Console()
    _, _, machines, certificates, beta, delta, quick = designed
    if len(certificates) == 1:
        _show_one(console, designed)
        return
    columns = ("machine", "verdict", "predicted", "from", "to", "excess", "score")
    table = plain_table(*columns, left=2)
    table.columns[1].no_wrap = True
    for i, one in enumerate(certificates[:ROWS_SHOWN]):
        label = shown(one.context) if machines.labels is None else machines.labels[i]
        table.add_row(
            escape(label),
            f"[{_COLOURS[one.verdict]}]{one.verdict}[/]",
            *(_number(x) for x in (one.predicted_cost, *_ends(one, quick or not proven(one)))),
            percent(one.likely_excess),
            _number(one.extrapolation.score, 2),
        )
    console.print(table)
    if len(certificates) > ROWS_SHOWN:
        more = len(certificates) - ROWS_SHOWN
        console.print(f"… and {more} more; --output machines.csv writes all")
    console.print(summary(certificates))
    if far := [one.reason for one in certificates if LOGGED in one.reason]:
        said = f"{len(far)} of them beyond the logs, such as: {escape(far[0].split('; ')[0])}"
        console.print(said)
    if own := sum(n > 0 for n in machines.own_rows):
        rows = sum(machines.own_rows)
        have = "has data of its own" if own == 1 else "have data of their own"
        console.print(f"{own} of them {have}, {rows:,} rows in all")
    if certificates[0].margins is not None:
        said = "Constant gains, average costs per step: the task has no horizon."
        console.print(said, style="dim")
    note = _interval_note(beta, delta, quick, certificates[0])
    console.print(note, style="dim")


def _show_one(console: Console, designed: Designed) -> None:
    fitted, described, machines, (one,), beta, delta, quick = designed
    quick = quick or not proven(one)
    cost = "cost" if one.margins is None else "average cost"
    (low, high), place = _ends(one, quick), one.extrapolation.score
    found = f"{_number(one.lower.searched)} to {_number(one.upper.searched)}"
    how = "sampled" if isinstance(one, PathCertificate) else "searched"
    gaps = f"{percent(one.lower.gap)} and {percent(one.upper.gap)}"
    name = f"{machines.labels[0]}: " if machines.labels is not None else ""
    facts = [
        ("machine", escape(name + shown(one.context, described.units))),
        ("verdict", f"[bold {_COLOURS[one.verdict]}]{one.verdict}[/]"),
        ("because", escape(one.reason)),
        (f"predicted {cost}", _number(one.predicted_cost)),
        (f"true {cost}", f"{_number(low)} to {_number(high)}"),
        ("", f"({how}, not proven)" if quick else f"(a search found {found}; gaps of {gaps})"),
        ("likely excess", f"{percent(one.likely_excess)} over the best possible, at 95 %"),
        *_stability(one),
        ("extrapolation", f"{escape(str(one.extrapolation))} (score {place:.2g})"),
    ]
    if machines.labels is not None:
        facts.append(("own data", own_data(fitted.decoder, machines.own_rows[0])))
    for name, (least, most) in beyond_logs(fitted, one.context).items():
        facts.append(("beyond logs", f"{escape(name)}: the logs have {least:.4g} to {most:.4g}"))
    listed = Table.grid(padding=(0, 2))
    for name, text in facts:
        listed.add_row(name, text)
    console.print(listed)
    console.print()
    if isinstance(one, PathCertificate) and one.path is not None:
        if not np.isfinite(one.path.cost):
            return
        console.print(_path(described, one.path))
        console.print()
    constant = isinstance(one.policy, StationaryPolicy)
    first = one.policy.gain if isinstance(one.policy, StationaryPolicy) else one.policy.gains[0]
    names: Sequence[str] = described.state_names
    if made := designed.controllers:
        names, first = made[0].gain_columns, made[0].gain
    table = plain_table("constant gain" if constant else "gains, step 1", *names)
    for name, row in zip(described.input_names, first, strict=True):
        table.add_row(escape(name), *(f"{x:.4g}" for x in row))
    console.print(table)
    if isinstance(one, PathCertificate):
        said = (
            "u = u of the path + K (x - x of the path); all steps are in --json, --csv and --npz."
        )
    elif isinstance(one.policy, LinearPolicy):
        said = f"u = K x; all {len(one.policy.gains)} steps are in --json, --csv and --npz."
    else:
        said = "u = K x at every step: the task has no horizon. --horizon gives an episode's gains."
    if made:
        made[0].meet(described.start)
        state, given = (", ".join(_number(x) for x in _rounded(part)) for part in made[0].rest)
        law, rest = "K (x - x0)", f"x0 is {state}, u0 {given}"
        if made[0].integral:
            law, rest = "K [x - x0; q]", f"{rest}, q the integrals"
        if still := [
            (one.name, x)
            for one, x in zip(described.states, described.start, strict=True)
            if one.measured
        ]:
            rest += " with " + ", ".join(f"{name} at {_number(x)}" for name, x in still)
        said = escape(f"u = u0 + {law}: {rest}.")
    console.print(said, style="dim")
    console.print(_interval_note(beta, delta, quick, one), style="dim")


def proven(one: Certificate) -> bool:
    """Whether the interval is; that of constant gains and of paths is not."""
    return one.margins is None and not isinstance(one, PathCertificate)


def _path(described: FleetDescription, path: TrajectorySolution) -> Table:
    """Some steps of a path."""
    last = len(path.states) - 1
    steps = sorted({0, last // 3, 2 * last // 3, last})
    table = plain_table("the path, at step", *(str(step + 1) for step in steps))
    for name, column in zip(described.state_names, path.states.T, strict=True):
        table.add_row(escape(name), *(f"{column[step]:.4g}" for step in steps))
    for name, column in zip(described.input_names, path.inputs.T, strict=True):
        played = (f"{column[step]:.4g}" if step < last else "" for step in steps)
        table.add_row(escape(name), *played)
    return table


def _rounded(values: Array) -> list[float]:
    """What is rounding beside the others is 0."""
    least = 1e-9 * np.abs(values).max(initial=0.0)
    return [x if abs(x) > least else 0.0 for x in values.tolist()]


def _stability(one: Certificate) -> list[tuple[str, str]]:
    if one.margins is None:
        return [("instability", f"{one.instability:.1%} of the posterior draws")]
    held = f"{1 - one.instability:.1%} of the plausible machines (posterior draws)"
    return [("stabilised", held), ("the loop", str(one.margins))]


def _ends(one: Certificate, quick: bool) -> tuple[float, float]:
    """The interval; what the search found of it, if nothing was to be proven."""
    return (one.lower.searched, one.upper.searched) if quick else one.interval


def _interval_note(beta: str, delta: float, quick: bool, one: Certificate) -> str:
    if isinstance(one, PathCertificate):
        return "The interval holds 95 % of runs on posterior draws, and is not proven."
    if one.margins is not None:
        return "The interval was found by a search over plausible machines, and is not proven."
    if quick:
        return "--quick: the interval was found by a search, and is not proven."
    return f"The interval holds for all decoders of the {beta} set, at 1 - delta = {1 - delta:g}."


def summary(certificates: list[Certificate], prefix: str = "") -> str:
    """How many machines got which verdict."""
    counts = {verdict: 0 for verdict in _COLOURS}
    for one in certificates:
        counts[one.verdict] += 1
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    count = f"{len(certificates)} machine{'s' if len(certificates) > 1 else ''}"
    return f"{escape(prefix)}{count}: {said}"


def _number(value: float, digits: int = 4) -> str:
    infinite = "-∞" if value < 0 else "∞"
    return f"{value:.{digits}g}" if np.isfinite(value) else infinite
