"""How far to widen what is believed of machines that are not linear: as far as their runs ask for.

Each machine is left out in turn (without labels, each run is one). The others' belief predicts its
logged runs from logged states, 1, 2, 4, ... steps ahead, at most as many as the path has, by draws
of Θ and of the noise, whose median is m and whose root mean square about it is s:

    score of a prediction   |x - m| / (1.96 s)
    score of a machine      the 95 % quantile over its predictions: 1 if they are as claimed

Machines are exchangeable, so a new one has a score above the k-th smallest of n with a probability
of at most 1 - k / (n + 1). With k = ⌈0.95 (n + 1)⌉, or the largest score if machines are too few to
show 95 %, draws of Θ and of the noise are stretched by it if it is more than 1.

For a machine with runs of its own it is the same, except that each of its runs is left out in turn,
and its other runs are kept.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.belief.evidence.logged_runs import LoggedRun
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.planning.paths.feature_batch import FeatureBatch

LEVEL = 0.95
_DRAWS = 48
_WINDOWS = 20  # of a run, evenly spread
_MACHINES = 40  # left out, at most
_FARTHEST = 1e100
_SIDES = 1.96  # standard deviations: 95 % of a Gaussian


@dataclass(frozen=True, eq=False)
class PathCalibration:
    """How far off predictions of machines left out were, in units of what was claimed.

    Attributes
    ----------
    scores : dict from str to float
        Of each machine that was left out; 1 is as claimed.
    stretch : float
        What draws are widened by, at least 1.
    shows : float
        The probability that a new machine is within what is claimed: 95 %, or n/(n+1) if fewer than
        19 machines were left out; 0 if there were not even two.
    """

    scores: dict[str, float]
    stretch: float
    shows: float

    def __str__(self) -> str:
        n = len(self.scores)
        if not self.shows:
            return "no backtest: no two machines were logged"
        said = f"backtest: {n} machines left out, errors {self.largest:.2g} times the claim"
        return said if self.shows >= LEVEL else f"{said}, which shows {self.shows:.0%}"

    @property
    def largest(self) -> float:
        """The score that a new machine exceeds with probability 1 - `shows`."""
        return _ranked(self.scores)[0]


def calibration_of(decoder: Decoder, steps: int, known: bool = False) -> PathCalibration:
    """That of a decoder's own runs, for paths of so many steps; kept until data come."""
    kept, key = decoder.kept, ("path calibration", steps, known)
    if key not in kept:
        kept[key] = calibrate(decoder, steps, known)
    found: PathCalibration = kept[key]
    return found


def calibrate(decoder: Decoder, steps: int, known: bool = False) -> PathCalibration:
    """Leave each machine out in turn, and predict what is left out, at most so many steps ahead.

    Of machines that are `known` each run is left out in turn.
    """
    units = machines_of(decoder)
    if known:
        units = {name: runs for name, runs in units.items() if len(runs) > 1}
    if len(units) < (1 if known else 2):
        return PathCalibration({}, 1.0, 0.0)
    every, scores = decoder.logged_runs.runs, {}
    for name in some_of(list(units)):
        own = units[name]
        parts = [[run] for run in own] if known else [own]
        rng, found = np.random.default_rng(0), []
        for part in parts:
            label = part[0].machine if known else None
            others = learnt_from(decoder, [run for run in every if not _among(run, part)])
            for run in part:
                belief = others.machine(run.context, label)
                found.append(prediction_scores(belief, run.trajectory, steps, rng))
        scores[name] = float(np.quantile(np.concatenate(found), LEVEL, method="higher"))
    score, shows = _ranked(scores)
    return PathCalibration(scores, max(score, 1.0), shows)


def machines_of(decoder: Decoder) -> dict[str, list[LoggedRun]]:
    """The runs of each machine; a run without a label is one."""
    units: dict[str, list[LoggedRun]] = {}
    for i, run in enumerate(decoder.logged_runs.runs):
        units.setdefault(f"#{i + 1}" if run.machine is None else run.machine, []).append(run)
    return units


