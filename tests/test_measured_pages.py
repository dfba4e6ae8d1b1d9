"""Every section of the measured pages belongs to one benchmark."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "measured").glob("*.md"))


def test_every_section_has_its_benchmark() -> None:
    marked = [
        (page.stem, *ends)
        for page in PAGES
        for ends in re.findall(
            r"^<!-- begin (.+?) -->$.*?^<!-- end (.+?) -->$", page.read_text("utf-8"), re.M | re.S
        )
    ]
    assert all(begin == end for _, begin, end in marked)
    assert {page for page, _, _ in marked} == {page.stem for page in PAGES}
    written = [
        call
        for script in (ROOT / "benchmarks").glob("*.py")
        for call in re.findall(r'write_section\("(.+?)", "(.+?)"', script.read_text("utf-8"))
    ]
    assert sorted(written) == sorted((page, name) for page, name, _ in marked)
    assert all(re.fullmatch(r"[\w-]+", part) for pair in written for part in pair)
