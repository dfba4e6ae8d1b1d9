"""Logs at a glance: how much there is, what moves, how finely it is measured, how noisy it is.

spread       the standard deviation of a column, over all steps
free         of what a column moves, the part that the others at the same step do not tell: an
             input that is a function of the states, by feedback without dither, has none
resolution   the smallest distance of values, if all lie on a grid of it; of a sample
noise        the standard deviation of a step's error, by one law for all machines
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.machines.machine_store import MachineStore
from contextual_lqr.certificates.experiment_design import unexcited_directions
from contextual_lqr.certificates.model_tests.finding import Finding
from contextual_lqr.certificates.model_tests.unmodelled import findings_of
from contextual_lqr.context import Dynamics
from contextual_lqr.data.contradictions import contradicted
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.fitted_fleet import PathLike
from contextual_lqr.data.fitting import described, listed, with_history
from contextual_lqr.data.learning import Learning
from contextual_lqr.data.screening import LogReport
from contextual_lqr.data.sources import as_one_part, find_sources
from contextual_lqr.data.transitions import Transitions

_SAMPLE = 1 << 14  # rows, for resolutions and pictures
_ROUNDING = 1e-12  # relative
_CHANCE = 1.1  # how much larger than it usually is an error of rounding may be
_COARSE, _WRITTEN = 1e6, 1e9  # steps of a sensor's grid, and of one of the digits that are written
_OFF_GRID = 0.05  # of a step, by which values are off that were rounded when written
_TRACES, _STEPS = 4, 400  # episodes that are drawn, and how much of each


@dataclass(frozen=True)
class QuantityReport:
    """What the logs show about a state, an input or a context; None where it does not apply."""

    name: str
    unit: str
    kind: str  # "state", "input" or "context"
    low: float
    high: float
    spread: float
    free: float | None = None
    resolution: float | None = None
    noise: float | None = None


@dataclass
class LogSurvey:
    """What `check` says about logs: the report of their rows, and what is in them.

    `delay` and `history` are what tests of the model find: inputs that act late, and errors that
    the previous step predicts; empty if there are none, None if there are too few machines to test.
    """

    report: LogReport
    machines: int = 0
    minutes: float | None = None  # if the period is known
    quantities: list[QuantityReport] = field(default_factory=list)
    several_contexts: list[str] = field(default_factory=list)  # machines logged with more than one
    delay: list[str] | None = None
    history: list[str] | None = None
    contradicted: list[str] = field(default_factory=list)  # what [known] says
    unexcited: list[str] = field(default_factory=list)  # directions of Θ that no log tells
    traces: list[dict[str, Array]] = field(default_factory=list, repr=False)
    sample: dict[str, Array] = field(default_factory=dict, repr=False)

    @property
    def doubts(self) -> list[str]:
        """What speaks against the description; a delay or history that was found is in it."""
        memory, found = self.history or [], self.report.history
        if found is not None:
            return [*memory[1:], *found.wrapping, *self.contradicted]
        return [*(self.delay or []), *memory, *self.contradicted]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: all but what is drawn."""
        return {
            "machines": self.machines,
            "minutes": self.minutes,
            "quantities": [asdict(one) for one in self.quantities],
            "several_contexts": self.several_contexts,
            "delay": self.delay,
            "history": self.history,
            "contradicted": self.contradicted,
            "unexcited": self.unexcited,
        }


