"""What the rows of all runs say about each guarantee. Pure functions: rows in, verdicts out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float, Real
from numpy import ndarray as Array

from contextual_lqr.theory import Regularity, regret_bound

ROUNDING = 1e-9  # relative: what two ways to compute the same number may differ by
LARGEST_EXPONENT = 0.55  # of the regret, against ½
_BOOTSTRAP = 2000
_BINS = 16
Numbers = dict[str, float | int]

# The set of each rule: its name, its distance and its beta.
RULES = (
    ("determinant form", "distance", "beta"),
    ("paper's β", "distance", "paper_radius"),
    ("paper's β, V = I", "literal_distance", "literal_beta"),
)


@dataclass(frozen=True)
class Check:
    """One guarantee on one fleet: whether it holds, what was found, and the numbers of it."""

    name: str
    fleet: str
    holds: bool
    finding: str
    numbers: Numbers = field(default_factory=dict)


def all_checks(
    rows: pl.DataFrame, constants: Mapping[str, Regularity], delta: float, fit_from: int
) -> list[Check]:
    """The five checks on every fleet."""
    found: list[Check] = []
    for name in constants:
        one = rows.filter(fleet=name)
        short, long = one.filter(long=False), one.filter(long=True)
        found += coverage(short, delta)
        found.append(optimism(one))
        found.append(regret(long, constants[name], delta, fit_from))
        found.append(unseen(long, fit_from))
        found += [determinant(one, constants[name].horizon), per_step(one)]
    return found


def coverage(rows: pl.DataFrame, delta: float) -> Iterator[Check]:
    """1. Θ* is in all sets of a run with probability 1-δ at least: in how many runs it is.

    It fails where the runs refute it: the Clopper-Pearson interval lies below 1-δ.
    """
    from scipy.stats import binomtest  # takes a second to import

    for rule, distance, beta in RULES:
        if distance not in rows.columns:
            continue
        worst = rows.group_by("seed").agg((pl.col(distance) / pl.col(beta)).max().alias("ratio"))
        ratios = worst["ratio"].to_numpy()
        runs, covered, promise = len(ratios), int((ratios <= 1).sum()), 1 - delta
        low, high = map(float, binomtest(covered, runs).proportion_ci(0.95, method="exact"))
        said = (
            f"Θ* in all sets of {covered} of {runs} runs (95 % interval {low:.3f} to {high:.3f}, "
            f"promised {promise:g}); distance²/β at most {ratios.max():.3g}"
        )
        if high < promise:
            said += f": short of the promise by {promise - high:.3f} at least"
        elif low < promise:
            said += ": too few runs to show it"
        name, largest = f"coverage, {rule}", float(ratios.max())
        counts: Numbers = {"runs": runs, "covered": covered, "low": low, "high": high}
        numbers = counts | {"promised": promise, "largest_ratio": largest}
        yield Check(name, _fleet(rows), high >= promise, said, numbers)


def optimism(rows: pl.DataFrame) -> Check:
    """2. While Θ* is in the set, the promised cost is at most the optimal one."""
    inside = rows.filter(pl.col("distance") <= pl.col("beta"))
    excess = (inside["promised"] / inside["optimal"] - 1).to_numpy()
    broken = int((excess > ROUNDING).sum())
    largest = float(excess.max(initial=-1.0))
    said = f"{broken} exceptions in {len(inside)} episodes with Θ* inside"
    if broken:
        said += f"; the largest promise is {largest:.3g} of the optimal cost above it"
    elif not len(inside):
        said = "Θ* was never inside, so nothing could be checked"
    numbers = {"episodes": len(inside), "exceptions": broken, "largest_excess": largest}
    return Check("optimism", _fleet(rows), not broken and len(inside) > 0, said, numbers)


def regret(rows: pl.DataFrame, constants: Regularity, delta: float, fit_from: int) -> Check:
    """3. Cumulative regret grows as √K, and stays below the Proposition's bound.

    Two exponents: of the cumulative regret, and 1 plus that of the regret of an episode, which
    the large regret of the first episodes cannot flatter. Both intervals must end at 0.55 at most;
    the second is judged in runs of two decades only.
    """
    each = by_run(rows, "regret")
    total = each.cumsum(1)
    K = total.shape[1]
    whole = slope(_at(total, fit_from), _marks(K, fit_from))
    single = Slope(*(1 + value for value in slope(*binned(each, fit_from))))
    marks = _marks(K, 1)
    bounds = np.array([regret_bound(constants, float(k), delta).total for k in marks])
    share, largest = float((total[:, marks - 1] / bounds).max()), float(total[:, -1].max())
    over = _judged(whole, single, K, fit_from) - LARGEST_EXPONENT
    said = (
        f"exponent {whole}, from single episodes {single}; "
        f"regret of {K} episodes {largest:.4g} at most, bound {bounds[-1]:.2g}"
    )
    if not over <= 0:
        said += f": the interval ends {over:.3f} above {LARGEST_EXPONENT}"
    if not share <= 1:
        said += f": {share:.3g} times the bound"
    numbers = {
        **{"runs": len(total), "episodes": K},
        **whole.named("exponent"),
        **single.named("episode_exponent"),
        **{"mean": float(total[:, -1].mean()), "largest": largest, "bound": float(bounds[-1])},
        "largest_share_of_bound": share,
    }
    return Check("regret", _fleet(rows), bool(over <= 0 and share <= 1), said, numbers)


def unseen(rows: pl.DataFrame, fit_from: int) -> Check:
    """4. PAC: on contexts never seen, the output costs too much by 1/√K at most.

    The output is drawn uniformly from the K decoders played, so that its expectation is their
    mean. Again two slopes: of that mean against K, and of the k-th decoder alone against k.
    """
    each, estimate = by_run(rows, "unseen"), float(by_run(rows, "unseen_estimate")[:, -1].mean())
    K = each.shape[1]
    mean = each.cumsum(1) / np.arange(1, K + 1)
    whole, single = slope(_at(mean, fit_from), _marks(K, fit_from)), slope(*binned(each, fit_from))
    over = _judged(whole, single, K, fit_from) + 1 - LARGEST_EXPONENT
    said = (
        f"slope {whole}, of the k-th decoder {single}; after {K} episodes "
        f"{mean[:, -1].mean():.3g} too much, the estimate {estimate:.2g}"
    )
    if not over <= 0:
        said += f": the interval ends {over:.3f} above {LARGEST_EXPONENT - 1:.2f}"
    numbers = {
        "episodes": K,
        **whole.named("slope"),
        **single.named("decoder_slope"),
        "mean": float(mean[:, -1].mean()),
        "last_tenth": float(each[:, -max(K // 10, 1) :].mean()),
        "estimate": estimate,
        "regret_per_episode": float(by_run(rows, "regret").mean()),
    }
    return Check("unseen contexts (PAC)", _fleet(rows), bool(over <= 0), said, numbers)


def determinant(rows: pl.DataFrame, horizon: int) -> Check:
    """5a. log det V is within its bound, and the potential of an episode within log det V's growth.

    Σ_h log(1 + ‖z_h‖²_{V⁻¹}) ≤ (H-1) (log det V after - log det V before).
    """
    room = ROUNDING * (1 + rows["log_det_bound"])
    large = int((rows["log_det"] > rows["log_det_bound"] + room).sum())
    growth = (horizon - 1) * (rows["log_det_after"] - rows["log_det"])
    steep = int((rows["potential"] > growth + ROUNDING * (1 + rows["log_det_after"])).sum())
    later = rows.filter(pl.col("rows") > 0)
    share = float((later["log_det"] / later["log_det_bound"]).to_numpy().max(initial=0.0))
    said = (
        f"{large} violations of the bound on det V and {steep} of the potential's in {len(rows)} "
        f"episodes; log det V at most {share:.3g} of its bound"
    )
    numbers: Numbers = {"episodes": len(rows), "violations": large, "potential": steep}
    numbers["largest_share"] = share
    return Check("determinant lemma", _fleet(rows), large + steep == 0, said, numbers)


def per_step(rows: pl.DataFrame) -> Check:
    """5b. ‖(Θ - Θ̂)z‖ ≤ √β ‖z‖_{V⁻¹} at every step, for Θ* and for the decoder played."""
    steps, broken = int(rows["steps"].sum()), int(rows["steps_violated"].sum())
    true, played = (float(rows[c].to_numpy().max()) for c in ("step_ratio", "played_ratio"))
    said = f"{broken} violations in {steps} steps; the two sides' ratio is at most {true:.3g}"
    if played > 1 + ROUNDING:
        said += f"; the decoder played leaves its set, by {played - 1:.2g}"
    numbers: Numbers = {"steps": steps, "violations": broken, "largest_ratio": true}
    numbers["largest_played"] = played
    holds = broken == 0 and played <= 1 + ROUNDING
    return Check("per-step inequality", _fleet(rows), holds, said, numbers)


# -- rates -------------------------------------------------------------------------------------


class Slope(NamedTuple):
    """A slope with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"

    def named(self, name: str) -> dict[str, float]:
        """Its numbers under this name."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def by_run(rows: pl.DataFrame, column: str) -> Float[Array, "runs K"]:
    """A column as one row a run, episodes in order."""
    ordered = rows.sort("seed", "episode")
    return ordered[column].to_numpy().reshape(ordered["seed"].n_unique(), -1)


def binned(
    each: Float[Array, "runs K"], first: int
) -> tuple[Float[Array, "runs bins"], Float[Array, " bins"]]:
    """The means over bins of equal length in log k from `first` on, and the bins' middles."""
    edges = np.unique(np.geomspace(first, each.shape[1] + 1, _BINS + 1).astype(int))
    pairs = list(pairwise(edges))
    means = np.stack([each[:, a - 1 : b - 1].mean(1) for a, b in pairs], 1)
    return means, np.array([np.sqrt(a * (b - 1)) for a, b in pairs], float)


