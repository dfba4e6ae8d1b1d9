"""Where a fleet is believed to be linear: rows from beyond spoil the fit, and are left out of it.

A `GivenRegion` is a box. A `FoundRegion` comes of what was played. Its rows [z 1 x'] are sorted by
the size of x and x' into shells, each with a triangular factor of its own: the first holds what is
within the natural sizes of the task, every other reaches twice as far as the one inside it. From
the inside outwards, a shell and all beyond it are left out if with its rows the law, Θ₊, no longer
fits the n rows inside. With Θ fitted to these alone, s² what it leaves of each coordinate (at least
the declared noise), and p unknowns, a constant among them: a machine that rests a little beside 0
is off by that much everywhere, which rows from near by show best and far out do not bend.

    extra = Σ (x' - Θ₊z)² - Σ (x' - Θz)²           over the rows inside
    P(F(p, n - p) > extra / (p s²)) < 1e-6         it is not chance
    extra > 0.05² Σ (x' - x)²                      it matters: features are seldom exact

The first is Mallows' trade as well: what the shell's rows would save is about p s². All is found
anew with every episode, so a shell may come back.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike
from scipy.special import fdtrc

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.evidence.episodes import episode_rows
from contextual_lqr.belief.factors import triangle
from contextual_lqr.belief.regression import factor_of
from contextual_lqr.checks import as_numbers, require, shown
from contextual_lqr.lqr.problem import Trajectory

_LAST = 20  # shell, a million natural sizes away: all that is farther counts as of it
_MATERIAL = 0.05  # of what a step does
_CHANCE = 1e-6
_EDGE = 1 + 1e-9  # rounding does not move what is as large as a natural size


class Region:
    """All of space, for features that hold everywhere; a subclass reaches less far."""

    limits: Float[Array, " d"]  # of the sizes of states, infinite where there is none
    left_out = 0  # rows from beyond
    cuts = False  # whether an episode that leaves it is ended

    def __init__(self, d: int) -> None:
        self.limits = np.full(d, np.inf)

    def holds(self, *states: Float[Array, " d"]) -> bool:
        """Whether all of these states are inside."""
        return all(bool((np.abs(x) <= self.limits).all()) for x in states)

    def learn(
        self, decoder: Decoder, context: Any, played: Trajectory, machine: str | None
    ) -> None:
        """Let a decoder learn from an episode, as far as the region reaches."""
        decoder.update(context, played, machine)

    def state(self) -> dict[str, Array]:
        """All that a file must hold."""
        return {}

    def facts(self) -> dict[str, object]:
        """How much was left out, if anything, and why."""
        return {"left out": f"{self.left_out:,} rows beyond {self._box()}"} if self.left_out else {}

    def _box(self) -> str:
        return "±(" + ", ".join(f"{limit:.3g}" for limit in self.limits) + ")"


class GivenRegion(Region):
    """A box: an episode that leaves it is ended, and only steps within it are learnt from."""

    cuts = True

    def __init__(self, limits: Float[Array, " d"], left_out: int = 0) -> None:
        self.limits, self.left_out = limits, left_out

    def learn(
        self, decoder: Decoder, context: Any, played: Trajectory, machine: str | None
    ) -> None:
        """From the stretches inside."""
        inside = np.ones(len(played.states), bool)
        if played.states.shape[1:] == self.limits.shape:  # else the decoder refuses it
            inside = (np.abs(played.states) <= self.limits).all(1)
        if inside.all():
            return decoder.update(context, played, machine)
        decoder.context_map.matrix(context)  # which refuses what is no context
        step = np.concatenate(([False], inside[:-1] & inside[1:], [False]))
        pieces = [
            Trajectory(played.states[begin : end + 1], played.inputs[begin:end])
            for begin, end in np.flatnonzero(step[1:] != step[:-1]).reshape(-1, 2)
        ]
        repeats = decoder.repeats
        decoder.update_many([context] * len(pieces), pieces, machine)
        if decoder.repeats == repeats:
            self.left_out += len(played) - sum(map(len, pieces))
        return None

    def state(self) -> dict[str, Array]:
        """The box, and the count."""
        return {"region": self.limits, "left_out": np.array(self.left_out)}


class FoundRegion(Region):
    """All of space, until rows from far out no longer fit those from within."""

    def __init__(self, scales: Float[Array, " d"], noise_level: Float[Array, " d"]) -> None:
        self.scales, self._level = scales, noise_level
        self.last = _LAST  # shell that is believed
        self._factors: dict[int, Array] = {}  # by the number of the shell
        self._rows: dict[int, int] = {}

    @property
    def limits(self) -> Float[Array, " d"]:  # type: ignore[override]
        """The ends of the last shell that is believed."""
        return self.scales * (2.0**self.last if self.last < _LAST else np.inf)

    @property
    def left_out(self) -> int:  # type: ignore[override]
        """The rows of the shells beyond."""
        return sum(n for shell, n in self._rows.items() if shell > self.last)

    def learn(
        self, decoder: Decoder, context: Any, played: Trajectory, machine: str | None
    ) -> None:
        """From all of it; then do without the shells that do not fit."""
        believed = [k for k in self._rows if k <= self.last]
        if decoder.rows != sum(self._rows[k] for k in believed):  # it has learnt elsewhere, too
            for k in believed:
                del self._rows[k], self._factors[k]
            data = _with_constant(decoder.regression.data, decoder.regression.p)
            self._rows[0], self._factors[0] = decoder.rows, data
        before = decoder.rows + decoder.ignored_rows
        decoder.update(context, played, machine)
        fresh = decoder.rows + decoder.ignored_rows - before
        if not fresh:
            return
        G, states = decoder.context_map.matrix(context), played.states[-fresh - 1 :]
        y = np.concatenate((states[:-1], played.inputs[-fresh:]), -1)
        z, after = np.split(episode_rows(G, y, states[1:]), [len(G)], 1)
        rows = np.concatenate((z, np.full((len(z), 1), self.scales.min()), after), 1)
        size = np.abs(states / self.scales).max(1) / _EDGE
        # The least k with size <= 2^k, from 0 on.
        half, shells = np.frexp(np.maximum(size[:-1], size[1:]).clip(1.0, 2.0**_LAST))
        shells = shells - (half == 0.5)
        limit = decoder._limit(np.abs(states).max(0))
        for k in np.unique(shells).tolist():
            own = self._factors.get(k)
            self._factors[k], used, _ = factor_of([rows[shells == k]], limit, own)
            self._rows[k] = self._rows.get(k, 0) + used
        self._judge(decoder)

    def _judge(self, decoder: Decoder) -> None:
        """Find the last shell that fits, and let the decoder believe what is within."""
        p, d = decoder.regression.p, decoder.regression.d
        still = decoder.context_map.persistence
        staying = np.zeros((d, p + 1))
        if still is not None:
            staying[:, :p] = still
        before, found = self.last, self._found(p + 1, staying)
        if found == before == _LAST:
            return
        if decoder.store is not None and decoder.deviations.any():
            return  # no one law is expected to fit: machines differ
        words = "rows from far out contradict those within"
        if decoder.store is None:  # else nothing can be left out of what each machine has shown
            self.last = found
            self._apply(decoder)
            words = f"{self.left_out} rows beyond {self._box()} contradict those within: left out"
        if before == _LAST:
            said = f"no linear law fits all that was played, {words}; region= says where one does"
            warnings.warn(said, stacklevel=5)

    def _apply(self, decoder: Decoder) -> None:
        inside = [k for k in sorted(self._rows) if k <= self.last]
        rows = sum(self._rows[k] for k in inside)
        p = decoder.regression.p
        data = triangle(*(np.delete(self._factors[k], p, 1) for k in inside))
        decoder._regression = replace(decoder.regression, data=data, rows=rows)
        if decoder.logged is not None:
            edge = np.full(len(decoder.logged.low), np.inf)
            edge[: len(self.scales)] = self.limits
            decoder.logged = decoder.logged.within(edge)
        decoder._forget()

    def _found(self, p: int, still: Float[Array, "d p"]) -> int:
        """The last shell that fits; `still` is the law of machines that stay where they are."""
        last, n, noisy = _LAST, 0, self._level > 0
        inside = theta = np.zeros((0, 0))
        for k in sorted(self._factors) if len(self._factors) > 1 else ():
            joint = triangle(inside, self._factors[k]) if n else self._factors[k]
            law = _law(joint, p)
            if n > p:
                least, now, steps = (_residuals(inside, one)[noisy] for one in (theta, law, still))
                extra = np.maximum(now - least, 0.0)
                variance = np.maximum(least / (n - p), np.square(self._level[noisy]))
                chance = fdtrc(p, n - p, extra / (p * variance))
                if ((extra > _MATERIAL**2 * steps) & (chance < _CHANCE)).any():
                    return last
            inside, n, theta, last = joint, n + self._rows[k], law, k
        return _LAST

    def state(self) -> dict[str, Array]:
        """What the shells hold."""
        shells = sorted(self._factors)
        if not shells:
            return {}
        return {
            "shells": np.array([(k, self._rows[k], k <= self.last) for k in shells]),
            "shell_factors": np.stack([self._factors[k] for k in shells]),
        }


def as_region(
    region: ArrayLike | Sequence[float | None] | None,
    scales: Float[Array, " d"],
    noise_level: Float[Array, " d"],
) -> Region:
    """The box that was given, a number or one for each state, or a region to be found."""
    if region is None:
        return FoundRegion(scales, noise_level)
    if isinstance(region, list | tuple):
        region = [np.inf if limit is None else limit for limit in region]
    limits = as_numbers("region", region, "() or (d,)", 0, finite=False)
    d = len(scales)
    require(
        limits.shape in ((), (d,)) and (limits > 0).all(),
        f"region must be a positive number, or {d} of them with None for no limit, not "
        f"{shown(region)}",
    )
    return GivenRegion(np.broadcast_to(limits, (d,)).copy())


def restore(region: Region, arrays: Mapping[str, Array], factor: tuple[int, int]) -> None:
    """Give a new region what `state` gave; the decoder's factor has this shape."""
    if isinstance(region, GivenRegion):
        region.left_out = int(arrays["left_out"])
        require(region.left_out >= 0, f"it has left out {region.left_out} rows")
    elif isinstance(region, FoundRegion) and "shells" in arrays:
        shells, factors = arrays["shells"], arrays["shell_factors"]
        if factors.shape[1:] == factor:  # of a version without the constant
            p = factor[1] - len(region.scales)
            factors = np.stack([_with_constant(one, p) for one in factors])
        require(
            shells.shape == (len(factors), 3)
            and shells.dtype.kind == "i"
            and ((shells >= 0) & (shells <= (_LAST, np.iinfo(int).max, 1))).all()
            and factors.shape[1:] == tuple(n + 1 for n in factor)
            and np.isfinite(factors).all(),
            "its shells do not fit together",
        )
        for (k, rows, _), own in zip(shells.tolist(), factors, strict=True):
            region._rows[k], region._factors[k] = rows, own
        if not shells[:, 2].all():
            region.last = int(shells[shells[:, 2] == 1, 0].max())


def _with_constant(data: Float[Array, "k k"], p: int) -> Float[Array, "n n"]:
    """The factor of rows whose constant is not known, and taken for 0."""
    return np.pad(np.insert(data, p, 0.0, axis=1), ((0, 1), (0, 0)))


def _law(data: Float[Array, "k k"], p: int) -> Float[Array, "d p"]:
    """Least squares without any ridge, which would be a law of its own where rows are huge."""
    sizes = np.linalg.norm(data[:, :p], axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    theta = np.linalg.lstsq(data[:, :p] / sizes, data[:, p:], rcond=None)[0]
    return np.asarray(theta.T / sizes)


def _residuals(data: Float[Array, "k k"], theta: Float[Array, "d p"]) -> Float[Array, " d"]:
    p = theta.shape[1]
    return np.asarray(np.square(data[:, p:] - data[:, :p] @ theta.T).sum(0))
