"""How a text table is written: encoding, separator, decimal mark, the line of its headings.

What [table] does not say is detected:

    encoding     UTF-8 if every byte of the file fits it, UTF-16 by its mark or its zeros, otherwise
                 Windows-1252 (Latin-1 and more); a file that is UTF-8 in some lines only is refused
    separator    by which most of the first lines have the same number of fields
    headings     the first line with as many fields as the others
    decimal      a comma if numbers of the first lines have one, and fewer have a point
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from tempfile import TemporaryDirectory

from contextual_lqr.checks import require
from contextual_lqr.data.fleet_toml.layout import TableOptions
from contextual_lqr.data.tables.plain_text import require_text, utf16_without_mark
from contextual_lqr.errors import InputError

MISSING = ("NA", "N/A", "n/a", "#N/A", "#NV", "null", "NULL", "None", "-", "--", "?")
_SEPARATORS = (",", ";", "\t", "|")
_BLOCK = 1 << 20  # bytes read at once
_HEAD, _LINE, _LINES = 1 << 18, 1 << 26, 200  # bytes and lines that are looked at
_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
_POINT = re.compile(r"[+-]?(\d+\.\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)(e[+-]?\d+)?", re.IGNORECASE)
_WORDS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "blank", ".": "point"}
_ENCODINGS = {"cp1252": "Latin-1 (Windows-1252)", "iso8859-1": "Latin-1"}
_ENCODINGS |= dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be"), "UTF-16")


@dataclass(frozen=True)
class TableFormat:
    """How one text table is written, and what stands in its headings."""

    encoding: str  # as Python's codecs call it
    separator: str
    decimal: str
    header: int  # the line of the headings, counted from 1
    headings: tuple[str, ...]
    marks: tuple[str, ...]  # what stands for a missing value
    seen_marks: tuple[str, ...] = ()
    trailing: bool = False  # whether rows, but not the headings, end with a separator

    @property
    def words(self) -> str:
        """What is not as in a plain table; "" for that."""
        said = []
        if self.encoding not in ("utf-8", "utf-8-sig"):
            said.append(_ENCODINGS.get(self.encoding, self.encoding))
        if self.separator != ",":
            said.append(f"separated by {_WORDS.get(self.separator, repr(self.separator))}")
        if self.decimal != ".":
            said.append("decimal comma")
        if self.header != 1:
            said.append(f"headings in line {self.header}")
        if self.seen_marks:
            said.append(f"missing marked {', '.join(self.seen_marks)}")
        return ", ".join(said)

    @contextmanager
    def as_utf8(self, path: str) -> Iterator[str]:
        """The path of the same table in UTF-8: a copy, gone afterwards, if it is not."""
        if self.encoding in ("utf-8", "utf-8-sig"):
            yield path
            return
        with TemporaryDirectory(prefix="contextual-lqr-") as folder:
            copy = os.path.join(folder, "table.csv")
            with (
                open(path, encoding=self.encoding, newline="") as old,
                open(copy, "w", encoding="utf-8", newline="") as new,
            ):
                try:
                    while text := old.read(_BLOCK):
                        new.write(text)
                except UnicodeError:
                    what = f"{path} is not {self.encoding} throughout, as encoding says"
                    raise InputError(f"{what}; leave it out of [table] to detect it") from None
            yield copy


def format_of(path: str, options: TableOptions) -> TableFormat:
    """How a text file is written: as the options say, the rest detected."""
    about = os.stat(path)
    return _format_of(path, options, about.st_size, about.st_mtime_ns)


@lru_cache(256)
def _format_of(path: str, options: TableOptions, size: int, changed: int) -> TableFormat:
    require_text(path)
    encoding = _encoding(path) if options.encoding is None else options.encoding
    encoding = codecs.lookup(encoding).name
    above = (options.header or 1) - 1
    with open(path, "rb") as file:
        lines = b"".join(islice(file, above)) + file.read(_HEAD) + file.readline(_LINE)
    try:
        head = codecs.getincrementaldecoder(encoding)("replace").decode(lines)
    except UnicodeError:
        raise InputError(f"{path} is not {encoding}, as encoding in [table] says") from None
    head = head.removeprefix("\ufeff")
    separator = options.separator or _separator(head, above)
    rows = _rows(head, separator, above + _LINES)
    header = header_line(rows) if options.header is None else options.header
    require(
        header <= max(len(rows), 1) or not rows,
        f"{path} has only {len(rows)} lines, but headings in line {header}, says header in [table]",
    )
    body = [row for row in rows[header:] if any(row)]
    given = options.missing
    marks = ("", *(MISSING if given is None else given))
    seen = {field.strip() for row in body for field in row} & set(marks[1:])
    return TableFormat(
        encoding,
        separator,
        options.decimal or _decimal(body),
        header,
        tuple(one.strip() for one in rows[header - 1]) if len(rows) >= header else (),
        marks,
        tuple(sorted(seen)),
        len(rows) >= header and _trailing(rows, len(rows[header - 1])),
    )


def header_line(rows: Sequence[Sequence[str | None]]) -> int:
    """The first line with as many fields as most have, not all of them numbers; counted from 1.

    Or one less, if most end with a separator that the headings do not have.
    """
    widths = [sum(1 for field in row if field) for row in rows]
    if not rows:
        return 1
    usual = Counter(len(row) for row in rows if any(row)).most_common(1)
    most = usual[0][0] if usual else 1
    trailing = _trailing(rows, most - 1)
    for number, (row, width) in enumerate(zip(rows, widths, strict=True), 1):
        fits = len(row) == most or (len(row) == most - 1 and trailing)
        if fits and 2 * width > most and not all(_is_number(f) for f in row if f):
            return number
    return 1


def _trailing(rows: Sequence[Sequence[str | None]], width: int) -> bool:
    """Whether all rows that are wider have just one field more, and nothing in it."""
    wider = [row for row in rows if len(row) > width]
    return bool(wider) and all(len(row) == width + 1 and not row[-1] for row in wider)


def too_wide(path: str, separator: str, header: int, width: int) -> tuple[int, list[str]] | None:
    """The first line with more fields than there are headings, if any: its number and fields."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = csv.reader(file, delimiter=separator)
        for row in lines:
            if lines.line_num > header and len(row) > width:
                return lines.line_num, row
    return None


