"""How well histories predict machines left out, from one pass over a sample for each spacing.

For each candidate, n outputs so many samples apart, the law is learnt from four fifths of the
machines, and predicts the others: from their history, with their inputs, over many steps. A score
is the mean logarithm of the errors at all numbers of steps; another is that of all single steps,
which tells small differences better. What a machine has shown enters by its triangular factor with
all columns, of which a shorter history takes some.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.fading import faded, keep_of
from contextual_lqr.context import FeatureContext
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.histories.history import History
from contextual_lqr.data.histories.sampled_runs import Run
from contextual_lqr.errors import InputError

_STEPS = 20  # ahead
_FOLDS = 5

Lag = tuple[str, int]
"""A column, and the stage of its past."""


class Scores(NamedTuple):
    """By candidate and machine: many steps, and single ones; outputs that stay as they are."""

    far: Float[Array, "candidates machines"]
    near: Float[Array, "candidates machines"]
    still: Float[Array, " machines"]
    features: Float[Array, "machines k"]
    steps: int  # ahead


class _Shown(NamedTuple):
    """One machine of the sample, with the pasts of one spacing."""

    name: str
    triangle: Float[Array, "k width"]  # of [columns, next targets]
    rows: int
    begins: Float[Array, "windows columns"]
    ahead: dict[str, Float[Array, "windows steps"]]


def score_histories(
    about: FleetDescription, runs: Sequence[Run], candidates: Sequence[History]
) -> Scores:
    """Score candidates on the same predictions."""
    reach = max(one.reach for one in candidates)
    longest = max(len(run) for run in runs)
    steps = int(min(_STEPS, max((longest - reach) // 2, 1)))
    if about.horizon is not None:
        steps = min(steps, about.horizon - 1)
    usable = [run for run in runs if len(run) > reach]
    features = _features(about, usable)
    targets, far, near = learnt_columns(about), {}, {}
    judged: list[_Shown] = []
    still = np.zeros(0)
    for spacing in dict.fromkeys(one.spacing for one in candidates):
        own = [one for one in candidates if one.spacing == spacing]
        lags = _lags(about, max(own, key=lambda one: (one.outputs, one.input_history)))
        shown = _shown(about, usable, lags, own[0], reach, steps)
        folds = {one.name: i % min(_FOLDS, len(shown)) for i, one in enumerate(shown)}
        judged = [one for one in shown if len(one.begins)]
        still = np.array([_mean_log(_standing(one, lags, targets)) for one in judged])
        for history in own:
            chosen = _lags(about, history)
            places = [lags.index(one) for one in chosen]
            errors: dict[str, tuple[float, float]] = {}
            for fold in set(folds.values()):
                taught = [one for one in shown if folds[one.name] != fold or len(shown) == 1]
                theta = _law(taught, places, features, len(targets))
                for one in (one for one in judged if folds[one.name] == fold):
                    M = np.einsum("k,krj->rj", features[one.name], theta)
                    begins, R = one.begins[:, places], one.triangle
                    off = _errors(about, begins, one.ahead, chosen, M, history)
                    one_step = (
                        np.square(R[:, -len(targets) :] - R[:, places] @ M.T).sum(0) / one.rows
                    )
                    errors[one.name] = _mean_log(off), _mean_log(one_step)
            far[history], near[history] = zip(*(errors[one.name] for one in judged), strict=True)
    ahead, once = (np.array([some[one] for one in candidates]) for some in (far, near))
    known = np.array([features[one.name] for one in judged])
    return Scores(ahead, once, still, known, steps)


def learnt_columns(about: FleetDescription) -> list[str]:
    """The columns whose next value is to be learnt."""
    return [one.name for i, one in enumerate(about.declared) if i not in about.known]


def _lags(about: FleetDescription, history: History) -> list[Lag]:
    """The columns of [x; u] for such a history."""
    outputs = [one.name for one in about.declared if (one.name, 1) in about.lags]
    outputs = outputs or learnt_columns(about)
    lags = [(one.name, 0) for one in about.declared]
    lags += [(name, i) for i in range(1, history.outputs) for name in outputs]
    past = history.input_history + history.delay
    return lags + [(name, i) for i in range(past) for name in about.input_names]


def _features(about: FleetDescription, runs: Sequence[Run]) -> dict[str, Float[Array, " k"]]:
    """φ(context) of each machine."""
    context_map = about.context_map
    if not isinstance(context_map, FeatureContext):
        raise InputError('history = "auto" needs a context map of kind = "features"')
    return {run.machine: context_map.features(run.context) for run in runs}


def _shown(
    about: FleetDescription,
    runs: Sequence[Run],
    lags: Sequence[Lag],
    history: History,
    reach: int,
    steps: int,
) -> list[_Shown]:
    """What each machine has shown, in columns of these pasts."""
    targets, found = learnt_columns(about), []
    for machine in dict.fromkeys(run.machine for run in runs):
        tables, begins = [], []
        names = [*(one.name for one in about.declared), *about.input_names]
        ahead: dict[str, list[Array]] = {name: [] for name in names}
        for run in (one for one in runs if one.machine == machine):
            T, pasts = len(run), _pasts(about, run, lags, history)
            columns = [pasts[lag][reach:T] for lag in lags]
            columns += [run.columns[name][reach + 1 : T + 1] for name in targets]
            tables.append(np.stack(columns, 1))
            firsts = np.arange(reach, T + 1 - steps, max(steps // 2, 1))
            begins.append(np.stack([pasts[lag][firsts] for lag in lags], 1))
            for name, pieces in ahead.items():
                pieces.append(run.columns[name][firsts[:, None] + np.arange(steps + 1)])
        rows = np.concatenate(tables)
        triangle = np.asarray(np.linalg.qr(rows, mode="r")) if len(rows) > rows.shape[1] else rows
        future = {name: np.nan_to_num(np.concatenate(pieces)) for name, pieces in ahead.items()}
        found.append(
            _Shown(machine, triangle, len(rows), np.nan_to_num(np.concatenate(begins)), future)
        )
    return found


def _pasts(
    about: FleetDescription, run: Run, lags: Sequence[Lag], history: History
) -> dict[Lag, Array]:
    """The columns of a run, and their pasts."""
    found: dict[Lag, Array] = {}
    for name, most in dict(lags).items():  # the last stage of each
        late = history.delay if name in about.input_names else 0
        column = run.columns[name]
        for k in range(min(late, most) + 1):
            found[name, k] = np.concatenate((np.full(k, column[0]), column[: len(column) - k]))
        if most > late:
            stages = faded(found[name, late], most - late, history.spacing)[1:]
            found |= {(name, late + k): stage for k, stage in enumerate(stages, 1)}
    return found


def _law(
    taught: Sequence[_Shown], places: Sequence[int], features: dict[str, Array], q: int
) -> Float[Array, "k q width"]:
    """Θ by least squares over machines: the next targets are Σ φ_k Θ_k [x; u].

    Without the tenth of the machines that fit worst, twice: a wrong label would spoil it for all.
    """
    width, tables = len(places), []
    for one in taught:
        R = one.triangle[:, [*places, *range(one.triangle.shape[1] - q, one.triangle.shape[1])]]
        R = np.asarray(np.linalg.qr(R, mode="r")) if len(R) > R.shape[1] else R
        Z = (features[one.name][:, None] * R[:, None, :width]).reshape(len(R), -1)
        tables.append((Z, R[:, width:], one.rows))
    kept = tables
    for last in (False, False, True):
        Z, Y = (np.concatenate(part) for part in list(zip(*kept, strict=True))[:2])
        size = np.linalg.norm(Z, axis=0)
        size = np.where(size > 0, size, 1.0)
        theta = np.linalg.lstsq(Z / size, Y, rcond=1e-10)[0] / size[:, None]
        if last:
            break
        scale = np.square(Y).sum(0)
        off = [(np.square(y - z @ theta).sum(0) / scale / n).sum() for z, y, n in tables]
        order = np.argsort(off, kind="stable")[: max(int(np.ceil(0.9 * len(tables))), 1)]
        kept = [tables[i] for i in order.tolist()]
    return np.asarray(theta.T.reshape(q, -1, width).transpose(1, 0, 2))


def _errors(
    about: FleetDescription,
    begins: Float[Array, "windows width"],
    ahead: dict[str, Array],
    lags: Sequence[Lag],
    M: Float[Array, "q width"],
    history: History,
) -> Float[Array, "steps q"]:
    """Mean squared errors at each number of steps ahead; what is not learnt is as it was."""
    targets, z = learnt_columns(about), begins
    keep, place = keep_of(history.spacing), {lag: i for i, lag in enumerate(lags)}
    moves = np.zeros((len(lags), len(lags)))
    for (name, k), i in place.items():
        stays = 0.0 if name in about.input_names and k <= history.delay else keep
        if k:
            moves[i, place[name, k - 1]] = 1.0 - stays
            moves[i, i] = stays
    given = [(i, name) for (name, k), i in place.items() if k == 0 and name not in targets]
    own, errors = [place[name, 0] for name in targets], []
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(1, next(iter(ahead.values())).shape[1]):
            guess = np.clip(z @ M.T, -1e100, 1e100)
            z = z @ moves.T
            z[:, own] = guess
            for i, name in given:
                z[:, i] = ahead[name][:, step]
            truth = np.stack([ahead[name][:, step] for name in targets], 1)
            errors.append(np.square(guess - truth).mean(0))
    return np.stack(errors)


def _standing(one: _Shown, lags: Sequence[Lag], targets: Sequence[str]) -> Float[Array, "steps q"]:
    now = one.begins[:, [lags.index((name, 0)) for name in targets]]
    later = np.stack([one.ahead[name][:, 1:] for name in targets], 2)
    return np.asarray(np.square(later - now[:, None]).mean(0))


def _mean_log(squares: Float[Array, "*steps q"]) -> float:
    return float(0.5 * np.log(np.maximum(squares, 1e-300)).mean())
