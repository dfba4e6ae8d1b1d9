"""The rows of many machines, reduced: what the fleet's regressions are made of.

`machine_factors.py` says what the letters are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

_CHUNK = 1 << 21  # numbers in the whitened rows of one chunk of machines


@dataclass(frozen=True)
class MachineRows:
    """N machines of q reduced rows each, F[:, r] = X θ_r + R e_r + noise; `rows` were reduced.

    `sizes` is how many of the q are rows at all, if that is not as many as there can be.
    """

    X: Float[Array, "N q p"]
    R: Float[Array, "N q y"]
    F: Float[Array, "N q d"]
    rss: Float[Array, "N d"]
    rows: Float[Array, " N"]
    sizes: Float[Array, " N"] | None = None

    def __len__(self) -> int:
        return len(self.R)

    def __getitem__(self, chosen: Array | slice) -> MachineRows:
        """Some of the machines."""
        sizes = None if self.sizes is None else self.sizes[chosen]
        parts = (self.X, self.R, self.F, self.rss, self.rows)
        X, R, F, rss, rows = (part[chosen] for part in parts)
        return MachineRows(X, R, F, rss, rows, sizes)

    @property
    def told(self) -> Float[Array, " N"]:
        """How many of the reduced rows say something."""
        most = self.R.shape[1] if self.sizes is None else self.sizes
        return np.asarray(np.minimum(self.rows, most))

    @property
    def spare(self) -> Float[Array, " N"]:
        """Degrees of freedom that each machine's own least squares leaves over."""
        return np.asarray(self.rows - self.told)

    def chunks(self) -> Iterator[slice]:
        """Slices of machines whose whitened rows fit the cache of a small computer."""
        size = max(1, _CHUNK // (self.R.shape[1] * (self.X.shape[2] + 1) * self.F.shape[2]))
        return (slice(i, i + size) for i in range(0, len(self), size))

    def beside(self, others: MachineRows) -> MachineRows:
        """These machines and others, whose rows may be more or fewer."""
        q = max(self.R.shape[1], others.R.shape[1])

        def both(name: str) -> Array:
            each = (getattr(one, name) for one in (self, others))
            return np.concatenate([np.pad(M, ((0, 0), (0, q - M.shape[1]), (0, 0))) for M in each])

        sizes = [np.full(len(one), one.R.shape[1], float) for one in (self, others)]
        return MachineRows(
            both("X"),
            both("R"),
            both("F"),
            np.concatenate((self.rss, others.rss)),
            np.concatenate((self.rows, others.rows)),
            np.concatenate(sizes),
        )


@dataclass(frozen=True)
class MachineFactors:
    """The factors of N machines; `rows` is how many steps each has shown."""

    maps: Float[Array, "N p y"]
    R: Float[Array, "N y y"]
    F: Float[Array, "N y d"]
    rss: Float[Array, "N d"]
    rows: Float[Array, " N"]

    def __len__(self) -> int:
        return len(self.R)

    def __getitem__(self, chosen: Array | slice) -> MachineFactors:
        """Some of the machines."""
        parts = (self.maps, self.R, self.F, self.rss, self.rows)
        return MachineFactors(*(part[chosen] for part in parts))

    @property
    def reduced(self) -> MachineRows:
        """The same with X = R Gᵀ."""
        X = self.R @ self.maps.transpose(0, 2, 1)
        return MachineRows(X, self.R, self.F, self.rss, self.rows)

    def chunks(self) -> Iterator[slice]:
        """Slices of machines whose whitened rows fit the cache of a small computer."""
        _, p, y = self.maps.shape
        size = max(1, _CHUNK // (y * (p + 1) * self.F.shape[2]))
        return (slice(i, i + size) for i in range(0, len(self), size))

    @property
    def spare(self) -> Float[Array, " N"]:
        """Degrees of freedom that each machine's own least squares leaves over."""
        return np.asarray(np.maximum(self.rows - self.R.shape[1], 0))