def _is_number(field: str | None) -> bool:
    return field is not None and _NUMBER.fullmatch(field.strip()) is not None


def _rows(text: str, separator: str, most: int) -> list[list[str]]:
    """The fields of the first lines, those of line n at n - 1."""
    rows: list[list[str]] = []
    try:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        for row in lines:
            rows.append(row)
            rows += [[]] * (lines.line_num - len(rows))  # a field in quotes may have line breaks
            if len(rows) >= most:
                break
    except csv.Error:  # a field of more than 128 KiB, or such: what is there must do
        pass
    return rows


def _separator(text: str, above: int) -> str:
    def agreeing(separator: str) -> tuple[int, int]:
        """How many lines have the same number of fields, more than one, and that number."""
        widths = Counter(len(row) for row in _rows(text, separator, above + _LINES)[above:])
        widths.pop(1, None)
        return max(((count, width) for width, count in widths.items() if width), default=(0, 0))

    # By a wrong mark, such as the decimal comma, headings and rows differ.
    return max(_SEPARATORS, key=agreeing)


def _decimal(rows: Sequence[Sequence[str]]) -> str:
    fields = [field.strip() for row in rows for field in row]
    commas = sum(_COMMA.fullmatch(field) is not None for field in fields)
    points = sum(_POINT.fullmatch(field) is not None for field in fields)
    return "," if commas > points else "."


def _encoding(path: str) -> str:
    """UTF-8 or UTF-16, or the encoding of Windows; refused if lines differ in it."""
    with open(path, "rb") as file:
        start = file.read(_BLOCK)
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        if without_mark := utf16_without_mark(start):
            return without_mark
        file.seek(0)
        utf8, other = 0, 0  # the first lines with letters in UTF-8, and with bytes that are none
        line, rest = 1, b""
        while block := file.read(_BLOCK):
            block, rest = rest + block, b""
            if cut := block.rfind(b"\n") + 1:
                block, rest = block[:cut], block[cut:]
            if not block.isascii():
                utf8, other = _foreign(block, line, utf8, other)
                if utf8 and other:
                    break
            line += block.count(b"\n")
        if rest and not rest.isascii():
            utf8, other = _foreign(rest, line, utf8, other)
    if utf8 and other:
        raise InputError(
            f"{path} is in two encodings: line {utf8} has letters in UTF-8, and line {other} "
            "bytes that are not; save it in one, or say encoding in [table]"
        )
    return "cp1252" if other and _fits(path, "cp1252") else "iso8859-1" if other else "utf-8"


def _foreign(block: bytes, line: int, utf8: int, other: int) -> tuple[int, int]:
    try:
        block.decode("utf-8")
        if utf8:
            return utf8, other
    except UnicodeDecodeError:
        pass
    for number, text in enumerate(block.split(b"\n"), line):
        if text.isascii():
            continue
        try:
            text.decode("utf-8")
            utf8 = utf8 or number
        except UnicodeDecodeError:
            other = other or number
        if utf8 and other:
            break
    return utf8, other


def _fits(path: str, encoding: str) -> bool:
    try:
        with open(path, encoding=encoding, newline="") as file:
            while file.read(_BLOCK):
                pass
    except UnicodeDecodeError:
        return False
    return True
