"""`contextual-lqr advise`."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from contextual_lqr.certificates.experiment_design import (
    UnexcitedDirection,
    rank_candidates,
    unexcited_directions,
)
from contextual_lqr.cli.machines import read_machines, shown
from contextual_lqr.cli.options import AsJson, Fitted, OptionalFile
from contextual_lqr.cli.terminal import Console, plain_table, print_json, say
from contextual_lqr.data import FittedFleet

_SHOWN = 15


def advise(
    fleet: Fitted,
    /,
    *,
    candidates: OptionalFile = None,
    targets: OptionalFile = None,
    dither: float = 0.0,
    as_json: AsJson = False,
) -> None:
    """Which machine, run next, would teach most; and what no log has shown.

    Parameters
    ----------
    candidates
        A table of the machines that could be run.
    targets
        A table of the machines to be controlled; by default the candidates themselves.
    dither
        The standard deviation of what the run would add to every input.
    """
    fitted = FittedFleet.load(fleet)
    described = fitted.description
    quantities = [*described.state_names, *described.input_names]
    blind = unexcited_directions(fitted.decoder, quantities)
    machines = None if candidates is None else read_machines(candidates, described)
    ranking: list[dict[str, Any]] = []
    if machines is not None:
        wanted = None if targets is None else read_machines(targets, described).rows
        ranked = rank_candidates(
            fitted.decoder,
            machines.rows,
            described.episode_cost,
            described.start,
            targets=wanted,
            dither=dither,
        )
        for one in ranked:
            label = shown(one.context) if machines.labels is None else machines.labels[one.place]
            about = {"machine": label, "context": one.context}
            outside = fitted.decoder.context_map.outside(one.context)
            more = {"outside": outside} if outside else {}
            ranking.append(about | {"saving": one.saving} | more)
    if as_json:
        _print_json(blind, ranking)
        return
    console = Console()
    _show_blind(console, blind, fitted.decoder.estimate.shape[1])
    if ranking:
        _show_ranking(console, ranking)


def _print_json(blind: list[UnexcitedDirection], ranking: list[dict[str, Any]]) -> None:
    told = [{"columns": one.columns, "says": str(one)} for one in blind]
    print_json({"blind": told, "candidates": ranking})


def _show_blind(console: Console, blind: list[UnexcitedDirection], p: int) -> None:
    if not blind:
        console.print("The logs excite every direction of the decoder.")
        return
    console.print(f"The logs say nothing about {len(blind)} of {p} directions of the decoder:")
    for one in blind[:_SHOWN]:
        console.print(f"  {escape(str(one))}")
    if len(blind) > _SHOWN:
        console.print(f"  … and {len(blind) - _SHOWN} more; --json lists all")


def _show_ranking(console: Console, ranking: list[dict[str, Any]]) -> None:
    console.print()
    table = plain_table("run next", "saves of the price of ignorance")
    for one in ranking[:_SHOWN]:
        table.add_row(escape(one["machine"]), f"{one['saving']:.1%}")
    console.print(table)
    if len(ranking) > _SHOWN:
        console.print(f"… and {len(ranking) - _SHOWN} more; --json lists all")
    for one in ranking[:_SHOWN]:
        if "outside" in one:
            say(console, f"{one['machine']}: {one['outside']}")
