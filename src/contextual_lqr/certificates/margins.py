"""How much error a constant gain leaves room for, and how quickly its loop settles.

With u = K x and the closed loop F = A + BK, an error that multiplies input i by a factor f, real or
complex, meets the sensitivity S_i(z) = 1 + K_i (zI - F)⁻¹ B_i. The disk margin (Seiler, Packard,
Gahinet 2020) is α = 1 / max |S_i - ½| over |z| = 1: the loop stays stable for all f in the disk
whose diameter is from (2 - α) / (2 + α) to (2 + α) / (2 - α), so also if the phase of that input
is off by 2 arctan(α / 2). One input at a time: what holds then is the same in all units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.lqr.stationary import Cost, StationaryCost

_FREQUENCIES = np.concatenate(([0.0], np.logspace(-4, 0, 160) * np.pi))
THIN = 0.2  # the disk margin below which a controller is not trusted: inputs off by a fifth


@dataclass(frozen=True)
class LoopMargins:
    """What the loop of the estimate bears, and its pace.

    Attributes
    ----------
    disk : float
        The disk margin α of the worst input; 0 for a loop that is not stable.
    half_life : float
        The steps in which the slowest deviation halves; infinite if none does.
    """

    disk: float
    half_life: float

    @property
    def gain(self) -> tuple[float, float]:
        """The factors between which an input may be off."""
        a = self.disk
        return max((2 - a) / (2 + a), 0.0), (2 + a) / (2 - a) if a < 2 else np.inf

    @property
    def phase(self) -> float:
        """By how many degrees the phase of an input may be off."""
        return float(np.degrees(2 * np.arctan(self.disk / 2)))

    def __str__(self) -> str:
        if not self.disk:
            return "the loop of the estimate is not stable"
        low, high = self.gain
        most = f"{high:.2g}" if np.isfinite(high) else "any"
        return (
            f"tolerates inputs off by a factor of {low:.2g} to {most}, or {self.phase:.0f}° of "
            f"phase; deviations halve in {_steps(self.half_life)}"
        )


def _steps(half_life: float) -> str:
    return "less than a step" if half_life < 1 else f"{half_life:.3g} steps"


def loop_margins(M: Float[Array, "n d y"], gain: Float[Array, "n m d"]) -> list[LoopMargins]:
    """The margins of n machines [A, B] under their gains."""
    d = len(M[0])
    B = M[..., d:]
    with np.errstate(over="ignore", invalid="ignore"):
        F = M[..., :d] + B @ gain
    found = []
    for own, inputs, K in zip(F, B, gain, strict=True):
        modes = np.linalg.eigvals(own) if np.isfinite(own).all() else np.array([np.inf])
        slowest = float(np.abs(modes).max())
        if not slowest < 1:
            found.append(LoopMargins(0.0, np.inf))
            continue
        angles = np.concatenate((_FREQUENCIES, np.abs(np.angle(modes))))
        z = np.exp(1j * angles)[:, None, None]
        through = K @ np.linalg.solve(z * np.eye(d) - own, inputs.astype(complex))
        worst = np.abs(0.5 + np.einsum("wii->wi", through)).max()
        half_life = np.log(0.5) / np.log(slowest) if slowest > 0 else 0.0
        found.append(LoopMargins(float(1 / worst), float(half_life)))
    return found


def over_steps(
    M: Float[Array, "n *stages d y"], gains: Float[Array, "n *steps m d"], cost: Cost
) -> tuple[Sequence[LoopMargins | None], Float[Array, "n played m d"]]:
    """The gains of a run; a constant one is played until the slowest loop has settled."""
    if not isinstance(cost, StationaryCost):
        return [None] * len(gains), gains
    moving, d = cost.moving, cost.state_size
    columns = [*moving, *range(d, M.shape[-1])]
    margins = loop_margins(M[:, moving][:, :, columns], gains[..., moving])
    steps = settling_steps([one.half_life for one in margins])
    n, m, d = gains.shape
    return margins, np.broadcast_to(gains[:, None], (n, steps, m, d))


def settling_steps(half_lives: list[float], most: int = 500) -> int:
    """The steps after which the slowest of these loops has lost all but 3 % of a deviation."""
    finite = [one for one in half_lives if np.isfinite(one)]
    return int(np.clip(np.ceil(5 * max(finite, default=1.0)), 10, most))
