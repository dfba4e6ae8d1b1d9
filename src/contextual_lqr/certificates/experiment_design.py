"""What to run next, and what no log has shown.

Ignorance costs. If Θ is off by Δ with rows of covariance σ_i² V⁻¹, a step y = [x; u] of the machine
with context matrix G ends off by ΔGy, which costs P[h+1] of the next state, on average

    Σ_i σ_i² P[h+1]_ii · yᵀGᵀV⁻¹Gy

So the price of ignorance of the machines one cares for is tr(V⁻¹M), with M the sum of all these
G E[yyᵀ] Gᵀ. A run on another machine adds Z = Σ_h G E[yyᵀ] Gᵀ to V, and is worth

    tr(V⁻¹M) - tr((V + Z)⁻¹M) = tr(M̃) - tr((I + Z̃)⁻¹M̃),    M̃ = R⁻ᵀMR⁻¹, Z̃ alike.

Statisticians call the choice of the largest I-optimal: it counts what the controllers depend on,
where det V counts every direction alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.machine import as_system
from contextual_lqr.belief.machines.machine_factors import square_root
from contextual_lqr.checks import as_numbers, require
from contextual_lqr.context.columns import column_names
from contextual_lqr.context.dynamics import require_linear, used_entries
from contextual_lqr.context.variables import one_by_one
from contextual_lqr.lqr.moments import step_moments
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.lqr.solve import solve

_NEGLIGIBLE = 1e-7  # of the length of its columns: what is shorter, no log has shown
_SHOWN = 0.05


@dataclass(frozen=True)
class Candidate:
    """A machine that might be run: how much of the price of ignorance one run would save."""

    context: Any
    saving: float
    place: int  # among the candidates as they were given


@dataclass(frozen=True, eq=False)
class UnexcitedDirection:
    """A direction of Θ that the logs say nothing about, and the columns that it mixes."""

    columns: tuple[str, ...]
    direction: Float[Array, " p"]

    def __str__(self) -> str:
        if len(self.columns) == 1:
            return f"{self.columns[0]} is never excited"
        return f"the logs cannot tell apart {', '.join(self.columns)}"


def rank_candidates(
    decoder: Decoder,
    candidates: Sequence[Any] | Mapping[str, Any],
    cost: QuadraticCost,
    start: ArrayLike,
    *,
    targets: Sequence[Any] | Mapping[str, Any] | None = None,
    dither: float = 0.0,
) -> list[Candidate]:
    """The candidates, best first, by the share of the price of ignorance that a run would save.

    Parameters
    ----------
    decoder : Decoder
        What was learnt.
    candidates
        The contexts of machines that could be run: a sequence, or a mapping from names to arrays.
    cost, start : QuadraticCost, array_like (d,)
        The task; each candidate is run with the controller of the estimate.
    targets : optional
        The contexts of the machines to be controlled, whose price of ignorance counts; by default
        the candidates themselves.
    dither : float
        The standard deviation of what is added to every input of a run.

    Returns
    -------
    list of Candidate
        Each with its context, the share of the price that it saves, and its index among those
        given.

    Raises
    ------
    InputError
        If there are no candidates or targets, or something does not fit together.
    """
    require_linear(decoder.context_map, "rank_candidates")
    d, p = decoder.estimate.shape
    x = as_numbers("start", start, "(d,)", 1)
    require(x.shape == (d,), f"start must be {d} numbers, one for each state, not {x.shape}")
    require(0 <= dither < np.inf, f"dither must be at least 0, not {dither!r}")
    G = decoder.context_map.matrices(candidates)
    require(len(G) > 0, "there are no candidates to choose from")
    of_targets = G if targets is None else decoder.context_map.matrices(targets)
    require(len(of_targets) > 0, "there are no target machines to learn for")

    halves = decoder.posterior.half(G)
    plain, weighted = _run_moments(decoder, G, cost, x, dither)
    wanted = halves
    if targets is not None or dither:
        wanted = decoder.posterior.half(of_targets)
        _, weighted = _run_moments(decoder, of_targets, cost, x, 0.0)
    named, prices = one_by_one(candidates), np.zeros((p, p))
    with np.errstate(over="ignore", invalid="ignore"):
        for half, moment in zip(wanted, weighted, strict=True):
            price = half @ moment @ half.T  # M̃
            prices += np.where(np.isfinite(price).all(), price, 0.0)
        savings = [_saving(*each, prices) for each in zip(halves, plain, strict=True)]
    total = float(np.trace(prices))
    ranked = np.argsort(-np.array(savings), kind="stable")
    return [Candidate(named[i], savings[i] / max(total, 1e-300), int(i)) for i in ranked]


def unexcited_directions(
    decoder: Decoder, names: Sequence[str] | None = None
) -> list[UnexcitedDirection]:
    """The directions of Θ's columns that no log excites; before any log, all of them.

    The directions are a basis of what is unknown, chosen to mix as few columns as possible.

    Parameters
    ----------
    decoder : Decoder
        What was learnt.
    names : sequence of str, optional
        The names of states and inputs.

    Returns
    -------
    list of UnexcitedDirection
        Each has its vector; `str` says what it means.

    Examples
    --------
    >>> decoder = clqr.Decoder(clqr.FeatureContext(["1"]))
    >>> decoder.update({}, clqr.Trajectory([[1.0], [0.9], [0.8]], [[0.0], [0.0]]))
    >>> [str(one) for one in clqr.unexcited_directions(decoder, ["speed", "force"])]
    ['1 · force is never excited']
    """
    D = decoder.data_factor
    p = len(D)
    labels = column_names(decoder.context_map, p, names)
    lengths = np.linalg.norm(D, axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)
    used = used_entries(decoder.context_map)
    rows = [np.ones(p, bool)] if used is None else np.unique(used, axis=0)
    found: list[UnexcitedDirection] = []
    for own in rows:  # of Θ: those that have columns of their own see these alone
        _, spread, directions = np.linalg.svd((D / scale)[:, own])
        directions = directions[: len(spread)]
        unknown = np.zeros((len(spread), p))
        unknown[:, own] = directions
        for vector in _sparse_basis(unknown[spread <= _NEGLIGIBLE * max(spread[0], 1.0)]):
            mixed = np.flatnonzero(np.abs(vector) > _SHOWN * np.abs(vector).max())
            direction = vector / scale
            direction /= np.linalg.norm(direction)
            one = UnexcitedDirection(tuple(labels[i] for i in mixed), direction)
            if all(one.columns != other.columns for other in found):
                found.append(one)
    return found


def _saving(half: Float[Array, "p y"], moment: Float[Array, "y y"], prices: Array) -> float:
    """tr(M̃) - tr((I + Z̃)⁻¹M̃), Z̃ = half · moment · halfᵀ of rank y: by Woodbury's identity.

    With moment = LLᵀ and C = half L it is tr(Cᵀ M̃ C (I + CᵀC)⁻¹).
    """
    C = half @ square_root(moment)
    inner, gained = np.eye(C.shape[1]) + C.T @ C, C.T @ prices @ C
    if not np.isfinite(inner + gained).all():
        return 0.0  # a machine beyond all numbers teaches nothing
    return float(np.trace(np.linalg.solve(inner, gained)))


def _run_moments(
    decoder: Decoder,
    G: Float[Array, "n p y"],
    cost: QuadraticCost,
    start: Float[Array, " d"],
    dither: float,
) -> tuple[Float[Array, "n y y"], Float[Array, "n y y"]]:
    """Σ_h E[y yᵀ] of each machine under its controller, and the same weighted by Σ σ_i² P_ii."""
    M, W = decoder.estimate @ G, decoder.noise_estimate
    n, _, y = M.shape
    solution = solve(as_system(M, W), cost)
    solved = np.asarray(solution.solved)
    K = np.where(solved.reshape(n, 1, 1, 1), solution.policy.gains, 0.0)
    values = np.einsum("nhii->nhi", solution.value_matrices)
    variances = np.diagonal(W).copy()
    variances[list(decoder.known)] = 0.0  # rows that are known are never off
    weights = np.where(solved.reshape(n, 1), values[:, 1:] @ variances, 0.0)
    plain, weighted = np.zeros((n, y, y)), np.zeros((n, y, y))
    with np.errstate(over="ignore", invalid="ignore"):
        for h, moment in enumerate(step_moments(M, W, K, start, dither)):
            plain += moment
            weighted += weights[:, h, None, None] * moment
    finite = np.isfinite(plain + weighted).all((1, 2)).reshape(n, 1, 1)
    return np.where(finite, plain, 0.0), np.where(finite, weighted, 0.0)


def _sparse_basis(vectors: Float[Array, "k p"]) -> Float[Array, "k p"]:
    """The same space in reduced echelon form, largest pivots first: each row mixes few columns."""
    rows = vectors.copy()
    for i in range(len(rows)):
        _, column = np.unravel_index(np.abs(rows[i:]).argmax(), rows[i:].shape)
        pivot = i + int(np.abs(rows[i:, column]).argmax())
        rows[[i, pivot]] = rows[[pivot, i]]
        rows[i] /= rows[i, column]
        for j in range(len(rows)):
            if j != i:
                rows[j] -= rows[j, column] * rows[i]
    rows[np.abs(rows) < 1e-9] = 0.0
    return rows
