"""Certificates as pictures: the closed loop with its band, and trust over a range of contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.backtest_records import BAD, Backtest
from contextual_lqr.certificates.certificate import REFUSED_EXCESS, TRUSTED_EXCESS, Certificate
from contextual_lqr.certificates.fleet_check import fleet_check
from contextual_lqr.certificates.prediction import ClosedLoopPrediction, predict_closed_loop
from contextual_lqr.certificates.tradeoff import FACTORS, Tradeoff, tradeoff
from contextual_lqr.checks import require
from contextual_lqr.context.dynamics import require_linear
from contextual_lqr.display import context_fact
from contextual_lqr.figures import GREY, PALETTE, figure_style, panels
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.lqr.stationary import Cost
from contextual_lqr.lqr.trajectory_policy import TrajectoryPolicy
from contextual_lqr.planning.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEAST, _MOST = 1e-6, 1e2  # excess beyond these is drawn at them
_COLOURS = {"trust": PALETTE[2], "caution": PALETTE[4], "do not use": PALETTE[1]}


def plot_closed_loop(
    decoder: Decoder,
    played: Certificate | Plan,
    cost: QuadraticCost,
    start: ArrayLike,
    *,
    machine: str | None = None,
    labels: Sequence[str | None] | None = None,
    runs: int = 500,
    band: float = 0.9,
    rng: np.random.Generator | None = None,
    figure: Figure | None = None,
) -> list[Axes]:
    """Plot what a controller will do on its machine: a band over plausible machines and noise.

    Parameters
    ----------
    decoder : Decoder
        What was learnt.
    played : Certificate or Plan
        Whose policy is played, on the machine with its context.
    cost : QuadraticCost
        The task, which sets the length of the runs; for a constant gain, `StationaryCost.over`.
    start : array_like, (d,)
        The state in which they start.
    machine : str, optional
        The label of a machine that has data of its own.
    labels : sequence of str or None, optional
        What the states and inputs are called, in this order; None for one that is not drawn.
        `description.labels` has them for a fitted fleet.
    runs : int
        The number of plausible machines it is played on.
    band : float
        The share of them that the band holds.
    rng : numpy.random.Generator, optional
        Where the draws come from; by default they are always the same.
    figure : matplotlib.figure.Figure, optional
        The figure to draw into; by default a new pyplot figure.

    Returns
    -------
    list of matplotlib.axes.Axes
        One for each state and input.

    Raises
    ------
    InputError
        If something does not fit together.
    MissingExtraError
        If Matplotlib is not installed.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    require_linear(decoder.context_map, "plot_closed_loop")
    assert not isinstance(played.policy, TrajectoryPolicy)
    belief = decoder.machine(played.context, machine)
    seen = predict_closed_loop(belief, cost, start, rng, policy=played.policy, runs=runs, band=band)
    title = f"{context_fact(played.context)['context']}: band of {band:.0%}"
    return plot_prediction(seen, labels=labels, title=title, figure=figure)


def plot_prediction(
    seen: ClosedLoopPrediction,
    *,
    labels: Sequence[str | None] | None = None,
    title: str = "",
    figure: Figure | None = None,
) -> list[Axes]:
    """Draw a prediction: a panel for each state and input that has a label."""
    d, m = seen.states.shape[2], seen.inputs.shape[2]
    names = [f"x{i + 1}" for i in range(d)] + [f"u{i + 1}" for i in range(m)]
    labels = names if labels is None else labels
    require(len(labels) == d + m, f"labels must be {d + m}, one for each state and input")
    shown = [k for k in range(d + m) if labels[k] is not None]
    with figure_style():
        drawn = panels(figure, len(shown), min(3, len(shown)), 3.2, 2.2)
        for k, axes in zip(shown, drawn, strict=True):
            band, expected = seen.quantity(k)
            steps, colour = np.arange(1, len(expected) + 1), PALETTE[0 if k < d else 1]
            axes.fill_between(steps, band[0], band[2], color=colour, alpha=0.25, linewidth=0)
            axes.plot(steps, band[1], color=colour, linewidth=1.5, label="median")
            axes.plot(steps, expected, color=GREY, linewidth=1.2, linestyle="--", label="expected")
            axes.set_ylabel(labels[k] or "")
            axes.set_xlabel("step")
            axes.margins(x=0.01)
        whole = drawn[0].figure
        handles, words = drawn[0].get_legend_handles_labels()
        whole.legend(handles, words, loc="outside lower right", ncols=2)
        whole.suptitle(title, x=0.01, ha="left", fontsize="medium")
    return drawn


