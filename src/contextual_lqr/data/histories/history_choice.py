"""How late inputs act, and how long a history must be, as a sample of the logs has it.

delay     Regress the next output on the last outputs and the last inputs, each machine by
          itself. The delay of an input is the age of the newest whose part is more than chance
          (explained squares over residual variance, added up over machines, are χ²), or that may
          have a third of its effect: what noise hides is not late.
history   Candidates are n outputs, one after the other or with their past fading over so many
          samples. Each predicts machines left out (`history_scores.py`), many steps ahead and one.
          The least n is taken that is not worse than the best, machine by machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.special import chdtrc

from contextual_lqr.checks import require
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.histories.history import History
from contextual_lqr.data.histories.history_scores import Scores, learnt_columns, score_histories
from contextual_lqr.data.histories.sampled_runs import Run, Sample
from contextual_lqr.errors import InputError

CANDIDATES = {
    1.0: (1, 2, 3, 4, 5, 6, 8, 10, 12, 16),  # outputs, by how many samples apart they are
    **dict.fromkeys((3.0, 6.0, 12.0, 25.0, 50.0), (5, 6, 8)),
}
LATEST = 10  # samples
_LEVEL = 1e-4
_ROUNDING, _TINY = 1e-20, 1e-300  # of squares
_NEGLIGIBLE = 1e-3  # of what the input of another age explains
_HIDDEN = 0.1  # of what the newest explains that is seen: less, and the newer ones do not act
_FEW = 6  # outputs, one after the other, that may be worse
_PLAIN, _PLAIN_NEAR = 0.05, 0.01  # by so much, many steps ahead, or one
_FAR, _NEAR = 0.002, 5e-4  # what others may be worse by: in noise errors differ little, laws much
_GROUP = 5  # machines that are enough to be looked at by themselves
_SPARED = 3  # a candidate forgets within this part of a usual run
_SAME = 1e-9  # relative
_EXACT = 1e-9  # of the error of no change: smaller ones are of rounding, and longer is not better
_USUAL = 0.1  # of the range: 95 % of the steps are smaller where jumps can be told
_LEFT = 2.0  # usual steps: what a jump that begins anew lacks of the whole range


@dataclass(frozen=True)
class HistoryChoice:
    """What a sample of the logs says about history and delay.

    `delays` are the samples that pass before each input acts, None if no effect was seen; `curves`
    by the spacing and the length of a history, the error of predictions up to `steps` ahead on
    machines left out, as a part of the error of saying that outputs stay as they are.
    """

    outputs: int
    spacing: float
    delay: int
    delays: dict[str, int | None]
    curves: dict[float, dict[int, float]]
    steps: int
    machines: int
    wrapping: tuple[str, ...] = ()  # outputs that jump as encoders do, in words

    @property
    def errors(self) -> dict[int, float]:
        """The errors at the spacing that is taken, by the length of a history."""
        return self.curves.get(self.spacing, {})

    @property
    def words(self) -> str:
        """What the state is made of."""
        outputs = f"the last {self.outputs} output{'s' if self.outputs > 1 else ''}"
        if self.spacing == 1 or self.outputs == 1:
            return outputs
        return f"{outputs}, about {self.spacing:g} samples apart"

    @property
    def _at_the_end(self) -> bool:
        """Whether nothing longer was tried than what is taken."""
        if len(self.errors) < 2:
            return False
        plain = self.spacing == 1 and self.outputs == max(CANDIDATES[1.0])
        return plain or (len(self.curves) > 1 and 1 < self.spacing == max(self.curves))

    @property
    def sentences(self) -> list[str]:
        """In words."""
        said = []
        for name, late in self.delays.items():
            if late is None:
                said.append(f"{name}: no effect on the outputs within {LATEST} samples is seen")
            elif late:
                said.append(f"{name} acts {late} sample{'s' if late > 1 else ''} late")
        if self._at_the_end:
            said.append(
                f"errors still fall at {self.words}, the longest history that can be tried: "
                "the sensors are noisy for so short a period; log longer episodes"
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


def choose_history(about: FleetDescription, sample: Sample) -> HistoryChoice:
    """Delay first, then history."""
    history, runs = about.history, sample.runs
    if history is None or not runs:
        raise InputError("the logs have no two successive steps of an episode to learn from")
    refuse_useless_outputs(about, runs)
    odd = tuple(wrapping(about, runs))
    delays = find_delays(about, runs)
    late = max((one for one in delays.values() if one is not None), default=0)
    delay = late if "delay" in history.auto else history.delay
    refuse_long_history(history.found(1, delay, 1.0), sample.most)
    machines = len({run.machine for run in runs})
    longest = max(len(run) for run in runs)
    usual = float(np.quantile(list(sample.longest.values()), 0.05))
    many = _candidates(history, delay, longest, min(longest, usual))
    first = many[0]
    if len(many) == 1:
        return HistoryChoice(first.outputs, first.spacing, delay, delays, {}, 0, machines, odd)
    scores = score_histories(about, runs, many)
    relative = np.exp(np.median(scores.far - scores.still, axis=1))
    best = many[_chosen(scores, relative, many)]
    curves: dict[float, dict[int, float]] = {}
    for one, error in zip(many, relative, strict=True):
        curves.setdefault(one.spacing, {})[one.outputs] = float(error)
    return HistoryChoice(
        best.outputs, best.spacing, delay, delays, curves, scores.steps, machines, odd
    )


def _candidates(history: History, delay: int, longest: int, usual: float) -> list[History]:
    """The histories to be tried: those that leave most of the longest run to learn from.

    A past that fades must leave nearly every machine something of its own, most of a usual run.
    """
    found: list[History] = []
    for spacing, counts in CANDIDATES.items():
        apart = spacing if "spacing" in history.auto else history.spacing
        for n in counts if "history" in history.auto else (history.outputs,):
            r = history.input_history if history.inputs_given else n
            one = History(n, r, delay, spacing=apart)
            most = longest if apart == 1 else usual
            if _SPARED * (one.reach + 1) <= most:
                found.append(one)
    n = 1 if "history" in history.auto else history.outputs
    r = history.input_history if history.inputs_given else n
    return list(dict.fromkeys(found)) or [History(n, r, delay, spacing=history.spacing)]


def _chosen(scores: Scores, relative: Float[Array, " candidates"], many: Sequence[History]) -> int:
    """The place of the history to take: the shortest that is not worse than the best.

    Outputs one after the other are preferred if a few of them predict about as well.
    """
    relative = np.maximum(relative, _EXACT)
    least = scores.still + np.log(_EXACT)
    far, near = (
        _behind(np.maximum(one, least), scores.features) for one in (scores.far, scores.near)
    )
    close = relative <= (1 + _PLAIN) * relative.min()
    if any(one.spacing > 1 for one in many):  # a few machines predict others far ahead by luck
        few = np.array([one.outputs <= _FEW for one in many])
        close = few & (close | (near <= _PLAIN_NEAR))
    plain = [i for i in np.flatnonzero(close).tolist() if many[i].spacing == 1]
    if plain:
        return min(plain, key=lambda i: many[i].outputs)
    worse = np.maximum(far / _FAR, near / _NEAR)
    good = np.flatnonzero(worse <= max(worse.min(), 1.0)).tolist()
    return min(good, key=lambda i: (many[i].outputs, many[i].spacing))


def _behind(
    scores: Float[Array, "candidates machines"], features: Float[Array, "machines k"]
) -> Float[Array, " candidates"]:
    """By how much candidates are worse than the best, in the fleet or a quarter of it.

    Machine by machine, less a standard error. Quarters are the first and the last by each feature:
    a past that fades too slowly for quick machines may be the best for most.
    """
    usual = np.median(scores - np.median(scores, axis=0), axis=1)  # some machines are easier
    more = scores - scores[np.argmin(usual)]
    count = scores.shape[1]
    groups, quarter = [np.arange(count)], count // 4
    if quarter >= _GROUP:
        for column in features.T:
            if np.ptp(column):
                order = np.argsort(column, kind="stable")
                groups += [order[:quarter], order[-quarter:]]
    behind = np.zeros(len(scores))
    for group in groups:
        middle = np.median(more[:, group], axis=1)
        # A standard error of the median that a few odd machines do not widen.
        spread = 1.4826 * np.median(np.abs(more[:, group] - middle[:, None]), axis=1)
        behind = np.maximum(behind, middle - 1.2533 * spread / np.sqrt(len(group)))
    return behind


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
        found[name] = None
        if real.any():
            seen, extra = int(np.flatnonzero(real)[0]), explained[i] - degrees[i]
            hidden = extra + 3 * np.sqrt(2 * degrees[i]) > _HIDDEN * extra[seen]
            found[name] = int(np.flatnonzero(real | (hidden & (degrees[i] > 0)))[0])
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
        # Of outputs without noise, or that are stuck, rounding is what is left.
        left = np.maximum(left, _ROUNDING * np.square(Y).mean(0) + _TINY)
        real = np.abs(np.diagonal(R)[len(rest) : k]) > 1e-7
        added = np.square(R[len(rest) : k, k:]) / left
        part[i] = np.where(real, added.sum(1), 0.0)[::-1]
        rank[i] = np.where(real, Y.shape[1], 0)[::-1]
    return part, rank


def _by_machine(
    runs: Sequence[Run], lags: Sequence[tuple[str, int]], targets: Sequence[str]
) -> list[Float[Array, "rows k"]]:
    """For each machine the rows [columns as they were, next targets]."""
    reach = max(lag for _, lag in lags)
    found: dict[str, list[Array]] = {run.machine: [] for run in runs}
    for run in runs:
        T = len(run)
        if reach < T:
            columns = [run.columns[name][reach - lag : T - lag] for name, lag in lags]
            columns += [run.columns[name][reach + 1 : T + 1] for name in targets]
            found[run.machine].append(np.stack(columns, 1))
    width = len(lags) + len(targets)
    return [np.concatenate(rows) if rows else np.zeros((0, width)) for rows in found.values()]


def refuse_useless_outputs(about: FleetDescription, runs: Sequence[Run]) -> None:
    """Refuse an output that never changes, and one that is another in other units."""
    names = [one.name for one in about.declared if not one.constant]
    columns = {name: np.concatenate([run.columns[name] for run in runs]) for name in names}
    for name, column in columns.items():
        size = float(np.abs(column).max(initial=0.0))
        require(
            float(np.ptp(column)) > _SAME * size,
            f"'{name}' is {column[0]:g} in all logs and carries no information: leave it out. "
            "Is the sensor broken?",
        )
    for one, other in combinations(names, 2):
        a, b = (columns[name] - columns[name].mean() for name in (one, other))
        a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
        require(
            np.linalg.norm(b - a * (a @ b)) > _SAME,
            f"'{other}' is a copy of '{one}', perhaps in other units: leave one of them out",
        )


def refuse_long_history(least: History, longest: int | None) -> None:
    """Refuse a history that no run of the logs fills: what it is made of may be very much."""
    require(
        longest is None or longest > least.reach,
        f"all episodes are shorter than the history: {least.outputs} outputs, "
        f"{least.input_history} inputs and delay {least.delay} take {least.reach + 2} steps in a "
        f"row, and there are {(longest or 0) + 1} at most: make it shorter in [outputs]",
    )


def wrapping(about: FleetDescription, runs: Sequence[Run]) -> list[str]:
    """Outputs that jump through their range, as encoders do that begin anew after a turn.

    Runs are unwrapped by what is declared: jumps that are left are of another period.
    """
    said = []
    for one in about.declared:
        if one.constant:
            continue
        steps = np.concatenate([np.diff(run.columns[one.name]) for run in runs])
        values = np.concatenate([run.columns[one.name] for run in runs])
        range_ = float(np.ptp(values))
        usual = float(np.quantile(np.abs(steps), 0.95)) if len(steps) else 0.0
        # From one end of the range to the other, but for a usual step.
        jumps = np.abs(steps) > range_ - _LEFT * usual
        if jumps.any() and usual < _USUAL * range_:
            declared = "" if one.wraps is None else f", but never by its wraps = {one.wraps:g}"
            said.append(
                f"{one.name} jumps {np.count_nonzero(jumps)} times through its whole range of "
                f"{range_:.4g}, like an encoder that starts over{declared}: if it is one, declare "
                f"{one.name} = {{ wraps = {range_:.4g} }}, with the exact period"
            )
    return said
