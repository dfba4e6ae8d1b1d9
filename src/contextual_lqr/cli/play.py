"""`contextual-lqr play`."""

from __future__ import annotations

from typing import Literal

from rich.live import Live
from rich.table import Table

from contextual_lqr.cli.options import AsJson, Count, Seed
from contextual_lqr.cli.terminal import Console, Progress, print_json
from contextual_lqr.errors import MissingExtraError
from contextual_lqr.fleets import FLEETS, Fleet
from contextual_lqr.fleets.watch import EpisodeRow, episodes

ROWS = 15
FleetName = Literal[
    "path-following", "cart-pole", "quadrotor", "chain", "vehicle", "heating", "inverted-pendulum"
]
StrategyName = Literal["cautious", "certainty", "thompson", "optimism", "sampled"]


def play(
    *,
    fleet: FleetName = "path-following",
    strategy: StrategyName = "cautious",
    episodes_: Count = 10,
    adapt: Literal["step", "episode"] = "step",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Watch an agent learn a fleet, one machine per episode.

    Parameters
    ----------
    fleet
        Which machines; inverted-pendulum is MuJoCo's.
    strategy
        The rule for what to play.
    episodes_
        How many machines to learn from.
    adapt
        Plan again at every step, or once per episode.
    seed
        The seed of the machines, their noise and the agent.
    """
    console, played = Console(), FLEETS[fleet]() if fleet in FLEETS else _pendulum()
    shown: list[EpisodeRow] = []
    run = episodes(played, strategy, episodes_, seed, adapt)
    if as_json:
        with Progress("playing", episodes_, "episodes") as progress:
            for one in run:
                shown.append(one)
                progress.advance()
        print_json([one.plain() for one in shown])
        return
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        for one in run:
            shown.append(one)
            live.update(_table(fleet, played, shown) if console.is_terminal else "")
    console.print(_table(fleet, played, shown))


def _pendulum() -> Fleet:
    try:
        import gymnasium  # noqa: F401
        import mujoco  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("MuJoCo", "mujoco") from error
    from contextual_lqr.envs.inverted_pendulum import inverted_pendulum

    return inverted_pendulum()


def _table(name: str, fleet: Fleet, shown: list[EpisodeRow]) -> Table:
    """The last episodes, each with its machine, its cost, and what is known after it."""
    table = Table(title=f"{name.replace('-', ' ')}: one machine per episode")
    table.add_column("", justify="right")
    for name in fleet.context_map.names or ():
        unit = fleet.units.get(name, "")
        table.add_column(f"{name.replace('_', ' ')}\n({unit})", justify="right")
    engine = shown[-1].optimum is None
    unseen = "unseen:\nsteps up" if engine else "unseen:\nabove opt."
    for name in ("steps", "cost", *(() if engine else ("opt.",)), unseen):
        table.add_column(name, justify="right")
    for one in shown[-ROWS:]:
        cells = [_short(value) for value in one.context.values()]
        cells += [str(len(one.trajectory)), f"{one.cost:.3g}"]
        cells += [] if one.optimum is None else [f"{one.optimum:.3g}"]
        cells += [f"{one.unseen:.0f}" if engine else _percent(one.unseen)]
        table.add_row(str(one.episode), *cells)
    return table


def _short(value: float) -> str:
    """Three digits, and no exponent for what people say without one."""
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{share:.2%}" if share < 10 else f"{100 * share:.0e} %"
