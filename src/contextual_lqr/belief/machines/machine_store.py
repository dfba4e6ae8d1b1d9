"""What each machine has shown, kept apart: one triangular factor a machine, whatever its rows.

A step is a row of many columns (`lagged_steps.py`), among them y = [x; u], or features of these,
and the next state x'. The factor of a machine's rows holds all that least squares needs: [y, x'] is
the regression of its own [A, B]; the others are for `certificates/model_tests/`. These pool
machines, and a thousand of them are enough: of machines that come later, [y, x'] alone is kept
(`own_factors.py`). Factors are packed side by side, so that many are updated and read at once.

A machine is a label with a context. Without a label, every episode is another machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt64
from numpy import ndarray as Array

from contextual_lqr.belief.evidence.episodes import Group, Names, RowLabels
from contextual_lqr.belief.evidence.step_table import (
    EpisodeRows,
    Runs,
    StepTable,
    machine_hashes,
)
from contextual_lqr.belief.factors import packed_size, take_rows, unpacked
from contextual_lqr.belief.machines.key_table import KeyTable
from contextual_lqr.belief.machines.lagged_steps import Columns, take_steps
from contextual_lqr.belief.machines.machine_rows import MachineFactors
from contextual_lqr.belief.machines.own_factors import OwnFactors
from contextual_lqr.belief.machines.packed_triangles import PackedTriangles
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap

TESTED = 1000  # machines of which all columns are kept
_SAME = 1e-9  # relative: a context that was written down and read again
_TOGETHER = 1024  # machines, or episodes, whose rows are laid out at once


class Machine(NamedTuple):
    """How many rows a machine has shown, and what its context comes to."""

    rows: int
    context: Array


class MachineStore:
    """Machines by label and context. A copy shares the arrays until one of the two changes."""

    def __init__(self, columns: Columns, tests: bool = True) -> None:
        self.states, self.width, self.columns = columns.states, columns.y, columns
        self.tests = tests  # whether there are tests to keep more columns for
        self.size = columns.size
        self._labels: list[str | None] = []
        self._keys = KeyTable()  # hashes of label and context; only listed without a label
        self._own = OwnFactors(self.states, self.width)
        # One a machine, with room for more.
        self._rows, self._contexts = np.zeros(0, np.int64), np.zeros(0)
        # Of all columns: by slots, and which slot, from 1 on, a machine has.
        self._tested = PackedTriangles(packed_size(self.size))
        self._slots = np.zeros(0, np.int32)
        self._shared = False
        self._labelled: dict[str, list[int]] = {}
        self._indexed = 0  # how many machines `_labelled` knows

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def unlabelled(self) -> int:
        """How many have no label."""
        return self._keys.only_listed

    def copy(self) -> MachineStore:
        """An independent store of the same machines."""
        twin = object.__new__(MachineStore)
        twin.__dict__.update(self.__dict__)
        twin._own, twin._tested = self._own.copy(), self._tested.copy()
        self._shared = twin._shared = True
        return twin

    def some(self, places: Sequence[int]) -> MachineStore:
        """The machines at these places."""
        twin, at = MachineStore(self.columns, self.tests), np.asarray(places, np.int64)
        twin._own.require(self._own.copied)
        twin._place([self._labels[i] for i in places], self._contexts[at])
        twin._own.triangles.put(np.arange(len(at)), self._own.triangles.take(at))
        twin._rows[: len(at)] = self._rows[at]
        tested = np.flatnonzero(self._slots[at])
        twin._put_tested(tested, self._tested.take(self._slots[at[tested]] - 1))
        return twin

    @property
    def labels(self) -> list[str]:
        """What the machines are called, in their order; "" for one without a label."""
        return [label or "" for label in self._labels]

    def _place(
        self,
        labels: Sequence[str | None] | RowLabels,
        contexts: Array,
        keys: UInt64[Array, " k"] | None = None,
        *,
        grow: bool = True,
    ) -> Int64[Array, " k"]:
        """Where machines stand; new ones at the end, of no rows. What follows may write there."""
        if not isinstance(labels, RowLabels):
            labels = RowLabels(np.arange(len(labels)), Names(labels))
        if self._shared:
            for name in ("labels", "rows", "contexts", "keys", "slots"):
                setattr(self, f"_{name}", getattr(self, f"_{name}").copy())
            self._shared, self._labelled, self._indexed = False, {}, 0
        if keys is None:
            keys = machine_hashes(labels.hashes, contexts)
        found, first = self._keys.find(keys), len(self)
        if (unnamed := labels.unnamed) is not None:  # each is another
            found[unnamed] = -1
        new = np.flatnonzero(found < 0)
        listed = np.zeros(len(new), bool) if unnamed is None else unnamed[new]
        alike = own = np.arange(len(new))
        if not listed.all():  # the first of each machine
            (same := KeyTable()).append(keys[new], listed)
            alike = np.where(listed, own, same.find(keys[new]))
        own = alike == own
        found[new] = first + (np.cumsum(own) - 1)[alike]
        new, listed = new[own], listed[own]
        self._labels += [labels.names[code] for code in labels.codes[new].tolist()]
        if len(self) > len(self._rows):
            room = max(len(self), len(self._rows) * 3 // 2)
            for name in ("rows", "slots"):
                setattr(self, f"_{name}", _with_room(getattr(self, f"_{name}"), room))
            before = self._contexts if first else contexts[:0]
            self._contexts = _with_room(before, room)
        if len(new):
            self._contexts[first : len(self)] = contexts[new]
            self._keys.append(keys[new], listed)
        if grow:
            self._own.triangles.grow(len(new))
        return found

    def seen(self, runs: Runs) -> Bool[Array, " runs"]:
        """Which runs are of machines that are here, with the same context."""
        found = self._keys.find(runs.machines) >= 0
        unnamed = runs.labels.unnamed
        return found if unnamed is None else found & ~unnamed

    def add_table(self, table: StepTable, limit: float) -> None:
        """Take in the rows of a table but those beyond the limit."""
        runs = table.runs
        at = self._place(runs.labels, runs.keys, runs.machines)
        self._take(at, table, runs.starts, runs.lengths, limit)

    def add_episodes(
        self,
        keys: Array,
        groups: Sequence[Group],
        labels: Sequence[str | None],
        limit: float,
    ) -> None:
        """Take in episodes, each with what is kept of its context, and its label."""
        for members, states, y in groups:
            for i in range(0, len(members), _TOGETHER):
                some = members[i : i + _TOGETHER]
                at = self._place([labels[k] for k in some], keys[some])
                own, after = y[i : i + _TOGETHER], states[i : i + _TOGETHER, 1:]
                starts = np.arange(0, own.shape[0] * own.shape[1], own.shape[1])
                lengths = np.full(len(some), own.shape[1])
                self._take(at, EpisodeRows(own, after), starts, lengths, limit)

    def _take(
        self,
        at: Int64[Array, " runs"],
        table: StepTable | EpisodeRows,
        starts: Int64[Array, " runs"],
        lengths: Int64[Array, " runs"],
        limit: float,
    ) -> None:
        """Take in runs of rows, each of the machine that stands `at` a place."""
        rows, last = table.rows, at[1:] > at[:-1]
        self._own.require(table.copied)
        if not last.all():  # those of one machine side by side, in the order in which they came
            order = np.argsort(at, kind="stable")
            at, starts, lengths = at[order], starts[order], lengths[order]
            rows = rows[_ranges(starts, lengths)]
            last = np.append(at[1:] > at[:-1], True)
            at, lengths = at[last], np.diff(lengths.cumsum()[last], prepend=0)
        ends, fresh = lengths.cumsum(), self._rows[at] == 0
        columns = self._own.kept(table.columns)
        for some in self._own.triangles.written(at, ends):
            taken = take_rows(some.block, columns, rows[some.rows], some.ends, limit, some.at)
            self._rows[at[some.which]] += taken
        room = max((TESTED if self.tests else 0) - np.count_nonzero(self._slots), 0)
        self._grow_tested(at[fresh & (self._slots[at] == 0)][:room])
        tested = np.flatnonzero(self._slots[at])
        if len(tested):
            tested = tested[np.argsort(self._slots[at[tested]], kind="stable")]
            lengths = lengths[tested]
            rows = rows[_ranges(ends[tested] - lengths, lengths)]
            steps = table.moves, table.next_states, table.steps
            for some in self._tested.written(self._slots[at[tested]] - 1, lengths.cumsum()):
                where, acting = rows[some.rows], self.columns.acting
                take_steps(some.block, *steps, where, some.ends, limit, some.at, acting)

    def _grow_tested(self, at: Int64[Array, " k"]) -> None:
        self._slots[at] = len(self._tested) + 1 + np.arange(len(at))
        self._tested.grow(len(at))

    def _put_tested(self, at: Int64[Array, " k"], packed: Float[Array, "k numbers"]) -> None:
        self._grow_tested(at[self._slots[at] == 0])
        self._tested.put(self._slots[at] - 1, packed)

    def merge(self, other: MachineStore) -> None:
        """Take in all machines of another store."""
        first, n, own = len(self), len(other), other._own
        self._own.require(own.copied)
        if own.copied not in (None, self._own.copied):
            own = own.copy()
            own.require(self._own.copied)
        at = self._place(other._labels, other._contexts[:n], other._keys.keys, grow=False)
        self._rows[at] += other._rows[:n]
        both = np.flatnonzero(at < first)
        if not len(both):
            self._own.triangles.extend(own.triangles)
        else:
            self._merge_factors(first, at, own)
        slots = other._slots[:n] * (other.columns == self.columns)
        met, theirs = both[self._slots[at[both]] > 0], slots > 0
        self._slots[at[met[~theirs[met]]]] = 0  # the other has not kept all columns of these
        if len(some := met[theirs[met]]):
            mine = self._slots[at[some]] - 1
            order = np.argsort(mine)
            packed = other._tested.take(slots[some[order]] - 1)
            self._tested.merge(mine[order], packed, self.size)
        room = max(TESTED - np.count_nonzero(self._slots), 0)
        new = np.flatnonzero(theirs & (at >= first))[:room]
        self._put_tested(at[new], other._tested.take(slots[new] - 1))

    def _merge_factors(self, first: int, at: Int64[Array, " n"], others: OwnFactors) -> None:
        """Take in the factors of machines that stand `at` places, those before `first` twice."""
        own = self._own.triangles
        own.grow(len(self) - first)
        order = np.argsort(at, kind="stable")
        for some in np.array_split(order, max(1, len(at) // _TOGETHER)):
            packed, old = others.triangles.take(some), at[some] < first
            own.merge(at[some][old], packed[old], self._own.size)
            own.put(at[some][~old], packed[~old])

    def of_label(self, label: str) -> list[tuple[int, Machine]]:
        """The machines of this label, one for each of its contexts, and their places among all."""
        for place in range(self._indexed, len(self)):
            self._labelled.setdefault(self._labels[place] or "", []).append(place)
        self._indexed = len(self)
        places = self._labelled.get(label, ()) if label else ()
        return [(i, Machine(int(self._rows[i]), self._contexts[i].copy())) for i in places]

    def place(self, label: str, context: Array) -> int | None:
        """Where a machine stands among all, if it is here; its context may differ by rounding."""
        found = self.of_label(label)
        for tolerance in (0.0, _SAME):
            for place, one in found:
                if np.allclose(one.context, context, rtol=tolerance, atol=0):
                    return place
        return None

    @property
    def rows(self) -> int:
        """How many rows all machines have shown."""
        return int(self._rows[: len(self)].sum())

    @property
    def contexts(self) -> Array:
        """What is kept of each machine's context."""
        return self._contexts[: len(self)]

    @property
    def counts(self) -> Int64[Array, " n"]:
        """How many rows each machine has shown."""
        return self._rows[: len(self)].copy()

    def tested(
        self, context_map: ContextMap
    ) -> tuple[Float[Array, "n k k"], Int64[Array, " n"], Float[Array, "n p y"], Columns]:
        """The factors of all columns of the machines that have them; rows; matrices; which."""
        at = np.flatnonzero(self._slots[: len(self)])
        packed = self._tested.take(self._slots[at] - 1)
        matrices = context_map.expanded(self._contexts[at])
        return unpacked(packed, self.size), self._rows[at], matrices, self.columns

    def own_factors(self, some: slice = slice(None)) -> Float[Array, "n s s"]:
        """The factors of [y, x'], one a machine."""
        return self._own.whole(np.arange(*some.indices(len(self))))

    def pooled(self, context_map: ContextMap) -> Float[Array, "k k"]:
        """The factor of the rows [z x'] of all machines, z = G y."""
        shape, y = context_map.shape, self.width
        assert shape is not None  # there are machines
        k = shape[0] + self.states
        found = np.zeros((1, packed_size(k)))
        for i in range(0, len(self), _TOGETHER):
            some = slice(i, i + _TOGETHER)
            T, G = self.own_factors(some), context_map.expanded(self._contexts[: len(self)][some])
            rows = np.concatenate((T[..., :y] @ G.swapaxes(1, 2), T[..., y:]), -1).reshape(-1, k)
            take_rows(
                found,
                list(np.ascontiguousarray(rows.T)),
                np.arange(len(rows)),
                np.array([len(rows)]),
                np.inf,
            )
        return np.asarray(unpacked(found, k)[0])

    def matrices(self, context_map: ContextMap) -> Float[Array, "n p y"]:
        """The context matrices, one a machine."""
        if not len(self):
            return context_map.matrices([])
        return context_map.expanded(self._contexts[: len(self)])

    def regressions(self, context_map: ContextMap) -> MachineFactors:
        """The regression of every machine's own [A, B]: the factors of [y, x'] alone."""
        n, y, d = len(self), self.width, self.states
        R, F, rss = np.empty((n, y, y)), np.empty((n, y, d)), np.empty((n, d))
        for i in range(0, n, _TOGETHER):  # all triangles at once would take twice the memory
            some = slice(i, i + _TOGETHER)
            T = self.own_factors(some)
            R[some], F[some] = T[:, :y, :y], T[:, :y, y:]
            rss[some] = np.square(T[:, y:, y:]).sum(1)
        return MachineFactors(self.matrices(context_map), R, F, rss, self.counts.astype(float))

    def arrays(self) -> dict[str, Array]:
        """All that there is to save."""
        n, at = len(self), np.flatnonzero(self._slots[: len(self)])
        given = self._own.copied
        copied = {} if given is None else {"machine_copied": np.array(given, np.int64)}
        return copied | {
            "machine_held": np.array(self.columns.held, np.int64),
            "machine_factors": self._tested.take(self._slots[at] - 1),
            "machine_own_factors": self._own.triangles.array(),
            "machine_tested": self._slots[:n] > 0,
            "machine_rows": self.counts,
            "machine_contexts": self._contexts[:n].copy(),
            "machine_names": np.frombuffer(json.dumps(self._labels).encode(), np.uint8),
        }

    @classmethod
    def from_arrays(
        cls, states: int, width: int, arrays: dict[str, Array], tests: bool = True
    ) -> MachineStore:
        """What `arrays` gave."""
        held = arrays["machine_held"]
        require(
            held.shape == (width,) and (held >= -1).all() and (held < width).all(),
            "its states that hold inputs do not fit",
        )
        store = cls(Columns(states, tuple(held.tolist())), tests)
        factors, own, tested, rows, contexts, names = (
            arrays[f"machine_{name}"]
            for name in ("factors", "own_factors", "tested", "rows", "contexts", "names")
        )
        labels = [None if label is None else str(label) for label in json.loads(names.tobytes())]
        n, copied = len(labels), arrays.get("machine_copied", np.full(states, -1))
        require(
            copied.shape == (states,) and (copied >= -1).all() and (copied < width).all(),
            "its states that are copies of others do not fit",
        )
        store._own.require(tuple(copied.tolist()))
        require(
            len(tested) == len(rows) == len(contexts) == n
            and own.shape == (n, store._own.triangles.numbers)
            and len(factors) == np.count_nonzero(tested)
            and (not len(factors) or factors.shape[1] == packed_size(store.size))
            and np.isfinite(factors).all()
            and np.isfinite(own).all()
            and (rows >= 0).all(),
            "its machines do not fit together",
        )
        store._place(labels, contexts)
        require(len(store) == n, "two of its machines have one label and one context")
        store._own.triangles.put(np.arange(n), own)
        store._rows[:n] = rows
        store._put_tested(np.flatnonzero(tested), factors.reshape(-1, store._tested.numbers))
        return store


def _ranges(starts: Int64[Array, " n"], lengths: Int64[Array, " n"]) -> Int64[Array, " all"]:
    """start, start + 1, …: as many as the length says, of one after the other."""
    first = starts - lengths.cumsum() + lengths
    return np.asarray(np.arange(lengths.sum()) + np.repeat(first, lengths))


def _with_room(array: Array, room: int) -> Array:
    """The same with zeros below, up to so many."""
    wider = np.zeros((room, *array.shape[1:]), array.dtype)
    wider[: len(array)] = array
    return wider
