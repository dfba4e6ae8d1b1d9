"""Logs in parts that can be read side by side: pieces of files, of about a million rows.

How logs are cut depends on the logs alone. An episode may go over a cut: the part after it looks
back, into the part before, for the row that is carried over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.sources import Source

ROWS = 1 << 20  # of a part; a multiple of 2¹⁸, the row group that Polars writes


@dataclass(frozen=True)
class Piece:
    """Some rows of one log, from `start` to `stop`, or to its end."""

    source: Source
    start: int = 0
    stop: int | None = None
    rows: int = 0  # how many, or about; 0 if that would take long to know
    size: float = 1.0  # in bytes or so


@dataclass(frozen=True)
class Part:
    """Pieces that are read one after the other; `earlier` are those of the part before."""

    number: int
    pieces: tuple[Piece, ...]
    earlier: tuple[Piece, ...] = ()
    alone: bool = False  # whether there is no other part

    @property
    def size(self) -> float:
        """In bytes or so."""
        return sum(piece.size for piece in self.pieces)


def whole(sources: Sequence[Source]) -> Part:
    """All logs as one part."""
    pieces = [Piece(s, rows=_row_count(s), size=s.size) for s in sources]
    return Part(0, tuple(pieces), alone=True)


def parts(sources: Sequence[Source], *, sort: bool) -> list[Part]:
    """Large Parquet files are cut, small files join; what is sorted or CSV stays whole."""
    groups: list[list[Piece]] = [[]]
    for source in sources:
        rows = _row_count(source)
        starts = [0]
        if source.kind == "parquet" and not sort:
            starts = list(range(0, rows - ROWS // 2, ROWS)) or [0]
        for start, stop in zip(starts, [*starts[1:], None], strict=True):
            count = (rows if stop is None else stop) - start
            share = source.size * count / max(rows, 1) if len(starts) > 1 else source.size
            if sum(piece.rows for piece in groups[-1]) >= ROWS // 2:
                groups.append([])
            end = rows if stop is None and rows and source.kind == "parquet" else stop
            groups[-1].append(Piece(source, start, end, count, share))
    pieces = [tuple(group) for group in groups]
    return [Part(i, now, then) for i, (now, then) in enumerate(zip(pieces, [(), *pieces]))]  # noqa: B905


def last_rows(
    pieces: Sequence[Piece], rows: int, description: FleetDescription
) -> tuple[Piece, ...]:
    """The last so many rows of the pieces."""
    chosen = []
    for piece in reversed(pieces):
        if rows <= 0:
            break
        stop = piece.stop
        if stop is None:
            stop = sum(map(len, piece.source.batches(description)))
        start = max(piece.start, stop - rows)
        chosen.append(replace(piece, start=start, stop=stop))
        rows -= stop - start
    return tuple(reversed(chosen))


def _row_count(source: Source) -> int:
    """How many rows a source has, or about how many; 0 if that would take long to know."""
    import polars as pl

    try:
        if source.kind == "parquet":
            return int(pl.scan_parquet(source.path).select(pl.len()).collect().item())
        if source.kind == "csv":
            with open(source.path, "rb") as file:
                head = file.read(1 << 16)
            return int(max(head.count(b"\n"), 1) * source.size / max(len(head), 1))
    except (pl.exceptions.PolarsError, OSError):
        return 0
    return 0
