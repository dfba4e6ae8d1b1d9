"""How far a machine is from what the logs have seen: its leverage against theirs.

A row z of the logs has the leverage zᵀV⁻¹z, how much of what is known about Θ it asks for. Over all
rows the leverages sum to tr(V⁻¹ Σzzᵀ) ≤ p: they are p/rows on average. The score of a machine is
its leverage over that average. 1 is a usual machine of the logs; one of score 100 needs Θ ten times
as precisely. It does not change when states, inputs or features are scaled.

For features, z = φ(context) ⊗ y with y = [x; u], the context is scored alone, whatever y is. Each
coordinate of y, scaled to the same size, gives a Gram matrix of the features, and their sum is

    Γ = Σ_rows w φφᵀ,   w = Σ_l y_l² / Σ_rows y_l²,    score = (Σ_rows w) φᵀΓ⁻¹φ / k

which is 1 on average over the rows, by weight. Σ w is the entry of Γ that belongs to the constant
feature. Where there is none, and for other maps, the leverage is that of the steps z = G y which
the machine is expected to make; it then grows too where states and inputs exceed those logged.

A law that fits two kinds of machines says nothing about those halfway, as little as about those
beyond, though their leverage is small. So a machine is in a gap of the data where one of what is
kept of its context, such as a feature, is 5 % of the range of those logged from the nearest on
either side, and these are half of the range apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.factors import solve_triangle
from contextual_lqr.context import ContextMap, FeatureContext, Schedule
from contextual_lqr.context.columns import feature_groups, kept_names
from contextual_lqr.context.expressions import parse

Place = Literal[
    "inside the data", "at the edge of the data", "in a gap of the data", "outside the data"
]

_PLACES = get_args(Place)
INSIDE, EDGE = 2.0, 10.0
_WIDE, _NEAR = 0.5, 0.05  # of the range of the logs
_MACHINES = 1000  # at most that are looked at, spread over all

_STATES, _INPUTS = "1 (states)", "1 (inputs)"  # rows of C and D without a context


@dataclass(frozen=True)
class Extrapolation:
    """A score (about 1: as in the logs), where that is, and the feature that asks for most."""

    score: float
    place: Place
    feature: str

    def __str__(self) -> str:
        if np.isinf(self.score):
            return "outside the data, of which there are none"
        if self.place == "inside the data":
            return self.place
        if self.feature in (_STATES, _INPUTS):
            return f"{self.place}, by the size of its states and inputs"
        return f"{self.place}, along {self.feature}"


def extrapolations(
    decoder: Decoder, matrices: Float[Array, "n p y"], moments: Float[Array, "n y y"]
) -> list[Extrapolation]:
    """The extrapolation of machines that make steps of the second moments E[y yᵀ], y = [x; u].

    The feature named is the one most deviations away from its mean in the logs; of steps, the one
    with the largest part of the leverage.
    """
    if not decoder.rows:
        return [Extrapolation(np.inf, "outside the data", "")] * len(matrices)
    owners, names = feature_groups(decoder.context_map, matrices.shape[1])
    constant = _constant_feature(decoder.context_map)
    if constant is None:
        shares = _of_steps(decoder, matrices, moments, owners, len(names))
        scores = np.maximum(shares.sum(-1), 0.0)
    else:
        scores, shares = _of_contexts(decoder, matrices, len(names), *constant)
    found = [
        Extrapolation(float(score), place(float(score)), names[int(own)])
        for score, own in zip(scores, shares.argmax(-1), strict=True)
    ]
    return between(found, decoder, decoder.context_map.condensed(matrices))


def between(
    found: list[Extrapolation], decoder: Decoder, kept: Float[Array, "n ..."]
) -> list[Extrapolation]:
    """The same, but in a gap of the data where that is so, by what is kept of the contexts."""
    store = decoder.store
    if store is None or not len(store) or decoder.changing is not None:
        return found
    at = np.unique(np.linspace(0, len(store) - 1, _MACHINES).astype(int))
    logged, asked = store.contexts[at].reshape(len(at), -1), kept.reshape(len(found), -1)
    names, found = kept_names(decoder.context_map, asked.shape[1]), list(found)
    for j in np.flatnonzero(np.ptp(logged, axis=0) > 0):
        values, x = np.unique(logged[:, j]), asked[:, j]
        right = np.searchsorted(values, x).clip(1, len(values) - 1)
        below, above = x - values[right - 1], values[right] - x
        whole = values[-1] - values[0]
        gap = (below + above > _WIDE * whole) & (np.minimum(below, above) > _NEAR * whole)
        for i in np.flatnonzero(gap):
            if found[i].place != "outside the data":
                found[i] = replace(found[i], place="in a gap of the data", feature=names[j])
    return found


def farthest(
    decoder: Decoder, matrices: Float[Array, "n *steps p y"], moments: Float[Array, "n y y"]
) -> list[Extrapolation]:
    """The same for machines whose context may change: that of the step that is farthest."""
    if matrices.ndim == 3:
        return extrapolations(decoder, matrices, moments)
    return [
        max(
            extrapolations(decoder, own, np.repeat(moment[None], len(own), 0)),
            key=lambda one: (_PLACES.index(one.place), one.score),
        )
        for own, moment in zip(matrices, moments, strict=True)
    ]


def outside(context_map: ContextMap, context: Any) -> str:
    """What lies outside its declared bounds, in words; of a schedule, the first that does."""
    if not isinstance(context, Schedule):
        return context_map.outside(context)
    return next(filter(None, map(context_map.outside, context.one_by_one)), "")


def _of_contexts(
    decoder: Decoder, matrices: Float[Array, "n p y"], k: int, constant: int, value: float
) -> tuple[Float[Array, " n"], Float[Array, "n k"]]:
    """The score of φ alone, and how many squared deviations each feature is from its mean."""
    y = matrices.shape[2]
    root = _gram_root(decoder, y, constant)
    weight = float((root[:, constant] ** 2).sum()) / value**2
    phi = matrices[:, ::y, 0]  # G = φ ⊗ I
    half = solve_triangle(root, phi.T, transposed=True)
    mean = root[:, constant] @ root / (value * weight)
    variance = np.maximum((root**2).sum(0) / weight - mean**2, 1e-12 * mean**2 + 1e-300)
    away = (phi - mean) ** 2 / variance
    away[:, constant] = -1.0 if k > 1 else 0.0
    return np.asarray((half**2).sum(0) * weight / k), away


def context_root(decoder: Decoder) -> Float[Array, "k k"] | None:
    """The triangle with the score |root⁻ᵀ φ|² of a context; None if steps are scored instead."""
    constant = _constant_feature(decoder.context_map)
    if constant is None:
        return None
    place, value = constant
    root = _gram_root(decoder, decoder.context_map.matrix_width, place)
    weight = float((root[:, place] ** 2).sum()) / value**2
    return np.asarray(root * np.sqrt(len(root) / weight))


def _gram_root(decoder: Decoder, y: int, constant: int) -> Float[Array, "k k"]:
    """The triangle with Γ = rootᵀ root."""
    columns = [decoder.factor[:, i::y] for i in range(y)]  # those of y_i, one for each feature
    # By the constant feature: the size of y_l, whatever the units of the others.
    rows = np.concatenate([one / np.linalg.norm(one[:, constant]) for one in columns])
    return np.asarray(np.linalg.qr(rows)[1])


def _of_steps(
    decoder: Decoder,
    matrices: Float[Array, "n p y"],
    moments: Float[Array, "n y y"],
    owners: Array,
    k: int,
) -> Float[Array, "n k"]:
    """The shares of the features in the score of the steps: tr(V⁻¹ G E[yyᵀ] Gᵀ), by rows."""
    n, p, y = matrices.shape
    flat = np.ascontiguousarray(matrices.transpose(1, 0, 2)).reshape(p, n * y)
    half = solve_triangle(decoder.factor, flat, transposed=True)
    whole = solve_triangle(decoder.factor, half)  # V⁻¹G
    whole = whole.reshape(p, n, y).transpose(1, 0, 2)
    shares = ((whole @ moments) * matrices).sum(-1) * max(decoder.rows, 1) / p
    return np.stack([shares[:, owners == i].sum(-1) for i in range(k)], 1)


def _constant_feature(context_map: ContextMap) -> tuple[int, float] | None:
    """The place and the value of a feature that is the same for all machines."""
    if not isinstance(context_map, FeatureContext):
        return None
    described = context_map.describe()
    for i, (_, text) in enumerate(described["features"] if described else ()):
        feature = parse(text)
        if not feature.names and feature({}) != 0:
            return i, float(feature({}))
    return None


def place(score: float, inside: float = INSIDE, edge: float = EDGE) -> Place:
    """The score in words."""
    if score <= inside:
        return "inside the data"
    return "at the edge of the data" if score <= edge else "outside the data"
