"""How our figures look, and a figure to draw into; Matplotlib is imported when one is drawn."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from contextual_lqr.errors import InputError, MissingExtraError
from contextual_lqr.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart, without the yellow, which is
# too pale for a line on white. All but the black are seen on a dark page too.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#8a8f99"


@contextmanager
def figure_style() -> Iterator[None]:
    """Matplotlib with our fonts, colours and grid."""
    try:
        import matplotlib
        from cycler import cycler
    except ImportError as error:
        raise MissingExtraError("Matplotlib", "plot") from error

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


def new_figure(width: float = 6.4, height: float = 4.8) -> Figure:
    """A figure of this size in inches, which no window shows."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def panels(
    figure: Figure | None, count: int, columns: int, width: float, height: float
) -> list[Axes]:
    """This many panels, each of this size in inches, in the figure given or in a new one."""
    rows = -(-count // columns)
    if figure is None:
        from matplotlib import pyplot

        figure = pyplot.figure()
    figure.set_layout_engine("constrained")
    figure.set_size_inches(width * columns, height * rows + 0.7)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_visible(False)
    return grid[:count]


def rendered(draw: Callable[[Figure], object], suffix: str) -> bytes:
    """A file of this kind (png, svg, pdf) with what is drawn, the same bytes every time."""
    with figure_style():
        figure = new_figure()
        draw(figure)
        content = io.BytesIO()
        metadata = {"Date": None} if suffix == "svg" else {}
        figure.savefig(content, format=suffix, metadata=metadata, facecolor="white")
    return content.getvalue()


def require_figure(path: Path, kinds: str = ".png or .svg") -> None:
    """Refuse a file whose name does not say which kind of figure it is to be."""
    if path.suffix.lower() not in kinds.replace(",", "").split():
        raise InputError(f"the figure must be a {kinds} file, not {path}")


def write_figure(path: Path, draw: Callable[[Figure], object]) -> None:
    """Put what is drawn into a file of the kind that its name says."""
    atomic_write(path, rendered(draw, path.suffix[1:].lower()))
