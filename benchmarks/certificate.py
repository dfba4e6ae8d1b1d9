"""Certificates of simulated fleets with a known truth.

Writes a section of docs/measured/certificates.md.

`python benchmarks/certificate.py [part ...]`: intervals, outside, few, advice, speed; all of them
unless named, so that speed can be measured while the machine is quiet. Seeds 0 to 9 of other
streams were used to choose thresholds; those reported here start at 100.
"""

import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array
from pages import read_section, write_section
from peers import ONE_THREAD
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from contextual_lqr import (
    Certificate,
    Decoder,
    LinearPolicy,
    certify_many,
    optimal_cost,
    policy_cost,
    rank_candidates,
    set_threads,
    solve,
)
from contextual_lqr.belief.bounds.row_radii import row_radii
from simulated_fleets import FLEETS, SimulatedFleet, learnt, log

NAMES = {
    "path": "path following",
    "chain": "chain of 3 masses",
    "spring": "mass on a spring",
}
FIRST_SEED = 100
SEEDS, CONTEXTS = 3, 1000  # for the intervals
OUTSIDE_SEEDS, OUTSIDE = 20, 120  # for verdicts far outside, without bounds
FEW_SEEDS, FEW = 5, 60  # for few episodes
ADVICE_SEEDS = 40


class Scored(NamedTuple):
    """Certificates beside the truth."""

    certificates: list[Certificate]
    paid: Array
    best: Array

    @property
    def regret(self) -> Array:
        """The true excess."""
        return self.paid / self.best - 1

    @property
    def predicted(self) -> Array:
        """The predicted costs."""
        return np.array([one.predicted_cost for one in self.certificates])

    @property
    def ends(self) -> tuple[Array, Array]:
        """The ends of the intervals."""
        low, high = np.array([one.interval for one in self.certificates]).T
        return low, high

    @property
    def covered(self) -> Array:
        """Whether the interval holds the true cost."""
        low, high = self.ends
        return (low <= self.paid) & (self.paid <= high)

    def said(self, verdict: str) -> Array:
        """Whether this was the verdict."""
        return np.array([one.verdict == verdict for one in self.certificates])


def score(
    fleet: SimulatedFleet, decoder: Decoder, contexts: dict[str, Array], **options: object
) -> Scored:
    """Certify, and look up the truth."""
    certificates = certify_many(decoder, contexts, fleet.cost, fleet.start, **options)
    gains = LinearPolicy(np.stack([one.policy.gains for one in certificates]))
    truth = fleet.systems(contexts)
    paid = policy_cost(gains, truth, fleet.cost, fleet.start)
    return Scored(certificates, paid, optimal_cost(truth, fleet.cost, fleet.start))


def percent(part: float) -> str:
    """A part of one; large ones in times."""
    size, unit = (100 * part, "%") if part < 10 else (part, "times")
    return f"{float(f'{size:.2g}'):g} {unit}"


def spread(values: Array, form: str = ".3g") -> str:
    """Median, 95 % and worst."""
    middle, tail, worst = np.quantile(values, [0.5, 0.95, 1])
    return " / ".join(format(one, form) for one in (middle, tail, worst))


