"""Equations of [known] that the logs contradict, and by how much."""

from __future__ import annotations

import numpy as np

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.unmodelled import findings_of
from contextual_lqr.data.description import FleetDescription


def contradicted(about: FleetDescription, decoder: Decoder) -> list[str]:
    """In words, for each equation that was written down; shifts and disturbances are none."""
    stay, said = about.context_map.persistence, []
    for one in findings_of(decoder):
        if one.kind != "known row" or about.states[one.state].constant:
            continue
        row = about.known[one.state]
        if stay is not None and np.allclose(row, stay[one.state], rtol=0, atol=1e-12):
            continue  # a disturbance, which is only expected to stay
        state = about.states[one.state]
        unit = f" {state.unit}" if state.unit else ""
        said.append(
            f"the known equation of {state.name} is contradicted: off by {one.size:.3g}{unit} "
            f"in a step (root mean square), {one.effect:.0%} of what it leaves; is it exact?"
        )
    return said
