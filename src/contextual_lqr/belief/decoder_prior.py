"""A decoder about its prior: what it knew before data, and the regression about that.

With `scales` alone machines are expected to stay where they are, [A, B] = [I, 0], as they do when
sampled often enough, give or take changes of natural sizes. The features have theirs from the
contexts that were logged; before data, within declared bounds; without such, at the one machine
asked about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from contextual_lqr.belief.machines.shared_unknowns import SharedUnknowns
from contextual_lqr.belief.prior import Prior, usual_matrix, with_known_rows
from contextual_lqr.belief.regression import NATURAL
from contextual_lqr.belief.shrinkage import Shrunk, shrink_rows
from contextual_lqr.context import Dynamics
from contextual_lqr.context.dynamics import used_entries
from contextual_lqr.errors import InputError

if TYPE_CHECKING:
    from contextual_lqr.belief.decoder import Decoder


_LITTLE = 1e6  # squared: how much larger than natural sizes entries may be that nothing is known of


def prior_of(decoder: Decoder, G: Float[Array, "p y"] | None = None) -> Prior | None:
    """The prior of a decoder, if it has one; G is the machine asked about."""
    used = used_entries(decoder.context_map)
    if decoder.given_prior is not None:
        return decoder.given_prior
    if decoder.scales is None:
        return None if used is None else _zeros_alone(decoder, used)
    p, d = decoder.regression.p, decoder.regression.d
    usual = _usual_matrix(decoder)
    if usual is None:
        usual = np.ones((p, len(decoder.scales))) if G is None else np.abs(G)
    last = decoder.last_natural
    if last is None or not np.array_equal(last[0], usual):
        law = decoder.context_map.persistence
        prior = Prior.natural(usual, decoder.scales, np.zeros((d, p)) if law is None else law)
        prior = with_known_rows(prior, decoder.known, decoder.context_map.shape, used)[0]
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
    if shared := unknowns_of(decoder):
        return shared.shrunk(decoder.regression, decoder.rows, prior)
    data, p = decoder.regression.data, decoder.regression.p
    return shrink_rows(data[None, :, :p], data[:, p:].T, decoder.rows, prior, _level(decoder))


def unknowns_of(decoder: Decoder) -> SharedUnknowns | None:
    """How the rows of Θ share their unknowns, if they do."""
    if not (isinstance(decoder.context_map, Dynamics) and decoder.context_map.shared):
        return None
    return SharedUnknowns.of(decoder.regression, _level(decoder))


def _level(decoder: Decoder) -> Float[Array, " d"]:
    """The noise of each state, roughly."""
    d = decoder.regression.d
    level = np.broadcast_to(decoder.noise_level, (d,))
    # Where a state is exact, the noise of the least noisy one for its size.
    sizes = decoder.regression.sizes if decoder.scales is None else decoder.scales[:d]
    return np.where(level > 0, level, (level / sizes)[level > 0].min() * sizes)


def _zeros_alone(decoder: Decoder, used: Bool[Array, "d p"]) -> Prior:
    """What says that entries are 0, and of the others next to nothing."""
    regression = decoder.regression
    levels = np.broadcast_to(decoder.noise_level, (regression.d,))
    if decoder.regularisation is None:  # Λ is NATURAL times the mean of z²
        levels = np.sqrt(_LITTLE * NATURAL) * regression.sizes
    variances = np.square(levels)[:, None] / regression.prior
    prior = Prior(np.zeros(used.shape), variances[:, :, None] * np.eye(regression.p))
    return with_known_rows(prior, decoder.known, decoder.context_map.shape, used)[0]


def _usual_matrix(decoder: Decoder) -> Float[Array, "p y"] | None:
    context_map, scales = decoder.context_map, decoder.scales
    if isinstance(context_map, Dynamics) and scales is not None:
        sizes = context_map.usual_sizes(scales)
        if sizes is None and decoder.logged is not None:
            sizes = np.maximum(-decoder.logged.low, decoder.logged.high)
        if sizes is None:
            raise InputError(
                "the size of features is unknown before there are data: declare bounds of the "
                "contexts, or leave scales out"
            )
        # What rows of this length, in units of the scales, are.
        return np.outer(sizes, 1 / scales / np.sqrt(len(scales)))
    if decoder.logged is not None:
        return decoder.logged.G
    return usual_matrix(decoder.context_map)
