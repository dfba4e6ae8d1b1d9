"""One self-contained HTML page, readable in light and dark, wide and narrow."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from contextual_lqr.files import atomic_write

_STYLE = """
:root { color-scheme: light dark; --text: #1d2433; --dim: #5a6375; --line: #d5dae3;
  --back: #ffffff; --good: #00664a; --bad: #a63c00; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8f0; --dim: #9aa4b8; --line: #3a4356;
  --back: #14181f; --good: #4fc7a0; --bad: #ff9b63; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
p.dim, figcaption, footer { color: var(--dim); font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.number, th.number { text-align: right; }
td.holds { color: var(--good); } td.fails { color: var(--bad); font-weight: 600; }
figure { margin: 1.5rem 0; } figure img { width: 100%; min-width: 34rem; height: auto;
  background: #fff; border-radius: 6px; }
code { font-size: .9em; overflow-wrap: anywhere; }
"""


class Page:
    """Collects the parts of a page in order, then writes it as one file."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = []

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str, dim: bool = False) -> None:
        """One paragraph of plain text."""
        self._parts.append(f"<p{_class('dim', dim)}>{escape(text)}</p>")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str | bool]]) -> None:
        """A table; a column of numbers stands to the right, a truth value reads holds or fails."""
        numbers = [
            bool(rows) and all(_is_number(row[column]) for row in rows)
            for column in range(len(header))
        ]
        head = "".join(
            f"<th{_class('number', number)}>{escape(name)}</th>"
            for name, number in zip(header, numbers, strict=True)
        )
        body = "".join(
            f"<tr>{''.join(_cell(cell, n) for cell, n in zip(row, numbers, strict=True))}</tr>"
            for row in rows
        )
        self._parts.append(
            f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def figure(self, image: Path, caption: str) -> None:
        """A PNG or SVG file, embedded, with what it shows."""
        kind = {".png": "image/png", ".svg": "image/svg+xml"}[image.suffix]
        data = base64.b64encode(image.read_bytes()).decode()
        self._parts.append(
            f'<figure><div class="wide"><img alt="{escape(caption)}" '
            f'src="data:{kind};base64,{data}"></div>'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def write(self, path: Path) -> None:
        """Write the page, whole or not at all."""
        title = escape(self.title)
        atomic_write(
            path,
            (
                '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
                '<meta name="viewport" content="width=device-width, initial-scale=1">'
                f"<title>{title}</title><style>{_STYLE}</style></head>\n"
                f"<body><h1>{title}</h1>\n" + "\n".join(self._parts) + "\n</body></html>\n"
            ).encode(),
        )


def _cell(cell: str | bool, number: bool) -> str:
    if isinstance(cell, bool):
        word = "holds" if cell else "fails"
        return f'<td class="{word}">{word}</td>'
    return f"<td{_class('number', number)}>{escape(cell)}</td>"


def _is_number(cell: str | bool) -> bool:
    return isinstance(cell, str) and cell[:1] in "0123456789-+−" and cell != ""


def _class(name: str, applies: bool) -> str:
    return f' class="{name}"' if applies else ""