def plot_tradeoff(
    decoder: Decoder,
    context: Any,
    cost: Cost,
    start: ArrayLike,
    *,
    machine: str | None = None,
    factors: ArrayLike = FACTORS,
    draws: int = 200,
    rng: np.random.Generator | None = None,
    figure: Figure | None = None,
) -> list[Axes]:
    """Plot the trade-off: the cost of states against that of inputs, over factors of R.

    Parameters
    ----------
    decoder : Decoder
        What was learnt.
    context
        The machine's context.
    cost : QuadraticCost or StationaryCost
        The task. Controllers are optimal for R times each factor; costs are counted with this R.
    start : array_like, (d,)
        The state in which episodes start.
    machine : str, optional
        The label of a machine that has data of its own.
    factors : array_like, (n,)
        What R is multiplied by.
    draws : int
        The number of plausible machines each controller is tried on.
    rng, figure
        As for `plot_closed_loop`.

    Returns
    -------
    list of matplotlib.axes.Axes
        One: a point for each factor, and for each the range over the plausible machines.

    Raises
    ------
    InputError
        If something does not fit together.
    MissingExtraError
        If Matplotlib is not installed.
    """
    belief = decoder.machine(context, machine)
    hedge = fleet_check(decoder, cost, np.asarray(start, float)).hedge
    found = tradeoff(belief, cost, start, factors=factors, hedge=hedge, draws=draws, rng=rng)
    return draw_tradeoff(found, title=str(context_fact(context)["context"]), figure=figure)


