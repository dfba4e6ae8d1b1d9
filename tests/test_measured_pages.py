"""Every section of the measured pages belongs to one benchmark."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "measured").glob("*.md"))


def test_every_section_has_its_benchmark() -> None:
    pattern = re.compile(r"^<!-- begin (.+?) -->$(.*?)^<!-- end (.+?) -->$", re.M | re.S)
    marked = {}
    for page in PAGES:
        text = page.read_text("utf-8")
        found = pattern.findall(text)
        assert all(begin == end for begin, _, end in found)
        assert len(found) == len(re.findall("<!-- *begin", text)) > 0
        assert len(found) == len(re.findall("<!-- *end", text))
        marked |= {(page.stem, name): inside for name, inside, _ in found}
    written = [
        (*call, script.name)
        for script in (ROOT / "benchmarks").glob("*.py")
        for call in re.findall(r'write_section\(\s*"(.+?)",\s*"(.+?)"', script.read_text("utf-8"))
    ]
    assert sorted(call[:2] for call in written) == sorted(marked)
    assert all(re.fullmatch(r"[\w-]+", part) for *pair, _ in written for part in pair)
    for page, name, script in written:  # by which a reader can measure it again
        text = (ROOT / "docs" / "measured" / f"{page}.md").read_text("utf-8")
        before = text.split(f"<!-- begin {name} -->")[0].split("-->")[-1]  # written by hand
        assert f"benchmarks/{script}" in text.split("<!--")[0] + before + marked[page, name]
