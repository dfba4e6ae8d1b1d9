"""One trial: one setting, one strategy, one seed -> rows, one for each episode.

A trial first plays all its episodes and remembers what was played and learnt; then all of it is
scored at once. A trial depends on its configuration and its seed alone.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.belief.confidence import BetaRule, ConfidenceSet, ConstantBeta, DeterminantBeta
from contextual_lqr.fleets import Fleet, path_following, true_decoder
from contextual_lqr.paper.play import Played, play
from contextual_lqr.paper.reproduce.config import Config, Setting, Trial
from contextual_lqr.paper.score import TrueMachines
from contextual_lqr.planning import (
    Cautious,
    CertaintyEquivalence,
    Optimism,
    SampledOptimism,
    Strategy,
    ThompsonSampling,
)
from contextual_lqr.planning.agent import Agent

# The columns of a trial's rows that are measured, in order; all are numbers.
MEASURED = (
    "mass",
    "decoder_error",
    "control_error",
    "worst_control_error",
    "regret",
    "cumulative_regret",
    "largest_state",
    "promised_cost",
    "confidence_distance",
    "confidence_radius",
    "seconds",
)


class Bench(NamedTuple):
    """What all trials of a setting share: the fleet, its training machines, its test machines."""

    fleet: Fleet
    training: TrueMachines
    test: TrueMachines


class Episode(NamedTuple):
    """What one episode leaves behind to be scored: the belief before it, and after."""

    played: Played
    prior: ConfidenceSet
    estimate: Array
    seconds: float


@lru_cache(maxsize=8)
def bench(config: Config, setting: Setting) -> Bench:
    """Made once a setting and process: the optimal costs of all machines are in it."""
    closed: Any = config.closed_curves
    fleet = path_following(
        *setting, config.horizon, config.noise, config.masses, config.start, closed
    )
    training = TrueMachines(fleet, {"mass": config.training_masses()})
    return Bench(fleet, training, TrueMachines(fleet, {"mass": config.unseen_masses()}))


def agent_for(config: Config, trial: Trial, fleet: Fleet) -> tuple[Agent, BetaRule]:
    """The agent and its β: the paper's constants for the paper's rule, else our defaults."""
    if trial.strategy.startswith("paper"):
        beta: BetaRule = ConstantBeta(config.beta)
        play: Any = "optimistic" if trial.strategy == "paper" else "estimate"
        strategy: Strategy = SampledOptimism(config.samples, beta, play)
        regularisation = 1.0
    else:
        # λ = σ², and entries of Θ (5 by 7) of the order of one: what Agent assumes unless told.
        beta = DeterminantBeta(float(np.sqrt(35)), float(np.sqrt(config.noise)), 0.1)
        strategies: dict[str, Strategy] = {
            "cautious": Cautious(),
            "cautious-step": Cautious(),
            "optimism": Optimism(certify=False),
            "thompson": ThompsonSampling(),
            "certainty": CertaintyEquivalence(),
        }
        strategy, regularisation = strategies[trial.strategy], config.noise
    seed = int(np.random.SeedSequence([trial.seed, 2]).generate_state(1, np.uint64)[0])
    return fleet.agent(strategy, seed, regularisation=regularisation, beta=beta), beta


def learn(config: Config, trial: Trial, episodes: int | None = None) -> tuple[list[Episode], str]:
    """Play the trial, or the first episodes of it; and why it failed, if it did."""
    fleet, training, _ = bench(config, trial.setting)
    steps, d = fleet.cost.horizon - 1, len(fleet.start)
    # The same noise for every strategy, however far the episodes before have got.
    noise = np.random.default_rng([trial.seed, 1])
    shocks = noise.standard_normal((config.episodes, steps, d)) @ training.systems.noise_factor.T
    (agent, beta), left = agent_for(config, trial, fleet), list[Episode]()
    adapt: Literal["episode", "step"] = "step" if trial.strategy == "cautious-step" else "episode"
    for k, mass in enumerate(config.training_masses()[:episodes].tolist()):
        begin = time.perf_counter()
        try:
            prior = ConfidenceSet(agent.decoder, beta)
            played = play(agent, {"mass": mass}, training.system(k), shocks[k], adapt)
            estimate = agent.decoder.estimate
        except Exception as error:  # whatever it is: the trial says so, and the others go on
            return left, f"episode {k + 1}: {type(error).__name__}: {error}"
        left.append(Episode(played, prior, estimate, time.perf_counter() - begin))
    return left, ""


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """The rows of a trial, as columns.

    A trial that fails has a last row that says why in `failure`, its measurements missing (NaN).
    """
    left, failure = learn(config, trial)
    measured = {name: np.zeros(0) for name in MEASURED}
    if left:
        try:
            measured = _score(config, trial, left)
        except Exception as error:
            left, failure = [], f"scoring: {type(error).__name__}: {error}"
    rows = len(left) + bool(failure)
    if failure:
        measured = {name: np.append(column, np.nan) for name, column in measured.items()}
        measured["mass"][-1] = config.training_masses()[len(left)]
    return {
        "setting": [trial.setting.name] * rows,
        "path": [trial.setting.path] * rows,
        "decay": [trial.setting.decay] * rows,
        "strategy": [trial.strategy] * rows,
        "seed": [trial.seed] * rows,
        "episode": list(range(1, rows + 1)),
        **measured,
        "steps": [len(one.played.trajectory) for one in left] + [None] * bool(failure),
        "failure": [None] * len(left) + [failure] * bool(failure),
    }


def _score(config: Config, trial: Trial, left: list[Episode]) -> dict[str, Array]:
    fleet, training, test = bench(config, trial.setting)
    played, priors = [one.played for one in left], [one.prior for one in left]
    estimates = np.stack([one.estimate for one in left])
    errors, regrets = test.control_errors(estimates), training.regrets(played)
    off = estimates - true_decoder(fleet)
    promised = [np.nan if one.plan is None else one.plan.promised_cost for one in played]
    with np.errstate(over="ignore"):
        columns = (
            config.training_masses()[: len(left)],
            np.sqrt((off * off).sum((1, 2))),
            errors.mean(1),
            errors.max(1),
            regrets,
            np.cumsum(regrets),
            np.array([np.abs(one.trajectory.states).max() for one in played]),
            np.array(promised),
            training.confidence_distances(
                np.stack([one.estimate for one in priors]), np.stack([one.factor for one in priors])
            ),
            np.array([one.beta for one in priors]),
            np.array([one.seconds for one in left]),
        )
    return dict(zip(MEASURED, columns, strict=True))
