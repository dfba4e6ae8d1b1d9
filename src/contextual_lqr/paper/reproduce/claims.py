"""The claims of the paper, one by one, beside what was measured; and what it does not say."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array
from scipy.special import bdtrc

from contextual_lqr.paper.reproduce.summary import Measurements, median
from contextual_lqr.paper.reproduce.trial import bench

# What we call satisfactory: episodes, then the largest median of any setting that passes.
AFTER_FEW = (5, 0.015, 0.05)
AFTER_MANY = (100, 0.0015, 0.001)
_MORE_SEEDS = " It takes more seeds to say whether that is chance."


class Claim(NamedTuple):
    """`holds` is None where the run was too short, or had too few seeds, to judge."""

    paper: str
    measured: str
    holds: bool | None


def claims(measured: Measurements) -> list[Claim]:
    """Every claim of the paper's experiments and of its theorem that a run can speak of."""
    return [
        _accuracy(measured),
        _improvement(measured),
        _growth(measured),
        _late_growth(measured),
        _zero_shot(measured),
        _good_event(measured),
        _no_failure(measured),
    ]


def number(value: float | Array) -> str:
    """Two digits, or the whole number; powers of ten where they are shorter."""
    value = float(value)
    if not np.isfinite(value):
        return "infinite"
    if value != 0 and not 1e-4 <= abs(value) < 1e4:
        return f"{value:.1e}"
    return f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"


def _range(values: Array) -> str:
    low, high = number(values.min()), number(values.max())
    return low if low == high else f"{low} to {high}"


def _medians(measured: Measurements, column: str, episode: int) -> Array:
    """Over seeds, one a setting, of the strategy the claims are about."""
    return median(measured.of(column)[:, :, episode - 1])


def _within(measured: Measurements, episode: int, decoder: float, control: float) -> bool | None:
    """Whether all settings' medians are within; None where more seeds are needed to say so.

    A median that is too high is a failure only if a sign test (5 %) rules out that it is chance.
    """
    verdict: bool | None = True
    for column, limit in (("decoder_error", decoder), ("control_error", control)):
        for values in measured.of(column)[:, :, episode - 1]:
            if median(values) > limit:
                above = int((values > limit).sum())
                if bdtrc(above - 1, len(values), 0.5) < 0.05:  # so many or more, were it chance
                    return False
                verdict = None
    return verdict


def _accuracy(measured: Measurements) -> Claim:
    said, (episode, decoder, control) = "Satisfactory accuracy after only 5 episodes.", AFTER_FEW
    if measured.config.episodes < episode:
        return Claim(said, f"fewer than {episode} episodes were run", None)
    theta, error = (_medians(measured, c, episode) for c in ("decoder_error", "control_error"))
    holds = _within(measured, *AFTER_FEW)
    text = (
        f"After {episode} episodes the settings' medians are: ‖Θ-Θ*‖ {_range(theta)} "
        f"(we ask for {decoder:g}), mean control error {_range(error)} (we ask for {control:g})."
    )
    return Claim(said, text + (_MORE_SEEDS if holds is None else ""), holds)


def _improvement(measured: Measurements) -> Claim:
    said = "As the agent plays more environments, it achieves better performance."
    at = [k for k in (1, 3, 10, 100) if k <= measured.config.episodes]
    if len(at) < 2:
        return Claim(said, "only one episode was run", None)
    by_episode = [_medians(measured, "control_error", k) for k in at]
    error = measured.of("control_error")
    better = float((error[:, :, at[-1] - 1] < error[:, :, at[0] - 1]).mean())
    listed = "; ".join(f"{k}: {_range(e)}" for k, e in zip(at, by_episode, strict=True))
    return Claim(
        said,
        f"Median control error by the number of environments: {listed}. It is lower after {at[-1]} "
        f"than after {at[0]} in {better:.0%} of the runs.",
        all(bool((b < a).all()) for a, b in pairwise(by_episode)),
    )


def growth_factors(measured: Measurements, strategy: str | None = None) -> Array:
    """Cumulative regret at the end over that after a tenth of the episodes, one a run."""
    total, tenth = measured.of("cumulative_regret", strategy), measured.config.episodes // 10
    with np.errstate(invalid="ignore"):
        factors = total[:, :, -1] / total[:, :, tenth - 1]
    return np.where(np.isnan(factors), np.inf, factors)


def late_exponent(measured: Measurements) -> Array:
    """The power of k with which an episode's regret changes after a tenth of them, one a run.

    A slope of least squares in logarithms; √K in total is the power -1/2.
    """
    first = measured.config.episodes // 10
    regret = measured.of("regret")[:, :, first:]
    log_k = np.log(np.arange(first + 1, measured.config.episodes + 1))
    centred = log_k - log_k.mean()
    with np.errstate(invalid="ignore"):
        slope = np.log(np.maximum(regret, 1e-12)) @ centred / (centred @ centred)
    return np.where(np.isfinite(slope), slope, np.inf)


