"""Θ as a picture: each entry with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap, FeatureContext
from contextual_lqr.context.columns import column_names
from contextual_lqr.figures import GREY, PALETTE, figure_style, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_decoder(
    decoder: Decoder, *, labels: Sequence[str] | None = None, figure: Figure | None = None
) -> list[Axes]:
    """Plot the estimate of Θ, one panel per state, with the 95 % interval of each entry.

    Parameters
    ----------
    decoder : Decoder
        What was learnt.
    labels : sequence of str, optional
        What the states and inputs are called, in this order; `description.labels` has them for a
        fitted fleet.
    figure : matplotlib.figure.Figure, optional
        The figure to draw into; by default a new pyplot figure.

    Returns
    -------
    list of matplotlib.axes.Axes
        One for each row of Θ. Entries whose interval contains zero are grey.

    Raises
    ------
    MissingExtraError
        If Matplotlib is not installed.
    """
    estimate, posterior = decoder.estimate, decoder.posterior
    d, p = estimate.shape
    names = _quantities(decoder.context_map, labels)
    columns = _columns(decoder.context_map, names, p)
    with figure_style():
        drawn = panels(figure, d, 1, max(4.0, 0.28 * p + 1.5), 1.6)
        for r, axes in enumerate(drawn):
            half = 1.96 * posterior.deviations[r]
            clear = (np.abs(estimate[r]) > half) | (half == 0)
            for some, colour in ((clear, PALETTE[0]), (~clear, GREY)):
                axes.errorbar(
                    np.flatnonzero(some), estimate[r, some], half[some],
                    fmt="o", markersize=3, linewidth=1.5, color=colour,
                )  # fmt: skip
            axes.axhline(0, color=GREY, linewidth=0.8)
            axes.set_ylabel(f"next\n{names[r]}")
            axes.set_xlim(-0.6, p - 0.4)
            axes.set_xticks(np.arange(p), columns if r == d - 1 else [""] * p, rotation=90)
            axes.grid(axis="x", visible=False)
        drawn[-1].set_xlabel("what it is multiplied by")
        drawn[0].set_title(f"Θ after {decoder.episodes:,} episodes, 95 % intervals", loc="left")
    return drawn


def _quantities(context_map: ContextMap, labels: Sequence[str] | None) -> list[str]:
    """What the states and inputs are called; x1, ..., u1, ... unless given."""
    assert context_map.shape is not None  # there is an estimate
    _, d, m = context_map.shape
    names = [f"x{i + 1}" for i in range(d)] + [f"u{i + 1}" for i in range(m)]
    if labels is not None:
        require(len(labels) == d + m, f"labels must be {d + m}, one for each state and input")
        names = list(labels)
    return names


def _columns(context_map: ContextMap, names: Sequence[str], p: int) -> list[str]:
    """What the columns of Θ are multiplied by: the entries of z = G [x; u]."""
    if not isinstance(context_map, FeatureContext):
        return [f"z{j + 1}" for j in range(p)]
    plain = [name.partition(" [")[0] for name in names]
    return [one.removeprefix("1 · ") for one in column_names(context_map, p, plain)]
