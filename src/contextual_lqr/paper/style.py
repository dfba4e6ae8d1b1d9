"""How our figures and reports look: one palette, light and dark; files written whole."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextual_lqr.errors import MissingExtraError
from contextual_lqr.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart, without the yellow, which is
# too pale for a line on white. All but the black are seen on a dark page too.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#8a8f99"

# Black in a figure becomes the reader's text colour.
_THEME = "svg{color:#1d2433;fill:currentColor}@media(prefers-color-scheme:dark){svg{color:#e4e8f0}}"
_NUMBER = re.compile(r"-?[\d.]*(e[+-]\d+)?|infinite")  # and a dash, for none


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
    """Write `name.png`, on white, and `name.svg`, which follows a light or a dark page."""
    png, svg = io.BytesIO(), io.StringIO()
    figure.savefig(png, format="png", facecolor="white")
    # No date inside: the same rows give the same file.
    figure.savefig(svg, format="svg", metadata={"Date": None}, transparent=True)
    drawn = svg.getvalue().replace("#000000", "currentColor").replace("*{", _THEME + "*{", 1)
    drawn = re.sub(r"(\d\d\.\d\d)\d+", r"\1", drawn)  # hundredths of a point are enough
    atomic_write(folder / f"{name}.png", png.getvalue())
    atomic_write(folder / f"{name}.svg", drawn.encode())


def write_report(folder: Path, template: str, **content: Any) -> Path:
    """Fill a template of `templates/`; the page, `report.html`, needs no other file."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("Jinja", "paper") from error

    def embedded(name: str) -> str:
        drawn = (folder / f"{name}.svg").read_bytes()
        return "data:image/svg+xml;base64," + base64.b64encode(drawn).decode()

    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("contextual_lqr.paper"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    pages.tests["numeric"] = lambda cell: _NUMBER.fullmatch(str(cell)) is not None
    page = pages.get_template(template).render(content, embedded=embedded)
    atomic_write(folder / "report.html", page.encode())
    return folder / "report.html"
