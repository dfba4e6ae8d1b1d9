"""`contextual-lqr play`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.live import Live
from rich.table import Table

from contextual_lqr.cli.options import AsJson
from contextual_lqr.cli.terminal import Progress, print_json, say
from contextual_lqr.fleets.pictures import short
from contextual_lqr.paper.watch import (
    PENDULUM,
    Played,
    Stage,
    animation_path,
    episodes,
    frames,
    moments,
    write_animation,
)

ROWS = 15
FleetName = Literal[
    "path-following", "cart-pole", "quadrotor", "chain", "vehicle", "heating", "inverted-pendulum"
]
StrategyName = Literal["cautious", "certainty", "thompson", "optimism", "sampled"]


def play(
    *,
    fleet: FleetName = "path-following",
    strategy: StrategyName = "cautious",
    episodes_: int = 10,
    adapt: Literal["step", "episode"] = "step",
    seed: int = 0,
    render: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Watch an agent learn a fleet, one machine an episode.

    Parameters
    ----------
    fleet
        Which machines; inverted-pendulum is MuJoCo's.
    strategy
        The rule for what to play.
    episodes_
        How many machines to learn from.
    adapt
        Plan anew at every step, or once an episode.
    seed
        Of the machines, their noise and the agent.
    render
        Write an animation to this file, a GIF.
    as_json
        Print JSON, for a script to read.
    """
    target = None if render is None else animation_path(render)
    console, stage = Console(), Stage(fleet)
    shown: list[Played] = []
    run = episodes(stage, strategy, episodes_, seed, adapt)
    if as_json:
        with Progress("playing", episodes_, "episodes") as progress:
            for one in run:
                shown.append(one)
                progress.advance()
    else:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            for one in run:
                shown.append(one)
                live.update(_table(stage, shown) if console.is_terminal else "")
        console.print(_table(stage, shown))
    if target is not None:
        pictures = []
        with Progress("drawing", len(moments(shown)), "pictures") as progress:
            for one_picture in frames(stage, shown):
                pictures.append(one_picture)
                progress.advance()
        write_animation(target, pictures)
        if not as_json:
            say(console, f"{target}: {len(pictures)} pictures")
    if as_json:
        print_json([_facts(one) for one in shown])


def _table(stage: Stage, shown: list[Played]) -> Table:
    """The last episodes, each with its machine, its cost, and what is known after it."""
    table = Table(title=f"{stage.name.replace('-', ' ')}: one machine an episode")
    table.add_column("", justify="right")
    for name in stage.fleet.context_map.names or ():
        unit = stage.fleet.units.get(name, "")
        table.add_column(f"{name.replace('_', ' ')}\n({unit})", justify="right")
    engine = stage.name == PENDULUM
    unseen = "unseen:\nsteps up" if engine else "unseen:\nabove opt."
    for name in ("steps", "cost", *(() if engine else ("opt.",)), unseen):
        table.add_column(name, justify="right")
    for one in shown[-ROWS:]:
        cells = [short(value) for value in one.context.values()]
        cells += [str(len(one.trajectory)), f"{one.cost:.3g}"]
        cells += [] if one.optimum is None else [f"{one.optimum:.3g}"]
        cells += [f"{one.unseen:.0f}" if engine else _percent(one.unseen)]
        table.add_row(str(one.episode), *cells)
    return table


def _percent(share: float) -> str:
    return f"{share:.2%}" if share < 10 else f"{100 * share:.0e} %"


def _facts(one: Played) -> dict[str, object]:
    return {
        "episode": one.episode,
        "context": one.context,
        "steps": len(one.trajectory),
        "cost": one.cost,
        "optimum": one.optimum,
        "unseen": one.unseen,
    }
