"""The data of a fleet, as they come in: episodes and rows, each counted once, none half.

Every step of every episode is one row of a linear regression, x' = Θ z + w with z = G [x; u] or, of
dynamics that are not linear, z = φ(context, x, u). All that the rows say is held in one triangular
factor (`regression.py`), found by QR and never by forming zzᵀ; so the data of two sites merge by QR
of the one factor on top of the other. What each machine shows is kept apart, `fleet_machines.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import numpy as np
from jaxtyping import Float, Int64, UInt64
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.evidence.digests import Digests, episode_digests, table_digest
from contextual_lqr.belief.evidence.episodes import (
    Group,
    RowLabels,
    alone,
    encoded,
    grouped,
    machine_labels,
    rows_of,
    sized_for,
    without_repeats,
)
from contextual_lqr.belief.evidence.locked import Locked, one_at_a_time
from contextual_lqr.belief.evidence.logged import Logged
from contextual_lqr.belief.evidence.logged_runs import LoggedRuns
from contextual_lqr.belief.evidence.merging import require_mergeable
from contextual_lqr.belief.evidence.pooled_rows import PooledRows
from contextual_lqr.belief.evidence.step_table import StepTable
from contextual_lqr.belief.factors import column_blocks, tall_triangle, triangle
from contextual_lqr.belief.machines.fleet_machines import FleetMachines
from contextual_lqr.belief.prior import Prior, as_scales, with_known_rows
from contextual_lqr.belief.regression import as_known_rows, as_noise_level, as_regularisation
from contextual_lqr.checks import as_numbers, require
from contextual_lqr.context import ContextMap, Dynamics, Schedule
from contextual_lqr.context.dynamics import require_rows_apart, used_entries
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import Trajectory

Data = TypeVar("Data", bound="FleetData")


class FleetData(PooledRows, Locked):
    """What a fleet has shown; `Decoder` says what the arguments are, and what the data say."""

    def __init__(
        self,
        context_map: ContextMap,
        regularisation: float | None = None,
        *,
        noise_level: ArrayLike | None = None,
        known: Mapping[int, ArrayLike] | None = None,
        deviations: Literal["estimated"] | ArrayLike | None = "estimated",
        prior: Prior | None = None,
        scales: ArrayLike | None = None,
    ) -> None:
        self.regularisation = as_regularisation(regularisation)
        said = f"context_map must be a ContextMap, such as BlockContext, not {context_map!r}"
        require(isinstance(context_map, ContextMap), said)
        self.context_map = context_map
        if noise_level is None and self.regularisation is not None:
            noise_level = np.sqrt(self.regularisation)
        self.given_noise_level = as_noise_level(noise_level)
        levels, d = np.size(np.asarray(self.given_noise_level)), context_map.states
        require(
            d is None or levels in (1, d),
            f"noise_level must be a number, or one for each of {d} states, not {levels} of them",
        )
        self.known: Mapping[int, Array] = as_known_rows(known, context_map.shape) if known else {}
        require_rows_apart(context_map, self.known)
        self.scales = None if scales is None else as_scales(scales, context_map.shape)
        self.given_prior = prior
        if prior is not None:
            self.given_prior, self.known = with_known_rows(
                prior, self.known, context_map.shape, used_entries(context_map)
            )
        require(
            self.regularisation is None or (prior is None and scales is None),
            "give regularisation, or a prior or scales that say the same in natural sizes",
        )
        self.episodes = 0
        self.repeats = 0  # episodes, stretches of them in logs or tables, learnt before
        self.kept: dict[Any, Any] = {}  # what others computed from it; gone when data come
        self.logged: Logged | None = None  # how large it was
        self.logged_runs = LoggedRuns()  # some of it, of machines that are not linear
        self.last_natural: tuple[Array, Prior] | None = None  # and by which G; steps do not move it
        self._digests = Digests()
        super().__init__(None if deviations is None else FleetMachines(deviations, self.known))

    @property
    def evidence(self) -> Digests:
        """Which episodes were learnt from."""
        return self._digests

    @one_at_a_time
    def update(
        self,
        context: Any,
        trajectory: Trajectory,
        machine: str | None = None,
        *,
        allow_repeats: bool = False,
    ) -> None:
        """Learn from one episode; all of it, or, if anything is wrong, nothing.

        Parameters
        ----------
        context
            The context of the machine that played it, or a `Schedule` if that changed.
        trajectory : Trajectory
            What was played.
        machine : str, optional
            The label of the machine; without one, it is another machine. With `deviations=None`
            machines are not kept apart, and labels tell nothing.
        allow_repeats : bool
            Learn from an episode that was learnt before once more, instead of counting it in
            `repeats`.

        Raises
        ------
        InputError
            If context, trajectory and decoder do not fit together.
        """
        require(
            trajectory.states.ndim == 2,
            "update takes one episode, states of shape (H, d), but has shape "
            f"{trajectory.states.shape}; update_many takes many",
        )
        # Found out later, when the rows are learnt, it would leave half an update behind.
        require(
            machine is None or isinstance(machine, str),
            f"machine must be a word or None, not {machine!r}",
        )
        context_map = sized_for(self.context_map, trajectory, "the trajectory")
        if isinstance(context, Schedule):
            x, u, steps = trajectory.states, trajectory.inputs, len(trajectory)
            said = f"the trajectory has {steps} steps, but the schedule {len(context)} contexts"
            require(len(context) == steps, said)
            sides = (list(x[:-1].T), list(u.T), list(x[1:].T))
            options: Any = {"machine": machine, "allow_repeats": allow_repeats}
            self.update_columns(context.contexts, *sides, episodes=1, changing=True, **options)
            return
        groups, G = (
            encoded(context_map, [context], [alone(trajectory)]),
            context_map.matrix(context)[None],
        )
        keys = context_map.keys([context], G)
        self._learn_episodes(context_map, G, keys, groups, [machine], allow_repeats)
        self.logged_runs = self.logged_runs.told(context_map, [context], [trajectory], [machine])

    @one_at_a_time
    def update_many(
        self,
        contexts: Sequence[Any] | Mapping[str, Any],
        trajectories: Sequence[Trajectory] | Trajectory,
        machine: str | Sequence[str | None] | None = None,
        *,
        allow_repeats: bool = False,
    ) -> None:
        """Learn from many episodes in one QR: all of them, or, if anything is wrong, none.

        Parameters
        ----------
        contexts
            A context for each, or a mapping from names to arrays of n values.
        trajectories
            A sequence, whose lengths may differ, or one `Trajectory` of shape (n, H, d).
        machine
            The label of the one machine that played them all, or a label for each.
        allow_repeats
            As for `update`.
        """
        played = grouped(trajectories)
        count = sum(len(members) for members, _ in played)
        context_map = self.context_map
        for members, group in played:
            context_map = sized_for(context_map, group, f"trajectory {members[0]}")
        if not count and not len(contexts):
            return
        if isinstance(context_map, Dynamics):
            n = len(context_map.keys(contexts))
            require(n == count, f"there are {count} trajectories, but {n} contexts")
        groups = encoded(context_map, contexts, played)
        G = context_map.matrices(contexts)
        require(len(G) == count, f"there are {count} trajectories, but {len(G)} contexts")
        labels, keys = machine_labels(machine, count, "trajectories"), context_map.keys(contexts, G)
        self._learn_episodes(context_map, G, keys, groups, labels, allow_repeats)
        self.logged_runs = self.logged_runs.told(context_map, contexts, trajectories, labels)

    def _learn_episodes(
        self,
        context_map: ContextMap,
        G: Float[Array, "n p y"],
        keys: Array,
        groups: list[Group],
        labels: Sequence[str | None],
        allow_repeats: bool,
    ) -> None:
        beginnings = [episode_digests(G[where], y, x[:, 1:]) for where, x, y in groups]
        digests = np.concatenate([some[:, -1] for some in beginnings])
        fresh, repeats = len(digests), 0
        if not allow_repeats:
            known = self._digests.known_steps(beginnings)
            repeats = int(np.count_nonzero(known))
            fresh -= repeats
            groups = without_repeats(groups, known) if repeats else groups
        if groups:
            self._learn_groups(context_map, G, keys, groups, labels)
            self.episodes += fresh
            self._digests.add_episodes(beginnings)
        self.repeats += repeats

    def _learn_step(self, context: Any, G: Float[Array, "p y"], step: Trajectory) -> None:
        """Learn from a step of an episode that is still played, and told as a whole elsewhere."""
        own, played = self.context_map, encoded(self.context_map, [context], [alone(step)])
        self._learn_groups(own, G[None], own.keys([context], G[None]), played, [None])

    def _learn_groups(
        self,
        context_map: ContextMap,
        G: Float[Array, "n p y"],
        keys: Array,
        groups: list[Group],
        labels: Sequence[str | None],
    ) -> None:
        states = [x.reshape(-1, x.shape[-1]) for _, x, _ in groups]
        limit = self._limit(np.abs(np.concatenate(states)).max(0))
        self._learn(context_map, *self._factored(rows_of(groups, G), limit), G.shape[1])
        self._note(Logged.of_episodes(groups, G, limit))
        if self._machines is not None:
            self._machines.add_episodes(context_map, keys, groups, labels, limit)

    def update_rows(
        self,
        contexts: Mapping[str, Any] | Sequence[Any],
        states: ArrayLike,
        inputs: ArrayLike,
        next_states: ArrayLike,
        *,
        episodes: int = 0,
        machine: str | Sequence[str | None] | None = None,
        allow_repeats: bool = False,
    ) -> None:
        """Learn from single steps: all of them, or, if anything is wrong, none.

        Parameters
        ----------
        contexts
            The context of each row, best as one mapping from names to arrays.
        states, inputs, next_states : array_like, (n, d), (n, m) and (n, d)
            Where each step began, what was played, and where it led.
        episodes : int
            How many episodes began among these rows.
        machine
            The label of the one machine they are of, or a label for each row.
        allow_repeats
            As for `update`, of the table as a whole.
        """
        x = as_numbers("states", states, "(n, d)", 2)
        u = as_numbers("inputs", inputs, "(n, m)", 2)
        next_states = as_numbers("next_states", next_states, "(n, d)", 2)
        require(
            x.ndim == u.ndim == 2 and x.shape == next_states.shape and len(u) == len(x),
            "update_rows takes states (n, d), inputs (n, m) and next_states (n, d), not "
            f"{x.shape}, {u.shape} and {next_states.shape}",
        )
        self.update_columns(
            contexts,
            list(x.T),
            list(u.T),
            list(next_states.T),
            episodes=episodes,
            machine=machine,
            allow_repeats=allow_repeats,
        )

    @one_at_a_time
    def update_columns(
        self,
        contexts: Any,
        states: Sequence[Array],
        inputs: Sequence[Array],
        next_states: Sequence[Array],
        *,
        chosen: Int64[Array, " some"] | None = None,
        episodes: int = 0,
        machine: str | Sequence[str | None] | RowLabels | None = None,
        allow_repeats: bool = False,
        digests: UInt64[Array, " stretches"] | None = None,
        changing: bool = False,
    ) -> None:
        """`update_rows` for a table's columns, d, m and d of them, of one length.

        If rows are `chosen`, by their places, the others are as if they were not there; `contexts`
        then is a mapping from names to arrays. Whoever gives `digests` of what the rows are of has
        made sure that it is new, or may be learnt again. `changing` says that the context of a
        machine changes from row to row: its rows, or without labels those that follow on each
        other, are then still those of one machine.
        """
        context_map, sizes = self.context_map, (len(states), len(inputs))
        if (context_map.states, context_map.inputs) != sizes:
            context_map = context_map.sized(*sizes)
        count = len(states[0]) if chosen is None else len(chosen)
        if not count:
            return
        masked = any(map(np.ma.is_masked, (*states, *inputs, *next_states)))
        require(not masked, "a column has masked values: fill them or leave them out")
        labels = RowLabels.of(machine, len(states[0]))
        table = StepTable(context_map, contexts, labels, states, inputs, next_states, chosen)
        limit, logged = self._limit(table.state_sizes), None
        waits = digests is not None and self._may_wait and not changing
        if waits and self._machines is not None:
            logged = Logged.of_table(table, limit, self.logged, self._machines.seen(table))
        if digests is not None and logged is not None:
            self._wait(context_map)
        else:
            columns, some = table.encoded()
            data, used, ignored = tall_triangle(columns, some, limit), count, 0
            if digests is None:
                digests = table_digest(data, columns, some)
                if not allow_repeats and self._digests.known(digests).any():
                    self.repeats += 1
                    return
            if data is not None:
                data = data if self._regression is None else triangle(self._regression.data, data)
            else:
                data, used, ignored = self._factored(column_blocks(columns, some), limit)
            logged = Logged.of_columns(table.moves, chosen, context_map, contexts, limit)
            self._learn(context_map, data, used, ignored, len(columns) - len(next_states))
            self._eager |= waits
        self.episodes += episodes
        self._note(logged)
        self._digests.add(digests)
        if self._machines is not None:
            self._machines.add_table(table, limit, changing)
        self.logged_runs = self.logged_runs if changing else self.logged_runs.with_table(table)

    def _note(self, logged: Logged | None) -> None:
        if logged is not None:
            self.logged = logged.merged(self.logged)

    @one_at_a_time
    def merge(self, other: FleetData, *, allow_repeats: bool = False) -> None:
        """Take in all that another decoder of the same fleet has learnt, as if it were ours.

        Parameters
        ----------
        other : Decoder
            It stays as it is.
        allow_repeats : bool
            Merge even if both have learnt from the same episodes, which then count twice.

        Raises
        ------
        InputError
            If they differ in context map, λ, prior, scales, noise level or known rows, or share
            episodes.
        """
        if not isinstance(other, type(self)):
            raise InputError(f"only a Decoder can be merged, not {other!r}")
        mine = require_mergeable(self, other, allow_repeats)
        self._pool(other, mine)
        self._note(other.logged)
        self.logged_runs = self.logged_runs.merged(other.logged_runs.runs)
        self._digests.merge(other._digests)
        self.episodes += other.episodes
        self.repeats += other.repeats
        self._forget()
        if self._machines is not None and other._machines is not None:
            self._machines.merge(self.context_map, other._machines)

    @property
    def machine_labels(self) -> list[str]:
        """What the machines that are kept apart are called; #3 is the third, without a label."""
        return [] if self._machines is None else self._machines.labels

    def without(self: Data, labels: Collection[str]) -> Data:
        """What the machines but these have taught; the data of all remain known as learnt."""
        twin = self.copy()
        if self._machines is None or self._regression is None:
            raise InputError("this decoder keeps no machines apart: deviations is None")
        twin._machines = self._machines.without(labels)
        twin.logged_runs = self.logged_runs.without(labels)
        data, rows = twin._machines.pooled(self.context_map)
        twin._regression = replace(self._regression, data=data, rows=rows)
        twin._forget()
        return twin

    def copy(self: Data, *, machines: bool = True) -> Data:
        """An independent twin, of the same data; if need be one that keeps no machines apart."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)  # arrays are replaced, never written into
        twin._machines = self._machines.copy() if self._machines and machines else None
        twin.kept = dict(self.kept)
        twin._digests = self._digests.copy()
        Locked.__init__(twin)
        return twin
