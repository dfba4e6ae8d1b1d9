"""Figures and reports as files, light and dark, written whole."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
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
    png = io.BytesIO()
    figure.savefig(png, format="png", facecolor="white")
    atomic_write(folder / f"{name}.png", png.getvalue())
    atomic_write(folder / f"{name}.svg", as_svg(figure))


def as_svg(figure: Figure) -> bytes:
    """The figure for a light or a dark page."""
    svg = io.StringIO()
    # No date inside: the same rows give the same file.
    figure.savefig(svg, format="svg", metadata={"Date": None}, transparent=True)
    drawn = svg.getvalue().replace("#000000", "currentColor").replace("*{", _THEME + "*{", 1)
    return re.sub(r"(\d\d\.\d\d)\d+", r"\1", drawn).encode()  # hundredths of a point are enough


def write_report(folder: Path, template: str, **content: Any) -> Path:
    """Fill a template of `templates/`; the page, `report.html`, needs no other file."""
    page = rendered_page(template, lambda name: (folder / f"{name}.svg").read_bytes(), **content)
    atomic_write(folder / "report.html", page)
    return folder / "report.html"


def rendered_page(template: str, drawn: Callable[[str], bytes], **content: Any) -> bytes:
    """A page from a template of `templates/`, with figures as SVG inside."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("Jinja", "cli") from error

    def embedded(name: str) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(drawn(name)).decode()

    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("contextual_lqr.paper"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    pages.tests["numeric"] = lambda cell: _NUMBER.fullmatch(str(cell)) is not None
    return pages.get_template(template).render(content, embedded=embedded).encode()
