"""What speaks against trusting machines, whatever their controllers cost, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.extrapolation import outside
from contextual_lqr.certificates.fleet_check import FleetCheck, without_check
from contextual_lqr.certificates.model_tests.free_inputs import deceived
from contextual_lqr.certificates.model_tests.own_logs import own_doubts, spoilt_logs
from contextual_lqr.certificates.model_tests.unmodelled import in_the_long_run
from contextual_lqr.certificates.model_tests.untested_law import UNTESTED, untested
from contextual_lqr.lqr.stationary import Cost


def reasons_to_doubt(
    decoder: Decoder,
    contexts: Sequence[Any],
    G: Float[Array, "n *steps p y"],
    labels: Sequence[str | None],
    check: FleetCheck,
    cost: Cost,
    names: Sequence[str],
) -> list[list[str]]:
    """For each reason, what it says of each machine: "" if nothing.

    Machines with `labels` have data of their own; `names` are those of states and inputs.
    """
    n, population = len(contexts), decoder.population
    own = [label is not None for label in labels] or [False] * n

    def unless_seen(said: str) -> list[str]:
        return ["" if seen else said for seen in own]

    found = [[outside(decoder.context_map, one) for one in contexts]]
    if (unchecked := without_check(decoder)) is not None:
        found.append([unchecked] * n)
    else:
        alone = untested(decoder, G).tolist()
        found.append(
            [UNTESTED if one and not seen else "" for one, seen in zip(alone, own, strict=True)]
        )
    found.append([deceived(population, names)] * n)
    spoilt, odd = spoilt_logs(decoder)
    found += [[spoilt] * n, unless_seen(odd)]
    if any(own):
        places = decoder.places(decoder.context_map.keys(contexts, G), labels)
        found.append(own_doubts(population, places, names))
    found += [
        unless_seen(check.betrayed),
        [in_the_long_run(check.findings, cost, names)] * n,
    ]
    return found
