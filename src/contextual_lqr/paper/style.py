"""How our figures look: one palette, safe for colour-blind readers; files written whole."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from contextual_lqr.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, without the yellow, which is too pale for a line on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


@contextmanager
def figure_style() -> Iterator[None]:
    """Matplotlib without a display, with our fonts, colours and grid."""
    import matplotlib
    from cycler import cycler

    matplotlib.use("Agg")
    with matplotlib.rc_context(
        {
            "axes.prop_cycle": cycler(color=PALETTE),
            "axes.grid": True,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": "medium",
            "figure.constrained_layout.use": True,
            "figure.dpi": 150,
            "font.size": 9,
            "grid.alpha": 0.3,
            "legend.frameon": False,
            "svg.fonttype": "path",
            "svg.hashsalt": "contextual-lqr",
        }
    ):
        yield


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write `name.png` and `name.svg`, each whole or not at all."""
    for suffix in ("png", "svg"):
        content = io.BytesIO()
        # No date inside: the same rows give the same file.
        metadata = {"Date": None} if suffix == "svg" else {}
        figure.savefig(content, format=suffix, metadata=metadata, facecolor="white")
        atomic_write(folder / f"{name}.{suffix}", content.getvalue())
