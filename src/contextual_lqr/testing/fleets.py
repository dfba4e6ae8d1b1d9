"""What every simulated fleet must satisfy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.fleets import Fleet, true_system
from contextual_lqr.lqr.problem import LinearPolicy
from contextual_lqr.testing.verdict import expect, refused


def check_fleet(fleet: Fleet, seed: int = 0) -> None:
    """Play the fleet, and compare what happens with what it says of itself.

    Needs a fleet whose truth is known and whose contexts have names and bounds. A check of the
    noise compares statistics of some hundred steps, and errs about once in ten thousand times.
    """
    rng = np.random.default_rng(seed)
    _descriptions(fleet)
    _contexts(fleet, rng)
    _episodes(fleet, rng)
    _same_seed(fleet, seed)
    _state_bound(fleet, rng)
    _teaching(fleet, rng)


def _descriptions(fleet: Fleet) -> None:
    d, m = len(fleet.start), fleet.cost.input_size
    expect(fleet.cost.state_size == d, f"cost is for {fleet.cost.state_size} states, start has {d}")
    expect(fleet.noise.shape == (d, d), f"noise must be {(d, d)}, not {fleet.noise.shape}")
    expect(len(fleet.states) in (0, d), f"states must name all {d} coordinates, or none")
    expect(len(fleet.inputs) in (0, m), f"inputs must name all {m} inputs, or none")
    unknown = set(fleet.units) - set(fleet.context_map.names or ())
    expect(not unknown, f"units are given for {', '.join(sorted(unknown))}, which no context has")
    limit = np.inf if fleet.state_limit is None else np.array(fleet.state_limit)
    expect((np.abs(fleet.start) < limit).all(), "start must be within state_limit")


def _contexts(fleet: Fleet, rng: np.random.Generator) -> None:
    names, bounds = fleet.context_map.names, fleet.context_map.bounds
    if not names or not bounds:
        raise AssertionError("the contexts must have names and bounds, so that they can be checked")
    for name in names:
        low, high = bounds[name]
        drawn = np.array([fleet.sample_context(rng)[name] for _ in range(500)])
        inside = ((low <= drawn) & (drawn <= high)).all()
        expect(inside, f"sample_context draws {name} outside its bounds {(low, high)}")
        share = (drawn.max() - drawn.min()) / (high - low)
        expect(share > 0.5, f"500 contexts cover only {share:.0%} of the bounds of {name}")
    for name in names:
        one, other = fleet.sample_context(rng), fleet.sample_context(rng)
        before, after = (true_system(fleet, c) for c in (one, one | {name: other[name]}))
        same = np.array_equal(before.A, after.A) and np.array_equal(before.B, after.B)
        expect(not same, f"{name} changes neither A nor B: leave it out of the context")
    good = fleet.sample_context(rng)
    for what, bad in {
        "a context without values": {},
        "a context with an unknown name": good | {"no such name": 1.0},
        f"{names[0]} = nan": good | {names[0]: math.nan},
        f"{names[0]} far outside its bounds": good
        | {names[0]: 1e9 * (1 + abs(bounds[names[0]][1]))},
    }.items():
        with refused(what):
            true_system(fleet, bad)


def _episodes(fleet: Fleet, rng: np.random.Generator) -> None:
    """An episode obeys the truth but for noise, which is as large as the fleet says, and white."""
    shocks = []
    for _ in range(40):
        context = fleet.sample_context(rng)
        played, truth = fleet.play(_some_policy(fleet), context, rng), true_system(fleet, context)
        x, u = played.states, played.inputs
        expect(np.array_equal(x[0], fleet.start), "an episode must begin at start")
        expect(len(x) == fleet.cost.horizon, "an episode must be as long as the cost's horizon")
        expect(
            np.array_equal(truth.noise, fleet.noise), "every machine must have the fleet's noise"
        )
        shocks.append(x[1:] - x[:-1] @ truth.A.T - u @ truth.B.T)
    w, variances = np.concatenate(shocks), np.diag(fleet.noise)
    exact, n = variances == 0, len(w)
    off = np.abs(w[:, exact]).max(initial=0) / np.abs(x).max()
    expect(
        off < 1e-9, f"a coordinate without noise is not as the true system says: off by {off:.2g}"
    )
    white = w[:, ~exact] / np.sqrt(variances[~exact])
    off = np.abs(white.mean(0)).max(initial=0)
    expect(off < 5 / math.sqrt(n), f"the mean of the noise is {off:.2g} of its deviation, not 0")
    W = fleet.noise[np.ix_(~exact, ~exact)]
    off = np.abs(white.T @ white / n - W / np.sqrt(np.outer(np.diag(W), np.diag(W)))).max(initial=0)
    good = off < 6 * math.sqrt(2 / n)
    expect(good, f"the covariance of the noise is not what the fleet says: off by {off:.2g} of it")


def _same_seed(fleet: Fleet, seed: int) -> None:
    one, again, other = (
        fleet.play(_some_policy(fleet), fleet.sample_context(rng), rng).states
        for rng in map(np.random.default_rng, (seed, seed, seed + 1))
    )
    expect(np.array_equal(one, again), "the same generator must give the same episode")
    expect(not np.array_equal(one, other), "another generator must give another episode")


def _state_bound(fleet: Fleet, rng: np.random.Generator) -> None:
    bound = 50 * (1 + np.abs(fleet.start).max())
    wild = LinearPolicy(np.full_like(_some_policy(fleet).gains, 30.0))
    played = fleet.play(wild, fleet.sample_context(rng), rng, state_bound=bound)
    beyond = np.abs(played.states).max(1) > bound
    expect(not beyond[:-1].any(), "state_bound must end an episode after the first state beyond it")
    whole = len(played.states) == fleet.cost.horizon
    expect(whole or beyond[-1], "an episode within state_bound must not end early")


def _teaching(fleet: Fleet, rng: np.random.Generator) -> None:
    """A live episode is what the agent was told."""
    agent, context = fleet.agent(), fleet.sample_context(rng)
    played, told = fleet.teach(agent, context, rng), agent.decoder
    own = Decoder(
        fleet.context_map,
        told.regularisation,
        noise_level=told.noise_level,
        prior=told.given_prior,
        scales=told.scales,
    )
    own.update(context, played)
    expect(np.array_equal(played.states[0], fleet.start), "a live episode must begin at start")
    expect(told.rows == len(played), f"the agent was told {told.rows} of {len(played)} steps")
    expect(np.array_equal(told.estimate, own.estimate), "the agent was told another episode")


def _some_policy(fleet: Fleet) -> LinearPolicy:
    steps, m = fleet.cost.R.shape[:2]
    shape: Any = (steps, m, fleet.cost.state_size)
    return LinearPolicy(np.random.default_rng(0).normal(0, 0.3, shape))
