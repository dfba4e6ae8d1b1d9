"""Reading the file that [cost] names as its target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.data.description import Quantity


def read_targets(path: Path, states: tuple[Quantity, ...]) -> Array:
    """One row a step, a column for each state that has a target; 0 for the others."""
    from contextual_lqr.data.sources import read_numbers

    table = read_numbers(path)
    known = {one.name: i for i, one in enumerate(states) if not one.constant}
    names = [name for name in table if name != "step"]
    unknown = [name for name in names if name not in known]
    require(not unknown, f"{path} has columns that are not states: {', '.join(unknown)}")
    require(names, f"{path} has no column that is a state")
    targets = np.zeros((len(table[names[0]]), len(states)))
    for name in names:
        targets[:, known[name]] = table[name]
    return targets
