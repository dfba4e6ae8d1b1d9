"""One run of true optimism on a bounded fleet, and what the guarantees say of every episode.

A row is one episode. What it holds was known before the episode (the set it was planned in), came
of it (steps, z), or is the truth, for scoring only. Costs are exact expectations, not samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.confidence import BetaRule, ConfidenceSet, DeterminantBeta, PaperBeta
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.factors import solve_triangle
from contextual_lqr.belief.machine import as_system
from contextual_lqr.checks import require
from contextual_lqr.fleets import path_following, true_decoder, true_system
from contextual_lqr.lqr.problem import LinearPolicy
from contextual_lqr.lqr.solve import solve
from contextual_lqr.paper.score import TrueMachines
from contextual_lqr.paper.verify.bounded import play_within
from contextual_lqr.paper.verify.machine_beliefs import PLAYED
from contextual_lqr.planning import Optimism
from contextual_lqr.theory import Regularity, log_det_bound, regularity

FLEETS = ("circle", "parabola", "lemniscate")

# Enough of a search, at three quarters of the default's time: see docs/theory.md.
SEARCH = Optimism(draws=32, starts=4, rounds=2, kept=1, certify=False)


@dataclass(frozen=True)
class VerifySettings:
    """What is run: many short runs for coverage, a few long ones for the rates."""

    fleets: tuple[str, ...] = FLEETS
    seeds: int = 200
    short_episodes: int = 30
    long_runs: int = 4
    long_episodes: int = 10_000
    delta: float = 0.1
    margin: float = 2.0  # c_q and c_x are this many times what optimal play needs
    unseen: int = 16  # contexts the output is tried on
    beta_factor: float = 1.0  # β is multiplied by it: not 1, and the guarantees may break

    def __post_init__(self) -> None:
        unknown = [name for name in self.fleets if name not in FLEETS]
        require(
            self.fleets and not unknown,
            f"fleet must be one or more of {', '.join(FLEETS)}, not {', '.join(unknown) or 'none'}",
        )
        require(0 < self.delta < 1, f"delta must be between 0 and 1, not {self.delta!r}")
        for name, least in (("seeds", 1), ("long_runs", 2), ("long_episodes", 100)):
            value = getattr(self, name)
            shown = name.replace("_", " ")
            require(value >= least, f"{shown} must be at least {least}, not {value!r}")
        factor = self.beta_factor
        require(0 < factor < np.inf, f"beta factor must be positive, not {factor!r}")

    @property
    def total_episodes(self) -> int:
        """Those of all runs; a better measure of the work than runs, which differ in length."""
        short, long = self.seeds * self.short_episodes, self.long_runs * self.long_episodes
        return len(self.fleets) * (short + long) + self.seeds * PLAYED

    @property
    def fit_from(self) -> int:
        """The first episode of the fits: 100, or a tenth of a run that is short."""
        return min(100, self.long_episodes // 10)


@dataclass(frozen=True)
class Job:
    """One run; its rows depend on nothing else."""

    settings: VerifySettings
    fleet: str
    long: bool
    seed: int


@dataclass(frozen=True)
class Scaled:
    """A beta rule times a factor."""

    rule: BetaRule
    factor: float

    def __call__(self, decoder: Decoder) -> float:
        """Return β times the factor."""
        return self.factor * self.rule(decoder)


def jobs(settings: VerifySettings) -> list[Job]:
    """All runs: a few short ones to time the rest by, long ones, and short ones to even it out."""
    short, long = (
        [Job(settings, fleet, long, seed) for seed in range(count) for fleet in settings.fleets]
        for long, count in ((False, settings.seeds), (True, settings.long_runs))
    )
    first = len(short) // 5
    return short[:first] + long + short[first:]


@cache
def constants_of(name: str, margin: float) -> Regularity:
    """The constants of a fleet: λ is the noise's variance, as the agent's default is."""
    fleet = path_following(name)
    low, high = (fleet.context_map.bounds or {})["mass"]
    return regularity(
        true_decoder(fleet),
        fleet.context_map,
        {"mass": np.geomspace(low, high, 200)},
        fleet.cost,
        fleet.start,
        fleet.noise,
        regularisation=float(fleet.noise.max()),
        margin=margin,
    )


def run(job: Job) -> pl.DataFrame:
    """Play a run and score it, one row an episode."""
    settings, fleet = job.settings, path_following(job.fleet)
    r = constants_of(job.fleet, settings.margin)
    rng = np.random.default_rng([20, FLEETS.index(job.fleet), int(job.long), job.seed])
    # The Proposition needs the sets with probability 1-δ/3, for its other two events take as much.
    delta = settings.delta / 3 if job.long else settings.delta
    own = Scaled(DeterminantBeta(r.c_theta, r.c_w, delta), settings.beta_factor)
    papers = Scaled(PaperBeta(r.c_theta, r.c_w, r.c_x, delta), settings.beta_factor)
    seed = int(rng.integers(2**31))
    agent = fleet.agent(SEARCH, seed, regularisation=r.regularisation, beta=own)
    literal = Decoder(agent.decoder.context_map, 1.0)  # the paper's V = I + Σ zzᵀ
    truth, rows, contexts, played, estimates = true_decoder(fleet), [], [], [], []
    log_det = 0.0
    for k in range(1, (settings.long_episodes if job.long else settings.short_episodes) + 1):
        context = fleet.sample_context(rng)
        system, plan, decoder = true_system(fleet, context), agent.ask(context), agent.decoder
        plausible = ConfidenceSet(decoder, own)
        row: dict[str, Any] = {
            "episode": k,
            "rows": decoder.rows,
            "distance": plausible.distance(truth),
            "beta": plausible.beta,
            "paper_radius": papers(decoder),
            "promised": plan.promised_cost,
            "log_det": log_det,
            "log_det_bound": log_det_bound(r, decoder.rows),
        }
        if not job.long:
            whole = ConfidenceSet(literal, papers)
            row |= {"literal_distance": whole.distance(truth), "literal_beta": whole.beta}
        # All noise is drawn at once: how far an episode gets does not change what follows it.
        shocks = rng.standard_normal((fleet.cost.horizon - 1, r.state_size)) @ system.noise_factor.T
        G = fleet.context_map.matrix(context)
        assert isinstance(plan.policy, LinearPolicy)
        episode = play_within(plan.policy, system, G, fleet.start, r.c_x, shocks)
        row |= _steps(episode.rows, plausible, truth, plan.theta, keep=not job.long)
        agent.tell(plan, episode.trajectory)
        if not job.long:
            literal.update(context, episode.trajectory)
        log_det = agent.decoder.log_det - r.columns * float(np.log(r.regularisation))
        row |= {"log_det_after": log_det, "scaled": episode.scaled, "stopped": episode.stopped}
        rows.append(row)
        contexts.append(context)
        played.append(plan.theta)
        estimates.append(plausible.estimate)
    machines = TrueMachines(fleet, contexts)
    solution = solve(as_system(np.array(played) @ machines.matrices, fleet.noise), fleet.cost)
    scores = {
        "optimal": machines.optimal_costs,
        "regret": machines.policy_regrets(solution.policy.gains),
        "value_norm": np.linalg.eigvalsh(solution.value_matrices)[..., -1].max(1),
    }
    if job.long:  # contexts that no run has met, the same for all runs
        others = np.random.default_rng([20, 99])
        unseen = TrueMachines(fleet, [fleet.sample_context(others) for _ in range(settings.unseen)])
        scores["unseen"] = unseen.control_errors(np.array(played)).mean(1)
        scores["unseen_estimate"] = unseen.control_errors(np.array(estimates)).mean(1)
    labels = {
        "fleet": pl.lit(job.fleet),
        "long": pl.lit(job.long),
        "seed": pl.lit(job.seed, pl.Int64),
    }
    return pl.DataFrame(rows).with_columns(**labels, **{n: pl.Series(s) for n, s in scores.items()})


def _steps(
    Z: Float[Array, "steps p"],
    plausible: ConfidenceSet,
    truth: Float[Array, "d p"],
    theta: Float[Array, "d p"],
    keep: bool,
) -> dict[str, Any]:
    """‖(Θ - Θ̂)z‖ against √β ‖z‖_{V⁻¹} at every step, for the true Θ and for the one played."""
    half = solve_triangle(plausible.factor, Z.T, transposed=True)  # R⁻ᵀ z
    squares = (half**2).sum(0)  # ‖z‖² in V⁻¹
    allowed = np.sqrt(plausible.beta * squares)
    errors = np.linalg.norm(Z @ (truth - plausible.estimate).T, axis=1)
    moved = np.linalg.norm(Z @ (theta - plausible.estimate).T, axis=1)
    found: dict[str, Any] = {
        "steps": len(Z),
        "largest": float(np.sqrt((Z**2).sum(1).max())),
        "step_ratio": float((errors / allowed).max()),
        "steps_violated": int((errors > (1 + 1e-9) * allowed).sum()),
        "played_ratio": float((moved / allowed).max()),
        "potential": float(np.log1p(squares).sum()),
    }
    if keep:
        found |= {"step_error": errors.tolist(), "step_allowed": allowed.tolist()}
    return found


def joined(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """All rows, in one order whatever the order the runs finished in."""
    return pl.concat(frames, how="diagonal").sort("fleet", "long", "seed", "episode")
