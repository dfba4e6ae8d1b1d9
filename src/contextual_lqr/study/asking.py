"""A plan that accounts for what others are playing.

The policy is that of what is known: a belief in what nobody has seen yet must not choose one. The
dither probes what will be unknown even when all that is out has come back, so that machines that
play at once do not all probe the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.lqr.problem import LinearSystem, Trajectory
from contextual_lqr.planning.agent import Agent
from contextual_lqr.planning.plan import Plan, planned
from contextual_lqr.study.encoding import plan_fields
from contextual_lqr.study.log import Ask, Log

_OUT = 32  # asks that a plan accounts for at most, the latest
_LITTLE = 8  # times as many rows are known: all that is out would change deviations by 6 %


def generator(key: str) -> np.random.Generator:
    """The random numbers of an ask: the same for the same key."""
    return np.random.default_rng(list(key.encode()))


def asks_out(agent: Agent, log: Log, now: float) -> list[Ask]:
    """The asks that a plan accounts for: none of them where they can teach little."""
    few = _OUT * (agent.cost.horizon - 1) * _LITTLE < agent.decoder.rows
    return [] if few else log.open_asks(now, _OUT)


def plan_beside(
    agent: Agent, context: Any, machine: str | None, start: Any, key: str, out: Sequence[Ask]
) -> Plan:
    """What this machine is to play while the asks that are `out` are being played."""
    rng = generator(key)
    problem = agent._problem(context, start, None, machine)
    if out and agent.decoder.rows:  # else there is nothing to expect
        soon = replace(problem, decoder=expected(agent.decoder, out))
        problem = replace(problem, later=soon.machine)
    choice = agent.strategy.choose(problem, rng)
    bounds, estimate = agent.input_bounds, agent.decoder.estimate
    return planned(context, choice, estimate, bounds, rng, machine)


def expected(decoder: Decoder, asks: Sequence[Ask]) -> Decoder:
    """What will be known once these asks are told, if the machines do as is expected.

    Each plan is played on its machine as it is believed to be, with noise as it is believed to be,
    so that what is expected stays the same, and what is unknown shrinks where it is being probed.
    """
    twin = decoder.copy()
    out = [_read(ask.key, ask.context, bytes(ask.content)) for ask in asks]
    contexts, context_map = [one.context for one in out], decoder.context_map
    G = context_map.matrices(contexts)
    keys = context_map.keys(contexts, G)
    labels = [ask.machine for ask in asks]
    played = _imagined(decoder._belief(G, keys, own_labels(decoder, labels, keys)).system, out)
    # What is expected to run away teaches nothing.
    some = [k for k, one in enumerate(played) if one is not None]
    twin.update_many(
        [contexts[k] for k in some],
        [one for one in played if one is not None],
        [labels[k] for k in some],
    )
    return twin


def own_labels(decoder: Decoder, labels: Sequence[str | None], keys: Array) -> list[str | None]:
    """The labels of machines with data of their own; None for one never seen in its context."""
    store = decoder.store
    return [
        label if label and store is not None and store.place(label, key) is not None else None
        for label, key in zip(labels, keys, strict=True)
    ]


class _Out(NamedTuple):
    """What an ask is playing, from where, and with which noise it is imagined."""

    context: Any
    start: Float[Array, " d"]
    gains: Float[Array, "steps m d"]
    offsets: Float[Array, "steps m"]
    low: Float[Array, " m"]
    high: Float[Array, " m"]
    noise: Float[Array, "steps d"]


@lru_cache(256)
def _read(key: str, context: str, content: bytes) -> _Out:
    plan, start = plan_fields(content, context, f"ask {key}")
    gains = plan["policy"].gains
    none = np.full(gains.shape[1], np.inf)
    low, high = plan["input_bounds"] or (-none, none)
    noise = generator(key).standard_normal((len(gains), len(start)))
    return _Out(plan["context"], start, gains, plan["offsets"], low, high, noise)


def _imagined(systems: LinearSystem, out: Sequence[_Out]) -> list[Trajectory | None]:
    """Each plan played on its machine; None for one that runs away."""
    x, gains, offsets, low, high, noise = (
        np.stack(each) for each in list(zip(*out, strict=True))[1:]
    )
    noise = noise @ systems.noise_factor.mT
    states, inputs = [x], []
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(gains.shape[1]):
            u = (gains[:, step] @ x[..., None])[..., 0] + offsets[:, step]
            u = np.clip(u, low, high)
            x = (systems.A @ x[..., None] + systems.B @ u[..., None])[..., 0] + noise[:, step]
            states.append(x)
            inputs.append(u)
    X, U = np.stack(states, 1), np.stack(inputs, 1)
    finite = np.isfinite(X).all((1, 2)) & np.isfinite(U).all((1, 2))
    return [
        Trajectory(one, its) if good else None for one, its, good in zip(X, U, finite, strict=True)
    ]
