"""Whether any machine could have contradicted the law: as few as it has features fit any law.

Of each row of its [A, B], machine i has told rank R_i numbers, and the law [A, B] = Θ G spends
rank [R_1 G_1ᵀ; R_2 G_2ᵀ; ...] on those of all machines. What is left over is what can show that
machines deviate from it. Machines of one context show how these differ, and nothing about the
features: for other contexts they count as one.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder

UNTESTED = (
    "so few machines were logged that any law with these features fits them: one with another "
    "context would test it"
)

_MACHINES = 1000  # at most that are looked at, spread over all
_RANK = 1e-9  # relative to the largest: directions that nobody has moved along


def untested(decoder: Decoder, matrices: Float[Array, "n *steps p y"]) -> Bool[Array, " n"]:
    """For which of these machines, never seen, nothing logged has tested the law.

    Deviations that are given need no test, and contexts that change are one.
    """
    population = decoder.population
    if population is None or population.given or decoder.changing is not None:
        return np.zeros(len(matrices), bool)
    places = np.linspace(0, len(population.factors) - 1, _MACHINES).astype(int)
    some = population.factors[np.unique(places)]
    X = some.reduced.X
    spent = _rank(X.reshape(-1, X.shape[2]))
    if _told(some.R, np.arange(len(some))) <= spent:
        return np.ones(len(matrices), bool)
    contexts, of = np.unique(some.maps.reshape(len(some), -1), axis=0, return_inverse=True)
    if _told(some.R, of.ravel()) > spent:
        return np.zeros(len(matrices), bool)
    asked = matrices.reshape(len(matrices), -1, 1, contexts.shape[1])
    return np.asarray(~(asked == contexts).all(-1).any(-1).all(-1))


def _told(R: Float[Array, "N q y"], of: Int[Array, " N"]) -> int:
    """How many numbers machines have told that are the same within each group."""
    return sum(_rank(R[of == i].reshape(-1, R.shape[2])) for i in range(of.max(initial=-1) + 1))


def _rank(rows: Float[Array, "k y"]) -> int:
    sizes = np.sqrt(np.square(rows).sum(0))
    return int(np.linalg.matrix_rank(rows / np.where(sizes > 0, sizes, 1.0), rtol=_RANK))