def _growth(measured: Measurements) -> Claim:
    said, config, K = "Regret grows as Õ(√K).", measured.config, measured.config.episodes
    if K < 20:
        return Claim(said, "fewer than 20 episodes were run", None)
    factors = growth_factors(measured)
    falling = np.arange(1, K + 1) ** -0.5  # an episode's regret, if the total is √K
    allowed = float(falling.sum() / falling[: K // 10].sum())
    typical = float(median(factors.ravel()))
    total = _medians(measured, "cumulative_regret", K)
    text = (
        f"From {K // 10} to {K} episodes cumulative regret grows {typical:.3g}-fold in the median "
        f"(√K: {allowed:.3g}-fold; more in {(factors > allowed).mean():.0%} of the runs): the "
        f"first episodes make up nearly all of it, {_range(total)} (settings' medians)."
    )
    if "optimism" in config.strategies and config.lead != "optimism":
        other = growth_factors(measured, "optimism").ravel()
        text += (
            f" True optimism with the β of the proof: {median(other):.3g}-fold, more than "
            f"√K in {(other > allowed).mean():.0%} of the runs."
        )
    return Claim(said, text, typical <= allowed)


def _late_growth(measured: Measurements) -> Claim:
    said, K = "Regret grows as Õ(√K), from a tenth of the episodes on.", measured.config.episodes
    if K < 20:
        return Claim(said, "fewer than 20 episodes were run", None)
    last = measured.of("regret")[:, :, K - K // 10 :]
    paid = median(last.reshape(len(last), -1))
    idle = [np.diff(idle_regret(measured, i))[-(K // 10) :].mean() for i in range(len(last))]
    typical = float(median(1 + late_exponent(measured).ravel()))
    return Claim(
        said,
        f"It grows as K^{typical:.2f} in the median of the runs. One of the last {K // 10} "
        f"episodes still costs {_range(paid)} (settings' medians), where doing nothing costs "
        f"{_range(np.array(idle))}: with this β the rule still explores.",
        typical <= 0.5,
    )


def _zero_shot(measured: Measurements) -> Claim:
    config = measured.config
    said = "The decoder controls objects of masses never seen, without any trial."
    seen = set(config.training_masses()) & set(config.unseen_masses())
    error, worst, theta = (
        _medians(measured, column, config.episodes)
        for column in ("control_error", "worst_control_error", "decoder_error")
    )
    best = np.array([bench(config, one).test.optimal_costs.mean() for one in config.settings])
    text = (
        f"On {config.test_masses} masses, {len(seen)} of them among those trained on, the mean "
        f"control error after {config.episodes} episodes is {_range(error)} (settings' medians; "
        f"the optimum costs {_range(best)}), on the worst mass {_range(worst)}."
    )
    episodes, decoder, control = AFTER_MANY
    if config.episodes < episodes:
        return Claim(said, text, None)
    text += f" We ask for {control:g}, and for ‖Θ-Θ*‖ {decoder:g}: it is {_range(theta)}."
    holds = _within(measured, *AFTER_MANY)
    return Claim(said, text + (_MORE_SEEDS if holds is None else ""), holds)


def _good_event(measured: Measurements) -> Claim:
    with np.errstate(invalid="ignore"):
        ratio = measured.of("confidence_distance") / measured.of("confidence_radius")
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    inside = float((ratio <= 1).all(-1).mean())
    return Claim(
        "Θ* is in every confidence set, with high probability.",
        f"In {inside:.0%} of the runs it is in all of them; its squared distance is at most "
        f"{number(ratio.max())} of β, {number(median(ratio.ravel()))} in the median.",
        inside >= 0.9,
    )


def _no_failure(measured: Measurements) -> Claim:
    failed = [one for one in measured.failures if one["strategy"] == measured.config.lead]
    runs = len(measured.config.settings) * measured.config.seeds
    text = f"{len(failed)} of {runs} runs of this rule failed."
    return Claim("(The paper reports no failed run.)", text, not failed)


def unsaid(measured: Measurements) -> list[list[str]]:
    """What it costs on the way: a header, then a row for each strategy, all settings together."""
    config = measured.config
    few, all_ = min(AFTER_FEW[0], config.episodes), config.episodes
    header = ["strategy", "regret", "worst", "largest state", "worst"]
    table = [[*header, f"control error after {few}", f"after {all_}", "failed"]]
    for strategy in config.strategies:
        total, largest, error = (
            measured.of(column, strategy)
            for column in ("cumulative_regret", "largest_state", "control_error")
        )
        failed = sum(one["strategy"] == strategy for one in measured.failures)
        ends = [total[:, :, -1].ravel(), largest[:, :, -1].ravel()]
        cells = [number(of(end)) for end in ends for of in (median, np.max)]
        cells += [number(median(error[:, :, k - 1].ravel())) for k in (few, all_)]
        table.append([strategy, *cells, str(failed)])
    idle = np.array([idle_regret(measured, i)[-1] for i in range(len(config.settings))])
    table.append(["doing nothing", number(np.median(idle)), number(idle.max()), *["-"] * 5])
    return table


def idle_regret(measured: Measurements, setting: int) -> Array:
    """Cumulative regret of never pushing, after each episode, in this setting."""
    training = bench(measured.config, measured.config.settings[setting]).training
    return np.cumsum(training.policy_regrets(np.zeros_like(training.policies)))
