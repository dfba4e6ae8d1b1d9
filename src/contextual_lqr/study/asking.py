"""A plan that accounts for what others are playing.

The policy is that of what is known: a belief in what nobody has seen yet must not choose one. The
dither is that of what will be known once all that is out has come back, so that machines that play
at once do not all probe the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.lqr.problem import LinearSystem, Trajectory
from contextual_lqr.planning.agent import Agent
from contextual_lqr.planning.plan import Plan, planned
from contextual_lqr.study.encoding import plan_fields
from contextual_lqr.study.log import Ask


def generator(key: str) -> np.random.Generator:
    """The random numbers of an ask: the same for the same key."""
    return np.random.default_rng(list(key.encode()))


def plan_beside(
    agent: Agent, context: Any, machine: str | None, start: Any, key: str, out: Sequence[Ask]
) -> Plan:
    """What this machine is to play while the asks that are `out` are being played."""
    rng = generator(key)
    problem = agent._problem(context, start, None, machine)
    choice = agent.strategy.choose(problem, rng)
    if choice.dither is not None and out:
        soon = replace(problem, decoder=expected(agent.decoder, out))
        choice = replace(choice, dither=agent.strategy.choose(soon, rng).dither)
    bounds, estimate = agent.input_bounds, agent.decoder.estimate
    return planned(context, choice, estimate, bounds, rng, machine)


def expected(decoder: Decoder, asks: Iterable[Ask]) -> Decoder:
    """What will be known once these asks are told, if the machines do as is expected.

    Each plan is played on its machine as it is believed to be, with noise as it is believed to be,
    so that what is expected stays the same, and what is unknown shrinks where it is being probed.
    """
    twin = decoder.copy()
    for ask in asks:
        plan, x = plan_fields(ask.content, ask.context, f"ask {ask.key}")
        context, rng = plan["context"], generator(ask.key)
        G = decoder.context_map.matrix(context)
        (machine_key,) = decoder.context_map.keys([context], G[None])
        system = decoder.machine_at(G, machine_key, ask.machine).system
        played = _imagined(system, plan["policy"].gains, plan["offsets"], x, rng)
        if played is not None:
            twin.update(context, played, ask.machine)
    return twin


def _imagined(
    system: LinearSystem, gains: Any, offsets: Any, x: Any, rng: np.random.Generator
) -> Trajectory | None:
    states, inputs = [x], []
    noise = rng.standard_normal((len(gains), len(x))) @ system.noise_factor.T
    with np.errstate(over="ignore", invalid="ignore"):
        for K, offset, w in zip(gains, offsets, noise, strict=True):
            inputs.append(K @ states[-1] + offset)
            states.append(system.A @ states[-1] + system.B @ inputs[-1] + w)
    if not (np.isfinite(states).all() and np.isfinite(inputs).all()):
        return None  # it is expected to run away: nothing is to be learnt from that
    return Trajectory(np.array(states), np.array(inputs))
