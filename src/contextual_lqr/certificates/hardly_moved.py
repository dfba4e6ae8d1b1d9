"""States and inputs that the data have hardly moved: what they do is known from the prior alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder

_LEFT = 0.25  # of the prior's variance: half its deviation


def hardly_moved(decoder: Decoder, G: Float[Array, "*steps p y"], names: Sequence[str]) -> str:
    """What the data have hardly moved, in words, at the step of which it is most."""
    each = G.reshape(-1, *G.shape[-2:])
    return max((_of_context(decoder, one, names) for one in each), key=len)


def _of_context(decoder: Decoder, G: Float[Array, "p y"], names: Sequence[str]) -> str:
    """Those of which most of the prior's variance is left in every row of [A, B], in words.

    Column l of a machine's [A, B] has the variance (GᵀC_rG)_ll before data, C_r being the prior's
    covariance, or σ_r²Λ⁻¹ with a ridge.
    """
    belief, prior = decoder.law(G), decoder.prior
    if prior is None:
        gram = (np.square(G) / decoder.regression.prior[:, None]).sum(0)
        before = np.diagonal(belief.noise)[:, None] * gram
    else:
        before = np.einsum("pl,rpq,ql->rl", G, prior.covariances, G)
    left = np.einsum("rll->rl", belief.covariances)
    unknown = before > 0
    still = unknown.any(0) & ((left > _LEFT * before) | ~unknown).all(0)
    found = [name for name, one in zip(names, still, strict=True) if one]
    return f"the data hardly excite {', '.join(found)}" if found else ""
