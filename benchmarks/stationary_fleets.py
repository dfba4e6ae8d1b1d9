"""How honest certificates of constant gains are, on fleets that keep or break the assumptions.

`python benchmarks/stationary_fleets.py` takes some minutes on one core. The fleets, the ways to
break them and the logs are those of `broken_fleets.py`, except the fleets with a state that is
always 1; the task is that of machines that run continuously, with the weights of the first step.
The truth is the average cost of a step: of the gain by a Lyapunov equation of the machine as it
really is (delayed input and memory of the noise among the states), of the best controller that
knows this by its Riccati equation, with a stationary Kalman filter where measurements err. Under
friction and quantisation averages are simulated, and the best is the cheapest of gains tried.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

import numpy as np
from broken_bases import Base, bases
from broken_fleets import VARIANTS, Score, Trial, breakable, learn, table, trial
from numpy import ndarray as Array
from pages import write_section
from scipy.linalg import solve_discrete_are
from support_broken import Machines

import contextual_lqr as clqr

FIRST_SEED = 130  # what 100, 101, 110, 111, 120 and 121 showed has been repaired
RUNS, STEPS, SETTLED = 20, 300, 100  # of a simulation; the first steps do not count
RELAXED = (0.6, 0.8, 1.0, 1.25)  # gains tried under friction, as parts of the optimal one


def endless(base: Base) -> clqr.StationaryCost | None:
    """The task without an end, if all states of the fleet can be brought to zero."""
    cost = clqr.StationaryCost(base.fleet.cost.Q[0], base.fleet.cost.R[0])
    rng = np.random.default_rng(0)
    machines = base.machines([base.fleet.sample_context(rng) for _ in range(5)])
    system = clqr.LinearSystem(machines.A, machines.B, machines.noise)
    return cost if clqr.solve(system, cost).solved.all() else None


def augmented(machines: Machines, cost: clqr.StationaryCost) -> tuple[clqr.LinearSystem, Array]:
    """The machines with the delayed input and the noise's memory among the states, and Q."""
    system, wide, _ = machines._augmented(cost.over(2), np.zeros(machines.A.shape[-1]))
    return system, wide.Q[0]


def paid(machines: Machines, gain: Array, cost: clqr.StationaryCost) -> Array:
    """The average cost of gains (n, m, d) in truth."""
    system, Q = augmented(machines, cost)
    n, m, d = gain.shape
    K = np.zeros((n, m, len(Q)))
    K[..., :d] = gain
    noise, more = np.array(np.broadcast_to(system.noise, (n, *Q.shape))), np.zeros(n)
    if machines.error is not None:  # u = K x + K v
        V = (gain * machines.error**2) @ gain.swapaxes(1, 2)
        noise += system.B @ V @ system.B.swapaxes(1, 2)
        more = np.einsum("nij,ji->n", V, cost.R)
    system = clqr.LinearSystem(system.A, system.B, (noise + noise.swapaxes(1, 2)) / 2)
    wide = clqr.StationaryCost(Q, cost.R)
    plain = clqr.policy_cost(clqr.StationaryPolicy(K), system, wide) + more
    if not machines.simulated:
        return np.asarray(plain)
    twin = replace(machines, friction=None, quantum=None)
    with np.errstate(over="ignore", invalid="ignore"):
        broken, usual = (simulated(one, gain, cost) for one in (machines, twin))
        found = plain + broken - usual
    return np.where(np.isfinite(found), found, np.inf)


def simulated(machines: Machines, gain: Array, cost: clqr.StationaryCost) -> Array:
    """The average cost of a step over long runs from zero, once they have settled."""
    shocks = machines.shocks(RUNS, STEPS, np.random.default_rng(0))
    gains = np.broadcast_to(gain[:, None], (len(gain), STEPS, *gain.shape[1:]))
    start = np.zeros(gain.shape[-1])
    x, _, u = machines.run(gains, start, shocks, np.random.default_rng(1))
    x, u = x[:, :, SETTLED:-1], u[:, :, SETTLED:]
    each = np.einsum("nrhi,ij,nrhj->n", x, cost.Q, x, optimize=True)
    each += np.einsum("nrhi,ij,nrhj->n", u, cost.R, u, optimize=True)
    return np.asarray(each / (x.shape[1] * x.shape[2]))


