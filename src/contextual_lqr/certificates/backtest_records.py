"""What a backtest says: of each machine that was left out, and of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BAD = 0.05  # a controller further above the best possible was wrongly trusted
FEWEST = 19  # machines that can show 95 % by counting


@dataclass(frozen=True, eq=False)
class MachineBacktest:
    """One machine, left out: what was claimed of its controller, and what its own data say."""

    machine: str
    rows: int
    claimed_excess: float
    realised_excess: float
    predicted_cost: float
    realised_cost: float
    trusted: bool

    @property
    def rightly(self) -> bool:
        """Whether trust was, or would have been, deserved: within 5 % of the best possible."""
        return self.realised_excess <= BAD


@dataclass(frozen=True, eq=False)
class FewShot:
    """All machines with so many steps of their own: excess of their controllers, and trust."""

    steps: int
    median_excess: float
    excess_90: float
    trusted: int
    wrongly: int


@dataclass(frozen=True, eq=False)
class Backtest:
    """All machines, each left out in turn, and what follows for claims about a new one.

    `hedge` multiplies the covariances of the deviations. `factor` multiplies a claimed excess;
    `widening` holds the logarithms by which an interval of costs must at least reach below and
    above the predicted cost. `counted` says whether there were enough machines to show 95 % by
    counting. `few_shot` is what the machines would have got with data of their own. `refined` says
    whether hedged gains of unseen machines are refined on those seen.
    """

    machines: tuple[MachineBacktest, ...]
    hedge: float
    factor: float
    widening: tuple[float, float]
    counted: bool
    few_shot: tuple[FewShot, ...] = ()
    refined: bool = False

    @property
    def trusted(self) -> int:
        """How many machines would have been trusted."""
        return sum(one.trusted for one in self.machines)

    @property
    def wrongly(self) -> int:
        """How many of these would have been more than 5 % above the best possible."""
        return sum(one.trusted and not one.rightly for one in self.machines)

    def __str__(self) -> str:
        n = len(self.machines)
        said = f"{self.trusted} of {n} machines would have been trusted before their first run"
        if self.trusted:
            said += f", {self.wrongly} of them wrongly"
        return said if self.counted else f"{said}; fewer than {FEWEST} machines cannot show 95 %"

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        return {
            "machines": [vars(one) | {"rightly": one.rightly} for one in self.machines],
            "trusted": self.trusted,
            "wrongly": self.wrongly,
            "hedge": self.hedge,
            "refined": self.refined,
            "factor": self.factor,
            "counted": self.counted,
            "few_shot": [vars(one) for one in self.few_shot],
        }