def slope(values: Float[Array, "runs points"], at: Real[Array, " points"]) -> Slope:
    """The slope of log(mean over runs) against log(at), and its 95 % bootstrap interval over runs.

    Whole runs are drawn again: the episodes of one run depend on each other.
    """
    rng = np.random.default_rng(0)
    runs = len(values)
    drawn = rng.integers(runs, size=(_BOOTSTRAP, runs))
    means = np.concatenate([values.mean(0)[None], values[drawn].mean(1)])
    x = np.log(at) - np.log(at).mean()
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.log(means) @ x / (x @ x)
    if not np.isfinite(slopes).all():
        return Slope(np.nan, np.nan, np.inf)  # a mean that is infinite, or not positive
    return Slope(float(slopes[0]), *np.quantile(slopes[1:], [0.025, 0.975]).tolist())


def _judged(whole: Slope, single: Slope, K: int, first: int) -> float:
    """The larger upper end, of the second only if two decades of k are behind it."""
    return max(whole.high, single.high) if 100 * first <= K else whole.high


def _marks(K: int, first: int) -> Array:
    """Numbers of episodes, about even in log K."""
    return np.unique(np.geomspace(first, K, 4 * _BINS).round().astype(int))


def _at(total: Float[Array, "runs K"], first: int) -> Float[Array, "runs points"]:
    return np.asarray(total[:, _marks(total.shape[1], first) - 1])


def _fleet(rows: pl.DataFrame) -> str:
    return str(rows["fleet"][0])
