"""The backtest of machines that are not linear: each left out, its path planned and judged.

For machine i the others give a path, a policy about it and a claimed excess, with draws stretched
by what predictions of machines left out were off by (`path_calibration.py`). Its own runs then say
what it really is: draws of its posterior, on each of which the policy is played and the best path
is found. What all draws miss, because no feature has it, this cannot see; the scores of predictions
do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.certificates.backtest_records import FEWEST, Backtest, MachineBacktest
from contextual_lqr.certificates.paths.path_calibration import (
    PathCalibration,
    calibration_of,
    learnt_from,
    machines_of,
    some_of,
)
from contextual_lqr.certificates.paths.path_certificate import (
    certify_path,
    path_excess,
    require_episodes,
)
from contextual_lqr.errors import InputError

_DRAWS = 24


@dataclass(frozen=True, eq=False)
class PathBacktest(Backtest):
    """All nonlinear machines, each left out in turn; `Backtest` says what is in it.

    Attributes
    ----------
    calibration : PathCalibration
        How far off predictions were, and by how much that widens draws.
    """

    calibration: PathCalibration | None = None

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.calibration}"

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        assert self.calibration is not None
        more = {"scores": self.calibration.scores, "stretch": self.calibration.stretch}
        return super().as_dict() | more | {"shows": self.calibration.shows}


def backtest_paths(
    decoder: Decoder, cost: Any, start: Float[Array, " d"], trusted_excess: float, input_bounds: Any
) -> PathBacktest:
    """Leave each machine out in turn, plan for it, and try the plan on what its own runs say."""
    require_episodes(cost)
    units, every = machines_of(decoder), decoder.logged_runs.runs
    if len(units) < 2:
        raise InputError("a backtest leaves machines out: it needs the runs of at least two")
    calibration, found = calibration_of(decoder, max(cost.horizon - 1, 1)), []
    for name in some_of(list(units)):
        own = units[name]
        others = [run for run in every if not any(run is one for one in own)]
        context, rng = own[0].context, np.random.default_rng(1)
        said = certify_path(
            learnt_from(decoder, others),
            context,
            cost,
            start,
            input_bounds=input_bounds,
            draws=64,
            calibration=calibration,
        )
        labelled = [run._replace(machine=name) for run in own]
        machine = learnt_from(decoder, [*others, *labelled]).machine(
            context, name if decoder.store is not None else None
        )
        assert isinstance(machine, DynamicsBelief)
        assert said.path is not None
        thetas = machine.draw(_DRAWS, rng)
        excess, paid = path_excess(machine, thetas, said.path, start, cost, input_bounds)
        found.append(
            MachineBacktest(
                name,
                sum(len(run.trajectory) for run in own),
                said.likely_excess,
                float(excess.mean()),
                said.predicted_cost,
                float(paid.mean()),
                said.verdict == "trust" and said.likely_excess <= trusted_excess,
            )
        )
    still = (0.0, 0.0)
    counted = len(found) >= FEWEST
    return PathBacktest(tuple(found), 0.0, 1.0, still, counted, calibration=calibration)
