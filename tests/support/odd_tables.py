"""Tables as other programs write them: text of any kind, and Excel files without Excel."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import polars as pl

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def write_text(
    frame: pl.DataFrame,
    path: Path,
    *,
    headings: Mapping[str, str] | None = None,
    separator: str = ",",
    decimal: str = ".",
    encoding: str = "utf-8",
    preamble: Sequence[str] = (),
    missing: str = "",
) -> str:
    """The frame as text; columns are renamed, and missing values marked."""

    def cell(value: Any) -> str:
        if value is None:
            return missing
        return repr(value).replace(".", decimal) if isinstance(value, float) else str(value)

    names = [(headings or {}).get(name, name) for name in frame.columns]
    lines = [*preamble, separator.join(names)]
    lines += [separator.join(map(cell, row)) for row in frame.iter_rows()]
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return str(path)


def write_excel(path: Path, sheets: Mapping[str, Sequence[Sequence[Any]]]) -> str:
    """Rows of sheets, by their names: the least that is an .xlsx file."""
    numbered = list(enumerate(sheets.items(), 1))
    names = "".join(
        f'<sheet name="{escape(name)}" sheetId="{i}" r:id="rId{i}"/>' for i, (name, _) in numbered
    )
    links = "".join(
        f'<Relationship Id="rId{i}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i, _ in numbered
    )
    types = (
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
    )
    relationships = f'<Relationships xmlns="{_PACKAGE}/relationships">'
    main = f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
    files = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">{types}</Types>',
        "_rels/.rels": f"{relationships}{main}</Relationships>",
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}">'
        f"<sheets>{names}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f"{relationships}{links}</Relationships>",
    }
    for i, (_, rows) in numbered:
        body = "".join(f"<row>{''.join(map(_cell, row))}</row>" for row in rows)
        sheet = f'<worksheet xmlns="{_MAIN}"><sheetData>{body}</sheetData></worksheet>'
        files[f"xl/worksheets/sheet{i}.xml"] = sheet
    with zipfile.ZipFile(path, "w") as book:
        for name, content in files.items():
            book.writestr(name, f'<?xml version="1.0"?>{content}')
    return str(path)


def _cell(value: Any) -> str:
    if value is None:
        return "<c/>"
    if isinstance(value, int | float):
        return f"<c><v>{value!r}</v></c>"
    return f'<c t="inlineStr"><is><t>{escape(str(value))}</t></is></c>'
