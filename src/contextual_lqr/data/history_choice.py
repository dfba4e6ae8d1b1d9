"""How late inputs act, and how long a history must be, as a sample of the logs has it.

delay     Regress the next output on the last outputs and the last inputs, each machine by
          itself. The delay of an input is the age of the newest whose part is more than chance:
          explained squares over residual variance, added up over machines, are χ².
history   For each n, learn the law from four fifths of the machines, and let it predict the
          others: from their history, with their inputs, over many steps. The errors of n
          outputs are those at all numbers of steps, in the geometric mean; the least n is taken
          that is not worse than the best by more than its standard error over machines, or 5 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.special import chdtrc

from contextual_lqr.context import FeatureContext
from contextual_lqr.data.description import FleetDescription, History
from contextual_lqr.data.output_faults import refuse_useless_outputs, wrapping
from contextual_lqr.data.sampled_runs import Run
from contextual_lqr.errors import InputError

CANDIDATES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
LATEST = 10  # samples
_LEVEL = 1e-4
_NEGLIGIBLE = 1e-3  # of what the input of another age explains
_STEPS = 20  # ahead
_FOLDS = 5
_TOLERANCE = 0.05


@dataclass(frozen=True)
class HistoryChoice:
    """What a sample of the logs says about history and delay.

    `delays` are the samples that pass before each input acts, None if no effect was seen; `errors`
    by the length of a history, the error of predictions up to `steps` ahead on machines left out,
    as a part of the error of saying that outputs stay as they are.
    """

    outputs: int
    delay: int
    delays: dict[str, int | None]
    errors: dict[int, float]
    steps: int
    machines: int
    wrapping: tuple[str, ...] = ()  # outputs that jump as encoders do, in words

    @property
    def sentences(self) -> list[str]:
        """In words."""
        said = []
        for name, late in self.delays.items():
            if late is None:
                said.append(f"{name}: no effect on the outputs within {LATEST} samples is seen")
            elif late:
                said.append(f"{name} acts {late} sample{'s' if late > 1 else ''} late")
        if len(self.errors) > 1 and self.outputs == max(CANDIDATES):
            said.append(
                f"errors still fall at {self.outputs} outputs, the most that are tried: sensors "
                "are noisy for so short a period; with a longer one (resample) a history reaches "
                "back further"
            )
        return [*said, *self.wrapping]

    def doubts(self, history: History) -> list[str]:
        """Why no controller of such a history can be trusted."""
        late = [
            f"{name} acts {late} samples late, but delay = {history.delay} is declared"
            for name, late in self.delays.items()
            if late is not None and late > history.delay + history.input_history - 1
        ]
        return [*late, *self.wrapping]


def choose_history(about: FleetDescription, runs: Sequence[Run]) -> HistoryChoice:
    """Delay first, then history."""
    history = about.history
    if history is None or not runs:
        raise InputError("the logs have no two successive steps of an episode to learn from")
    refuse_useless_outputs(about, runs)
    odd = tuple(wrapping(about, runs))
    longest = max(len(run) for run in runs)
    delays = find_delays(about, runs)
    late = max((one for one in delays.values() if one is not None), default=0)
    delay = late if "delay" in history.auto else history.delay
    asked = CANDIDATES if "history" in history.auto else (history.outputs,)
    many = [n for n in asked if 3 * (n + delay) <= longest] or [1]
    machines = len({run.machine for run in runs})
    if "history" not in history.auto or len(many) == 1:
        n = history.outputs if "history" not in history.auto else many[0]
        return HistoryChoice(n, delay, delays, {}, 0, machines, odd)
    scores, still, steps = _scores(about, runs, many, delay)
    relative = np.exp(np.median(scores - still, axis=1))
    chosen = int(np.flatnonzero(relative <= (1 + _TOLERANCE) * relative.min())[0])
    errors = {n: float(one) for n, one in zip(many, relative, strict=True)}
    return HistoryChoice(many[chosen], delay, delays, errors, steps, machines, odd)


# -- delay -----------------------------------------------------------------------------------------


def find_delays(about: FleetDescription, runs: Sequence[Run]) -> dict[str, int | None]:
    """The age of the newest input that acts, for each."""
    targets, names = learnt_columns(about), list(about.input_names)
    longest = max(len(run) for run in runs)
    ages = int(min(LATEST + 4, max(longest // 3, 1)))
    outputs = min(8, ages)
    others = [one.name for one in about.declared if one.name not in targets and not one.constant]
    lags = [(name, i) for name in targets for i in range(outputs)] + [(o, 0) for o in others]
    inputs = [(name, i) for name in names for i in range(ages)]
    explained = np.zeros((len(names), ages))
    degrees = np.zeros((len(names), ages))
    for group in _by_machine(runs, [*lags, *inputs], targets):
        X, Y = group[:, : -len(targets)], group[:, -len(targets) :]
        X = np.column_stack((X, np.ones(len(X))))
        if len(X) < X.shape[1] + 10:
            continue
        part, rank = _parts(X, Y, len(lags), len(names), ages)
        explained += part
        degrees += rank
    found: dict[str, int | None] = {}
    for i, name in enumerate(names):
        p = np.where(degrees[i] > 0, chdtrc(np.maximum(degrees[i], 1), explained[i]), 1.0)
        real = (p < _LEVEL) & (explained[i] > _NEGLIGIBLE * explained[i].max(initial=0.0))
        at = np.flatnonzero(real)
        found[name] = int(at[0]) if len(at) else None
    return found


def _parts(X: Array, Y: Array, first: int, m: int, ages: int) -> tuple[Array, Array]:
    """What the input of each age adds to all that is older, over the residual variance."""
    size = np.abs(X).max(0)
    X = X / np.where(size > 0, size, 1.0)
    part, rank = np.zeros((m, ages)), np.zeros((m, ages))
    for i in range(m):
        own = range(first + i * ages, first + (i + 1) * ages)
        rest = [j for j in range(X.shape[1]) if j not in own]
        # Oldest first: then the squares of a row of QᵀY are what its column adds.
        order = [*rest, *reversed(own)]
        R = np.asarray(np.linalg.qr(np.column_stack((X[:, order], Y)), mode="r"))
        k = len(order)
        left = np.square(R[k:, k:]).sum(0) / max(len(X) - k, 1)
        noisy = left > 1e-20 * np.square(Y).mean(0)
        real = np.abs(np.diagonal(R)[len(rest) : k]) > 1e-7
        added = np.square(R[len(rest) : k, k:]) / np.where(noisy, left, np.inf)
        added = np.where(noisy, added, np.inf * (np.square(R[len(rest) : k, k:]) > 1e-18))
        part[i] = np.where(real, added.sum(1), 0.0)[::-1]
        rank[i] = np.where(real, Y.shape[1], 0)[::-1]
    return part, rank


# -- history ---------------------------------------------------------------------------------------


def learnt_columns(about: FleetDescription) -> list[str]:
    """The columns whose next value is to be learnt."""
    return [one.name for i, one in enumerate(about.declared) if i not in about.known]


def _scores(
    about: FleetDescription, runs: Sequence[Run], many: Sequence[int], delay: int
) -> tuple[Array, Array, int]:
    """For each n and machine the mean logarithm of errors; of standing still, too; the steps."""
    history = about.history
    assert history is not None
    given = history.input_history if history.inputs_given else None
    described = {n: _lags(about, History(n, given or n, delay)) for n in many}
    reach = max(lag for lags in described.values() for _, lag in lags)
    longest = max(len(run) for run in runs)
    steps = int(min(_STEPS, max((longest - reach) // 2, 1)))
    if about.horizon is not None:
        steps = min(steps, about.horizon - 1)
    targets = learnt_columns(about)
    names = list(dict.fromkeys(run.machine for run in runs))
    usable = [run for run in runs if len(run) >= reach + 1]
    folds = {name: i % min(_FOLDS, len(names)) for i, name in enumerate(names)}
    features = _features(about, usable)
    windows = _windows(usable, reach, steps)
    scores = []
    for n in many:
        lags = described[n]
        errors: dict[str, Array] = {}
        groups = list(zip(_by_machine(usable, lags, targets, reach), _order(usable), strict=True))
        for fold in set(folds.values()):
            taught = [(g, name) for g, name in groups if folds[name] != fold or len(names) == 1]
            theta = _law(taught, features, len(lags), len(targets))
            for name in (one for one in names if folds[one] == fold and one in windows):
                M = np.einsum("k,krj->rj", features[name], theta)
                errors[name] = _errors(windows[name], lags, targets, M, reach, steps)
        scores.append([_mean_log(errors[name]) for name in errors])
        order = list(errors)
    still = [_mean_log(_standing(windows[name], targets, reach, steps)) for name in order]
    return np.array(scores), np.array(still), steps


def _lags(about: FleetDescription, history: History) -> list[tuple[str, int]]:
    """The columns of [x; u] for a history of this length."""
    outputs = [one.name for one in about.declared if (one.name, 1) in about.lags]
    outputs = outputs or learnt_columns(about)
    lags = [(one.name, 0) for one in about.declared]
    lags += [(name, i) for i in range(1, history.outputs) for name in outputs]
    past = history.input_history + history.delay
    return lags + [(name, i) for i in range(past) for name in about.input_names]


def _order(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.machine for run in runs))


def _by_machine(
    runs: Sequence[Run],
    lags: Sequence[tuple[str, int]],
    targets: Sequence[str],
    reach: int | None = None,
) -> list[Float[Array, "rows k"]]:
    """For each machine the rows [columns as they were, next targets]."""
    reach = max(lag for _, lag in lags) if reach is None else reach
    found: dict[str, list[Array]] = {name: [] for name in _order(runs)}
    for run in runs:
        T = len(run)
        if reach < T:
            columns = [run.columns[name][reach - lag : T - lag] for name, lag in lags]
            columns += [run.columns[name][reach + 1 : T + 1] for name in targets]
            found[run.machine].append(np.stack(columns, 1))
    width = len(lags) + len(targets)
    return [np.concatenate(rows) if rows else np.zeros((0, width)) for rows in found.values()]


def _features(about: FleetDescription, runs: Sequence[Run]) -> dict[str, Float[Array, " k"]]:
    """φ(context) of each machine."""
    context_map = about.context_map
    if not isinstance(context_map, FeatureContext):
        raise InputError('history = "auto" needs a context map of kind = "features"')
    return {run.machine: context_map.features(run.context) for run in runs}


def _law(
    groups: Sequence[tuple[Array, str]], features: dict[str, Array], width: int, q: int
) -> Float[Array, "k q width"]:
    """Θ by least squares over machines: the next targets are Σ φ_k Θ_k [x; u].

    Without the tenth of the machines that fit worst, twice: a wrong label would spoil it for all.
    """
    tables = []
    for rows, name in groups:
        R = np.asarray(np.linalg.qr(rows, mode="r")) if len(rows) > rows.shape[1] else rows
        Z = (features[name][:, None] * R[:, None, :width]).reshape(len(R), -1)
        if len(rows):
            tables.append((Z, R[:, width:], max(len(rows), 1)))
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


def _windows(runs: Sequence[Run], reach: int, steps: int) -> dict[str, dict[str, Array]]:
    """For each machine its columns in windows of reach + steps + 1 rows, (windows, rows)."""
    rows = reach + steps + 1
    found: dict[str, dict[str, list[Array]]] = {}
    for run in runs:
        firsts = range(0, len(run) + 1 - rows + 1, max(steps // 2, 1))
        for name, column in run.columns.items():
            places = found.setdefault(run.machine, {}).setdefault(name, [])
            places += [column[i : i + rows] for i in firsts]
    return {
        machine: {name: np.nan_to_num(np.stack(pieces)) for name, pieces in columns.items()}
        for machine, columns in found.items()
        if next(iter(columns.values()))
    }


def _errors(
    columns: dict[str, Array],
    lags: Sequence[tuple[str, int]],
    targets: Sequence[str],
    M: Float[Array, "q width"],
    reach: int,
    steps: int,
) -> Float[Array, "steps q"]:
    """Mean squared errors at each number of steps ahead; what is not learnt is as it was."""
    guess = {name: column.copy() for name, column in columns.items()}
    for name in targets:
        guess[name][:, reach + 1 :] = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(reach, reach + steps):
            x = np.stack([guess[name][:, t - lag] for name, lag in lags], 1)
            for name, value in zip(targets, (x @ M.T).T, strict=True):
                guess[name][:, t + 1] = np.clip(value, -1e100, 1e100)
        off = [np.square(guess[n] - columns[n])[:, reach + 1 :].mean(0) for n in targets]
    return np.stack(off, 1)


def _standing(
    columns: dict[str, Array], targets: Sequence[str], reach: int, steps: int
) -> Float[Array, "steps q"]:
    ahead = slice(reach + 1, reach + 1 + steps)
    off = [np.square(columns[n][:, ahead] - columns[n][:, reach, None]).mean(0) for n in targets]
    return np.stack(off, 1)


def _mean_log(squares: Float[Array, "steps q"]) -> float:
    return float(0.5 * np.log(np.maximum(squares, 1e-300)).mean())
