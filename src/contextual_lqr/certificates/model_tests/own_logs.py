"""Whether machines' own logs fit what is believed about them.

The fleet's law, and how far machines are believed to deviate from it, may outvote what a machine
has shown. Two things in its factors R, F would tell that, and that its rows were spoilt:

    errors    what its own least squares leaves over, rss_r / (n - y), is ten times the usual: a
              few rows that do not belong, such as two runs glued together
    free      the part of its inputs that does not follow the states, F_u = R_uu B_iᵀ + noise
              (`free_inputs.py`), is far from R_uu B̂_iᵀ: an input that is dead, say

The first spoils what is believed of this machine; where many have it, the law. The second says that
some machines are not of those which the law and its deviations describe: the next may be one, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array
from scipy.special import chdtrc

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.machines.population import Population
from contextual_lqr.certificates.model_tests.explained import EXACT

_LEVEL = 0.001  # of all machines together
_LARGE = 10.0  # times the usual variance
_MATTERS = 0.1  # of what the free part of inputs does
_SPOILT, _ODD = 0.2, 0.02  # shares of machines that are too many
_FEWEST, _MACHINES = 5, 1000  # machines, and at most that are looked at, spread over all


class _Misfits(NamedTuple):
    """Which machines have large errors, how much larger, in which state; whose inputs are odd."""

    large: Bool[Array, " n"]
    times: Float[Array, " n"]
    states: Int[Array, " n"]
    odd: Bool[Array, " n"]
    off: Float[Array, " n"]


def own_doubts(
    population: Population | None, places: Sequence[int | None], names: Sequence[str]
) -> list[str]:
    """What the own logs of machines at these places say against them; "" if nothing."""
    said, at = [""] * len(places), [i for i, place in enumerate(places) if place is not None]
    if not at or population is None or len(population.factors) < _FEWEST:
        return said
    found = _misfits(population, np.array([places[i] for i in at], int))
    for k, i in enumerate(at):
        if found.large[k]:
            said[i] = (
                f"the errors of {names[found.states[k]]} in its own logs are "
                f"{np.sqrt(found.times[k]):.2g} times the usual: do all rows belong to it, one "
                "after the other?"
            )
        elif found.odd[k]:
            said[i] = (
                f"what its inputs did in its own logs is {found.off[k]:.0%} off what is believed "
                "of it"
            )
    return said


def spoilt_logs(decoder: Decoder) -> tuple[str, str]:
    """What the logs of many say against the law, and against it for machines never seen; or "".

    Computed once, and kept until data come.
    """
    kept, population = decoder.kept, decoder.population
    if "spoilt logs" not in kept:
        few = population is None or len(population.factors) < _FEWEST
        kept["spoilt logs"] = ("", "") if population is None or few else _spoilt(population)
    found: tuple[str, str] = kept["spoilt logs"]
    return found


def _spoilt(population: Population) -> tuple[str, str]:
    places = np.linspace(0, len(population.factors) - 1, _MACHINES).astype(int)
    found = _misfits(population, np.unique(places))
    n, large, odd = len(found.odd), int(found.large.sum()), int(found.odd.sum())
    all_of, unseen = "", ""
    if large > _SPOILT * n:
        all_of = (
            f"the logs of {large} of {n} machines have errors far larger than those of the others, "
            "as if they held rows of something else"
        )
    if odd > _ODD * n:
        unseen = (
            f"what inputs did in the logs of {odd} of {n} machines is not what is believed of these"
        )
    return all_of, unseen


def _misfits(population: Population, places: Int[Array, " n"]) -> _Misfits:
    factors = population.factors
    N, d = len(factors), factors.F.shape[2]
    sizes = np.square(factors.F).sum((0, 1)) / max(factors.rows.sum(), 1.0)
    noisy = population.variances > EXACT**2 * sizes  # the others are as good as given
    learnt = np.array([r for r in range(d) if r not in population.known and noisy[r]], int)
    n, m = len(places), factors.R.shape[2] - d
    none = np.zeros(n, bool)
    if not len(learnt):
        return _Misfits(none, np.ones(n), np.zeros(n, int), none, np.zeros(n))
    spare = np.maximum(factors.rows - factors.R.shape[1], 0.0)
    variances = factors.rss[:, learnt] / np.maximum(spare, 1.0)[:, None]
    tests = spare > 0
    usual = np.full(len(learnt), np.inf)
    if tests.any():  # more than half may be spoilt
        usual = np.quantile(variances[tests], 0.25, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(variances[places] / usual, nan=1.0)
    ratio = np.where(tests[places, None], ratio, 1.0)
    chance = chdtrc(np.maximum(spare[places], 1.0)[:, None], spare[places, None] * ratio)
    level = _LEVEL / N / len(learnt)
    worst = ratio.argmax(1)
    large = ((chance <= level) & (ratio > _LARGE)).any(1)

    means = _believed(population, places)[:, learnt]
    R, F = factors.R[places, d:, d:], factors.F[places, d:][..., learnt].transpose(0, 2, 1)
    done = np.einsum("nij,nrj->nri", R, means[:, :, d:])
    noise = np.maximum(population.variances[learnt], variances[places])[..., None]
    away = np.square(F - done) / noise
    off = np.sqrt(away.sum((1, 2)) / np.maximum((np.square(done) / noise).sum((1, 2)), 1e-300))
    odd = chdtrc(m * len(learnt), away.sum((1, 2))) <= _LEVEL / N
    odd &= (off > _MATTERS) & tests[places]
    return _Misfits(large, ratio.max(1), learnt[worst], odd, off)


def _believed(population: Population, places: Int[Array, " n"]) -> Float[Array, "n d y"]:
    """The mean of [A, B] of each, with its own data."""
    found: Array = np.einsum(
        "rp,npy->nry", population.pooled.theta, population.factors.maps[places]
    )
    if (rows := population.deviating).any():
        found[:, rows] = population.own(places).means[:, rows]
    return found