def some_of(names: list[str]) -> list[str]:
    """Not too many: a sample of them shows as much."""
    if len(names) <= _MACHINES:
        return names
    places = np.random.default_rng(0).choice(len(names), _MACHINES, replace=False)
    return [names[i] for i in np.sort(places)]


def learnt_from(decoder: Decoder, runs: Sequence[LoggedRun]) -> Decoder:
    """What such a decoder learns from these runs alone."""
    machines = decoder._machines
    deviations: Any = None if machines is None else "estimated"
    if machines is not None and machines.given is not None:
        deviations = machines.given
    twin = Decoder(
        decoder.context_map,
        decoder.regularisation,
        noise_level=decoder.given_noise_level,
        known=decoder.known,
        deviations=deviations,
        prior=decoder.given_prior,
        scales=decoder.scales,
    )
    contexts, labels, played = (list(part) for part in zip(*runs, strict=True))
    twin.update_many(contexts, played, labels, allow_repeats=True)
    return twin


def prediction_scores(
    belief: MachineBelief, run: Trajectory, most: int, rng: np.random.Generator
) -> Float[Array, " predictions"]:
    """Of predictions 1, 2, 4, ... steps ahead: what they are off by, in units of the claim."""
    assert isinstance(belief, DynamicsBelief)
    steps, d = run.inputs.shape[0], run.states.shape[1]
    aheads = {2**k for k in range(int(math.log2(min(steps, most))) + 1)}
    places = np.unique(np.linspace(0, steps - 1, min(_WINDOWS, steps)).round().astype(int))
    n = len(places)
    theta = np.repeat(belief.draw(_DRAWS, rng), n, 0)  # (draws * windows, d, p)
    level = np.sqrt(np.diagonal(belief.noise))
    batch = FeatureBatch(belief, (_DRAWS * n,))
    begun = np.tile(places, _DRAWS)
    x, alive, found = run.states[begun], np.ones(len(begun), bool), []
    for h in range(1, max(aheads) + 1):
        alive &= begun + h <= steps
        some = np.flatnonzero(alive)
        if not len(some):
            break
        shock = level * rng.standard_normal((len(some), d))
        with np.errstate(all="ignore"):
            phi = batch.values(some, x[some], run.inputs[begun[some] + h - 1])
            after = (theta[some] @ phi[..., None])[..., 0] + shock
        good = (np.abs(after) < _FARTHEST).all(1)
        x[some] = np.where(good[:, None], after, np.nan)
        alive[some[~good]] = False
        ends = places + h <= steps
        if h in aheads and ends.any():
            drawn = x.reshape(_DRAWS, n, d)[:, ends]
            found.append(_off(drawn, run.states[places[ends] + h]).ravel())
    return np.concatenate(found)


def _off(drawn: Float[Array, "draws n d"], true: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """What the truth is off by, in units of 1.96 root mean squares of the draws."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        middle = np.nanmedian(drawn, axis=0)
        spread = np.sqrt(np.nanmean(np.square(drawn - middle), axis=0))
        off = np.abs(true - middle) / (_SIDES * spread)
    off = np.where(true == middle, 0.0, off)
    return np.where(np.isnan(middle), 0.0, np.where(np.isnan(off), np.inf, off))


def _ranked(scores: dict[str, float]) -> tuple[float, float]:
    """The score of the rank that shows 95 %, or the largest, and what that shows."""
    n = len(scores)
    if not n:
        return 1.0, 0.0
    k = min(math.ceil(LEVEL * (n + 1)), n)
    return sorted(scores.values())[k - 1], min(k / (n + 1), LEVEL)


def _among(run: LoggedRun, part: Sequence[LoggedRun]) -> bool:
    return any(run is one for one in part)