def intervals(tick: object) -> list[str]:
    """1 000 unseen contexts in the range, after 50 episodes."""
    lines = [
        f"## {CONTEXTS} unseen machines after 50 episodes",
        "",
        f"{SEEDS} seeds a fleet, {SEEDS * CONTEXTS} machines a row. *Excess* is the true cost of "
        "the controller over the best",
        "possible, less 1: median / 95 % / worst. *Covered* is the share of machines whose "
        "interval contains the true",
        "cost: over all, and in the worst seed. *Upper* and *lower* are the ends over the "
        "predicted cost: median / 95 % (5 %) /",
        "most extreme. *Gaps* are medians, of the upper and the lower end. *Θ inside*: seeds "
        "whose true Θ is in the set.",
        "",
        "| fleet | set | excess | covered | upper | lower | gaps | Θ inside | "
        "trust / caution / do not use |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, make in FLEETS.items():
        for beta in ("determinant", "regression"):
            all_scored, inside = [], 0
            for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
                rng = np.random.default_rng([606, seed])
                fleet = make()
                decoder = learnt(fleet, 50, rng)
                reach = row_radii(decoder, beta, 0.05)
                off = np.linalg.norm((fleet.theta - decoder.estimate) @ decoder.factor.T, axis=1)
                inside += bool((off <= reach.rows).all())
                all_scored.append(score(fleet, decoder, fleet.contexts(CONTEXTS, rng), beta=beta))
                tick()
            regret = np.concatenate([one.regret for one in all_scored])
            covered = [one.covered.mean() for one in all_scored]
            up = np.concatenate([one.ends[1] / one.predicted for one in all_scored])
            low = np.concatenate([one.ends[0] / one.predicted for one in all_scored])
            every = [c for one in all_scored for c in one.certificates]
            gaps = [np.median([getattr(c, end).gap for c in every]) for end in ("upper", "lower")]
            count = Counter(c.verdict for c in every)
            lower = " / ".join(f"{q:.2f}" for q in np.quantile(low, [0.5, 0.05, 0]))
            lines.append(
                f"| {NAMES[name]} | {beta} | "
                + " / ".join(percent(q) for q in np.quantile(regret, [0.5, 0.95, 1]))
                + f" | {np.mean(covered):.1%}, {min(covered):.1%} | {spread(up)} | {lower} | "
                f"{gaps[0]:.0%}, {gaps[1]:.0%} | {inside} of {SEEDS} | "
                f"{count['trust']} / {count['caution']} / {count['do not use']} |"
            )
    return lines


def outside(tick: object) -> list[str]:
    """Contexts three times outside the range, and the same number inside."""
    total = OUTSIDE_SEEDS * OUTSIDE
    lines = [
        "",
        "## Machines 3 times outside the range",
        "",
        f"One value of the context, or all of them for a third of the machines, is 3 times the "
        f"upper end or a third of the lower; {OUTSIDE_SEEDS} seeds,",
        f"{total} machines a row. *Bad* is a controller that truly costs over 5 % more than the "
        "best possible.",
        "",
        "| fleet | episodes | bad | trust | of these bad | worst excess trusted | caution | "
        "of these bad | do not use | of these bad |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, make in FLEETS.items():
        for episodes in (10, 50):
            scored = []
            for seed in range(FIRST_SEED, FIRST_SEED + OUTSIDE_SEEDS):
                rng = np.random.default_rng([607, episodes, seed])
                fleet = make()
                decoder = learnt(fleet, episodes, rng)
                contexts = fleet.outside(OUTSIDE, rng)
                scored.append(score(fleet, decoder, contexts, bounds=False))
                tick()
            regret = np.concatenate([one.regret for one in scored])
            bad = ~(regret <= 0.05)
            cells = []
            for verdict in ("trust", "caution", "do not use"):
                said = np.concatenate([one.said(verdict) for one in scored])
                cells += [str(said.sum()), str((said & bad).sum())]
                if verdict == "trust":
                    cells.append(percent(regret[said].max(initial=0.0)))
            lines.append(
                f"| {NAMES[name]} | {episodes} | {bad.sum()} | " + " | ".join(cells) + " |"
            )
    return lines


def few(tick: object) -> list[str]:
    """Machines in the range after few episodes: where certificates should say no."""
    lines = [
        "",
        "## Few episodes",
        "",
        f"{FEW_SEEDS} seeds, {FEW_SEEDS * FEW} machines of the range a row, the regression set. "
        "*Beyond likely* is the share of machines",
        "whose true excess is above the likely excess, which should be 5 %; the machines of a "
        "seed share one Θ, so it",
        "varies a lot between rows.",
        "",
        "| fleet | episodes | excess | covered | upper over predicted | trust | of these bad | "
        "do not use | of these bad | beyond likely |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, make in FLEETS.items():
        for episodes in (1, 2, 5, 10, 20):
            scored = []
            for seed in range(FIRST_SEED, FIRST_SEED + FEW_SEEDS):
                rng = np.random.default_rng([608, episodes, seed])
                fleet = make()
                decoder = learnt(fleet, episodes, rng)
                contexts = fleet.contexts(FEW, rng)
                scored.append(score(fleet, decoder, contexts, beta="regression"))
                tick()
            regret = np.concatenate([one.regret for one in scored])
            bad = ~(regret <= 0.05)
            trust = np.concatenate([one.said("trust") for one in scored])
            refuse = np.concatenate([one.said("do not use") for one in scored])
            likely = np.array([c.likely_excess for one in scored for c in one.certificates])
            covered = np.concatenate([one.covered for one in scored])
            up = np.concatenate([one.ends[1] / one.predicted for one in scored])
            lines.append(
                f"| {NAMES[name]} | {episodes} | "
                + " / ".join(percent(q) for q in np.quantile(regret, [0.5, 0.95, 1]))
                + f" | {covered.mean():.1%} | {np.median(up):.3g} | {trust.sum()} | "
                f"{(trust & bad).sum()} | {refuse.sum()} | {(refuse & bad).sum()} | "
                f"{(regret > likely).mean():.1%} |"
            )
    return lines


def advice(tick: object) -> list[str]:
    """One more run, on the machine advised or on another."""
    lines = [
        "",
        "## The advisor",
        "",
        f"After 2 episodes one of 40 machines is run once more, with dither. What is the "
        f"mean excess over all 40 then? {ADVICE_SEEDS} seeds.",
        "*Before* is without the run, *random* the mean over 10 machines at random, *last* the "
        "one ranked lowest. *Better than",
        "random* counts the seeds. Medians; a few machines that explode dominate the means.",
        "",
        "| fleet | before | advised | random | last | better than random | better than last |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, make in FLEETS.items():
        rows = []
        for seed in range(FIRST_SEED, FIRST_SEED + ADVICE_SEEDS):
            rng = np.random.default_rng([609, seed])
            fleet = make()
            decoder = learnt(fleet, 2, rng)
            contexts = fleet.contexts(40, rng)
            ranked = rank_candidates(
                decoder, contexts, fleet.cost, fleet.start, dither=fleet.dither
            )
            chosen = [ranked[0], ranked[-1], *rng.choice(np.array(ranked, object), 10)]
            after = []
            for one in chosen:
                taught = decoder.copy()
                own = {name: (value, value) for name, value in one.context.items()}
                taught.update_many(*log(fleet._replace(ranges=own), 1, np.random.default_rng(seed)))
                after.append(excess(fleet, taught, contexts))
            rows.append((excess(fleet, decoder, contexts), after[0], np.mean(after[2:]), after[1]))
            tick()
        table = np.array(rows)
        before, advised, random, last = np.median(table, axis=0)
        lines.append(
            f"| {NAMES[name]} | {percent(before)} | {percent(advised)} | {percent(random)} | "
            f"{percent(last)} | {(table[:, 1] < table[:, 2]).sum()} of {ADVICE_SEEDS} | "
            f"{(table[:, 1] < table[:, 3]).sum()} of {ADVICE_SEEDS} |"
        )
    return lines


def excess(fleet: SimulatedFleet, decoder: Decoder, contexts: dict[str, Array]) -> float:
    """The mean true excess of the controllers, each at most 10 (an explosion is an explosion)."""
    policy = solve(decoder.systems(contexts), fleet.cost).policy
    truth = fleet.systems(contexts)
    paid = policy_cost(policy, truth, fleet.cost, fleet.start)
    best = optimal_cost(truth, fleet.cost, fleet.start)
    return float(np.minimum(paid / best - 1, 10.0).mean())


def speed(tick: object) -> list[str]:
    """Ten thousand in one call."""
    lines = [
        "",
        "## Speed",
        "",
        "One call for many machines, one thread, 200 posterior draws each; and the same without "
        "the certified bounds. Processor time.",
        "",
        "| fleet | d, m, p | machines | full, s | machines a second | without bounds, s | "
        "`solve` of the same, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, make in FLEETS.items():
        rng = np.random.default_rng([610, FIRST_SEED])
        fleet = make()
        decoder = learnt(fleet, 50, rng)
        machines = 10_000 if name == "path" else 2_000
        contexts = fleet.contexts(machines, rng)
        times = []
        for bounds in (True, False):
            began = time.process_time()
            certify_many(decoder, contexts, fleet.cost, fleet.start, bounds=bounds)
            times.append(time.process_time() - began)
            tick()
        began = time.process_time()
        solve(decoder.systems(contexts), fleet.cost)
        alone = time.process_time() - began
        d, p = decoder.estimate.shape
        lines.append(
            f"| {NAMES[name]} | {d}, {fleet.cost.input_size}, {p} | {machines} | "
            f"{times[0]:.1f} | {machines / times[0]:.0f} | {times[1]:.1f} | {alone:.2f} |"
        )
    return lines


HEAD = """# Three fleets, learnt from logs

Written by `benchmarks/certificate.py`. Three simulated fleets with known truth: path following (d =
5), a chain of 3 masses with springs and dampers (d = 6), and a mass on a spring, where B depends on
1/mass and A on stiffness/mass (d = 2). They log episodes of 20 steps under half the gains that suit
one of their machines, with dither. No seed here was used to choose a threshold. The certificates of
six other fleets, learnt by an agent, are [above](#six-fleets-learnt-by-an-agent).
"""
PARTS = {  # and how many ticks of the bar each is
    intervals: 6 * SEEDS,
    outside: 6 * OUTSIDE_SEEDS,
    few: 15 * FEW_SEEDS,
    advice: 3 * ADVICE_SEEDS,
    speed: 6,
}


def main() -> None:
    """Everything above, into the page; or the parts that are named, the others as they stand."""
    named = sys.argv[1:] or [part.__name__ for part in PARTS]
    sections = ["## " + one for one in read_section("certificates", "logs").split("\n## ")[1:]]
    sections += [""] * (len(PARTS) - len(sections))
    with Progress() as progress:
        total = sum(ticks for part, ticks in PARTS.items() if part.__name__ in named)
        task = progress.add_task("certificates", total=total)
        for i, part in enumerate(PARTS):
            if part.__name__ in named:
                sections[i] = "\n".join(part(lambda: progress.advance(task)))
    page = "\n\n".join(one.strip("\n") for one in (HEAD, *sections)) + "\n"
    write_section("certificates", "logs", page)
    sys.stdout.write(page)


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    set_threads(1)
    main()
