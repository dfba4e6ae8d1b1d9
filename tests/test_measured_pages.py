"""Every section of the measured pages is written by one benchmark, and every benchmark's is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "measured").glob("*.md"))


def test_every_section_has_its_benchmark() -> None:
    marked = [
        (page.stem, *ends)
        for page in PAGES
        for ends in re.findall(
            r"^<!-- begin (\w+) -->$.*?^<!-- end (\w+) -->$", page.read_text("utf-8"), re.M | re.S
        )
    ]
    assert marked and all(begin == end for _, begin, end in marked)
    written = [
        call
        for script in (ROOT / "benchmarks").glob("*.py")
        for call in re.findall(r'write_section\("(\w+)", "(\w+)"', script.read_text("utf-8"))
    ]
    assert sorted(written) == sorted((page, name) for page, name, _ in marked)
