"""What a test of the model finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "correlated errors",
    "late input",
    "memory",
    "nonlinear",
    "machines differ",
    "known row",
    "actuator",
]

LEVEL, DOUBT = 0.01, 0.1  # at which something is found, and at which it is not excluded
CURVED = 0.001  # at which something is not linear, which costs most: few false findings


@dataclass(frozen=True)
class Finding:
    """What the data say against the model.

    `effect` is the share of the residual variance that is explained; for "machines differ" the mean
    square of their own laws over that of noise. `size` is the root mean square, in the state's
    units, of what the model misses in a step. `state` is the row of [A, B]. `regressor` is the
    place in [x; u] of what explains most by itself: the step before, or for "nonlinear" its sign,
    square or size; None is an offset. What is not linear grows with this `power` of the regressor,
    whose root mean square in the logs is `usual`. What changes within an episode does so with the
    number of the step, which is usually `pace` in the logs. `maybe_late` is the place of an input
    that, a step before, explains nearly as much as a state does: under feedback the two are alike,
    and that it acts late cannot be excluded. `strengths` are those of the inputs upon the state in
    the logs, root mean squares over the machines.

    Of an "actuator", `way` is what it does instead (actuators.py), to the input at the place
    `regressor`, and `limit` how much of that the logs do not exclude.

    In `sentence` states and inputs are places in [x; u], as `at` writes them: what they are called
    is for those who ask, and `said` fills it in.
    """

    kind: Kind
    p_value: float
    effect: float
    size: float
    state: int
    regressor: int | None
    sentence: str
    maybe_late: int | None = None
    late_row: tuple[float, ...] = ()
    power: int = 0
    usual: float = 0.0
    pace: float = 0.0
    strengths: tuple[float, ...] = ()
    way: str = ""
    limit: float = 0.0

    @property
    def found(self) -> bool:
        """Whether it is more than a doubt."""
        return self.p_value <= (CURVED if self.kind in ("nonlinear", "actuator") else LEVEL)

    @property
    def late(self) -> int | None:
        """The place of an input that acts late, or may."""
        return self.regressor if self.kind == "late input" else self.maybe_late

    def said(self, names: Sequence[str]) -> str:
        """The sentence, with these names of all states and inputs."""
        return self.sentence.format(*names)


def at(place: int) -> str:
    """The state or input at a place of [x; u], in a sentence."""
    return f"{{{place}}}"


def numbered(d: int, m: int) -> list[str]:
    """What d states and m inputs are called if they have no names."""
    return [f"state {i + 1}" for i in range(d)] + [f"input {j + 1}" for j in range(m)]
