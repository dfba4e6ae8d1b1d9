"""Whether a file that is called a text table is one."""

from __future__ import annotations

import codecs

from contextual_lqr.errors import InputError

_LOOKED_AT = 1 << 16  # bytes
_FIRST = 64  # which of text are letters; far down, a logger that lost power may leave zeros
_OTHERS = {
    b"\x1f\x8b": "is compressed, by gzip: unpack it first",
    b"PK\x03\x04": "is an archive or an Excel file: unpack it, or call it .xlsx",
    b"PAR1": "is a Parquet file: call it .parquet",
}
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def utf16_without_mark(start: bytes) -> str:
    """The encoding of text that is UTF-16 but does not say so; "" of any other.

    Most of a table are letters, digits and separators, every other byte of which is zero then.
    """
    odd, even = start[1::2].count(0), start[0::2].count(0)
    half = len(start) / 2
    if odd > 0.8 * half and even < 0.1 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.8 * half and odd < 0.1 * half else ""


def require_text(path: str) -> None:
    """Refuse what is no text, or has no line ends that a table could be read by."""
    with open(path, "rb") as file:
        start = file.read(_LOOKED_AT)
    for mark, said in _OTHERS.items():
        if start.startswith(mark):
            raise InputError(f"{path} {said}")
    if start.startswith(_MARKS) or utf16_without_mark(start):
        return
    if b"\0" in start[:_FIRST]:
        raise InputError(f"{path} is not text: byte {start.index(0) + 1} of it is zero")
    if b"\r" in start and b"\n" not in start:
        raise InputError(
            f"{path} ends its lines with CR alone, as old Macs did: save it with the line ends of "
            "today, LF or CR LF"
        )
