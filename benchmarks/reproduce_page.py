"""The paper's experiments, into docs/measured/accuracy.md.

`python benchmarks/reproduce_page.py results` reads the folder of a finished `contextual-lqr
reproduce`.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from pages import write_section

from contextual_lqr.paper.reproduce.claims import claims, unsaid
from contextual_lqr.paper.reproduce.config import Config
from contextual_lqr.paper.reproduce.figures import draw_figures
from contextual_lqr.paper.reproduce.store import Store
from contextual_lqr.paper.reproduce.summary import Measurements, median, versions

DOCS = Path(__file__).parent.parent / "docs"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    return [
        f"| {' | '.join(header)} |",
        "|---" * len(header) + "|",
        *(f"| {' | '.join(cell.replace('*', chr(92) + '*') for cell in row)} |" for row in rows),
        "",
    ]


def by_setting(measured: Measurements) -> list[list[str]]:
    """The paper's two errors after few and many episodes: median and worst seed."""
    rows = []
    for i, setting in enumerate(measured.config.settings):
        cells = [setting.name]
        for k in (5, 10, measured.config.episodes):
            for column in ("decoder_error", "control_error"):
                values = measured.of(column, measured.config.lead)[i, :, k - 1]
                cells.append(f"{median(values):.2g} ({values.max():.2g})")
        rows.append(cells)
    return rows


def main() -> None:
    """Read the folder, draw the figures again, write the page."""
    folder = Path(sys.argv[1])
    config = Config.load(folder / "config.json")
    measured = Measurements(config, Store(folder, config).rows())
    with tempfile.TemporaryDirectory() as drawn:
        captions = draw_figures(measured, Path(drawn))
        for name in captions:
            shutil.copy(Path(drawn) / f"{name}.png", DOCS / "figures" / f"reproduce-{name}.png")
    K = config.episodes
    errors = [f"{what} after {k}" for k in (5, 10, K) for what in ("‖Θ-Θ\\*‖", "control error")]
    verdicts = {True: "holds", False: "fails", None: "not judged"}
    made = ", ".join(f"{name} {one}" for name, one in versions().items())
    page = [
        "# The paper's experiments",
        "",
        "Written by `benchmarks/reproduce_page.py` from a run of `contextual-lqr reproduce`: "
        f"{len(config.settings)} settings, {len(config.strategies)} strategies, {config.seeds} "
        f"seeds, {K} episodes; {len(measured.failures)} of {len(config.trials)} trials failed.",
        "",
        f"## The paper says, we measured (strategy `{config.lead}`)",
        "",
        *table(
            ["the paper says", "we measured", "verdict"],
            [[one.paper, one.measured, verdicts[one.holds]] for one in claims(measured)],
        ),
        f"Setting by setting, median over {config.seeds} seeds, and the worst seed in brackets:",
        "",
        *table(["setting", *errors], by_setting(measured)),
        "## What the paper does not say",
        "",
        "What learning costs on the way, all settings together: median and worst run of cumulative "
        "regret and of the largest state; median control error on masses never seen.",
        "",
        *table(unsaid(measured)[0], unsaid(measured)[1:]),
        "## Figures",
        "",
        *(
            line
            for name, caption in captions.items()
            for line in (
                f"![{caption.split('.')[0]}](../figures/reproduce-{name}.png)",
                "",
                caption.replace("*", "\\*"),
                "",
            )
        ),
        f"Versions: {made}.",
    ]
    write_section("accuracy", "paper", "\n".join(page))


if __name__ == "__main__":
    main()
