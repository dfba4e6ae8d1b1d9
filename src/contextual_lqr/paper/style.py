"""Figures and reports as files, light and dark, written whole."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextual_lqr.errors import MissingExtraError
from contextual_lqr.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Black in a figure becomes the reader's text colour.
_THEME = "svg{color:#1d2433;fill:currentColor}@media(prefers-color-scheme:dark){svg{color:#e4e8f0}}"
_NUMBER = re.compile(r"-?[\d.]*(e[+-]\d+)?|infinite")  # and a dash, for none


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
        raise MissingExtraError("Jinja", "cli") from error

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