def best(machines: Machines, gain: Array, cost: clqr.StationaryCost) -> Array:
    """The average cost of the best controller; `gain` is among those tried by simulation."""
    plain = clqr.LinearSystem(machines.A, machines.B, machines.noise)
    if machines.friction is not None:
        own = clqr.solve(plain, cost).policy.gain
        tried = [paid(machines, part * own, cost) for part in RELAXED]
        return np.minimum(np.min(tried, 0), paid(machines, gain, cost))
    system, Q = augmented(machines, cost)
    J = np.array(clqr.optimal_cost(system, clqr.StationaryCost(Q, cost.R)))
    error = machines.error
    if machines.quantum is not None:
        error = np.sqrt((0 if error is None else error**2) + machines.quantum**2 / 12)
    if error is not None:  # LQG: tr Kᵀ(R + BᵀPB)K S, S Kalman's covariance after seeing
        solution = clqr.solve(plain, cost)
        for i, (A, B) in enumerate(zip(machines.A, machines.B, strict=True)):
            V = np.diag(np.maximum(error, 1e-9 * error.max()) ** 2)
            S = solve_discrete_are(A.T, np.eye(len(A)), machines.noise, V)
            S = S - S @ np.linalg.solve(S + V, S)
            K, P = solution.policy.gain[i], solution.value_matrix[i]
            J[i] += np.trace(K.T @ (cost.R + B.T @ P @ B) @ K @ S)
    return J


def score(given: Trial, cost: clqr.StationaryCost) -> Score:
    """Learn from a trial's logs, certify its unseen machines, and look up the truth."""
    start = given.base.fleet.start
    found = clqr.certify_many(learn(given.base, given.logs), given.contexts, cost, start)
    gain = np.stack([one.policy.gain for one in found])
    J, least = paid(given.unseen, gain, cost), best(given.unseen, gain, cost)
    excess = np.maximum(np.where(np.isfinite(J), J / least - 1, np.inf), 0.0)
    low, high = np.array([(one.lower.searched, one.upper.searched) for one in found]).T
    return Score(
        np.array([one.verdict == "trust" for one in found]),
        excess,
        np.array([one.likely_excess for one in found]),
        ((low > J) | (high < J)).astype(float),
    )


def main() -> None:
    """Measure today's certificate of constant gains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2, help="how many, from 130 on")
    parser.add_argument("--development", action="store_true", help="seeds from 0 on instead")
    parser.add_argument("--by-fleet", action="store_true", help="a row for each fleet too")
    parser.add_argument("--write", action="store_true", help="write the section of the page")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    options = parser.parse_args()
    clqr.set_threads(1)
    first, began = 0 if options.development else FIRST_SEED, time.perf_counter()
    parts: dict[tuple[str, str], list[Score]] = {}
    tasks = {seed: bases(seed) for seed in range(first, first + options.seeds)}
    for variant in options.variants:
        for seed, fleets in tasks.items():
            for name, base in fleets.items():
                if (cost := endless(base)) is not None and breakable(base, variant):
                    one = score(trial(base, variant, seed), cost)
                    parts.setdefault((variant, name), []).append(one)
        some = [Score.joined(one) for (own, _), one in parts.items() if own == variant]
        print(f"{variant}: {' | '.join(Score.joined(some).row())}", file=sys.stderr, flush=True)
    text = table({key: Score.joined(some) for key, some in parts.items()}, options.by_fleet)
    print(text)
    if options.write:
        count = len({name for _, name in parts})
        said = INTRODUCTION.format(seeds=options.seeds, fleets=count)
        write_section("real-fleets", "stationary", said + text)
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)


INTRODUCTION = """
# The same with constant gains

Written by `benchmarks/stationary_fleets.py`: certificates for machines that run continuously, of
the same fleets broken in the same ways, except those with a state that is always 1: {fleets}
fleets, {seeds} seeds each. Costs are averages per step; the interval is the one found by search. In
the long run noise causes all costs, so errors of measurement and noise that comes in waves cost far
more than in an episode: a fleet in which the tests find any of this is not trusted.

"""


if __name__ == "__main__":
    main()
