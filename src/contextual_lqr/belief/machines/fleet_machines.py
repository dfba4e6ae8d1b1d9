"""The machines of a fleet, kept apart, and what they say about one of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from jaxtyping import Bool, Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.evidence.episodes import Group
from contextual_lqr.belief.evidence.step_table import StepTable
from contextual_lqr.belief.factors import triangle
from contextual_lqr.belief.machines.changing_machines import ChangingMachines
from contextual_lqr.belief.machines.lagged_steps import Columns
from contextual_lqr.belief.machines.machine_store import MachineStore
from contextual_lqr.belief.machines.population import Population
from contextual_lqr.belief.machines.shared_unknowns import SharedUnknowns
from contextual_lqr.belief.prior import Prior
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap, Dynamics
from contextual_lqr.context.dynamics import used_entries
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import ModelUncertainty

_LOOKED_AT = 64  # machines, to see which rows of [A, B] are the same for all


class FleetMachines:
    """What each machine has shown, and the population that all of them make up.

    `known` has the rows of Θ that are; `given` the covariances (d, d+m, d+m) of the machines'
    deviations from the fleet's law, None if they are estimated.
    """

    def __init__(
        self, deviations: Literal["estimated"] | ArrayLike, known: Mapping[int, Array] | None = None
    ) -> None:
        self.known = known or {}
        self.given: Float[Array, "d y y"] | None = None
        if isinstance(deviations, str):
            require(
                deviations == "estimated",
                f'deviations must be "estimated", None or covariances, not {deviations!r}',
            )
        else:
            self.given = ModelUncertainty(deviations).covariances
        self.store: MachineStore | None = None
        self.changing: ChangingMachines | None = None  # those whose context changes
        self.most_unlabelled: int | None = None  # machines without a label to keep; else all
        self._population: Population | None = None

    def copy(self) -> FleetMachines:
        """The same, independent."""
        twin = object.__new__(FleetMachines)
        twin.known, twin.given, twin.store = self.known, self.given, self.store
        twin._population = self._population
        twin.most_unlabelled = self.most_unlabelled
        twin.changing = None if self.changing is None else self.changing.copy()
        if twin.store is not None:
            twin.store = twin.store.copy()
        return twin

    @property
    def labels(self) -> list[str]:
        """What the machines are called; #3 is the third, without a label."""
        labels = [] if self.store is None else self.store.labels
        return [label or f"#{i + 1}" for i, label in enumerate(labels)]

    def without(self, labels: Collection[str]) -> FleetMachines:
        """The same without the machines of these labels."""
        twin = self.copy()
        twin._population = None
        if twin.store is not None:
            kept = [i for i, label in enumerate(self.labels) if label not in labels]
            twin.store = twin.store.some(kept)
        if twin.changing is not None:
            left = [i for i, label in enumerate(twin.changing.labels) if label not in labels]
            twin.changing = twin.changing.some(left) if left else None
        return twin

    def pooled(self, context_map: ContextMap) -> tuple[Float[Array, "k k"], int]:
        """The factor of all rows [z x'], z = G y, and how many they are."""
        store = self.store or self._written(context_map, context_map.matrices([]))
        if self.changing is None:
            return store.pooled(context_map), store.rows
        both = triangle(store.pooled(context_map), self.changing.pooled())
        return both, store.rows + self.changing.rows

    @property
    def rows(self) -> int:
        """How many rows all of them have shown."""
        return 0 if self.store is None else self.store.rows

    def add_episodes(
        self,
        context_map: ContextMap,
        keys: Array,
        groups: Sequence[Group],
        labels: Sequence[str | None],
        limit: float,
    ) -> None:
        """Hold what each machine has shown in its episode, as `MachineStore` takes it."""
        matrices = context_map.expanded(keys[:_LOOKED_AT])
        store, most = self._written(context_map, matrices), self.most_unlabelled
        if most is not None and store.unlabelled >= most and not any(labels):
            return
        store.add_episodes(keys, groups, labels, limit)

    def seen(self, table: StepTable) -> Bool[Array, " runs"] | None:
        """Which runs of a table are of machines that are here, with the same context."""
        return None if self.store is None else self.store.seen(table.runs)

    def add_table(self, table: StepTable, limit: float, changing: bool = False) -> None:
        """Hold what each machine has shown in a table; of rows beyond the limit, nothing.

        `changing` says that contexts change during episodes.
        """
        store = self._written(table.context_map, table.runs.G[:_LOOKED_AT])
        if not changing:
            return store.add_table(table, limit)
        if self.changing is None:
            assert table.context_map.shape is not None  # the table's columns have a size
            p, d, _ = table.context_map.shape
            self.changing = ChangingMachines(p, d, table.context_map.matrix_width)
        self.changing.add_table(table, limit)

    def merge(self, context_map: ContextMap, other: FleetMachines) -> None:
        """Take in all machines of another."""
        if other.store is not None:
            if self.store is None:
                self.store = other.store.some(())
            self.store.merge(other.store)
            self._population = None
        if other.changing is not None:
            if self.changing is None:
                self.changing = other.changing.some(())
            self.changing.merge(other.changing)

    def _written(self, context_map: ContextMap, matrices: Float[Array, "n p y"]) -> MachineStore:
        """The store, to write into; made for machines like these if there is none."""
        if self.store is None:
            shape = context_map.shape
            assert shape is not None  # something was learnt
            if isinstance(context_map, Dynamics):
                columns = Columns(shape[1], (-1,) * context_map.matrix_width)
            else:
                columns = Columns.known(shape[1], self.known, matrices)
            self.store = MachineStore(columns, not isinstance(context_map, Dynamics))
        self._population = None
        return self.store

    def population(
        self,
        context_map: ContextMap,
        known: Mapping[int, Array],
        ridge: Float[Array, " p"],
        prior: Prior | None,
        stated: bool,
        shared: SharedUnknowns | None = None,
    ) -> Population | None:
        """The fleet as machines that deviate from its law, if there are any.

        `stated`: the prior was given, and does not follow from scales. `shared`: how the rows of Θ
        share their unknowns, if they do.
        """
        if (
            self._population is None
            and self.store is not None
            and (self.store.rows or self.changing is not None)
        ):
            factors = self.store.regressions(context_map)
            if shared is not None:
                assert prior is not None  # at least that entries are 0
                said = "a context that changes during an episode does not go with shared unknowns"
                require(self.changing is None, said)
                self._population = shared.population(factors, self.given, prior, stated)
                return self._population
            changing = None if self.changing is None else self.changing.reduced()
            self._population = Population.of(
                factors,
                known,
                ridge,
                self.given,
                prior,
                changing,
                used=used_entries(context_map),
                stated=stated,
            )
        return self._population

    def place(self, label: str, key: Array) -> int:
        """Where a machine stands among all, by what is kept of its context, if it is here."""
        place = None
        if self.store is not None:
            place = self.store.place(label, key)
        if place is None:
            raise InputError(f"there are no data of a machine {label!r} with this context")
        return place
