"""All strategies on the same machines and seeds.

Writes a section of docs/measured/accuracy.md.

`python benchmarks/strategies.py [seeds]`: 50 seeds a setting unless told otherwise. The seeds start
at 40000; none of them was used to choose a constant of any strategy.
"""

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from pages import write_section
from peers import ONE_THREAD
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr.fleets import path_following, true_decoder
from contextual_lqr.paper.play import play
from contextual_lqr.paper.score import TrueMachines

FIRST_SEED, EPISODES, TESTED = 40_000, 25, (5, 10, 25)
SETTINGS = [(path, decay) for path in ("circle", "parabola", "lemniscate") for decay in (1.0, 0.7)]
# Name: strategy, agent's own arguments, how it adapts.
STRATEGIES: dict[str, tuple[clqr.Strategy, dict[str, float], str]] = {
    "Cautious, adapt=step": (clqr.Cautious(), {}, "step"),
    "Cautious": (clqr.Cautious(), {}, "episode"),
    "CertaintyEquivalence": (clqr.CertaintyEquivalence(0.01), {}, "episode"),
    "Optimism": (clqr.Optimism(certify=False), {}, "episode"),
    "ThompsonSampling": (clqr.ThompsonSampling(), {}, "episode"),
    "SampledOptimism (the paper's)": (clqr.SampledOptimism(), {"regularisation": 1.0}, "episode"),
    "SampledOptimism, play=estimate": (
        clqr.SampledOptimism(play="estimate"),
        {"regularisation": 1.0},
        "episode",
    ),
}

CONCLUSIONS = """## Which wins where

- On regret, `Cautious` with adapt=step has the lowest median in all six settings, and the lowest
  worst seed in five (not on the parabola with decay 1). Its median total is below what a single
  episode of doing nothing costs.
- `Cautious` is second. Certainty equivalence costs 1.5 to 25 times as much in the median, and 10⁶
  and more on one seed in twenty, because it believes a wrong estimate.
- True optimism costs eight to thirty-two times what caution costs in the median, mostly in the
  second episode. It keeps exploring: its later episodes cost more than the others'.
- Thompson sampling and the paper's rule explode first. That teaches Θ best: Thompson sampling
  has the smallest errors afterwards. Nobody can run either on a machine.
- The paper's algorithm to the letter (play=estimate) does not learn.

""".splitlines()


@dataclass
class Run:
    """One agent, 25 episodes: regret of each, largest state, errors of the estimate."""

    regrets: list[float]
    largest: float
    distance: dict[int, float]
    control_error: dict[int, float]
    failure: str = ""


def run(job: tuple[str, str, float, int, float]) -> Run:
    """One strategy in one setting with one seed: masses and noise depend on the seed alone."""
    name, path, decay, seed, noise_level = job
    strategy, options, adapt = STRATEGIES[name]
    fleet = path_following(path, decay)
    masses, noise = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    test = TrueMachines(fleet, [fleet.sample_context(masses) for _ in range(100)])
    contexts = [fleet.sample_context(masses) for _ in range(EPISODES)]
    training = TrueMachines(fleet, contexts)
    result, played = Run([], 0.0, {}, {}), []
    agent = clqr.Agent(
        fleet.context_map, fleet.cost, fleet.start, strategy, noise_level, seed=seed, **options
    )
    try:
        for k, context in enumerate(contexts, 1):
            shocks = noise.standard_normal((19, 5)) @ training.systems.noise_factor.T
            one = play(agent, context, training.system(k - 1), shocks, adapt)
            played.append(one)
            result.largest = max(result.largest, float(np.abs(one.trajectory.states).max()))
            if k in TESTED:
                estimate = agent.decoder.estimate
                result.distance[k] = float(np.linalg.norm(estimate - true_decoder(fleet)))
                result.control_error[k] = float(test.control_errors(estimate[None]).mean())
        result.regrets = training.regrets(played).tolist()
    except Exception as error:
        result.failure = f"{type(error).__name__}: {error}"
    return result


def number(value: float) -> str:
    """Three digits, large ones with an exponent."""
    return f"{value:.1e}" if value >= 1e4 else f"{value:.3g}"


