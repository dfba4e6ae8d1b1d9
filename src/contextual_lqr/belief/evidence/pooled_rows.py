"""The regression on all rows of a fleet, pooled as they come or when someone asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.machines.fleet_machines import FleetMachines
from contextual_lqr.belief.regression import Regression, factor_of
from contextual_lqr.context import ContextMap

_EPSILON = float(np.finfo(np.float64).eps)
_LARGEST = 1e150  # whose square is a number


class PooledRows:
    """All rows of a fleet as one regression, beside its machines, if these are kept apart.

    Rows of logs wait in the factors of their machines: pooling these is quicker than reducing the
    rows twice.
    """

    context_map: ContextMap
    regularisation: float | None
    known: Mapping[int, Array]
    given_noise_level: float | Array | None
    kept: dict[Any, Any]

    def __init__(self, machines: FleetMachines | None) -> None:
        self._machines = machines
        self._pooled: Regression | None = None  # once there are rows
        self._waiting = False  # whether there are rows that `_pooled` lacks
        self._eager = False  # whether rows no longer wait
        super().__init__()

    @property
    def rows(self) -> int:
        """How many steps were learnt from."""
        return 0 if self._regression is None else self._regression.rows

    @property
    def ignored_rows(self) -> int:
        """How many steps were so large that rounding drowned the noise."""
        return 0 if self._regression is None else self._regression.ignored

    @property
    def _regression(self) -> Regression | None:
        """The regression on all rows, if there are any.

        Rows of logs wait in the factors of their machines until someone asks for it: pooling these
        is quicker than reducing the rows twice.
        """
        if self._waiting and self._machines is not None:
            data, rows = self._machines.pooled(self.context_map)
            p = len(data) - (self.context_map.states or 0)
            self._regression = Regression(p, data, self.regularisation, self.known, rows)
        return self._pooled

    @_regression.setter
    def _regression(self, regression: Regression | None) -> None:
        self._pooled, self._waiting = regression, False

    @property
    def _may_wait(self) -> bool:
        """Whether the factors of machines have all rows, and none was beyond the limit."""
        machines, told = self._machines, self._pooled
        if machines is None or self._eager:
            return False
        complete = told is None or (not told.ignored and told.rows == machines.rows)
        return self._waiting or complete

    def _wait(self, context_map: ContextMap) -> None:
        """Rows go to the machines alone."""
        self.context_map, self._waiting = context_map, True
        self._forget()

    def _factored(self, blocks: Iterable[Array], limit: float) -> tuple[Array, int, int]:
        before = None if self._regression is None else self._regression.data
        return factor_of(blocks, limit, before)

    def _learn(self, context_map: ContextMap, data: Array, used: int, ignored: int, p: int) -> None:
        """Hold the factor of all rows, old and new."""
        used, ignored = used + self.rows, ignored + self.ignored_rows
        self.context_map = context_map
        self._regression = Regression(p, data, self.regularisation, self.known, used, ignored)
        self._forget()

    def _pool(self, other: PooledRows, context_map: ContextMap) -> None:
        """Hold the rows of both."""
        if self._may_wait and other._may_wait:
            self._wait(context_map)
        elif other._regression is not None:
            joint = other._regression
            if self._regression is not None:
                joint = self._regression.merged(joint)
            self.context_map, self._regression = context_map, joint

    def _forget(self) -> None:
        """Drop what was computed from the data as they were."""
        self.kept = {}

    def _limit(self, sizes: Float[Array, " _"]) -> float:
        """The size above which a row holds nothing but rounding, by the largest of each state.

        While none is so large that its rounding exceeds its own noise, whatever its unit, all rows
        are good. If one has run away, rows are measured against the noisiest.
        """
        level = self.given_noise_level
        if level is None:
            return _LARGEST
        own = np.resize(level, len(sizes))  # of x and, if they are there, of x' again
        good = (own == 0) | (sizes <= own / _EPSILON)
        return _LARGEST if good.all() else float(own.max()) / _EPSILON
