"""The agent that a study begins with, of whatever says which fleet it is."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import numpy as np

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.checks import shown
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.errors import InputError
from contextual_lqr.fleets.fleet import Fleet
from contextual_lqr.planning.agent import Agent


def agent_of(fleet: Any) -> tuple[Agent, str | None]:
    """The agent, and the text of the description if there is one."""
    if isinstance(fleet, Agent):
        return fleet, None
    if isinstance(fleet, Fleet):
        return fleet.agent(), None
    if isinstance(fleet, str | os.PathLike):
        fleet = FleetDescription.read(fleet)
    if isinstance(fleet, FleetDescription):
        return _described(fleet), fleet.text
    raise InputError(
        "fleet must be an Agent, one of the simulated fleets, a FleetDescription or the path of "
        f"one, not {shown(fleet)}"
    )


def described_agent(text: str | None) -> Agent | None:
    """The agent of a description, if there is one that needs no files beside it."""
    fleet = description_of(text)
    return None if fleet is None else _described(fleet)


def description_of(text: str | None) -> FleetDescription | None:
    """What the text describes, if there is one that needs no files beside it."""
    if text is None:
        return None
    with suppress(InputError):
        return FleetDescription.parse(text)
    return None


def _described(fleet: FleetDescription) -> Agent:
    """Machines as they are: what each has shown is kept apart, and inputs stay within limits."""
    limits = np.array([(one.low, one.high) for one in fleet.inputs]).T
    agent = Agent(
        fleet.context_map,
        fleet.episode_cost,
        fleet.start,
        noise_level=fleet.noise_level,
        deviations="estimated",
        input_bounds=(limits[0], limits[1]) if np.isfinite(limits).any() else None,
        prior=fleet.prior,
        scales=fleet.scales,
    )
    if fleet.known:
        old = agent.decoder
        agent.decoder = Decoder(
            old.context_map,
            noise_level=old.given_noise_level,
            known=fleet.known,
            prior=fleet.prior,
            scales=old.scales,
        )
    return agent
