"""How the solution of a control problem ends, and the same in words."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np
from jaxtyping import Int
from numpy import ndarray as Array

from contextual_lqr import kernels


class Status(IntEnum):
    """How the solution of one member of a batch ended."""

    SOLVED = kernels.SOLVED
    NOT_POSITIVE_DEFINITE = kernels.NOT_POSITIVE_DEFINITE
    NOT_FINITE = kernels.NOT_FINITE
    INACCURATE = kernels.INACCURATE  # to 1e-6
    NOT_CONVERGED = kernels.NOT_CONVERGED  # of a `StationaryCost`, or a path that is still moving
    NOT_STABILISABLE = 5  # this and the next two: of a `StationaryCost` only
    NOT_DETECTABLE = 6
    TOO_UNCERTAIN = 7
    STALLED = kernels.STALLED  # these two: of a path only
    DIVERGED = kernels.DIVERGED


REASONS = {
    Status.NOT_POSITIVE_DEFINITE: "R + BᵀPB is not positive definite",
    Status.NOT_FINITE: "the value matrix overflows",
    Status.INACCURATE: "the system is so unstable that too many digits are lost",
    Status.NOT_CONVERGED: "no gain was found: the best closed loop hardly decays, if at all",
    Status.NOT_STABILISABLE: "the system is not stabilisable: it has a mode that does not decay, "
    "and that no input reaches (if a state stays as it is, name it as constant)",
    Status.NOT_DETECTABLE: "the cost is not detectable: the system has a mode that does not decay, "
    "and that Q does not see; give it some weight",
    Status.TOO_UNCERTAIN: "no single gain holds systems this uncertain",
}

PATH_REASONS = {
    Status.NOT_FINITE: "a derivative of a feature overflows along the path, or has no value there, "
    "as that of a root at 0 (hypot has one)",
    Status.NOT_CONVERGED: "the iterations were used up while the cost was still falling",
    Status.STALLED: "no step lowers the cost any more, however small, though the model expects it",
    Status.DIVERGED: "the path of the initial inputs overflows, or leads to where a feature has no "
    "value: give others",
}


def failure(
    status: Int[Array, "*batch"],
    failed_step: Int[Array, "*batch"] | None = None,
    steps: int = 0,
    reasons: Mapping[Status, str] = REASONS,
) -> str:
    """Which member failed first, why and at which step, and how many others did."""
    failed = np.argwhere(status != Status.SOLVED)
    first = tuple(int(i) for i in failed[0])
    where = f"member {first[0] if len(first) == 1 else first}: " if first else ""
    others = f" ({len(failed)} members of the batch failed)" if len(failed) > 1 else ""
    reason = reasons[Status(int(status[first]))]
    step = 0 if failed_step is None else int(failed_step[first])
    return f"{where}{reason}{f' at step {step} of {steps}' if step else ''}{others}"
