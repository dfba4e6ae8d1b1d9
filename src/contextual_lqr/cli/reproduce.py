"""`contextual-lqr reproduce`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from rich.markup import escape
from rich.table import Table

from contextual_lqr.cli.options import HERE, AsJson, Count, OptionalFile, Where
from contextual_lqr.cli.terminal import Console, Progress, print_json
from contextual_lqr.errors import InputError
from contextual_lqr.paper.reproduce.config import Config, PathName, StrategyName
from contextual_lqr.parallel import Workers

_Several = cyclopts.Parameter(consume_multiple=True, negative="")


def reproduce(
    *,
    paths: Annotated[tuple[PathName, ...] | None, _Several] = None,
    decays: Annotated[tuple[float, ...] | None, _Several] = None,
    episodes: Count | None = None,
    seeds: Count | None = None,
    strategies: Annotated[tuple[StrategyName, ...] | None, _Several] = None,
    samples: Count | None = None,
    beta: float | None = None,
    config: OptionalFile = None,
    where: Where = HERE,
    out: Path = Path("results"),
    as_json: Annotated[AsJson, cyclopts.Parameter(help="Print the summary as JSON.")] = False,
) -> None:
    """Run the paper's experiments; write rows, summary, figures and a report.

    Ctrl-C keeps what is finished, and the same command resumes it.

    Parameters
    ----------
    paths
        The paths to follow; by default all three.
    decays
        How much of its velocity an object keeps per step; by default 1 and 0.7.
    episodes
        Training episodes per trial; by default 100.
    seeds
        Trials of each setting and strategy; by default 20.
    strategies
        The rules for what to play; by default all.
    samples
        Decoders that the paper's rule draws before an episode; by default 100.
    beta
        The β of the paper's rule; by default 10000.
    config
        Repeat the run of this config.json, bit for bit.
    out
        The folder to write to.
    """
    given: dict[str, Any] = {
        "paths": paths,
        "decays": decays,
        "episodes": episodes,
        "seeds": seeds,
        "strategies": strategies,
        "samples": samples,
        "beta": beta,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if config is not None and given:
        named = ", ".join(f"--{name}" for name in given)
        raise InputError(f"--config repeats a run as it was: leave out {named}")
    what = Config(**given) if config is None else Config.load(config)
    workers = where.workers
    console = Console(stderr=True)
    try:
        _run(what, workers, out, as_json, console)
    except KeyboardInterrupt:
        console.print(
            f"Stopped. Finished trials are kept in {escape(str(out))}: the same command resumes."
        )
        sys.exit(130)


def _run(config: Config, workers: Workers, out: Path, as_json: bool, console: Console) -> None:
    where = f"{workers} at once" if isinstance(workers, int) else f"on {escape(workers)}"
    console.print(
        f"{len(config.trials)} trials (settings: {len(config.settings)}, strategies: "
        f"{len(config.strategies)}, seeds: {config.seeds}), episodes of each: {config.episodes}; "
        f"{where}, into {escape(str(out))}"
    )
    from contextual_lqr.paper.reproduce.run import conclude, run_missing
    from contextual_lqr.paper.reproduce.store import Store

    store = Store(out, config)
    missing = len(store.missing())
    if missing < len(config.trials):
        console.print(f"{len(config.trials) - missing} of them are already done")
    if missing:
        with Progress("playing", missing, "trials") as progress:
            run_missing(store, workers, lambda _: progress.advance())
    found = conclude(store, lambda doing: console.print(doing))
    if as_json:
        print_json(found.summary)
        return
    table = Table("the paper says", "we measured", "verdict", show_lines=True)
    for one in found.claims:
        verdict = {True: "holds", False: "[red]fails[/red]", None: "not judged"}[one.holds]
        table.add_row(escape(one.paper), escape(one.measured), verdict)
    answer = Console()
    answer.print(table)
    if found.summary["failed"]:
        answer.print(f"{found.summary['failed']} of {len(config.trials)} trials failed.")
    answer.print(f"Rows, summary and figures are in {escape(str(out))}.")
    answer.print(f"The report: {escape(str(found.report))}", soft_wrap=True)