def draw_tradeoff(found: Tradeoff, *, title: str = "", figure: Figure | None = None) -> list[Axes]:
    """Draw a sweep that has been made."""
    with figure_style():
        from matplotlib.ticker import LogLocator, NullFormatter

        (axes,) = drawn = panels(figure, 1, 1, 5.0, 3.4)
        good = np.isfinite(found.state) & np.isfinite(found.effort)
        same: dict[str, Any] = {"color": PALETTE[0], "alpha": 0.3, "linewidth": 4}
        label: str | None = "5 to 95 % of plausible machines"
        for k in np.flatnonzero(good & np.isfinite(found.state_band).all(1)).tolist():
            axes.plot([found.effort[k]] * 2, found.state_band[k], label=label, **same)
            axes.plot(found.effort_band[k], [found.state[k]] * 2, **same)
            label = None
        axes.plot(
            found.effort[good],
            found.state[good],
            "o-",
            color=PALETTE[0],
            markersize=3.5,
            linewidth=1.2,
            label="the machine as estimated",
        )
        for k in range(0, len(found.factors), max((len(found.factors) - 1) // 4, 1)):
            if good[k]:
                axes.annotate(
                    f"R × {found.factors[k]:g}",
                    (found.effort[k], found.state[k]),
                    textcoords="offset points",
                    xytext=(5, 5),
                    fontsize="small",
                )
        loose = good & (found.held < 1)
        if loose.any():
            marks: dict[str, Any] = {"color": _COLOURS["do not use"], "markersize": 7}
            axes.plot(found.effort[loose], found.state[loose], "x", label="some grow", **marks)
        axes.set(xlabel="inputs: √(uᵀRu) of a step", ylabel="states: √(xᵀQx) of a step")
        axes.set(xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):  # a decade may have no tick of its own
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(NullFormatter())
        axes.margins(x=0.18, y=0.12)
        axes.legend(loc="best", fontsize="small")
        axes.figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    return drawn


def plot_certificates(
    certificates: Sequence[Certificate],
    name: str | None = None,
    *,
    label: str | None = None,
    figure: Figure | None = None,
) -> list[Axes]:
    """Plot certificates over a range of contexts: the cost with its interval, and the excess.

    Parameters
    ----------
    certificates : sequence of Certificate
        As `certify_many` gives them.
    name : str, optional
        The value of the context to draw them over; needed if more than one changes.
    label : str, optional
        The label of its axis, with its unit, say.
    figure : matplotlib.figure.Figure, optional
        The figure to draw into; by default a new pyplot figure.

    Returns
    -------
    list of matplotlib.axes.Axes
        The cost, and below it the likely excess, with the limits of the verdicts.

    Raises
    ------
    InputError
        If there are no certificates, or it is not clear over what to draw them.
    MissingExtraError
        If Matplotlib is not installed.
    """
    at = _places(certificates, name)
    order = np.argsort(at, kind="stable")
    at, ordered = at[order], [certificates[i] for i in order]
    predicted = np.array([one.predicted_cost for one in ordered])
    low, high = np.array([one.interval for one in ordered]).T
    excess = np.array([one.likely_excess for one in ordered])
    with figure_style():
        cost, above = drawn = panels(figure, 2, 1, 4.8, 2.1)
        finite = np.isfinite(high)
        cost.fill_between(at, low, high, where=finite, color=PALETTE[0], alpha=0.2, linewidth=0)
        cost.plot(at, predicted, color=PALETTE[0], linewidth=1.5)
        cost.set_ylabel("predicted cost,\nand its interval")
        above.plot(at, excess, color=GREY, linewidth=1)
        above.set_ylabel("likely excess")
        for verdict, colour in _COLOURS.items():
            some = np.array([one.verdict == verdict for one in ordered])
            if some.any():
                cost.plot(at[some], predicted[some], "o", color=colour, markersize=4, label=verdict)
                above.plot(at[some], excess[some], "o", color=colour, markersize=4)
        for limit, verdict in ((TRUSTED_EXCESS, "trust"), (REFUSED_EXCESS, "do not use")):
            above.axhline(limit, color=_COLOURS[verdict], linewidth=1, linestyle="--")
        for axes, values in ((cost, np.concatenate((low, high))), (above, excess)):
            if (values[np.isfinite(values)] > 0).all():
                axes.set_yscale("log")
        above.yaxis.set_major_formatter(_percent)
        above.set_xlabel(label or name or _changing(certificates))
        cost.figure.legend(*cost.get_legend_handles_labels(), loc="outside lower right", ncols=3)
    return drawn


def plot_backtest(found: Backtest, *, figure: Figure | None = None) -> list[Axes]:
    """Plot a backtest: what was claimed for each machine against what happened.

    Beside it, if the backtest tried steps of the machines' own, the excess against their number.

    Parameters
    ----------
    found : Backtest
        As `backtest` gives it.
    figure : matplotlib.figure.Figure, optional
        The figure to draw into; by default a new pyplot figure.

    Returns
    -------
    list of matplotlib.axes.Axes
        One or two.

    Raises
    ------
    MissingExtraError
        If Matplotlib is not installed.
    """
    both = np.array([(one.claimed_excess, one.realised_excess) for one in found.machines])
    both = np.clip(both, _LEAST, _MOST)
    trusted = np.array([one.trusted for one in found.machines])
    with figure_style():
        drawn = panels(figure, 1 + bool(found.few_shot), 2 if found.few_shot else 1, 3.6, 3.0)
        axes = drawn[0]
        for some, colour, name in (
            (trusted, _COLOURS["trust"], "trusted"),
            (~trusted, GREY, "not trusted"),
        ):
            if some.any():
                axes.plot(*both[some].T, "o", color=colour, markersize=4, alpha=0.8, label=name)
        axes.set(xscale="log", yscale="log")
        ends = both.min() / 2, both.max() * 2
        axes.plot(ends, ends, color=GREY, linewidth=1, linestyle="--")
        axes.axhline(BAD, color=_COLOURS["do not use"], linewidth=1, linestyle="--")
        axes.set(
            xlim=ends, ylim=ends, xlabel="claimed excess, at 95 %", ylabel="excess by own data"
        )
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(_percent)
        if found.few_shot:
            zero = np.quantile(both[:, 1], [0.5, 0.9], method="higher")
            steps = [0, *(one.steps for one in found.few_shot)]
            middle = [zero[0], *(one.median_excess for one in found.few_shot)]
            most = [zero[1], *(one.excess_90 for one in found.few_shot)]
            axes = drawn[1]
            same: dict[str, Any] = {"color": PALETTE[0], "markersize": 4, "clip_on": False}
            axes.plot(steps, middle, "o-", label="median", **same)
            axes.plot(steps, most, "s--", label="90 % of machines", **same)
            axes.axhline(BAD, color=_COLOURS["do not use"], linewidth=1, linestyle="--")
            axes.set(yscale="log", xlabel="steps of the machine's own", ylabel="excess by own data")
            axes.set_xscale("symlog", linthresh=max(steps[1], 1))
            axes.set_xticks(steps, [str(one) for one in steps])
            axes.minorticks_off()
            axes.yaxis.set_major_formatter(_percent)
        for axes in drawn:
            axes.legend(loc="best", fontsize="small")
    return drawn


def _percent(value: float, _: object = None) -> str:
    return f"{100 * value:g} %"


def _places(certificates: Sequence[Certificate], name: str | None) -> Float[Array, " n"]:
    """Where certificates stand on the axis of a value of their contexts."""
    name = _changing(certificates) if name is None else name
    contexts = [one.context for one in certificates]
    known = all(isinstance(one, Mapping) and name in one for one in contexts)
    require(known, f"the contexts do not all have a {name!r}")
    return np.array([float(one[name]) for one in contexts])


def _changing(certificates: Sequence[Certificate]) -> str:
    """The one value of the context in which certificates differ."""
    require(certificates, "there are no certificates to draw")
    contexts = [one.context if isinstance(one.context, Mapping) else {} for one in certificates]
    names = [name for name in contexts[0] if len({c.get(name) for c in contexts}) > 1]
    require(
        len(names) == 1,
        f"name the value of the context to draw over: {', '.join(names) or 'none'} change",
    )
    return str(names[0])
