"""What machines have shown whose context changes during an episode: a triangular factor each.

While the context of a machine stays, z = G y, and its rows [y, x'] say everything
(`machine_store.py`). Where G changes from row to row, they do not: x' = Θ z + E y + w, E the
machine's own deviation from the law, needs the rows [z, y, x']. Reduced by QR they are as good as
all of them,

    [ X  R  F ]     X (q, p), R (q, y), F (q, d), q = p + y        f = X θ_r + R e_r + noise
    [ 0  0  · ]     what least squares leaves over: rss

and so enter the law, and the covariances of the deviations, beside those of the other machines, for
which X is R Gᵀ. A machine is a label; without one, it is an episode, or the part of it in a table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.evidence.step_table import StepTable
from contextual_lqr.belief.factors import triangle
from contextual_lqr.belief.machines.machine_rows import MachineRows
from contextual_lqr.checks import require


class ChangingMachines:
    """Machines by label, of p features, d states and y of some width each."""

    def __init__(self, p: int, states: int, width: int) -> None:
        self.p, self.states, self.width = p, states, width
        self.labels: list[str | None] = []
        self._places: dict[str, int] = {}
        self._factors: list[Float[Array, "k k"]] = []  # of [z, y, x']; replaced, never written into
        self._rows: list[int] = []

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def rows(self) -> int:
        """How many rows all of them have shown."""
        return sum(self._rows)

    def copy(self) -> ChangingMachines:
        """An independent twin of the same machines."""
        return self.some(range(len(self)))

    def some(self, places: Sequence[int]) -> ChangingMachines:
        """The machines at these places."""
        twin = ChangingMachines(self.p, self.states, self.width)
        for i in places:
            twin._take(self.labels[i], self._factors[i], self._rows[i])
        return twin

    def add_table(self, table: StepTable, limit: float) -> None:
        """Take in the rows of a table but those beyond the limit."""
        columns, some = table.encoded()
        encoded = [column if some is None else column[some] for column in columns]
        y = [column[table.rows] for column in table.moves]
        rows = np.stack([*encoded[: self.p], *y, *encoded[self.p :]], 1)
        codes = table.labels.codes[table.rows]
        named = np.array([name is not None for name in table.labels.names])[codes]
        begins = ~named & ~table.follows[table.rows]
        begins[1:] |= codes[1:] != codes[:-1]
        begins[0] = True
        starts = np.flatnonzero(begins)
        for first, last in zip(starts, np.append(starts[1:], len(codes)), strict=True):
            own = rows[first:last]
            own = own[np.abs(own).max(1) <= limit]
            if len(own):
                self._take(table.labels.names[codes[first]], own, len(own))

    def _take(self, label: str | None, rows: Float[Array, "n k"], count: int) -> None:
        """Rows, or a factor of as many, of one machine."""
        place = self._places.get(label) if label is not None else None
        if place is not None:
            self._factors[place] = triangle(self._factors[place], rows)
            self._rows[place] += count
            return
        if label is not None:
            self._places[label] = len(self.labels)
        self.labels.append(label)
        self._factors.append(triangle(rows))
        self._rows.append(count)

    def merge(self, other: ChangingMachines) -> None:
        """Take in all machines of another."""
        for label, factor, count in zip(other.labels, other._factors, other._rows, strict=True):
            self._take(label, factor, count)

    def pooled(self) -> Float[Array, "k k"]:
        """The factor of the rows [z, x'] of all."""
        p, y = self.p, self.width
        rows = np.concatenate(self._factors)
        return triangle(np.concatenate((rows[:, :p], rows[:, p + y :]), 1))

    def reduced(self) -> MachineRows:
        """X, R and F of each."""
        p, q = self.p, self.p + self.width
        T = np.stack(self._factors)
        X, R, F = T[:, :q, :p], T[:, :q, p:q], T[:, :q, q:]
        rss = np.square(T[:, q:, q:]).sum(1)
        return MachineRows(X, R, F, rss, np.array(self._rows, float))

    def arrays(self) -> dict[str, Array]:
        """All that there is to save."""
        return {
            "changing_factors": np.stack(self._factors),
            "changing_rows": np.array(self._rows, np.int64),
            "changing_names": np.frombuffer(json.dumps(self.labels).encode(), np.uint8),
        }

    @classmethod
    def from_arrays(
        cls, p: int, states: int, width: int, arrays: Mapping[str, Array]
    ) -> ChangingMachines:
        """What `arrays` gave."""
        found = cls(p, states, width)
        factors, rows, names = (arrays[f"changing_{name}"] for name in ("factors", "rows", "names"))
        labels: list[Any] = json.loads(names.tobytes())
        k = p + width + states
        require(
            factors.shape == (len(labels), k, k)
            and len(rows) == len(labels)
            and np.isfinite(factors).all()
            and (rows > 0).all(),
            "its machines of changing contexts do not fit together",
        )
        for label, factor, count in zip(labels, factors, rows.tolist(), strict=True):
            found._take(None if label is None else str(label), factor, count)
        require(len(found) == len(labels), "two of its machines have one label")
        return found
