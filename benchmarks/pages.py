"""The measured pages, docs/measured/*.md: every benchmark owns one marked section of one page.

A section stands between `<!-- begin name -->` and `<!-- end name -->`; everything else on a page is
written by hand. Links in it are those of a file in docs/measured/.
"""

import re
from pathlib import Path

from contextual_lqr.files import atomic_write

MEASURED = Path(__file__).parent.parent / "docs" / "measured"
HEADING = re.compile(r"^(#+) ", re.MULTILINE)


def read_section(page: str, name: str) -> str:
    """What a section says now, its headings beginning with `#`."""
    _, inside, _ = split(page, name)
    return HEADING.sub(lambda found: found[0][1:], inside.strip("\n")) + "\n"


def write_section(page: str, name: str, text: str) -> None:
    """Write a section; its headings go one level down, below the page's own."""
    before, _, after = split(page, name)
    inside = HEADING.sub(r"#\1 ", text.strip("\n"))
    atomic_write(MEASURED / f"{page}.md", f"{before}\n{inside}\n{after}".encode())


def split(page: str, name: str) -> tuple[str, str, str]:
    """What stands before, in and after a section, markers outside."""
    whole = (MEASURED / f"{page}.md").read_text(encoding="utf-8")
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
    if whole.count(begin) != 1 or whole.count(end) != 1:
        raise SystemExit(f"{page}.md needs one line {begin.strip()} and one {end.strip()}")
    before, rest = whole.split(begin)
    inside, after = rest.split(end)
    return before + begin, inside, end + after
