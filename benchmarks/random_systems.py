"""Systems without a context: one gain for a population, of which a few systems were seen.

`python benchmarks/random_systems.py` takes some minutes; `--quick` one seed, `--development` other
seeds, `--write` the section of the page "Real fleets". The problem is that of *Robust direct
data-driven control for probabilistic systems* (von Rohr, Likhachev, Trimpe 2025), whose stored
results are in `THEIRS`: vec [A, B] is Gaussian about A = tridiagonal 1.01 and 0.01, B = I, with
covariance σ (I + 11ᵀ) / 2, truncated at its ellipsoid of 95 %. N systems are seen for 100 steps of
random inputs, from a new state whenever the old one has doubled, with noise of at most 0.0005. One
static gain is to stabilise as many as possible of 1000 others.

The gain is the first one of a long horizon that is hedged against what the library believes about a
system never seen.
"""

import argparse
import sys
import time

import numpy as np
from numpy import ndarray as Array
from pages import write_section

import contextual_lqr as clqr
from contextual_lqr.certificates.backtest import hedged_policy

D = M = 3
SIGMA, STEPS, NOISE = 0.09, 100, 5e-4
UNSEEN, HORIZON = 1000, 30
INSIDE = 28.869  # the 95 % quantile of χ² with 18 degrees of freedom
THEIRS = {2: (70.6, 100), 8: (95.6, 98), 32: (98.5, 82), 248: (98.9, 6)}  # %: stabilised, found
COST = clqr.QuadraticCost(
    np.broadcast_to(np.eye(D), (HORIZON, D, D)),
    np.broadcast_to(1e-2 * np.eye(M), (HORIZON - 1, M, M)),
)


def covariance(kronecker: bool) -> Array:
    """Of vec [A, B], row by row: as they write it, or as their code draws it.

    That takes the Kronecker product of 3 by 3 and 6 by 6 matrices that is nearest to a Cholesky
    factor (Van Loan and Pitsianis 1993).
    """
    k = D * (D + M)
    written = SIGMA * (np.eye(k) + np.ones((k, k))) / 2
    if not kronecker:
        return written
    blocks = np.linalg.cholesky(written).reshape(D, D + M, D, D + M).transpose(0, 2, 1, 3)
    left, size, right = np.linalg.svd(blocks.reshape(D * D, -1))
    root = size[0] * np.kron(left[:, 0].reshape(D, D), right[0].reshape(D + M, D + M))
    return root @ root.T


def systems(n: int, rng: np.random.Generator, kronecker: bool) -> Array:
    """[A, B] of n systems, (n, 3, 6)."""
    mean = np.hstack((1.01 * np.eye(D) + 0.01 * (np.eye(D, k=1) + np.eye(D, k=-1)), np.eye(D)))
    z = rng.standard_normal((2 * n + 20, mean.size))
    z = z[(z**2).sum(1) <= INSIDE][:n]
    root = np.linalg.cholesky(covariance(kronecker))
    return mean + (z @ root.T).reshape(n, D, D + M)


def episodes(AB: Array, rng: np.random.Generator) -> list[clqr.Trajectory]:
    """What one system shows in 100 steps."""
    found, left = [], STEPS
    while left:
        states, inputs = [rng.uniform(-1, 1, D)], []
        while left and np.linalg.norm(states[-1]) <= 2 * np.linalg.norm(states[0]):
            inputs.append(rng.uniform(-0.1, 0.1, M))
            states.append(
                AB @ np.concatenate((states[-1], inputs[-1])) + rng.uniform(-NOISE, NOISE, D)
            )
            left -= 1
        found.append(clqr.Trajectory(np.array(states), np.array(inputs)))
    return found


def learn(seen: Array, rng: np.random.Generator) -> clqr.Decoder:
    """The population as the systems seen show it."""
    context_map = clqr.FeatureContext(["1"], states=D, inputs=M)
    decoder = clqr.Decoder(context_map, 1e-6 * NOISE**2, noise_level=NOISE, deviations="estimated")
    for i, AB in enumerate(seen):
        for one in episodes(AB, rng):
            decoder.update({}, one, machine=f"system {i}")
    return decoder


def gain(decoder: clqr.Decoder) -> Array:
    """One static gain for a system never seen."""
    return hedged_policy(decoder.machine({}), COST, 1.0).gains[0]


def stabilised(seed: int, n: int, kronecker: bool) -> float:
    """The share of unseen systems that the gain from n systems stabilises."""
    rng = np.random.default_rng([seed, n])
    K = gain(learn(systems(n, rng, kronecker), rng))
    AB = systems(UNSEEN, rng, kronecker)
    radius = np.abs(np.linalg.eigvals(AB[:, :, :D] + AB[:, :, D:] @ K)).max(1)
    return float((radius < 1).mean())


def main() -> None:
    """Measure, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--development", action="store_true", help="seeds from 0 on")
    parser.add_argument("--write", action="store_true", help="write the section of the page")
    options = parser.parse_args()
    clqr.set_threads(1)
    first = 0 if options.development else 200
    seeds = range(first, first + (1 if options.quick else 8))
    began = time.perf_counter()
    lines = [
        "| systems seen | stabilised: mean, worst seed | from their sampler | theirs | found |",
        "|---|---|---|---|---|",
    ]
    for n, (share, found) in THEIRS.items():
        ours = []
        for kronecker in (False, True):
            shares = [stabilised(seed, n, kronecker) for seed in seeds]
            ours.append(f"{np.mean(shares):.1%}, {min(shares):.1%}")
        lines.append(f"| {n} | {ours[0]} | {ours[1]} | {share} % | {found} % |")
        print(lines[-1], flush=True)
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    if options.write:
        text = f"""
# Fleets without a context

Written by `benchmarks/random_systems.py`, on the problem of *Robust direct data-driven control for
probabilistic systems* (von Rohr, Likhachev, Trimpe 2025) at σ = 0.09: one static gain, learnt from
N systems of a population, for {UNSEEN} others; the share of these that it stabilises, over
{len(seeds)} seeds. Ours always found a gain. *Theirs* are the results they store, over the share
of seeds in which their method *found* a controller. Their sampler replaces the covariance in
their paper by the nearest Kronecker product, which is a fifth smaller: we show ours with both.

""" + "\n".join(lines)
        write_section("real-fleets", "populations", text)


if __name__ == "__main__":
    main()
