"""What each machine has shown, kept apart: one triangular factor a machine, whatever its rows.

A step is a row [y, y⁻, sign y, x'] with y = [x; u], y⁻ the step before (zero at the start of an
episode) and x' the next state. The factor of a machine's rows holds all that least squares needs:
[y, x'] is the regression of its own [A, B]; y⁻ and the signs are for tests of the model
(`certificates/misspecification.py`). These pool machines, and a thousand of them are enough: of
machines that come later, [y, x'] alone is kept.

A machine is a label with a context. Without a label, every episode is another machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief.episodes import RowLabels
from contextual_lqr.belief.factors import triangle
from contextual_lqr.belief.machine_factors import MachineFactors
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap

Key = tuple[str, bytes] | int

TESTED = 1000  # machines of which all columns are kept
_SAME = 1e-9  # relative: a context that was written down and read again


class Machine(NamedTuple):
    """The factor of a machine's rows, packed; how many they are; and what its context comes to.

    Of all columns, or of [y, x'] alone.
    """

    packed: Float[Array, " numbers"]
    rows: int
    context: Array


class MachineStore:
    """Machines by label and context; records are replaced, never written into."""

    def __init__(self, states: int, inputs: int) -> None:
        self.states, self.inputs = states, inputs
        y = states + inputs
        self.size = 3 * y + states  # columns of [y, y⁻, sign y, x']
        self._own = [*range(y), *range(3 * y, self.size)]  # of [y, x']
        self._machines: dict[Key, Machine] = {}
        self._upper, self._upper_own = np.triu_indices(self.size), np.triu_indices(y + states)
        self._unnamed = 0
        self._tested = 0  # machines of which all columns are kept
        self._places: dict[str, list[tuple[int, Key]]] = {}
        self._indexed = 0  # how many machines `_places` knows

    def __len__(self) -> int:
        return len(self._machines)

    def copy(self) -> MachineStore:
        """An independent store of the same machines."""
        twin = object.__new__(MachineStore)
        twin.__dict__.update(self.__dict__)
        twin._machines = dict(self._machines)
        twin._places, twin._indexed = {}, 0
        return twin

    def some(self, places: Sequence[int]) -> MachineStore:
        """The machines at these places."""
        twin, keys = self.copy(), list(self._machines)
        twin._machines = {keys[i]: self._machines[keys[i]] for i in places}
        twin._tested = sum(map(self._whole, twin._machines.values()))
        return twin

    @property
    def labels(self) -> list[str]:
        """What the machines are called, in their order; "" for one without a label."""
        return ["" if isinstance(key, int) else key[0] for key in self._machines]

    def add(self, label: str | None, context: Array, rows: Float[Array, "n k"], count: int) -> None:
        """Take in rows of a machine, or their factor: of all columns, or of [y, x'] alone."""
        self._add(self._key(label, context), context, rows, count)

    def _add(self, key: Key, context: Array, rows: Float[Array, "n k"], count: int) -> None:
        before = self._machines.get(key)
        whole = self._keeps_all(before) and rows.shape[1] == self.size
        if not whole and rows.shape[1] == self.size:
            rows = rows[:, self._own]
        told = rows[:0]
        if before is not None:
            told, count = self._unpacked(before), count + before.rows
            if not whole and self._whole(before):
                told = told[:, self._own]
                self._tested -= 1
        factor = triangle(told, rows)
        self._tested += whole and before is None
        packed = factor[self._upper if whole else self._upper_own]
        if before is not None:
            context = before.context
        elif not isinstance(key, int):  # the key holds it already
            context = np.frombuffer(key[1], context.dtype).reshape(context.shape)
        self._machines[key] = Machine(packed, count, context)

    def _key(self, label: str | None, context: Array) -> Key:
        if label is not None:
            return label, context.tobytes()
        self._unnamed += 1
        return self._unnamed - 1

    def _whole(self, machine: Machine) -> bool:
        return len(machine.packed) == len(self._upper[0])

    def _keeps_all(self, machine: Machine | None) -> bool:
        """Whether of this machine, or of a new one, all columns are kept."""
        return self._tested < TESTED if machine is None else self._whole(machine)

    def add_columns(
        self,
        context_map: ContextMap,
        contexts: Any,
        labels: RowLabels,
        states: Sequence[Array],
        inputs: Sequence[Array],
        next_states: Sequence[Array],
        chosen: Int64[Array, " some"] | None,
        limit: float,
    ) -> None:
        """Take in a table's rows, or those chosen, by its columns: each has a context and a label.

        Without labels, the episodes are told apart by where one step does not follow another.
        """
        rows = np.arange(len(states[0])) if chosen is None else chosen
        follows = following(states, next_states, rows)
        codes = labels.codes[rows]
        if isinstance(contexts, Mapping):
            values = [np.asarray(column)[rows] for column in contexts.values()]
        else:
            values = list(context_map.matrices(contexts)[rows].reshape(len(rows), -1).T)
        # Rows of one machine and context side by side, in the order in which they came.
        order = np.argsort(codes, kind="stable")
        starts = np.zeros(len(rows), bool)
        starts[0] = True
        for column in (codes, *values):
            starts[1:] |= column[order][1:] != column[order][:-1]
        unnamed = np.array([name is None for name in labels.names])
        starts |= unnamed[codes[order]] & ~follows[rows[order]]
        segments = np.split(rows[order], np.flatnonzero(starts)[1:])
        firsts = [int(segment[0]) for segment in segments]
        if isinstance(contexts, Mapping):
            G = context_map.matrices({n: np.asarray(c)[firsts] for n, c in contexts.items()})
        else:
            G = context_map.matrices([contexts[i] for i in firsts])
        own = [context_map.condensed(one) for one in G]
        names = [labels.names[code] for code in labels.codes[firsts].tolist()]
        keys = list(map(self._key, names, own))
        columns: dict[bool, list[Array]] = {False: [*states, *inputs, *next_states]}
        by_length: dict[tuple[bool, int], list[int]] = {}
        room = TESTED - self._tested
        for i, (key, segment) in enumerate(zip(keys, segments, strict=True)):
            before = self._machines.get(key)
            whole = room > 0 if before is None else self._whole(before)
            room -= whole and before is None
            by_length.setdefault((whole, len(segment)), []).append(i)
        for (whole, length), members in by_length.items():
            if whole and whole not in columns:
                columns[whole] = lagged_columns(states, inputs, next_states, follows)
            places = np.concatenate([segments[i] for i in members])
            factors = kernels.factor_blocks(columns[whole], places, length, limit)
            for k, i in enumerate(members):
                if factors is not None:
                    self._add(keys[i], own[i], factors[k], length)
                    continue
                table = np.stack([column[segments[i]] for column in columns[whole]], 1)
                table = table[np.abs(table).max(1) <= limit]
                self._add(keys[i], own[i], table, len(table))

    def merge(self, other: MachineStore) -> None:
        """Take in all machines of another store."""
        for key, machine in other._machines.items():
            label = None if isinstance(key, int) else key[0]
            self.add(label, machine.context, other._unpacked(machine), machine.rows)

    def of_label(self, label: str) -> list[tuple[int, Machine]]:
        """The machines of this label, one for each of its contexts, and their places among all."""
        if self._indexed != len(self._machines):
            self._places, self._indexed = {}, len(self._machines)
            for i, key in enumerate(self._machines):
                if not isinstance(key, int):
                    self._places.setdefault(key[0], []).append((i, key))
        return [(i, self._machines[key]) for i, key in self._places.get(label, ())]

    def place(self, label: str, context: Array) -> int | None:
        """Where a machine stands among all, if it is here; its context may differ by rounding."""
        found = self.of_label(label)
        for tolerance in (0.0, _SAME):
            for place, one in found:
                if np.allclose(one.context, context, rtol=tolerance, atol=0):
                    return place
        return None

    @property
    def counts(self) -> Int64[Array, " n"]:
        """How many rows each machine has shown."""
        return np.array([one.rows for one in self._machines.values()], np.int64)

    def tested(
        self, context_map: ContextMap
    ) -> tuple[Float[Array, "n k k"], Int64[Array, " n"], Float[Array, "n p y"]]:
        """The factors of [y, y⁻, sign y, x'] of the machines that have them; rows; matrices."""
        some = [one for one in self._machines.values() if self._whole(one)]
        counts = np.array([one.rows for one in some], np.int64)
        contexts = np.stack([one.context for one in some])
        return self._triangles(some), counts, context_map.expanded(contexts)

    def own_factors(self) -> Float[Array, "n s s"]:
        """The factors of [y, x'], one a machine."""
        machines = list(self._machines.values())
        found = np.zeros((len(self), len(self._own), len(self._own)))
        whole = np.array([self._whole(one) for one in machines], bool)
        for chosen in np.array_split(np.flatnonzero(whole), max(1, whole.sum() // 4096)):
            T = self._triangles([machines[i] for i in chosen])
            found[chosen] = np.linalg.qr(T[..., self._own], mode="r")
        rest = np.flatnonzero(~whole)
        if len(rest):
            packed = np.array([machines[i].packed for i in rest])
            found[rest[:, None], self._upper_own[0], self._upper_own[1]] = packed
        return found

    def matrices(self, context_map: ContextMap) -> Float[Array, "n p y"]:
        """The context matrices, one a machine."""
        return context_map.expanded(np.stack([one.context for one in self._machines.values()]))

    def regressions(self, context_map: ContextMap) -> MachineFactors:
        """The regression of every machine's own [A, B]: the factors of [y, x'] alone."""
        y = self.states + self.inputs
        triangles = self.own_factors()
        rss = np.square(triangles[:, y:, y:]).sum(1)
        counts = self.counts.astype(float)
        R, F = triangles[:, :y, :y], triangles[:, :y, y:]
        return MachineFactors(self.matrices(context_map), R, F, rss, counts)

    def arrays(self) -> dict[str, Array]:
        """All that there is to save."""
        machines = self._machines.values()
        names = json.dumps([None if isinstance(key, int) else key[0] for key in self._machines])
        whole = np.array([self._whole(one) for one in machines], bool)

        def packed(all_columns: bool, size: int) -> Array:
            some = [one.packed for one in machines if self._whole(one) == all_columns]
            return np.array(some).reshape(len(some), size)

        return {
            "machine_factors": packed(True, len(self._upper[0])),
            "machine_own_factors": packed(False, len(self._upper_own[0])),
            "machine_tested": whole,
            "machine_rows": self.counts,
            "machine_contexts": np.array([one.context for one in machines]),
            "machine_names": np.frombuffer(names.encode(), np.uint8),
        }

    @classmethod
    def from_arrays(cls, states: int, inputs: int, arrays: dict[str, Array]) -> MachineStore:
        """What `arrays` gave."""
        store = cls(states, inputs)
        factors, rows, contexts, names = (
            arrays[f"machine_{name}"] for name in ("factors", "rows", "contexts", "names")
        )
        own = arrays.get("machine_own_factors", np.zeros((0, 0)))  # older files have none
        whole = arrays.get("machine_tested", np.ones(len(rows), bool))
        labels = json.loads(names.tobytes())
        require(
            len(whole) == len(rows) == len(contexts) == len(labels)
            and (len(factors), len(own)) == (whole.sum(), (~whole).sum())
            and (not len(factors) or factors.shape[1] == len(store._upper[0]))
            and (not len(own) or own.shape[1] == len(store._upper_own[0]))
            and np.isfinite(factors).all()
            and np.isfinite(own).all()
            and (rows >= 0).all(),
            "its machines do not fit together",
        )
        kept = {True: iter(factors), False: iter(own)}
        machines = zip(whole.tolist(), rows.tolist(), contexts, labels, strict=True)
        for all_columns, count, context, label in machines:
            key = store._key(None if label is None else str(label), context)
            store._machines[key] = Machine(next(kept[all_columns]), count, context)
        store._tested = int(whole.sum())
        return store

    def _unpacked(self, machine: Machine) -> Float[Array, "k k"]:
        if self._whole(machine):
            return np.asarray(self._triangles([machine])[0])
        T = np.zeros((len(self._own), len(self._own)))
        T[self._upper_own] = machine.packed
        return T

    def _triangles(self, machines: Sequence[Machine]) -> Float[Array, "n k k"]:
        """The factors of machines of which all columns are kept."""
        T = np.zeros((len(machines), self.size, self.size))
        if machines:
            T[:, *self._upper] = [one.packed for one in machines]
        return T


def lagged_rows(
    states: Float[Array, "*episodes H d"], inputs: Float[Array, "*episodes steps m"]
) -> Float[Array, "*episodes steps k"]:
    """The rows [y, y⁻, sign y, x'] of episodes."""
    y = np.concatenate((states[..., :-1, :], inputs), -1)
    before = np.zeros_like(y)
    before[..., 1:, :] = y[..., :-1, :]
    return np.concatenate((y, before, np.sign(y), states[..., 1:, :]), -1)


def following(
    states: Sequence[Array], next_states: Sequence[Array], rows: Int64[Array, " some"]
) -> Bool[Array, " n"]:
    """Which rows of a table of steps follow the one above.

    They do if both are among `rows`, and a step starts exactly in the state where the other ends.
    """
    among = np.zeros(len(states[0]), bool)
    among[rows] = True
    follows = np.zeros(len(among), bool)
    follows[1:] = among[1:] & among[:-1]
    for x, after in zip(states, next_states, strict=True):
        follows[1:] &= x[1:] == after[:-1]
    return follows


def lagged_columns(
    states: Sequence[Array],
    inputs: Sequence[Array],
    next_states: Sequence[Array],
    follows: Bool[Array, " n"],
) -> list[Array]:
    """The columns of [y, y⁻, sign y, x'] of a table of steps."""
    before = []
    for column in (*states, *inputs):
        lagged = np.zeros(len(column))
        lagged[1:] = column[:-1]
        before.append(np.where(follows, lagged, 0.0))
    signs = [np.sign(column) for column in (*states, *inputs)]
    return [*states, *inputs, *before, *signs, *next_states]
