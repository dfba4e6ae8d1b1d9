"""What each machine has shown, kept apart: one triangular factor a machine, whatever its rows.

A step is a row [y, y⁻, sign y, x'] with y = [x; u], y⁻ the step before (zero at the start of an
episode) and x' the next state. The factor of a machine's rows holds all that least squares needs:
[y, x'] is the regression of its own [A, B]; y⁻ and the signs are for tests of the model
(`certificates/misspecification.py`).

A machine is a label with a context. Without a label, every episode is another machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief.factors import triangle
from contextual_lqr.belief.machine_factors import MachineFactors
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap

Key = tuple[str, bytes] | int

_SAME = 1e-9  # relative: a context that was written down and read again


class Machine(NamedTuple):
    """The factor of a machine's rows, packed; how many they are; and what its context comes to."""

    packed: Float[Array, " numbers"]
    rows: int
    context: Array


class MachineStore:
    """Machines by label and context; records are replaced, never written into."""

    def __init__(self, states: int, inputs: int) -> None:
        self.states, self.inputs = states, inputs
        self.size = 4 * states + 3 * inputs  # columns of [y, y⁻, sign y, x']
        self._machines: dict[Key, Machine] = {}
        self._upper = np.triu_indices(self.size)
        self._unnamed = 0
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
        return twin

    @property
    def labels(self) -> list[str]:
        """What the machines are called, in their order; "" for one without a label."""
        return ["" if isinstance(key, int) else key[0] for key in self._machines]

    def add(
        self, label: str | None, context: Array, factor: Float[Array, "k k"], rows: int
    ) -> None:
        """Take in rows of a machine, by their factor."""
        key: Key
        if label is None:
            key, self._unnamed = self._unnamed, self._unnamed + 1
        else:
            key = (label, context.tobytes())
        before = self._machines.get(key)
        if before is not None:
            factor, rows = triangle(self._unpacked(before), factor), rows + before.rows
        self._machines[key] = Machine(factor[self._upper], rows, context)

    def add_columns(
        self,
        context_map: ContextMap,
        contexts: Any,
        labels: Sequence[str | None],
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
        columns, follows = lagged_columns(states, inputs, next_states, rows)
        names = np.array([label or "" for label in labels])[rows]
        if isinstance(contexts, Mapping):
            values = [np.asarray(column)[rows] for column in contexts.values()]
        else:
            values = list(context_map.matrices(contexts)[rows].reshape(len(rows), -1).T)
        # Rows of one machine and context side by side, in the order in which they came.
        order = np.argsort(names, kind="stable")
        starts = np.zeros(len(rows), bool)
        starts[0] = True
        for column in (names, *values):
            starts[1:] |= column[order][1:] != column[order][:-1]
        starts |= (names[order] == "") & ~follows[rows[order]]
        segments = np.split(rows[order], np.flatnonzero(starts)[1:])
        firsts = [int(segment[0]) for segment in segments]
        if isinstance(contexts, Mapping):
            G = context_map.matrices({n: np.asarray(c)[firsts] for n, c in contexts.items()})
        else:
            G = context_map.matrices([contexts[i] for i in firsts])
        found = segment_factors(columns, segments, limit)
        for i, own, (factor, count) in zip(firsts, G, found, strict=True):
            self.add(labels[i], context_map.condensed(own), factor, count)

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

    def factors(self) -> Float[Array, "n k k"]:
        """The factors of [y, y⁻, sign y, x'], one a machine."""
        whole = np.zeros((len(self), self.size, self.size))
        for T, one in zip(whole, self._machines.values(), strict=True):
            T[self._upper] = one.packed
        return whole

    def matrices(self, context_map: ContextMap) -> Float[Array, "n p y"]:
        """The context matrices, one a machine."""
        return context_map.expanded(np.stack([one.context for one in self._machines.values()]))

    def regressions(self, context_map: ContextMap) -> MachineFactors:
        """The regression of every machine's own [A, B]: the factors of [y, x'] alone."""
        y = self.states + self.inputs
        own = [
            np.asarray(np.linalg.qr(np.concatenate((T[..., :y], T[..., 3 * y :]), -1), mode="r"))
            for T in self._parts()
        ]
        triangles = np.concatenate(own)
        rss = np.square(triangles[:, y:, y:]).sum(1)
        counts = self.counts.astype(float)
        R, F = triangles[:, :y, :y], triangles[:, :y, y:]
        return MachineFactors(self.matrices(context_map), R, F, rss, counts)

    def arrays(self) -> dict[str, Array]:
        """All that there is to save."""
        machines = self._machines.values()
        names = json.dumps([None if isinstance(key, int) else key[0] for key in self._machines])
        return {
            "machine_factors": np.array([one.packed for one in machines]).reshape(len(self), -1),
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
        labels = json.loads(names.tobytes())
        numbers = len(store._upper[0])
        require(
            len(factors) == len(rows) == len(contexts) == len(labels)
            and (not len(rows) or factors.shape[1] == numbers)
            and np.isfinite(factors).all()
            and (rows >= 0).all(),
            "its machines do not fit together",
        )
        machines = zip(factors, rows.tolist(), contexts, labels, strict=True)
        for packed, count, context, label in machines:
            key: Key = store._unnamed if label is None else (str(label), context.tobytes())
            store._unnamed += label is None
            store._machines[key] = Machine(packed, count, context)
        return store

    def _unpacked(self, machine: Machine) -> Float[Array, "k k"]:
        T = np.zeros((self.size, self.size))
        T[self._upper] = machine.packed
        return T

    def _parts(self, size: int = 4096) -> Iterator[Float[Array, "n k k"]]:
        """The factors, some machines at a time."""
        machines = list(self._machines.values())
        for i in range(0, len(machines), size):
            some = machines[i : i + size]
            T = np.zeros((len(some), self.size, self.size))
            T[:, *self._upper] = [one.packed for one in some]
            yield T


def segment_factors(
    columns: Sequence[Float[Array, " rows"]], segments: Sequence[Int64[Array, " _"]], limit: float
) -> list[tuple[Float[Array, "k k"], int]]:
    """The factor of each segment of a table's rows, and of how many rows it is.

    Rows with a number beyond the limit are left out: they hold nothing but rounding.
    """
    found: list[tuple[Array, int]] = [(np.zeros((0, 0)), 0)] * len(segments)
    by_length: dict[int, list[int]] = {}
    for i, segment in enumerate(segments):
        by_length.setdefault(len(segment), []).append(i)
    for length, members in by_length.items():
        rows = np.concatenate([segments[i] for i in members])
        factors = kernels.factor_blocks(columns, rows, length, limit)
        for k, i in enumerate(members):
            if factors is not None:
                found[i] = factors[k], length
                continue
            own = np.stack([column[segments[i]] for column in columns], 1)
            own = own[np.abs(own).max(1) <= limit]
            found[i] = triangle(own), len(own)
    return found


def lagged_rows(
    states: Float[Array, "*episodes H d"], inputs: Float[Array, "*episodes steps m"]
) -> Float[Array, "*episodes steps k"]:
    """The rows [y, y⁻, sign y, x'] of episodes."""
    y = np.concatenate((states[..., :-1, :], inputs), -1)
    before = np.zeros_like(y)
    before[..., 1:, :] = y[..., :-1, :]
    return np.concatenate((y, before, np.sign(y), states[..., 1:, :]), -1)


def lagged_columns(
    states: Sequence[Array],
    inputs: Sequence[Array],
    next_states: Sequence[Array],
    rows: Int64[Array, " some"],
) -> tuple[list[Array], Bool[Array, " n"]]:
    """The columns of [y, y⁻, sign y, x'] of a table of steps, and which rows follow the one above.

    They do if both are among `rows`, and a step starts exactly in the state where the other ends.
    """
    among = np.zeros(len(states[0]), bool)
    among[rows] = True
    follows = np.zeros(len(among), bool)
    follows[1:] = among[1:] & among[:-1]
    for x, after in zip(states, next_states, strict=True):
        follows[1:] &= x[1:] == after[:-1]
    before = []
    for column in (*states, *inputs):
        lagged = np.zeros(len(column))
        lagged[1:] = column[:-1]
        before.append(np.where(follows, lagged, 0.0))
    signs = [np.sign(column) for column in (*states, *inputs)]
    return [*states, *inputs, *before, *signs, *next_states], follows
