"""What the log says to those who watch: the runs of late, what they cost, who is out.

An episode's excess is what it cost above the best possible on its machine as it is believed to be
now: its regret, as estimated. It is noisy, and may be below zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.files import finite
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.lqr.solve import optimal_cost
from contextual_lqr.study.asking import own_labels
from contextual_lqr.study.encoding import context_of, episode_of
from contextual_lqr.study.log import Ask, Episode, Machine

NO_LABEL = "no label"
MOST_MACHINES = 500  # that are listed, those that are out first
_ORDER = ("late", "running", "idle")


@dataclass(frozen=True, eq=False)
class Run:
    """An episode as it is shown; without a cost if it was longer than the task, or overflows."""

    number: int
    machine: str | None
    context: Any
    told_at: float
    start: Float[Array, " d"]
    steps: int
    cost: float | None

    @classmethod
    def of(cls, one: Episode) -> Run:
        """The run of an episode of the log."""
        start = episode_of(one.content, f"episode {one.number}").states[0]
        said = (one.machine, context_of(one.context), one.told_at)
        return cls(one.number, *said, start, one.steps, one.cost)


def costs(runs: Sequence[Run], decoder: Decoder, cost: QuadraticCost) -> dict[str, Any]:
    """Cost and excess of each run, as columns."""
    best = best_costs(runs, decoder, cost)
    whole = cost.horizon - 1
    excess = [
        None if run.cost is None or least is None or run.steps < whole else run.cost - least
        for run, least in zip(runs, best, strict=True)
    ]
    return {
        "number": [run.number for run in runs],
        "machine": [run.machine or NO_LABEL for run in runs],
        "told_at": [run.told_at for run in runs],
        "steps": [run.steps for run in runs],
        "cost": [run.cost for run in runs],
        "best": best,
        "excess": excess,
        "whole": whole,
    }


def best_costs(runs: Sequence[Run], decoder: Decoder, cost: QuadraticCost) -> list[float | None]:
    """The least that each run could have cost on its machine, as it is believed to be now."""
    if not runs or not decoder.rows:
        return [None] * len(runs)
    context_map, contexts = decoder.context_map, [run.context for run in runs]
    keys = context_map.keys(contexts, context_map.matrices(contexts))
    labels = own_labels(decoder, [run.machine for run in runs], keys)
    systems = decoder.machines(contexts, labels).system
    starts = np.stack([run.start for run in runs])
    found: list[float | None] = finite(np.asarray(optimal_cost(systems, cost, starts)))
    return found


def machines(
    told: Iterable[Machine], asks: Iterable[Ask], runs: Iterable[Run], now: float
) -> list[dict[str, Any]]:
    """Every machine that has told or asked: late, running, or idle until it asks again."""
    found = {
        one.machine: {
            "machine": one.machine or NO_LABEL,
            "state": "idle",
            "episodes": one.episodes,
            "told_at": one.last_told_at,
            "context": context_of(one.context),
        }
        for one in told
    }
    for run in runs:  # in order: the last one stays
        if (run.machine or "") in found:
            found[run.machine or ""]["cost"] = run.cost
    for ask in asks:  # in order, too: of several that are out, the last one
        label = ask.machine or ""
        one = found.setdefault(label, {"machine": label or NO_LABEL, "episodes": 0})
        one["state"] = "late" if ask.expires_at < now else "running"
        one |= {"asked_at": ask.asked_at, "expires_at": ask.expires_at}
        one |= {"worker": ask.worker, "context": context_of(ask.context)}
    rows = sorted(found.values(), key=lambda one: (_ORDER.index(one["state"]), one["machine"]))
    return rows[:MOST_MACHINES]


def in_words(episodes: int, labels: Collection[str], out: int, late: int) -> str:
    """How it stands, in a sentence; `labels` are those of all machines, "" for those without."""
    count, others = len(labels) - ("" in labels), "machines without a label"
    whose = _counted(count, "machine")
    if "" in labels:
        whose = f"{whose} and {others}" if count else others
    return f"{_counted(episodes, 'episode')} of {whose}; {out:,} out, {late:,} late"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
