"""A decoder about its prior: what it knew before data, and the regression about that.

With `scales` alone machines are expected to stay where they are, [A, B] = [I, 0], as they do when
sampled often enough, give or take changes of natural sizes. The features have theirs from the
contexts that were logged; before data, within declared bounds; without such, at the one machine
asked about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.prior import Prior, usual_matrix, with_known_rows
from contextual_lqr.belief.shrinkage import Shrunk, shrink
from contextual_lqr.errors import InputError

if TYPE_CHECKING:
    from contextual_lqr.belief.decoder import Decoder


def prior_of(decoder: Decoder, G: Float[Array, "p y"] | None = None) -> Prior | None:
    """The prior of a decoder, if it has one; G is the machine asked about."""
    if decoder.given_prior is not None or decoder.scales is None:
        return decoder.given_prior
    p, d = decoder.regression.p, decoder.regression.d
    usual = _usual_matrix(decoder)
    if usual is None:
        usual = np.ones((p, len(decoder.scales))) if G is None else np.abs(G)
    last = decoder.last_natural
    if last is None or not np.array_equal(last[0], usual):
        law = decoder.context_map.persistence
        prior = Prior.natural(usual, decoder.scales, np.zeros((d, p)) if law is None else law)
        prior = with_known_rows(prior, decoder.known, decoder.context_map.shape)[0]
        decoder.last_natural = last = (usual, prior)
    return last[1]


def has_prior_sizes(decoder: Decoder) -> bool:
    """Whether the prior is the same for all machines."""
    fixed = decoder.given_prior is not None or decoder.scales is None
    return fixed or _usual_matrix(decoder) is not None


def shrunk_about(decoder: Decoder, prior: Prior | None) -> Shrunk:
    """The regression on what the decoder has learnt about this prior."""
    if prior is None:
        raise InputError("this decoder has no prior but a ridge")
    data, p, d = decoder.regression.data, decoder.regression.p, decoder.regression.d
    # Where a state is exact, the noise of the least noisy one for its size.
    level = np.broadcast_to(decoder.noise_level, (d,))
    sizes = decoder.regression.sizes if decoder.scales is None else decoder.scales[:d]
    level = np.where(level > 0, level, (level / sizes)[level > 0].min() * sizes)
    each = np.empty((d, len(data), p + 1))  # [D, E_r] for every row r
    each[..., :p], each[..., p] = data[:, :p], data[:, p:].T
    return shrink(each, decoder.rows, prior, level)


def _usual_matrix(decoder: Decoder) -> Float[Array, "p y"] | None:
    if decoder.logged is not None:
        return decoder.logged.G
    return usual_matrix(decoder.context_map)
