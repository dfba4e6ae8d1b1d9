"""`report.html`: what was run, the claims, the figures, the versions, on one page."""

from __future__ import annotations

from pathlib import Path

from contextual_lqr.paper.page import Page
from contextual_lqr.paper.reproduce.claims import Claim, unsaid
from contextual_lqr.paper.reproduce.summary import Measurements, versions

UNSAID = (
    "strategy",
    "regret",
    "worst",
    "largest state",
    "worst",
    "control error after {few}",
    "after {all}",
    "failed",
)


def write_report(
    measured: Measurements, judged: list[Claim], captions: dict[str, str], folder: Path
) -> Path:
    """Write the page, with the figures in it."""
    config = measured.config
    page = Page("Continuous control with contexts: the experiments, run again")
    page.text(
        f"{len(config.settings)} settings ({', '.join(s.name for s in config.settings)}), "
        f"{len(config.strategies)} strategies, {config.seeds} seeds, {config.episodes} episodes: "
        f"{len(config.trials)} trials, {len(measured.failures)} of them failed. Horizon "
        f"{config.horizon}, noise variance {config.noise:g}, masses {config.masses[0]:g} to "
        f"{config.masses[1]:g}; the paper's rule with β = {config.beta:g} and {config.samples} "
        "samples. Training and test masses are the same in all trials."
    )
    page.heading("The paper says, we measured")
    page.text(f"Measured with the strategy “{config.lead}”, over {config.seeds} seeds a setting.")
    page.table(
        ("the paper says", "we measured", "verdict"),
        [
            (one.paper, one.measured, "not judged" if one.holds is None else one.holds)
            for one in judged
        ],
    )
    page.heading("What the paper does not say")
    page.text(
        "What learning costs on the way, all settings together: medians and the worst run of "
        "cumulative expected regret and of the largest state, and the median control error on "
        "masses never seen. Doing nothing is never to push."
    )
    page.table(unsaid_header(measured), unsaid(measured))
    page.heading("Figures")
    for name, caption in captions.items():
        page.figure(folder / f"{name}.png", caption)
    if measured.failures:
        page.heading("Failed trials")
        page.table(
            ("setting", "strategy", "seed", "why"),
            [
                (one["setting"], one["strategy"], str(one["seed"]), one["failure"])
                for one in measured.failures
            ],
        )
    page.heading("How it was run")
    minutes = float(measured.rows["seconds"].sum()) / 60
    page.text(
        f"The episodes took {minutes:.1f} minutes, all trials added up. To repeat this run: "
        "contextual-lqr reproduce --config config.json --out again."
    )
    page.table(("what", "version"), list(versions().items()))
    path = folder / "report.html"
    page.write(path)
    return path


def unsaid_header(measured: Measurements) -> list[str]:
    """The header of the table of what the paper does not say."""
    few, last = min(5, measured.config.episodes), measured.config.episodes
    return [name.format(few=few, all=last) for name in UNSAID]
