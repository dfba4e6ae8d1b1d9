"""Which data can be merged: those of one fleet, learnt in one way, and each only once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextual_lqr.belief.regression import listed, listed_level
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap

if TYPE_CHECKING:
    from contextual_lqr.belief.evidence.fleet_data import FleetData


def require_mergeable(one: FleetData, other: FleetData, allow_repeats: bool) -> ContextMap:
    """The context map of both, sized, if they can be merged."""
    mine, theirs = one.context_map, other.context_map
    shapes = [each.shape for each in (mine, theirs) if each.shape is not None]
    if shapes:  # one of them may not know its sizes yet
        mine, theirs = (each.sized(*shapes[0][1:]) for each in (mine, theirs))
    both = one, other
    for name, ours, its in (
        ("context map", mine, theirs),
        ("regularisation", *(each.regularisation for each in both)),
        ("noise level", *(listed_level(each.given_noise_level) for each in both)),
        ("set of known rows", *(listed(each.known) for each in both)),
        ("set of scales", *(listed_level(each.scales) for each in both)),
        ("treatment of deviations", *(each._machines is not None for each in both)),
    ):
        require(ours == its, f"only decoders of one {name} can be merged, not {ours} and {its}")
    # A BlockContext takes pairs of any size, so p shows only in what was learnt.
    sizes = {each.logged.most.shape for each in both if each.logged is not None}
    named = " and ".join(map(str, sorted(sizes)))
    require(len(sizes) < 2, f"only decoders of one size of G(context) can be merged, not {named}")
    prior = one.given_prior
    same = other.given_prior is None if prior is None else prior.same_as(other.given_prior)
    require(
        same,
        f"only decoders of one prior, which counts once, can be merged, not {prior} and "
        f"{other.given_prior}",
    )
    shared = 0 if allow_repeats else one._digests.overlap(other._digests)
    require(
        not shared,
        f"both have learnt from the same data ({shared} episodes or tables of them), which "
        "would count twice; if you want that, allow repeats",
    )
    return mine
