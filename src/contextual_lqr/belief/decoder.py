"""The decoder: what a fleet has taught about Θ in [A, B] = Θ G(context).

Every step of every episode is one row of a linear regression, x' = Θ z + w with z = G [x; u]. All
that the rows say is held in one triangular factor, found by QR and never by forming zzᵀ:

    QR of the rows [z x'] = [ D  E ]    D (p, p), E (p, d), T (d, d); D and T upper triangular
                            [ 0  T ]

    data alone          DᵀD = Σ zzᵀ,   TᵀT = Σ of the squared residuals of least squares
    with the prior      QR of [ D   E ]  =  [ R  RΘ̂ᵀ ],   V = RᵀR = λI + Σ zzᵀ
                              [ √λI 0 ]     [ 0   ·  ]

The prior joins only when an estimate is asked for. So the factors of two sites merge by QR of the
one on top of the other, and λ is counted once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, wraps
from threading import RLock
from typing import Any, Literal, TypeVar

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.evidence import Digests, episode_digests
from contextual_lqr.belief.factors import block_rows, solve_triangle, tall_triangle, triangle
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.machine_store import MachineStore, lagged_rows
from contextual_lqr.belief.population import Population
from contextual_lqr.belief.posterior import Posterior
from contextual_lqr.checks import all_finite, as_numbers, frozen, read_only, record, require
from contextual_lqr.context import ContextMap, context_map_from
from contextual_lqr.errors import ContextError, FormatError, InputError, OwnRuleError
from contextual_lqr.files import load_arrays, save_arrays
from contextual_lqr.lqr.problem import LinearSystem, ModelUncertainty, Trajectory

FORMAT_VERSION = 2

_EPSILON = float(np.finfo(np.float64).eps)


Method = TypeVar("Method", bound=Callable[..., Any])


def _one_at_a_time(method: Method) -> Method:
    """Threads that teach one decoder wait for one another."""

    @wraps(method)
    def guarded(self: Decoder, *given: Any, **named: Any) -> Any:
        with self._lock:
            return method(self, *given, **named)

    return guarded  # type: ignore[return-value]


class Decoder:
    """A belief about Θ, (d, p), kept as square-root statistics of ridge regression.

    `regularisation` is the λ of V = λI + Σ zzᵀ. `noise_level` is the rough standard deviation of a
    step's noise (√λ unless given), a number or one for each state, zero where a state is exact. A
    step so large that rounding drowns such noise teaches nothing, and is counted in `ignored_rows`
    instead. `known` has the rows of Θ, by the number of their state, that are given and need not be
    learnt.

    Machines may deviate from the law [A, B] = Θ G. With `deviations="estimated"` what each machine
    has shown is kept apart, and the covariances S_r of their deviations are estimated from it;
    covariances (d, d+m, d+m) say what they are; None says that there are none, as the paper does,
    and keeps no machines apart.
    """

    def __init__(
        self,
        context_map: ContextMap,
        regularisation: float = 1.0,
        *,
        noise_level: ArrayLike | None = None,
        known: Mapping[int, ArrayLike] | None = None,
        deviations: Literal["estimated"] | ArrayLike | None = "estimated",
    ) -> None:
        _positive("regularisation", regularisation)
        if not isinstance(context_map, ContextMap):
            raise InputError(
                f"context_map must be a ContextMap, such as BlockContext, not {context_map!r}"
            )
        self.context_map = context_map
        self.regularisation = float(regularisation)
        level = np.sqrt(regularisation) if noise_level is None else noise_level
        self.noise_level = _noise_level(level)
        self.known: Mapping[int, Array] = _known_rows(known, context_map.shape) if known else {}
        self.episodes = 0
        self.rows = 0
        self.ignored_rows = 0
        self.repeats = 0  # episodes, or tables of rows, that had been learnt before
        self._digests = Digests()
        self._lock = RLock()
        self._data: Array | None = None  # [[D, E], [0, T]], once there is any
        self._sizes: tuple[int, int] | None = None  # (p, d) of that
        self._ridge: tuple[Array, Array, Array] | None = None  # as `_solved` returns
        self._posterior: Posterior | None = None
        self._given = None if isinstance(deviations, str) else _deviations(deviations)
        require(
            not isinstance(deviations, str) or deviations == "estimated",
            f'deviations must be "estimated", None or covariances, not {deviations!r}',
        )
        self._apart = deviations is not None  # whether machines are kept apart
        self._store: MachineStore | None = None
        self._population: Population | None = None
        self.kept: dict[Any, Any] = {}  # what others computed from it; gone when data come

    # -- learning ------------------------------------------------------------------------------

    @_one_at_a_time
    def update(
        self,
        context: Any,
        trajectory: Trajectory,
        machine: str | None = None,
        *,
        allow_repeats: bool = False,
    ) -> None:
        """Learn from one episode; all of it, or, if anything is wrong, nothing.

        `machine` is the label of the machine that played it; without one it is another machine. An
        episode that was learnt before is counted in `repeats` instead, unless they are allowed.
        """
        if trajectory.states.ndim != 2:
            raise InputError(
                "update takes one episode, states of shape (H, d), but has shape "
                f"{trajectory.states.shape}; update_many takes many"
            )
        context_map = self._sized_for(self.context_map, trajectory, "the trajectory")
        G = context_map.matrix(context)
        digest = episode_digests(G[None], trajectory.states[None], trajectory.inputs[None])
        if not allow_repeats and self._digests.known(digest).any():
            self.repeats += 1
            return
        rows = _rows(G, trajectory.states, trajectory.inputs)
        self._learn(context_map, [rows], len(G), episodes=1)
        self._digests.add(digest)
        if self._apart:
            self._keep_apart(context_map, [G], [machine], [trajectory.states], [trajectory.inputs])

    @_one_at_a_time
    def update_many(
        self,
        contexts: Sequence[Any] | Mapping[str, Any],
        trajectories: Sequence[Trajectory] | Trajectory,
        machine: str | Sequence[str | None] | None = None,
        *,
        allow_repeats: bool = False,
    ) -> None:
        """Learn from many episodes in one QR: all of them, or, if anything is wrong, none.

        `trajectories` is a sequence (lengths may differ) or one `Trajectory` of shape (n, H, d);
        `contexts` has an entry for each, or maps each context name to an array of n values;
        `machine` is the label of the one machine that played them, or has a label for each.
        Episodes that were learnt before are counted in `repeats` instead, unless they are allowed.
        """
        if isinstance(trajectories, Trajectory):
            if trajectories.states.ndim != 3:
                raise InputError(
                    "update_many takes trajectories of shape (n, H, d), not "
                    f"{trajectories.states.shape}"
                )
            groups = [(np.arange(len(trajectories.states)), trajectories)]
        else:
            groups = _by_shape(trajectories)
        count = sum(len(members) for members, _ in groups)
        context_map = self.context_map
        for members, group in groups:
            context_map = self._sized_for(context_map, group, f"trajectory {members[0]}")
        if not count and not len(contexts):
            return
        G = context_map.matrices(contexts)
        require(len(G) == count, f"there are {count} trajectories, but {len(G)} contexts")
        labels = _labels(machine, count, "trajectories")
        digests = [
            episode_digests(G[members], group.states, group.inputs) for members, group in groups
        ]
        repeated = self._digests.known(np.concatenate(digests))
        if repeated.any() and not allow_repeats:
            fresh, place = [], 0
            for members, group in groups:
                kept = ~repeated[place : place + len(members)]
                place += len(members)
                some = record(
                    object.__new__(Trajectory), states=group.states[kept], inputs=group.inputs[kept]
                )
                fresh.append((members[kept], some))
            groups = [(members, group) for members, group in fresh if len(members)]
            count -= int(repeated.sum())
            if not groups:
                self.repeats += len(repeated)
                return
        blocks = (
            _rows(G[members[i:j]], group.states[i:j], group.inputs[i:j])
            for members, group in groups
            for i, j in _blocks(len(members), len(group), G.shape[1] + group.states.shape[2])
        )
        self._learn(context_map, blocks, G.shape[1], episodes=count)
        self._digests.add(np.concatenate(digests))
        self.repeats += len(repeated) - count
        if self._apart:
            for members, group in groups:
                own = [labels[i] for i in members.tolist()]
                self._keep_apart(context_map, G[members], own, group.states, group.inputs)

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
        """Learn from single steps: from states (n, d), inputs (n, m) led to `next_states` (n, d).

        `contexts` has the context of each row, best as one mapping from names to arrays; `machine`
        is the label of the one machine they are of, or has a label for each row. `episodes` is how
        many began among these rows. All rows are learnt, or none; a table that was learnt before is
        counted in `repeats` instead, unless that is allowed.
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

    @_one_at_a_time
    def update_columns(
        self,
        contexts: Any,
        states: Sequence[Array],
        inputs: Sequence[Array],
        next_states: Sequence[Array],
        *,
        chosen: Int64[Array, " some"] | None = None,
        episodes: int = 0,
        machine: str | Sequence[str | None] | None = None,
        allow_repeats: bool = False,
    ) -> None:
        """`update_rows` for a table's columns, d, m and d of them, of one length.

        If rows are `chosen`, by their places, the others are as if they were not there; `contexts`
        then is a mapping from names to arrays.
        """
        context_map, sizes = self.context_map, (len(states), len(inputs))
        if (context_map.states, context_map.inputs) != sizes:
            context_map = context_map.sized(*sizes)
        count = len(states[0]) if chosen is None else len(chosen)
        if not count:
            return
        masked = any(map(np.ma.is_masked, (*states, *inputs, *next_states)))
        require(not masked, "a column has masked values: fill them or leave them out")
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # refused later
                z = context_map.encode(contexts, states, inputs)
        except ContextError:
            if chosen is None:
                raise
            # Perhaps for a row that is not chosen.
            few = {name: np.asarray(contexts[name])[chosen] for name in contexts}
            parts = ([one[chosen] for one in some] for some in (states, inputs, next_states))
            if machine is not None and not isinstance(machine, str):
                machine = [machine[i] for i in chosen.tolist()]
            return self.update_columns(
                few, *parts, episodes=episodes, machine=machine, allow_repeats=allow_repeats
            )
        labels = _labels(machine, len(states[0]), "rows")
        columns = [*z, *next_states]
        data = tall_triangle(columns, chosen, self._limit)
        # The factor of the same rows is the same to the bit; that of others is not.
        digest = episode_digests(*(part[None] for part in _identity(data, columns, chosen)))
        if not allow_repeats and self._digests.known(digest).any():
            self.repeats += 1
            return None
        if data is not None:
            data = data if self._data is None else triangle(self._data, data)
            self._take_in(context_map, data, len(z), episodes, count, count)
        else:
            table = np.stack([one if chosen is None else one[chosen] for one in columns])
            size = block_rows(len(columns))
            blocks = (table[:, i : i + size].T for i in range(0, count, size))
            self._learn(context_map, blocks, len(z), episodes)
        self._digests.add(digest)
        if self._apart:
            store = self._machines_of(context_map)
            store.add_columns(
                context_map, contexts, labels, states, inputs, next_states, chosen, self._limit
            )

    @_one_at_a_time
    def merge(self, other: Decoder, *, allow_repeats: bool = False) -> None:
        """Take in all that another decoder of the same fleet has learnt, as if it were ours.

        Refused if both have learnt from the same episodes, unless that is allowed.
        """
        require(isinstance(other, Decoder), f"only a Decoder can be merged, not {other!r}")
        mine, theirs = self.context_map, other.context_map
        shapes = [one.shape for one in (mine, theirs) if one.shape is not None]
        if shapes:  # one of them may not know its sizes yet
            mine, theirs = (one.sized(*shapes[0][1:]) for one in (mine, theirs))
        for name, ours, its in (
            ("context map", mine, theirs),
            ("regularisation", self.regularisation, other.regularisation),
            ("noise level", *(np.asarray(one.noise_level).tolist() for one in (self, other))),
            ("set of known rows", _listed(self.known), _listed(other.known)),
            ("way with deviations", self._apart, other._apart),
        ):
            require(ours == its, f"decoders of one {name} can be merged, not of {ours} and {its}")
        shared = self._digests.overlap(other._digests)
        require(
            allow_repeats or not shared,
            f"both have learnt from the same data ({shared} episodes or tables of them), which "
            "would count twice; if that is meant, allow repeats",
        )
        if other._data is not None:
            sizes, data = other._sizes, other._data
            if self._data is not None:
                require(
                    sizes == self._sizes, f"the sizes (p, d) of Θ differ: {self._sizes} and {sizes}"
                )
                data = triangle(self._data, data)
            self.context_map, self._sizes, self._data = mine, sizes, data
        self._digests.merge(other._digests)
        self.episodes += other.episodes
        self.rows += other.rows
        self.ignored_rows += other.ignored_rows
        self.repeats += other.repeats
        self._forget()
        if other._store is not None:
            self._machines_of(self.context_map).merge(other._store)

    def take_machines(self, other: Decoder, without: Collection[str]) -> None:
        """Hold the machines that another decoder of the same data keeps apart, without some."""
        self._store = None if other._store is None else other._store.without(without)
        self._digests = Digests.from_array(other._digests.array())
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())

    def copy(self) -> Decoder:
        """An independent decoder with the same belief."""
        twin = object.__new__(Decoder)
        twin.__dict__.update(self.__dict__)  # arrays are replaced, never written into
        twin._store = None if self._store is None else self._store.copy()
        twin.kept = dict(self.kept)
        twin._digests = Digests.from_array(self._digests.array())
        twin._lock = RLock()
        return twin

    def _forget(self) -> None:
        """What was computed from the data is not that of the data any more."""
        self._ridge = self._posterior = self._population = None
        self.kept = {}

    def _keep_apart(
        self,
        context_map: ContextMap,
        matrices: Iterable[Array],
        labels: Sequence[str | None],
        states: Iterable[Array],
        inputs: Iterable[Array],
    ) -> None:
        """Hold what each machine has shown in its episode."""
        store = self._machines_of(context_map)
        for G, label, x, u in zip(matrices, labels, states, inputs, strict=True):
            rows = lagged_rows(x, u)
            rows = rows[np.abs(rows).max(1) <= self._limit]
            store.add(label, context_map.condensed(G), triangle(rows), len(rows))

    def _machines_of(self, context_map: ContextMap) -> MachineStore:
        """The store of machines, which will change."""
        if self._store is None:
            shape = context_map.shape
            assert shape is not None  # something was learnt
            self._store = MachineStore(*shape[1:])
        self._forget()
        return self._store

    def _learn(
        self, context_map: ContextMap, blocks: Iterable[Array], p: int, episodes: int
    ) -> None:
        """Take in blocks of rows [z x'], none of them before all are known to be good."""
        data, seen, used = self._data, 0, 0
        for rows in blocks:
            # x' = Θz is rounded to about ε·max(|z|, |x'|); where that exceeds the noise, the row
            # holds nothing but rounding.
            kept = rows
            if not np.abs(rows).max() <= self._limit:
                if not all_finite(rows):
                    raise InputError(
                        "states or inputs overflow when the context is applied to them"
                    )
                kept = rows[np.abs(rows).max(1) <= self._limit]
            data = triangle(kept) if data is None else triangle(data, kept)
            seen, used = seen + len(rows), used + len(kept)
        assert data is not None  # there is at least one block
        self._take_in(context_map, data, p, episodes, seen, used)

    def _take_in(
        self, context_map: ContextMap, data: Array, p: int, episodes: int, seen: int, used: int
    ) -> None:
        """Hold the factor of all rows, old and new."""
        self.context_map, self._sizes, self._data = context_map, (p, data.shape[1] - p), data
        self.episodes += episodes
        self.rows += used
        self.ignored_rows += seen - used
        self._forget()

    @property
    def _limit(self) -> float:
        """The size above which a row holds nothing but rounding."""
        level = np.asarray(self.noise_level)
        return float(level[level > 0].min()) / _EPSILON

    @staticmethod
    def _sized_for(context_map: ContextMap, trajectory: Trajectory, name: str) -> ContextMap:
        """The map for machines of the trajectory's sizes, if both fit together."""
        if trajectory.states.shape[-2] < 2:
            raise InputError(
                f"{name}: states holds one state only, but an episode has at least two"
            )
        d, m = trajectory.states.shape[-1], trajectory.inputs.shape[-1]
        if context_map.states in (None, d) and context_map.inputs in (None, m):
            sized = (context_map.states, context_map.inputs) == (d, m)
            return context_map if sized else context_map.sized(d, m)
        raise InputError(
            f"{name} has states of {d} coordinates and inputs of {m}, but the decoder is for "
            f"{context_map.states} and {context_map.inputs}"
        )

    # -- what has been learnt ----------------------------------------------------------------------

    @property
    def estimate(self) -> Float[Array, "d p"]:
        """The ridge estimate Θ̂, (d, p)."""
        return self._solved()[1]

    @property
    def factor(self) -> Float[Array, "p p"]:
        """The upper-triangular R with V = RᵀR = λI + Σ zzᵀ, its diagonal positive."""
        return self._solved()[0]

    @property
    def data_factor(self) -> Float[Array, "p p"]:
        """The upper-triangular D with DᵀD = Σ zzᵀ: what the logs alone say, without the prior."""
        p, _, data = self._statistics()
        return data[:p, :p].copy()

    @property
    def log_det(self) -> float:
        """The logarithm of det V."""
        return float(2 * np.log(np.diagonal(self.factor)).sum())

    @property
    def noise_estimate(self) -> Float[Array, "d d"]:
        """The covariance of a step's noise, from the residuals of least squares.

        Until there are more rows than unknowns, it is noise_level² I.
        """
        p, d, data = self._statistics()
        D, E, T = data[:p, :p], data[:p, p:], data[p:, p:]
        lengths = np.linalg.norm(D, axis=0)
        U, spread, _ = np.linalg.svd(D / np.where(lengths > 0, lengths, 1))
        unknowns = int((spread > 1e-12 * spread[0]).sum()) if lengths.any() else 0
        if self.rows <= unknowns:
            return np.diag(np.broadcast_to(np.square(self.noise_level), (d,)))
        # What D cannot reach is residual too: where data leave Θ open, QR has moved some into E.
        residual = np.zeros((p + d, d))
        residual[unknowns:p], residual[p:] = U[:, unknowns:].T @ E, T
        for i, row in self.known.items():  # they were not fitted, and cost no degree of freedom
            residual[:p, i] = E[:, i] - D @ row
            residual[:p, i] = U.T @ residual[:p, i]
            residual[:, i] *= np.sqrt(1 - unknowns / self.rows)
        return np.asarray(residual.T @ residual / (self.rows - unknowns))

    @property
    def penalised_residuals(self) -> Float[Array, " d"]:
        """For each coordinate, Σ (x' - Θ̂z)² + λ‖Θ̂'s row‖²: what ridge regression minimises.

        For a known row, Σ (x' - Θz)².
        """
        p, _, data = self._statistics()
        left = self._solved()[2]
        squares = np.einsum("ij,ij->j", left, left)
        for i, row in self.known.items():
            squares[i] = ((data[:, p + i] - data[:, :p] @ row) ** 2).sum()
        return np.asarray(squares)

    @property
    def posterior(self) -> Posterior:
        """The posterior of Θ and of the noise."""
        if self._posterior is None:
            self._posterior = Posterior.of(self)
        return self._posterior

    def machine(self, context: Any, machine: str | None = None) -> MachineBelief:
        """What is believed about the machine with this context.

        With the label of a `machine` that has data of its own, the posterior given these.
        """
        G = self.context_map.matrix(context)
        law, population = self.posterior.machine(G), self.population
        own = None if machine is None else self._place(machine, G)
        return law if population is None else population.machine(law, G, [own])

    def machines(
        self,
        contexts: Sequence[Any] | Mapping[str, Any],
        machine: str | Sequence[str | None] | None = None,
    ) -> MachineBelief:
        """What is believed about the machines with these contexts, as one batch.

        `machine` has the label of each, None for one that was never seen.
        """
        G = self.context_map.matrices(contexts)
        labels = _labels(machine, len(G), "contexts")
        own = [
            None if name is None else self._place(name, one)
            for name, one in zip(labels, G, strict=True)
        ]
        law, population = self.posterior.machine(G), self.population
        return law if population is None else population.machine(law, G, own)

    @property
    def deviations(self) -> Float[Array, "d y y"]:
        """S_r: the covariance of the machines' deviations from the law, for each row of [A, B]."""
        if self.population is not None:
            return self.population.deviations
        d, y = self._statistics()[1], self.context_map.matrix_width
        return np.zeros((d, y, y)) if self._given is None else self._given

    @property
    def population(self) -> Population | None:
        """The fleet as machines that deviate from its law; None if they are not kept apart."""
        if self._population is None and self._store is not None and len(self._store):
            factors = self._store.regressions(self.context_map)
            self._population = Population.of(factors, self.known, self.regularisation, self._given)
        return self._population

    @property
    def store(self) -> MachineStore | None:
        """What each machine has shown, kept apart; None if there is nothing, or it is not kept."""
        return self._store

    def _place(self, machine: str, G: Array) -> int:
        place = None
        if self._store is not None:
            place = self._store.place(machine, self.context_map.condensed(G))
        elif not self._apart:
            raise InputError("this decoder keeps no machines apart: deviations is None")
        if place is None:
            raise InputError(f"there are no data of a machine {machine!r} with this context")
        return place

    def system(self, context: Any) -> LinearSystem:
        """The machine with this context, as estimated: [A, B] = Θ̂ G(context)."""
        return self._decode(self.context_map.matrix(context))

    def systems(self, contexts: Sequence[Any] | Mapping[str, Any]) -> LinearSystem:
        """The machines with these contexts, as one batch."""
        return self._decode(self.context_map.matrices(contexts))

    def _decode(self, G: Array) -> LinearSystem:
        M = self.estimate @ G
        d = M.shape[-2]
        A, B = np.ascontiguousarray(M[..., :d]), np.ascontiguousarray(M[..., d:])
        if not np.isfinite(M).all():
            raise InputError("the estimate overflows when this context is applied to it")
        return LinearSystem.unchecked(A, B, self.noise_estimate)

    def _statistics(self) -> tuple[int, int, Array]:
        """p, d and the factor [[D, E], [0, T]] of the rows, zero before there are any."""
        if self._data is not None and self._sizes is not None:
            return *self._sizes, self._data
        if self.context_map.shape is None:
            raise InputError(
                "the size of Θ is not known before the first episode; declare it with "
                "context_map.sized(states, inputs), or bounds within which the map can be tried"
            )
        p, d, _ = self.context_map.shape
        return p, d, np.zeros((p + d, p + d))

    def _solved(self) -> tuple[Array, Array, Array]:
        """R, Θ̂, and the factor of what Θ̂ and the prior leave unexplained."""
        if self._ridge is None:
            p, d, data = self._statistics()
            joint = triangle(data, _prior(p, d, self.regularisation))
            R = np.asfortranarray(joint[:p, :p])
            columns = solve_triangle(R, joint[:p, p:])  # R Θ̂ᵀ = the right-hand block
            theta = np.ascontiguousarray(columns.T)
            for i, row in self.known.items():
                theta[i] = row
            self._ridge = read_only(R), read_only(theta), joint[p:, p:]
        return self._ridge

    # -- files -------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file, beside it first and then renamed: the old file or the new, never half.

        The context map is written too where it can be (constants and expressions); a map made of
        Python functions must be given again to `load`.
        """
        save_arrays(path, "decoder", FORMAT_VERSION, *self.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str], context_map: ContextMap | None = None) -> Decoder:
        """Read what `save` wrote, to the bit."""
        state, arrays = load_arrays(path, "decoder", FORMAT_VERSION)
        return cls.from_state(state, arrays, context_map, str(path))

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """All that the decoder is: what JSON can hold, and its arrays."""
        state = {
            "context_map": self.context_map.describe(),
            "regularisation": self.regularisation,
            "noise_level": np.asarray(self.noise_level).tolist(),
            "episodes": self.episodes,
            "rows": self.rows,
            "ignored_rows": self.ignored_rows,
            "repeats": self.repeats,
            "sizes": self._sizes,
            "known": _listed(self.known),
            "deviations": "estimated" if self._apart and self._given is None else None,
            "machines": None if self._store is None else (self._store.states, self._store.inputs),
        }
        arrays = {"data": np.zeros((0, 0)) if self._data is None else self._data}
        arrays["digests"] = self._digests.array()
        if self._given is not None:
            arrays["deviations"] = self._given
        if self._store is not None:
            arrays |= self._store.arrays()
        return state, arrays

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        arrays: Mapping[str, Array],
        context_map: ContextMap | None,
        name: str,
    ) -> Decoder:
        """The decoder of a `state`; `name` says in an error where it came from."""
        given = context_map
        try:
            if context_map is None and state["context_map"] is not None:
                context_map = context_map_from(state["context_map"])
            if context_map is not None:
                return cls._restored(state, arrays, context_map)
        except (KeyError, TypeError, ValueError) as error:
            what = "is damaged" if given is None else "does not fit the context_map given"
            raise FormatError(f"{name} {what}: {error}") from error
        raise OwnRuleError(
            f"{name} was learnt with a context map of Python functions, which cannot be written "
            "down: give the same one as context_map="
        )

    @classmethod
    def _restored(
        cls, state: Mapping[str, Any], arrays: Mapping[str, Array], context_map: ContextMap
    ) -> Decoder:
        data = arrays["data"]
        rows = {int(i): row for i, row in state.get("known", {}).items()}
        decoder = cls(
            context_map,
            state["regularisation"],
            noise_level=state["noise_level"],
            known=rows,
            deviations=arrays.get("deviations", state["deviations"]),
        )
        decoder._digests = Digests.from_array(arrays["digests"])
        for name in ("episodes", "rows", "ignored_rows", "repeats"):
            count = state[name]
            require(type(count) is int and count >= 0, f"its {name} is {count!r}")
            setattr(decoder, name, count)
        if state["sizes"] is None:
            return decoder
        p, d = state["sizes"]
        known = context_map.shape
        require(type(p) is int and type(d) is int and p > 0 and d > 0, f"its sizes are {p}, {d}")
        require(
            known is None or known[:2] == (p, d), f"Θ is {(d, p)}, but the map's (p, d, m) {known}"
        )
        require(
            data.shape == (p + d, p + d) and data.dtype == np.float64 and np.isfinite(data).all(),
            f"its factor is no finite ({p + d}, {p + d}) array of doubles",
        )
        require(not np.tril(data, -1).any(), "its factor is not triangular")
        decoder._sizes, decoder._data = (p, d), data
        if state["machines"]:
            states, inputs = state["machines"]
            decoder._store = MachineStore.from_arrays(states, inputs, dict(arrays))
        return decoder


@lru_cache(maxsize=64)
def _prior(p: int, d: int, regularisation: float) -> Array:
    """The rows [√λI 0] that stand for the prior."""
    rows = np.zeros((p, p + d))
    np.fill_diagonal(rows, np.sqrt(regularisation))
    return read_only(rows)


def _known_rows(
    known: Mapping[int, ArrayLike], shape: tuple[int, int, int] | None
) -> dict[int, Array]:
    """The known rows of Θ, by the number of their state, if they fit its shape."""
    rows = {i: frozen(as_numbers(f"known row {i}", row, "(p,)", 1)) for i, row in known.items()}
    if rows and shape is None:
        raise InputError("rows are known, but not the size of Θ: size the context map first")
    for i, row in rows.items():
        p, d, _ = shape or (0, 0, 0)
        require(
            isinstance(i, int) and 0 <= i < d and row.shape == (p,),
            f"known row {i} has shape {row.shape}, but Θ has {d} rows of {p}",
        )
    require(not shape or len(rows) < shape[1], "every row of Θ is known: there is nothing to learn")
    return rows


def _listed(known: Mapping[int, Array]) -> dict[str, list[float]]:
    """Known rows as JSON holds them."""
    return {str(i): row.tolist() for i, row in sorted(known.items())}


def _identity(
    data: Array | None, columns: Sequence[Array], chosen: Array | None
) -> Sequence[Array]:
    """What tells the rows of a table from others: their factor or, without one, themselves."""
    if data is not None:
        return [data]
    return [np.asarray(one if chosen is None else one[chosen]) for one in columns]


def _labels(machine: Any, count: int, of: str) -> list[str | None]:
    """A label for each, or None: each episode is another machine."""
    if machine is None or isinstance(machine, str):
        return [machine] * count
    labels = list(machine)
    require(len(labels) == count, f"there are {count} {of}, but {len(labels)} labels in machine")
    return [None if label is None else str(label) for label in labels]


def _deviations(covariances: ArrayLike | None) -> Float[Array, "d y y"] | None:
    """The covariances of deviations as a user gives them."""
    return None if covariances is None else ModelUncertainty(covariances).covariances


def _noise_level(level: ArrayLike) -> float | Float[Array, " d"]:
    """A number or one for each state, not negative and not all zero."""
    levels = as_numbers("noise_level", level, "() or (d,)", 0)
    require(
        levels.ndim <= 1 and (levels >= 0).all() and levels.max(initial=0.0) > 0,
        "noise_level must be positive, or a number for each state with some of them 0, "
        f"not {level!r}",
    )
    return frozen(levels) if levels.ndim else float(levels)


def _positive(name: str, value: float) -> None:
    good = isinstance(value, (int, float, np.floating, np.integer)) and 0 < value < np.inf
    require(
        good and not isinstance(value, bool), f"{name} must be a positive number, not {value!r}"
    )


def _rows(
    G: Float[Array, "*batch p y"], states: Float[Array, "*batch H d"], inputs: Float[Array, ...]
) -> Float[Array, "rows columns"]:
    """The rows [z x'] of episodes, z = G [x; u]."""
    p, d = G.shape[-2], states.shape[-1]
    rows = np.empty((*inputs.shape[:-1], p + d))
    with np.errstate(over="ignore", invalid="ignore"):  # refused later
        rows[..., :p] = np.concatenate((states[..., :-1, :], inputs), -1) @ G.swapaxes(-1, -2)
    rows[..., p:] = states[..., 1:, :]
    return rows.reshape(-1, p + d)


def _blocks(episodes: int, steps: int, columns: int) -> Iterator[tuple[int, int]]:
    """Episodes in turn, so many that their rows stay in the processor's cache."""
    size = max(1, block_rows(columns) // steps)
    return ((i, i + size) for i in range(0, episodes, size))


def _by_shape(trajectories: Sequence[Trajectory]) -> list[tuple[Array, Trajectory]]:
    """Episodes of equal length stacked into one, with their places in the sequence."""
    places: dict[tuple[int, ...], list[int]] = {}
    for i, one in enumerate(trajectories):
        require(
            isinstance(one, Trajectory) and one.states.ndim == 2,
            f"trajectory {i} must be one episode, states of shape (H, d)",
        )
        places.setdefault((*one.states.shape, one.inputs.shape[1]), []).append(i)
    return [
        (
            np.array(members),
            record(
                object.__new__(Trajectory),
                states=np.stack([trajectories[i].states for i in members]),
                inputs=np.stack([trajectories[i].inputs for i in members]),
            ),
        )
        for members in places.values()
    ]
