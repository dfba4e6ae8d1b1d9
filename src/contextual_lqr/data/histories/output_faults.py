"""Outputs that cannot be learnt from as they are, as a sample of the logs shows them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from contextual_lqr.checks import require
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.histories.sampled_runs import Run

_SAME = 1e-9  # relative
_USUAL = 0.1  # of the range: 95 % of the steps are smaller where jumps can be told
_LEFT = 2.0  # usual steps: what a jump that begins anew lacks of the whole range


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


def wrapping(about: FleetDescription, runs: Sequence[Run]) -> list[str]:
    """Outputs that jump through their range, as encoders do that begin anew after a turn."""
    said = []
    for one in about.declared:
        if one.constant or one.wraps is not None:
            continue
        steps = np.concatenate([np.diff(run.columns[one.name]) for run in runs])
        values = np.concatenate([run.columns[one.name] for run in runs])
        range_ = float(np.ptp(values))
        usual = float(np.quantile(np.abs(steps), 0.95)) if len(steps) else 0.0
        # From one end of the range to the other, but for a usual step.
        jumps = np.abs(steps) > range_ - _LEFT * usual
        if jumps.any() and usual < _USUAL * range_:
            said.append(
                f"{one.name} jumps {np.count_nonzero(jumps)} times through its whole range of "
                f"{range_:.4g}, like an encoder that starts over: if it is one, declare "
                f"{one.name} = {{ wraps = {range_:.4g} }}, with the exact period"
            )
    return said