class Surveyor:
    """Looks at transitions as they are read, in bounded memory."""

    def __init__(self, description: FleetDescription) -> None:
        self._about = description
        self._names = [one.name for one in description.logged]
        self._moving = [one for one in self._names if one not in description.context_names]
        k = len(self._moving) + 1
        self._low = dict.fromkeys(self._names, np.inf)
        self._high = dict.fromkeys(self._names, -np.inf)
        self._factor = np.zeros((0, k))  # of the rows [1, x, u]
        self._rows, self._seconds, self._kept = 0, 0.0, 0
        self._samples: dict[str, list[Array]] = {name: [] for name in self._names}
        self._contexts: dict[str, tuple[float, ...]] = {}
        self._several: dict[str, None] = {}
        self._labelled = False  # if not, every episode is a machine of its own, as in `fit`
        self.traces: list[dict[str, Array]] = []

    def look(self, batch: Transitions) -> None:
        """Take in some transitions."""
        columns = {name: batch.rows.values[name][batch.at] for name in self._names}
        for name, column in columns.items():
            self._low[name] = min(self._low[name], float(column.min()))
            self._high[name] = max(self._high[name], float(column.max()))
        rows = np.stack([np.ones(len(batch)), *(columns[name] for name in self._moving)], 1)
        self._factor = np.asarray(np.linalg.qr(np.concatenate((self._factor, rows)), mode="r"))
        self._rows += len(batch)
        period = self._about.layout.period
        if period is not None:
            each = columns[period] if isinstance(period, str) else np.full(len(batch), period)
            self._seconds += float(each.sum())
        if self._kept < _SAMPLE:
            for name, column in columns.items():
                self._samples[name].append(column[: _SAMPLE - self._kept].copy())
            self._kept += len(batch)
        self._trace(batch, columns)
        self._count_machines(batch, columns)

    def survey(self, report: LogReport, decoder: Decoder) -> LogSurvey:
        """What was seen, with what a decoder that learnt it says of noise, delay and memory."""
        about, store = self._about, decoder.store
        sample = {
            name: np.concatenate(some or [np.zeros(0)]) for name, some in self._samples.items()
        }
        found = LogSurvey(
            report,
            machines=len(self._contexts) if self._labelled or store is None else len(store),
            minutes=None if about.layout.period is None else self._seconds / 60,
            several_contexts=list(self._several),
            traces=self.traces,
            sample=sample,
        )
        if not self._rows:
            return found
        spread, free = self._excitation()
        noise = np.sqrt(np.diagonal(decoder.noise_estimate))
        by_state = dict(zip(about.state_names, noise.tolist(), strict=True))
        for name in by_state.keys() & self._low.keys():  # rounding is none
            if by_state[name] <= _ROUNDING * max(abs(self._low[name]), abs(self._high[name])):
                by_state[name] = 0.0
        known = {about.state_names[i] for i in about.known}
        for one in about.logged:
            kind = "context" if one.name in about.context_names else "state"
            kind = "input" if one.name in about.input_names else kind
            found.quantities.append(
                QuantityReport(
                    one.name,
                    one.unit,
                    kind,
                    self._low[one.name],
                    self._high[one.name],
                    spread.get(one.name, float(np.std(sample[one.name]))),
                    free.get(one.name),
                    None if kind == "context" else resolution(sample[one.name]),
                    by_state.get(one.name) if one.name not in known else None,
                )
            )
        found.contradicted = contradicted(about, decoder)
        moving = [*about.state_names, *about.input_names]
        found.unexcited = [str(one) for one in unexcited_directions(decoder, moving)]
        if store is not None and len(store) > 1 and not isinstance(about.context_map, Dynamics):
            coarse = {
                name
                for name, size in _rounding(about, decoder, store, sample).items()
                if by_state[name] <= _CHANCE * size
            }
            found.delay, found.history = _suspicions(findings_of(decoder), about, coarse)
        return found

    def _excitation(self) -> tuple[dict[str, float], dict[str, float]]:
        spread, free = {}, {}
        for j, name in enumerate(self._moving, 1):
            column, others = self._factor[:, j], np.delete(self._factor, j, 1)
            total = _left(self._factor[:, :1], column)
            if total <= _ROUNDING * np.linalg.norm(column):  # it is constant
                total = 0.0
            spread[name] = total / np.sqrt(self._rows)
            free[name] = _left(others, column) / total if total > 0 else 0.0
        return spread, free

    def _trace(self, batch: Transitions, columns: dict[str, Array]) -> None:
        for start in np.flatnonzero(batch.begins).tolist():
            if len(self.traces) >= _TRACES:
                return
            later = np.flatnonzero(~batch.follows[start + 1 : start + _STEPS])
            stop = start + 1 + (int(later[0]) if len(later) else _STEPS - 1)
            self.traces.append(
                {name: column[start:stop].copy() for name, column in columns.items()}
            )

    def _count_machines(self, batch: Transitions, columns: dict[str, Array]) -> None:
        self._labelled |= batch.rows.machine is not None
        machines, starts = batch.machines(), np.flatnonzero(~batch.follows)
        names = machines[starts].text
        contexts = zip(
            *(columns[one][starts].tolist() for one in self._about.context_names), strict=True
        )
        for name, context in zip(names, contexts, strict=True):
            if self._contexts.setdefault(name, context) != context:
                self._several[name] = None


