"""Text tables that are not quite as they should be."""

import gzip
import re
from pathlib import Path

import pytest

from contextual_lqr import InputError
from contextual_lqr.data import FleetDescription, check_logs
from contextual_lqr.data.screening import LogReport
from fleet_logs import CARTS, cart_rows

ROWS = cart_rows([1.0, 2.0, 3.0], steps=20, episodes=1)
LINES = ROWS.write_csv(separator=";").splitlines()


def report(path: Path, lines: list[str], more: str = "", *, encoding: str = "utf-8") -> LogReport:
    """That of a table of these lines."""
    path.write_bytes("\n".join([*lines, ""]).encode(encoding))
    return check_logs(FleetDescription.parse(CARTS + more), path)


@pytest.mark.parametrize(
    "above", [["", ""], ["", "bench 7", ""], ['"bench\n7";', ""]], ids=["blank", "title", "quotes"]
)
def test_blank_lines_above_the_headings_count_as_lines(tmp_path: Path, above: list[str]) -> None:
    found = report(tmp_path / "log.csv", [*above, *LINES])
    assert (found.rows, found.transitions, found.bad_rows) == (60, 57, 0)
    line = len("\n".join(above).split("\n")) + 1
    assert f"headings in line {line}" in "; ".join(found.tables.formats)


def test_headings_may_be_as_far_down_as_header_says(tmp_path: Path) -> None:
    above = [f"note {i}; all is well" for i in range(700)]
    found = report(tmp_path / "log.csv", [*above, *LINES], "[table]\nheader = 701\n")
    assert (found.rows, found.transitions) == (60, 57)
    with pytest.raises(InputError, match=r"has only 61 lines, but headings in line 701"):
        report(tmp_path / "short.csv", LINES, "[table]\nheader = 701\n")


def test_blank_lines_between_rows_are_left_out(tmp_path: Path) -> None:
    spaced = [line + "\n" * (i % 7 == 3) for i, line in enumerate(LINES)]
    found = report(tmp_path / "log.csv", [*spaced, ";" * LINES[0].count(";")])
    assert (found.rows, found.transitions, found.bad_rows) == (60, 57, 0)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_needs_no_mark(tmp_path: Path, encoding: str) -> None:
    found = report(tmp_path / "log.csv", LINES, encoding=encoding)
    assert (found.rows, found.transitions) == (60, 57)
    assert "UTF-16" in "; ".join(found.tables.formats)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress("\n".join(LINES).encode()), "is compressed, by gzip: unpack it first"),
        ("\r".join(LINES).encode(), "ends its lines with CR alone"),
        (bytes(range(256)) * 50, "is not text: byte 1 of it is zero"),
        (b"PAR1" + bytes(100), "call it .parquet"),
    ],
    ids=["gzip", "CR", "binary", "Parquet"],
)
def test_what_is_no_text_is_refused_as_such(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "log.csv").write_bytes(content)
    with pytest.raises(InputError, match=re.escape(said)):
        check_logs(FleetDescription.parse(CARTS), tmp_path / "log.csv")


def test_rows_may_end_with_a_separator_that_the_headings_have_not(tmp_path: Path) -> None:
    found = report(tmp_path / "log.csv", ["bench 7", LINES[0], *(f"{line};" for line in LINES[1:])])
    assert (found.rows, found.transitions, found.bad_rows) == (60, 57, 0)


@pytest.mark.parametrize("at", [30, 250])
def test_a_line_with_more_fields_than_headings_is_located(tmp_path: Path, at: int) -> None:
    lines = LINES + LINES[1:] * 4
    lines.insert(at, "# restart" + "; operator" * 9)
    said = f"line {at + 1}: 10 fields, but there are 7 headings; it begins with '# restart'"
    with pytest.raises(InputError, match=said):
        report(tmp_path / "log.csv", lines)
