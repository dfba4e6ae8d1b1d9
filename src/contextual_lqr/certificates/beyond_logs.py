"""Runs far beyond what was logged, where nothing shows that machines are linear.

Far is more than 1.25 times the largest that was logged. A run with a state there is not trusted. An
input may go there if that matters little, which is the larger of two costs:

    clipped    it gives no more than 1.25 times the largest logged (`saturation.py`)
    weaker     it gives u - γ u⁵, γ as large as the logs do not exclude (`actuators.py`): that is
               large if few large inputs were logged, small if hundreds acted as they should

The machine is trusted if, with this cost too, it is not more than 5 % above its best. Where no log
tells γ, no input may go there. Limits that are declared are known, and none of this is about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from contextual_lqr.belief.evidence.logged import Logged
from contextual_lqr.belief.machines.lagged_steps import held_inputs
from contextual_lqr.certificates.limits import InputLimits
from contextual_lqr.certificates.model_tests.faulty_runs import faulty_runs
from contextual_lqr.certificates.model_tests.finding import Finding
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.problem import LinearPolicy, QuadraticCost
from contextual_lqr.lqr.solve import policy_cost

FARTHER = 1.25  # times the largest logged, up to which machines are believed to be linear
LOGGED = "times what was logged"


class BeyondLogs(NamedTuple):
    """Of n runs: what goes farthest in each, "" if nothing is far; and whether inputs alone do."""

    said: list[str]
    by_inputs: Bool[Array, " n"]
    farthest: list[str]  # the same in short

    @property
    def far(self) -> Bool[Array, " n"]:
        """Whether anything is far."""
        return np.array([said != "" for said in self.said], bool)


def beyond_logs(
    logged: Logged,
    M: Float[Array, "n *steps d y"],
    run: tuple[Float[Array, "n y"], Float[Array, "n y"]],
    names: Sequence[str],
    declared: Bool[Array, " m"],
) -> BeyondLogs:
    """What is far beyond the logs in runs of this range of machines M; `declared` inputs never."""
    d, m = M.shape[-2], len(declared)
    reach = np.maximum(-run[0], run[1])
    usual = np.maximum(np.abs(logged.low), np.abs(logged.high))
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(reach > 0, reach / usual, 0.0)
    times[:, of_inputs(M, declared)] = 0.0
    times[np.isnan(times)] = -np.inf
    of_states = np.where(of_inputs(M, np.ones(m, bool)), 0.0, times)
    said, short = [], []
    for own, ends in zip(times, reach, strict=True):
        i = int(own.argmax())
        far = f"{own[i]:.3g} {LOGGED}" if usual[i] > 0 else f"many {LOGGED}"
        where = f"{logged.low[i]:.3g} to {logged.high[i]:.3g}"
        advice = "log larger ones, declare its limits or raise R" if i >= d else "log such runs"
        whole = f"{names[i]} would reach {ends[i]:.3g}, {far}, {where} ({advice})"
        said.append(whole if own[i] > FARTHER else "")
        short.append(f"{names[i]} reaches {own[i]:.3g} times the largest logged")
    return BeyondLogs(said, of_states.max(1) <= FARTHER, short)


def believed_limits(
    logged: Logged, names: Sequence[str], declared: Bool[Array, " m"]
) -> InputLimits:
    """The largest inputs that machines are believed to obey: none where limits are declared."""
    most = np.maximum(np.abs(logged.low), np.abs(logged.high))[-len(names) :]
    most = np.where(declared, np.inf, FARTHER * most)
    return InputLimits(dict(zip(names, zip(-most, most, strict=True), strict=True)), len(names))


def weaker_costs(
    findings: Sequence[Finding],
    system: Dynamics,
    gains: Float[Array, "n steps m d"],
    cost: QuadraticCost,
    start: Float[Array, " d"],
    declared: Bool[Array, " m"],
) -> Float[Array, " n"]:
    """What it may cost n machines, as a part, that inputs give less where they are largest."""
    d = len(start)
    total = np.zeros(len(gains))
    paid = np.abs(policy_cost(LinearPolicy(gains), system, cost, start))
    for j in np.flatnonzero(~declared).tolist():
        ends = [one for one in findings if one.way == "fifths" and one.regressor == d + j]
        if not ends:
            return np.full(len(gains), np.inf)
        total += faulty_runs(ends, system, gains, cost, start, in_step=True).max(0) / paid
    return total


def of_inputs(M: Float[Array, "*n d y"], chosen: Bool[Array, " m"]) -> Bool[Array, " y"]:
    """Which of y = [x; u] are the inputs chosen, or states that are one of them in the past."""
    held = np.array(held_inputs(M.reshape(-1, *M.shape[-2:])[0]))
    return np.asarray((held >= 0) & chosen[held])