def table(path: str, decay: float, runs: dict[str, list[Run]]) -> list[str]:
    """One setting, one row a strategy: what it cost, then how it learnt."""
    paid = [
        f"### {path}, decay {decay}",
        "",
        "| strategy | regret: median | 5-95 % | worst | largest state | failed |",
        "|---" * 6 + "|",
    ]
    learnt = [
        "",
        "| strategy | regret: episode 1 | episode 2 | episode 5 | episode 25 | "
        "‖Θ-Θ\\*‖ after 5 | control error after 5 | after 10 | after 25 |",
        "|---" * 9 + "|",
    ]
    for name, all_runs in runs.items():
        good = [one for one in all_runs if not one.failure]
        each = np.array([one.regrets for one in good])
        total, by_episode = each.sum(1), np.median(each, axis=0)
        low, high = np.quantile(total, [0.05, 0.95])
        errors = [np.median([one.control_error[k] for one in good]) for k in TESTED]
        cost = [
            number(np.median(total)),
            f"{number(low)} to {number(high)}",
            number(total.max()),
            number(max(one.largest for one in good)),
            f"{len(all_runs) - len(good)} of {len(all_runs)}",
        ]
        progress = [
            *(number(by_episode[k - 1]) for k in (1, 2, 5, 25)),
            number(np.median([one.distance[5] for one in good])),
            *(number(error) for error in errors),
        ]
        paid.append(f"| {name} | {' | '.join(cost)} |")
        learnt.append(f"| {name} | {' | '.join(progress)} |")
    return [*paid, *learnt, ""]


def main() -> None:
    """Run everything on all cores, and write the page."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    jobs = [
        (name, path, decay, FIRST_SEED + i, 0.01)
        for path, decay in SETTINGS
        for name in STRATEGIES
        for i in range(seeds)
    ]
    wrong = [
        (name, path, decay, FIRST_SEED + i, level)
        for level in (0.05, 0.002)
        for path, decay in SETTINGS
        for name in ("Cautious", "Cautious, adapt=step")
        for i in range(seeds)
    ]
    begin = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        work = pool.map(run, jobs + wrong, chunksize=5)
        found = dict(zip(jobs + wrong, track(work, "playing", len(jobs + wrong)), strict=True))
    minutes = (time.perf_counter() - begin) / 60
    page = [
        "# Strategies compared",
        "",
        "Written by `benchmarks/strategies.py`: path following as in the paper, "
        f"{EPISODES} episodes, {seeds} seeds a setting (from {FIRST_SEED}, none used for tuning),",
        "masses from 0.1 to 10, drawn afresh for every seed and the same for every strategy.",
        "*Decay* is how much of its velocity an object keeps in a step. *Regret* is what all",
        "episodes cost above the optimum, in expectation. It is exact, the dither's cost included;",
        "for adapt=step it is the sum of ‖u - K\\*x‖² in the metric R + BᵀP\\*B along what was",
        "played, which has the same mean. One episode of doing nothing costs about 37 on the",
        "circle. *Control error* is the exact cost of the estimate's controllers above the",
        "optimum, in the mean over 100 unseen masses; medians over seeds. The",
        "[strategies](../strategies.md) are described on a page of their own.",
        "",
        *CONCLUSIONS,
    ]
    for path, decay in SETTINGS:
        page += table(
            path,
            decay,
            {
                name: [found[name, path, decay, FIRST_SEED + i, 0.01] for i in range(seeds)]
                for name in STRATEGIES
            },
        )
    page += [
        "## When the noise level given is wrong",
        "",
        "The true standard deviation is 0.01; the agent is told another.",
        "",
        "| told | setting | strategy | regret: median | worst | largest state | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for level in (0.05, 0.002):
        for path, decay in SETTINGS:
            for name in ("Cautious", "Cautious, adapt=step"):
                runs = [found[name, path, decay, FIRST_SEED + i, level] for i in range(seeds)]
                good = [one for one in runs if not one.failure]
                total = [sum(one.regrets) for one in good]
                page.append(
                    f"| {level} | {path}, {decay} | {name} | {number(np.median(total))} | "
                    f"{number(max(total))} | {number(max(one.largest for one in good))} | "
                    f"{len(runs) - len(good)} of {len(runs)} |"
                )
    failures = {one.failure for one in found.values() if one.failure}
    page += ["", *(f"- failure: {one}" for one in sorted(failures)), ""]
    write_section("accuracy", "strategies", "\n".join(page))
    sys.stdout.write(f"written after {minutes:.1f} minutes\n")


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
