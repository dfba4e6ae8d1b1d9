"""What a study answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from contextual_lqr.planning.plan import Plan


@dataclass(frozen=True, eq=False, repr=False)
class Asked(Plan):
    """A plan that a study gave, known by its `key`."""

    key: str = ""


class Told(NamedTuple):
    """Where an episode stands in the log, and whether it is `new` or had been told before."""

    number: int
    new: bool


@dataclass(frozen=True)
class StudyStatus:
    """How a study stands.

    `waiting` are asks that are not told yet, `late` those of them whose lease has run out, with
    their machines; `machines` says how many episodes each machine has told.
    """

    store: str
    episodes: int
    rows: int
    repeats: int
    waiting: int
    late: int
    machines: Mapping[str, int]
    late_machines: tuple[str, ...]
