"""How far a machine is from what the logs have seen: its leverage against theirs.

A step with z = G(context) [x; u] has the leverage zᵀV⁻¹z: how much of what is known about Θ it asks
for. Over the rows of the logs the leverages sum to tr(V⁻¹ Σzzᵀ) ≤ p, so that theirs is p/rows on
average. The score of a machine is the mean leverage of the steps it is expected to make, over that
average: 1 asks as much as the logs, 100 needs Θ ten times as precisely as a usual logged step.
It has no units, and does not change when states, inputs or features are scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.linalg.lapack import dtrtrs

from contextual_lqr.context import BlockContext, ContextMap, FeatureContext
from contextual_lqr.decoder import Decoder

Place = Literal["inside the data", "at the edge of the data", "outside the data"]

INSIDE, EDGE = 2.0, 10.0


@dataclass(frozen=True)
class Extrapolation:
    """A score (about 1: as in the logs), where that is, and the feature that asks for most."""

    score: float
    place: Place
    feature: str

    def __str__(self) -> str:
        if self.place == "inside the data":
            return self.place
        return f"{self.place}, along {self.feature}"


def extrapolations(
    decoder: Decoder,
    matrices: Float[Array, "n p y"],
    moments: Float[Array, "n y y"],
) -> list[Extrapolation]:
    """The extrapolation of machines that make steps of the second moments E[y yᵀ], y = [x; u].

    tr(V⁻¹ G E[yyᵀ] Gᵀ) is a sum over the coordinates of z. Those of one feature are counted
    together, and the largest sum names the feature.
    """
    n, p, y = matrices.shape
    flat = np.ascontiguousarray(matrices.transpose(1, 0, 2)).reshape(p, n * y)
    half, _ = dtrtrs(decoder.factor, flat, trans=1)
    whole, _ = dtrtrs(decoder.factor, half)  # V⁻¹G
    whole = whole.reshape(p, n, y).transpose(1, 0, 2)
    shares = ((whole @ moments) * matrices).sum(-1)
    shares = shares * max(decoder.rows, 1) / p
    owners, names = feature_groups(decoder.context_map, p)
    by_feature = np.zeros((n, len(names)))
    for i in range(len(names)):
        by_feature[:, i] = shares[:, owners == i].sum(-1)
    scores = np.maximum(by_feature.sum(-1), 0.0)
    return [
        Extrapolation(float(score), place(float(score)), names[int(own)])
        for score, own in zip(scores, by_feature.argmax(-1), strict=True)
    ]


def place(score: float) -> Place:
    """The score in words."""
    if score <= INSIDE:
        return "inside the data"
    return "at the edge of the data" if score <= EDGE else "outside the data"


def feature_groups(context_map: ContextMap, p: int) -> tuple[Array, list[str]]:
    """Which feature each of the p coordinates of z belongs to, and the names of the features.

    Of the block form, rows of C and D that hold the same expressions are one feature.
    """
    if isinstance(context_map, FeatureContext):
        names = list(context_map.feature_names)
        return np.repeat(np.arange(len(names)), p // len(names)), names
    if isinstance(context_map, BlockContext) and not any(
        part is None or callable(part) for part in (context_map.C, context_map.D)
    ):
        labels = [
            f"{_entries(row)} ({part})"
            for part, block in (("states", context_map.C), ("inputs", context_map.D))
            for row in np.asarray(block, object)
        ]
        names = list(dict.fromkeys(labels))
        return np.array([names.index(label) for label in labels]), names
    return np.arange(p), [f"row {j + 1} of the context matrix" for j in range(p)]


def _entries(row: Array) -> str:
    """The expressions of a row, without the zeros; "1" for a row of numbers."""
    texts = [str(entry).strip() for entry in row if isinstance(entry, str)]
    return ", ".join(dict.fromkeys(texts)) or "1"
