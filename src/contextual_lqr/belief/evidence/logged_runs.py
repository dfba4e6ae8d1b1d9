"""Runs of machines that are not linear, as they were logged: what predictions are compared with.

What a decoder learns from rows needs no order. How errors grow over many steps does, so some runs
are kept as well: a few of each machine and, of many machines, those of the first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.belief.evidence.step_table import StepTable
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap, Dynamics
from contextual_lqr.context.dynamics import repeated
from contextual_lqr.context.variables import one_by_one
from contextual_lqr.lqr.problem import Trajectory

MACHINES, RUNS, STEPS = 100, 8, 1000  # at most: of a fleet, of a machine, of a run
_ROWS = 100_000  # of a table that are looked at


class LoggedRun(NamedTuple):
    """One run of a machine; without a label, it is another machine."""

    context: Any
    machine: str | None
    trajectory: Trajectory


class LoggedRuns:
    """Some runs of a fleet, in the order in which they came."""

    def __init__(self, runs: Sequence[LoggedRun] = ()) -> None:
        self.runs = tuple(runs)

    def __len__(self) -> int:
        return len(self.runs)

    def told(
        self,
        context_map: ContextMap,
        contexts: Any,
        played: Sequence[Trajectory] | Trajectory,
        labels: Sequence[str | None],
    ) -> LoggedRuns:
        """With these episodes, if their machines are not linear."""
        if not isinstance(context_map, Dynamics):
            return self
        if isinstance(played, Trajectory):
            both = zip(played.states, played.inputs, strict=True)
            played = [Trajectory(x, u) for x, u in both]
        every = zip(one_by_one(contexts), labels, played, strict=True)
        return self.merged([LoggedRun(*one) for one in every])

    def with_table(self, table: StepTable) -> LoggedRuns:
        """With the rows of a table that follow on each other, if machines are not linear."""
        return self.merged(_stretches(table)) if isinstance(table.context_map, Dynamics) else self

    def merged(self, more: Sequence[LoggedRun]) -> LoggedRuns:
        """With these, as far as there is room; none twice."""
        found, counts = list(self.runs), Counter(run.machine for run in self.runs)
        known = {run.trajectory.states.tobytes() for run in self.runs}
        for run in more:
            x, u = run.trajectory.states[: STEPS + 1], run.trajectory.inputs[:STEPS]
            new = run.machine is None or not counts[run.machine]
            machines = sum(n if label is None else n > 0 for label, n in counts.items())
            room = machines < MACHINES if new else counts[run.machine] < RUNS
            if room and x.tobytes() not in known:
                known.add(x.tobytes())
                counts[run.machine] += 1
                found.append(run._replace(trajectory=Trajectory(x, u)))
        return LoggedRuns(found)

    def without(self, labels: Collection[str]) -> LoggedRuns:
        """Those of other machines; if one without a label is left out, none of such."""
        numbered = any(label.startswith("#") for label in labels)
        return LoggedRuns(
            [
                run
                for run in self.runs
                if (not numbered if run.machine is None else run.machine not in labels)
            ]
        )

    def arrays(self) -> dict[str, Array]:
        """All that there is to save; nothing if contexts are no plain numbers."""
        if not self.runs:
            return {}
        try:
            said = json.dumps([[_plain(run.context), run.machine] for run in self.runs])
        except (TypeError, ValueError):
            return {}
        steps = [len(run.trajectory) for run in self.runs]
        return {
            "run_steps": np.array(steps, np.int64),
            "run_states": np.concatenate([run.trajectory.states for run in self.runs]),
            "run_inputs": np.concatenate([run.trajectory.inputs for run in self.runs]),
            "run_names": np.frombuffer(said.encode(), np.uint8).copy(),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> LoggedRuns:
        """What `arrays` gave."""
        if "run_steps" not in arrays:
            return cls()
        steps, x, u = (arrays[f"run_{name}"] for name in ("steps", "states", "inputs"))
        named = json.loads(arrays["run_names"].tobytes().decode())
        good = len(named) == len(steps) and steps.sum() == len(u) == len(x) - len(steps)
        require(bool(good and (steps > 0).all()), "its runs do not fit together")
        ends = np.cumsum(steps)
        cut = [
            Trajectory(x[b - n + i : b + i + 1], u[b - n : b])
            for i, (b, n) in enumerate(zip(ends.tolist(), steps.tolist(), strict=True))
        ]
        return cls([LoggedRun(c, m, t) for (c, m), t in zip(named, cut, strict=True)])


def _stretches(table: StepTable) -> list[LoggedRun]:
    """Rows that follow on each other, each beginning where the one above has led."""
    rows, contexts, labels = table.rows[:_ROWS], table.contexts, table.labels
    sides = (table.states, table.inputs, table.next_states)
    x, u, after = (np.stack([one[rows] for one in part], 1) for part in sides)
    follows = (after[:-1] == x[1:]).all(1) & (np.diff(labels.codes[rows]) == 0)
    every = one_by_one(repeated(contexts, rows))
    follows &= np.array([a == b for a, b in pairwise(every)], bool)
    starts = np.flatnonzero(np.concatenate(([True], ~follows))).tolist()
    return [
        LoggedRun(
            every[a],
            labels.names[labels.codes[rows[a]]],
            Trajectory(np.concatenate((x[a:b], after[b - 1 : b])), u[a:b]),
        )
        for a, b in pairwise([*starts, len(rows)])
    ]


def _plain(context: Any) -> Any:
    """Numbers as JSON has them."""
    if isinstance(context, Mapping):
        return {str(name): _plain(value) for name, value in context.items()}
    if isinstance(context, np.ndarray | np.generic):
        return context.tolist()
    return context
