"""What `check` shows of logs: a screen, and a page with a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from contextual_lqr.cli.terminal import Console, plain_table, say
from contextual_lqr.data import LogSurvey, QuantityReport
from contextual_lqr.figures import PALETTE, figure_style, new_figure, panels
from contextual_lqr.files import atomic_write
from contextual_lqr.paper.style import as_svg, rendered_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from contextual_lqr.data.histories.history_choice import HistoryChoice

_BLIND = 3  # directions that no log excites, of which one screen has room
_HEADER = ("", "unit", "from", "to", "spread", "free", "resolution", "noise")


def summary(survey: LogSurvey) -> list[str]:
    """How much there is, and what tests of the model say, a sentence each."""
    report = survey.report
    found, learnt = f"{report.transitions:,} transitions", report.learnt
    said = [
        f"{survey.machines:,} machines, {report.episodes:,} episodes, "
        + (found if learnt == report.transitions else f"{learnt:,} of {found} to learn from")
        + ("" if survey.minutes is None else f", {survey.minutes:.3g} minutes")
    ]
    if report.bad_rows:
        said.append(f"{report.bad_rows:,} of {report.rows:,} rows are bad")
    for sentences, none in (
        (survey.delay, "these logs show no late input"),
        (survey.history, "these logs need no longer history"),
    ):
        if sentences is not None:
            said.append("; ".join(sentences) or none)
    said += survey.contradicted
    if blind := survey.unexcited:
        rest = [f"{len(blind) - _BLIND} more, which advise names"] if len(blind) > _BLIND else []
        said.append("; ".join(blind[:_BLIND] + rest))
    if some := survey.several_contexts:
        more = f" and {len(some) - 3:,} more" if len(some) > 3 else ""
        said.append(f"logged with several contexts: {', '.join(some[:3])}{more}")
    return said


def say_survey(console: Console, survey: LogSurvey) -> None:
    """One screen."""
    table = plain_table(*_HEADER, left=2)
    for one in survey.quantities:
        table.add_row(*_cells(one))
    console.print(table)
    for sentence in summary(survey):
        say(console, sentence)


def write_page(survey: LogSurvey, path: Path) -> None:
    """The same with a picture, as one HTML file."""
    choice = survey.report.history
    pictures, told = {}, ""
    with figure_style():
        drawn = new_figure()
        draw(survey, drawn)
        pictures["logs"] = as_svg(drawn)
        if choice is not None and len(choice.errors) > 1:
            drawn = new_figure()
            draw_history(choice, drawn)
            pictures["history"] = as_svg(drawn)
            told = (
                f"The error of predictions up to {choice.steps} steps ahead on machines left out, "
                "by how many outputs the state holds; 1 is the error of predicting no change. "
                f"Chosen: {choice.words}."
            )
    page = rendered_page(
        "check.html",
        pictures.__getitem__,
        histories=told,
        bad=bool(survey.report.bad_rows or survey.doubts),
        summary=summary(survey),
        header=_HEADER,
        rows=[
            [cell.replace(" %", "\N{NO-BREAK SPACE}%") for cell in _cells(one)]
            for one in survey.quantities
        ],
        said=[
            *survey.report.tables.sentences(),
            *(f"{count:,} rows: {reason}" for reason, count in survey.report.bad.items()),
        ],
    )
    atomic_write(path, page)


def draw(survey: LogSurvey, figure: Figure) -> None:
    """For each state and input its first episodes, and its distribution."""
    moving = [one for one in survey.quantities if one.kind != "context"]
    grid = iter(panels(figure, 2 * len(moving), 2, 4.2, 1.5))
    for one in moving:
        trace, spread = next(grid), next(grid)
        for episode, colour in zip(survey.traces, PALETTE, strict=False):
            trace.plot(episode[one.name], color=colour, lw=0.8)
        trace.set_ylabel(f"{one.name} [{one.unit}]" if one.unit else one.name)
        bins = 120
        if one.resolution is not None and one.high > one.low:
            bins = max(min(round((one.high - one.low) / one.resolution) + 1, 120), 1)
        spread.hist(survey.sample[one.name], bins=bins, color=PALETTE[0])
        spread.set_yticks([])
        if one is moving[-1]:
            trace.set_xlabel("step")
            spread.set_xlabel("value")


def draw_history(choice: HistoryChoice, figure: Figure) -> None:
    """The error of prediction against the length of the history."""
    (ax,) = panels(figure, 1, 1, 8.4, 2.2)
    lengths = sorted({n for curve in choice.curves.values() for n in curve})
    for (spacing, curve), colour in zip(choice.curves.items(), PALETTE, strict=False):
        own, apart = sorted(curve), "sample" if spacing == 1 else "samples"
        errors = [curve[n] for n in own]
        ax.semilogy(own, errors, "o-", color=colour, ms=3, lw=1, label=f"{spacing:g} {apart} apart")
    chosen = choice.outputs
    if chosen in choice.errors:
        ax.plot(chosen, choice.errors[chosen], "o", color="black", ms=9, mfc="none")
    ax.set_xticks(lengths, [str(n) for n in lengths])
    ax.minorticks_off()
    ax.set(xlabel="outputs in the state", ylabel="error")
    if len(choice.curves) > 1:
        ax.legend(fontsize="small", ncols=2)


def _cells(one: QuantityReport) -> tuple[str, ...]:
    def shown(value: float | None, form: str = ".3g") -> str:
        return "" if value is None else format(value, form)

    free = "" if one.free is None else f"{100 * one.free:.0f} %"
    numbers = (shown(one.low), shown(one.high), shown(one.spread), free)
    return (one.name, one.unit, *numbers, shown(one.resolution, ".2g"), shown(one.noise, ".2g"))