def _left(others: Float[Array, "n k"], column: Float[Array, " n"]) -> float:
    """The norm of what others leave of a column."""
    sizes = np.linalg.norm(others, axis=0)
    scaled = others / np.where(sizes > 0, sizes, 1.0)
    fitted = scaled @ np.linalg.lstsq(scaled, column, rcond=1e-12)[0]
    return float(np.linalg.norm(column - fitted))


def resolution(values: Float[Array, " n"]) -> float | None:
    """The step of the grid on which all values lie, if there is one and it is coarse."""
    return _grid(values, _COARSE)


def _grid(values: Float[Array, " n"], most: float) -> float | None:
    """The same of a grid that has fewer steps than `most` along the values."""
    values = np.unique(values[np.isfinite(values)])
    if len(values) < 3:
        return None
    gaps = np.diff(values)
    gaps = gaps[gaps > 1e-9 * (values[-1] - values[0])]  # what differs by rounding is the same
    if not len(gaps):
        return None
    step, along = float(gaps.min()), values - values[0]
    for reach in (30, 1000, np.inf):  # of values that were rounded when written, step by step
        steps = np.round(along / step)
        near = (steps > 0) & (steps <= reach)
        if near.any():
            step = float(steps[near] @ along[near] / (steps[near] @ steps[near]))
    steps = along / step
    on_grid = np.abs(steps - np.round(steps)) < _OFF_GRID
    return step if on_grid.all() and steps[-1] < most else None


def _rounding(
    about: FleetDescription, decoder: Decoder, store: MachineStore, sample: dict[str, Array]
) -> dict[str, float]:
    """The standard deviation of a step's error, by state, that is due to how values are written.

    A value on a grid of step q is off by q / √12, the next state as well as what it is told by. A
    longer history averages such errors, so of outputs they are not set aside.
    """
    if about.history is not None:
        return {}
    columns = [*about.state_names, *about.input_names]
    grids = {name: _grid(sample[name], _WRITTEN) or 0.0 for name in columns if name in sample}
    square = np.square([grids.get(name, 0.0) for name in columns]) / 12
    M = decoder.estimate @ store.matrices(about.context_map)
    told = np.square(M).mean(0) @ square
    sizes = np.sqrt(square[: len(told)] + told)
    return dict(zip(about.state_names, sizes.tolist(), strict=True))


def _suspicions(
    findings: tuple[Finding, ...], about: FleetDescription, coarse: Container[str]
) -> tuple[list[str], list[str]]:
    """Late inputs; and errors that are not new, but for those of `coarse` states: of rounding."""
    delay, history, d = [], [], len(about.states)
    for one in findings:
        state = about.state_names[one.state]
        if one.kind == "late input" and one.regressor is not None:
            which = about.input_names[one.regressor - d]
            delay.append(f"{which} acts late: {one.effect:.0%} of the error in {state}")
        elif state in coarse:
            continue
        elif one.kind == "memory":
            whole = "" if about.history else ": is the whole state measured? If not, see [outputs]"
            said = f"the previous step explains {one.effect:.0%} of the error in {state}"
            history.append(said + whole)
        elif one.kind == "correlated errors":
            history.append(f"successive errors in {state} are correlated, by {one.effect:.0%}")
    return delay, history


def survey_logs(
    description: FleetDescription | PathLike,
    logs: PathLike | Sequence[PathLike],
    *,
    sort: bool = False,
    progress: Callable[[float], None] | None = None,
) -> LogSurvey:
    """Read logs, report what is wrong, and say what is in them; options as in `fit`."""
    description, part = described(description), as_one_part(find_sources(listed(logs)))
    description, choice = with_history(description, [part], sort)
    surveyor, learning = Surveyor(description), Learning(description, sort=sort)
    told = None if progress is None else lambda _, share: progress(share)
    learnt, _ = learning.part(part, told, surveyor.look)
    learning.finish(learnt)
    learnt.report.require_rows()
    survey = surveyor.survey(learnt.report, learnt.decoder)
    if choice is not None:
        survey.report.history, survey.delay = choice, choice.sentences
        kept = f"the state is made of {choice.words}"
        survey.history = [kept, *(survey.history or [])]
    return survey


def check_logs(
    description: FleetDescription | PathLike,
    logs: PathLike | Sequence[PathLike],
    *,
    sort: bool = False,
    progress: Callable[[float], None] | None = None,
) -> LogReport:
    """Read logs, and report what is wrong with them; options as in `fit`."""
    return survey_logs(description, logs, sort=sort, progress=progress).report
