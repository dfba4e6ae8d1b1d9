"""What the parts of logs teach, each stretch of an episode once, wherever the logs are cut.

A frame, a part or a file may end in the middle of a stretch. Its rows are held until all of it is
there, since only then can be told whether it was learnt before; at the edges of a part they are
held until the parts are merged. So what is learnt does not depend on where a log is cut, nor on
what stands before an episode in it. Of a stretch that has grown since it was learnt, the beginning
is known, and the rest is learnt; an old copy, which ends earlier, is known as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from jaxtyping import Bool, Int64, UInt64
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.evidence.digests import LIMIT, Digests
from contextual_lqr.belief.machines.key_table import KeyTable
from contextual_lqr.checks import require
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.histories.lagged import joined, teach_histories
from contextual_lqr.data.screening import PLACES, BadRows, LogReport
from contextual_lqr.data.sources import Part
from contextual_lqr.data.tables.copies import LENGTH, SeenRows, copied_runs
from contextual_lqr.data.transitions import LogReader, Transitions

_MET = 1 << 19  # stretches of a part, the first rows of which are all remembered
_NEGLIGIBLE = 0.01  # of the episodes, that may count twice
Held = list[Transitions]  # of one stretch, in order


@dataclass
class Learnt:
    """What successive parts of the logs teach, in a size that does not depend on their rows.

    `head` is of a stretch that began before them. `tail` may go on after them; if nothing else
    began, `through`, that is the head.
    """

    parts: tuple[Part, ...]
    decoder: Decoder
    episodes: Counter[str]  # of each machine, by its label, if they are to be counted
    report: LogReport
    head: Held = field(default_factory=list)
    tail: Held = field(default_factory=list)
    through: bool = False
    begun: Digests = field(default_factory=Digests)  # with which rows its stretches begin
    met: KeyTable | None = None  # the same of one part, all of them, while it is read
    seen: SeenRows = field(default_factory=SeenRows)  # among which copies are looked for
    unnoticed: float = 0.0  # how many repeats were learnt again, by what is expected


@dataclass(frozen=True)
class Learning:
    """How logs are learnt from, as `fit` is told; `known` was learnt before them."""

    description: FleetDescription
    strict: bool = False
    sort: bool = False
    only: str | None = None
    allow_repeats: bool = False
    keep_bad: bool = False
    known: Digests = field(default_factory=Digests)
    seen: SeenRows = field(default_factory=SeenRows)
    count: bool = False  # whether the episodes of each machine are counted

    @property
    def reaches_back(self) -> bool:
        """Whether states are histories."""
        return any(lag for _, lag in self.description.lags)

    def part(
        self,
        part: Part,
        told: Callable[[int, float], None] | None = None,
        look: Callable[[Transitions], None] | None = None,
    ) -> tuple[Learnt, list[BadRows]]:
        """Read a part of the logs and reduce it; whoever looks is shown all transitions."""
        reader = LogReader(
            self.description, part, strict=self.strict, sort=self.sort, keep_bad=self.keep_bad
        )
        learnt = replace(self._nothing((part,)), report=reader.report, met=KeyTable())
        held, number = Held(), 0  # the stretch that may go on, and its number
        for batch in reader.transitions(told and partial(told, part.number)):
            if self.only is not None:
                batch = batch.of_machine(self.only)
            if not len(batch):
                continue
            if look is not None:
                look(batch)
            numbers = batch.stretch
            begun = int(np.searchsorted(numbers, number, "right"))
            if begun:
                held.append(batch[:begun].compact())
            if begun < len(batch):
                last = int(np.searchsorted(numbers, numbers[-1]))
                self._close(learnt, held, number)
                self._learn(learnt, batch[begun:last])
                held, number = [batch[last:].compact()], int(numbers[-1])
        if number < reader.stretch:
            self._close(learnt, held, number)
            held = []
        _settle(learnt)
        learnt.through = reader.stretch == 0
        if learnt.through:
            learnt.head = held
        else:
            learnt.tail = held
        return learnt, reader.bad or []

    def merge(self, several: Iterable[Learnt]) -> Learnt:
        """What successive parts teach together; those that repeat others are read again."""
        several = iter(several)
        total = self._copy(next(several))
        for one in several:
            both = total.decoder.evidence.overlap(one.decoder.evidence)
            both = both or total.begun.overlap(one.begun) or total.seen.overlaps(one.seen)
            if both and not self.allow_repeats:
                one = self._again(one.parts, total)
            total.begun.merge(one.begun)
            total.seen.merge(one.seen)
            total.parts += one.parts
            total.unnoticed += one.unnoticed
            total.decoder.merge(one.decoder, allow_repeats=True)  # which it would be, by now
            total.episodes.update(one.episodes)
            total.report.merge(one.report)
            if total.through:
                total.head = total.head + one.head
            elif one.through:
                total.tail = total.tail + one.head
            else:
                self._learn_whole(total, total.tail + one.head)
            if not one.through:
                total.tail, total.through = one.tail, False
            del one  # the next may be read only now
        return total

    def finish(self, learnt: Learnt) -> None:
        """Learn what is held: nothing comes after it. Refuse what counts twice."""
        for held in (learnt.head, learnt.tail):
            self._learn_whole(learnt, held)
        learnt.head, learnt.tail = [], []
        require(
            learnt.unnoticed <= _NEGLIGIBLE * learnt.decoder.episodes,
            f"about {learnt.decoder.repeats + learnt.unnoticed:,.0f} episodes of these logs were "
            f"learnt before, but which cannot be told: of more than {LIMIT:,} not all are "
            "remembered. Give only what is new or, if it is meant, allow repeats",
        )

    def _nothing(self, parts: tuple[Part, ...]) -> Learnt:
        return Learnt(parts, self.description.new_decoder(), Counter(), LogReport())

    def _copy(self, learnt: Learnt) -> Learnt:
        report = LogReport()
        report.merge(learnt.report)
        episodes = Counter(learnt.episodes)
        decoder, begun = learnt.decoder.copy(), learnt.begun.copy()
        learnt = replace(learnt, decoder=decoder, episodes=episodes, report=report, begun=begun)
        return replace(learnt, seen=learnt.seen.copy())

    def _again(self, parts: Sequence[Part], others: Learnt) -> Learnt:
        """What parts teach beside what others do."""
        known, seen = self.known.copy(), self.seen.copy()
        known.merge(others.decoder.evidence)
        seen.merge(others.seen)
        beside = replace(self, known=known, seen=seen, keep_bad=False)
        return beside.merge(beside.part(part)[0] for part in parts)

    def _close(self, learnt: Learnt, held: Held, number: int) -> None:
        if number:
            self._learn_whole(learnt, held)
        else:
            learnt.head = held

    def _learn(self, learnt: Learnt, batch: Transitions) -> None:
        """Learn transitions that make up whole stretches, of each what is new."""
        if not len(batch):
            return
        starts = np.append(0, np.flatnonzero(batch.stretch[1:] != batch.stretch[:-1]) + 1)
        digests, known = self._known(learnt, batch.hashes(), starts)
        learnt.report.repeated += int(np.count_nonzero(known))
        known |= self._copies(learnt, [batch], known)
        self._teach(learnt, batch, digests, known)

    def _learn_whole(self, learnt: Learnt, held: Held) -> None:
        """Learn what is new of one stretch."""
        if not held:
            return
        hashes = np.concatenate([batch.hashes() for batch in held])
        digests, known = self._known(learnt, hashes, np.zeros(1, np.int64))
        learnt.report.repeated += int(np.count_nonzero(known))
        known |= self._copies(learnt, held, known)
        self._teach(learnt, joined(held), digests, known)

    def _copies(self, learnt: Learnt, held: Held, known: Bool[Array, " n"]) -> Bool[Array, " n"]:
        """Which of the new transitions, successive ones, are in runs that were there before."""
        copied, report, new = np.zeros(len(known), bool), learnt.report, np.flatnonzero(~known)
        if self.allow_repeats or len(new) < LENGTH:
            return copied
        stretch = np.concatenate([batch.stretch for batch in held])[new]
        begins = np.concatenate([batch.begins for batch in held])[new]
        begins[1:] |= (np.diff(new) > 1) | (np.diff(stretch) != 0)
        hashes = np.concatenate([batch.contents() for batch in held if len(batch)])[new]
        runs, others = copied_runs(hashes, begins, (self.seen, learnt.seen))
        learnt.seen.add(others)
        edges = np.cumsum([0, *map(len, held)])
        for a, b in runs:
            copied[new[a:b]] = True
            report.copied += b - a
            if len(report.first_copies) < PLACES:
                of = int(np.searchsorted(edges, new[a], "right")) - 1
                place = held[of].place(int(new[a] - edges[of]))
                report.first_copies.append(f"{place}: {b - a} transitions")
        return copied

    def _known(
        self, learnt: Learnt, hashes: UInt64[Array, " n"], starts: Int64[Array, " stretches"]
    ) -> tuple[UInt64[Array, " new"], Bool[Array, " n"]]:
        """The digests of stretches that are not all known, and which rows of all of them are."""
        lengths = np.diff(starts, append=len(hashes))
        beginnings, ends = kernels.digests(hashes, starts), starts + lengths - 1
        digests, seen = beginnings[ends], np.zeros(len(hashes), bool)
        # What these logs have taught can be known only if a stretch begins as another did.
        begun = _begun(learnt, beginnings[starts])
        looked_up = (self.known, learnt.decoder.evidence) if begun else (self.known,)
        for before in filter(len, looked_up if not self.allow_repeats else ()):
            found = before.among(beginnings)
            old = before.begun(digests) & ~found[ends]  # copies that end earlier
            # A share of all that were seen are remembered: so many more are repeats, too.
            repeats = np.count_nonzero(np.logical_or.reduceat(found, starts))
            learnt.unnoticed += repeats * (1 / before.coverage - 1)
            learnt.unnoticed += np.count_nonzero(old) * (1 / before.old_copies_coverage - 1)
            found[ends] |= old
            seen |= found
        learnt.decoder.evidence.add_beginnings(beginnings, ends)
        if self.allow_repeats:
            return digests, seen
        if begun:
            seen |= _elsewhere(digests, beginnings, np.repeat(np.arange(len(starts)), lengths))
        if not seen.any():
            return digests, seen
        # All rows to the last beginning that was seen: the number of these that are to come.
        left = np.add.reduceat(seen, starts, dtype=np.int64)
        passed = np.cumsum(seen) - seen
        passed -= np.repeat(passed[starts], lengths)
        learnt.decoder.repeats += int(np.count_nonzero(left))
        known = passed < np.repeat(left, lengths)
        return digests[~known[ends]], known

    def _teach(
        self,
        learnt: Learnt,
        batch: Transitions,
        digests: UInt64[Array, " n"],
        known: Bool[Array, " rows"],
    ) -> None:
        """Learn what is not known; histories may reach back to what is."""
        new = batch[~known] if known.any() else batch
        if not len(new):
            learnt.decoder.evidence.add(digests)  # of copies, which are known from now on
            return
        if self.count:
            learnt.episodes.update(new.starting)
        if self.reaches_back:
            learnt.report.short += teach_histories(batch, ~known, learnt.decoder, digests)
        else:
            new.teach(learnt.decoder, digests)


def _begun(learnt: Learnt, firsts: UInt64[Array, " stretches"]) -> bool:
    """Whether a stretch may begin as another of these logs did; all are remembered."""
    if learnt.met is not None and len(learnt.met) + len(firsts) > _MET:
        _settle(learnt)
    if learnt.met is None:
        again = bool(learnt.begun.known(firsts).any()) or learnt.begun.coverage < 1
        learnt.begun.add(firsts)
        return again
    first = len(learnt.met)
    learnt.met.append(firsts)
    return not np.array_equal(learnt.met.find(firsts), np.arange(first, len(learnt.met)))


def _settle(learnt: Learnt) -> None:
    """Remember of a part what is remembered of many."""
    if learnt.met is not None:
        learnt.begun.add(learnt.met.keys)
        learnt.met = None


def _elsewhere(
    digests: UInt64[Array, " stretches"],
    beginnings: UInt64[Array, " n"],
    stretch: Int64[Array, " n"],
) -> Bool[Array, " n"]:
    """Which beginnings are all of another stretch in the list, of equal ones of the first."""
    together = Digests()
    together.add(digests)
    found = together.among(beginnings)
    each, first = np.unique(digests, return_index=True)
    found[found] = first[np.searchsorted(each, beginnings[found])] != stretch[found]
    return found
