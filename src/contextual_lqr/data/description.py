"""What a fleet is, as its user writes it down in `fleet.toml`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.prior import Prior
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap
from contextual_lqr.data.toml_errors import DescriptionError
from contextual_lqr.errors import InputError
from contextual_lqr.files import require_regular
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.lqr.stationary import Cost, StationaryCost

LONGEST_HORIZON = 1_000_000
RUN = 100  # states of a run, where one is asked for and the task has no horizon
_LEARNING = (
    *("states", "inputs", "contexts", "context_map", "noise_level", "regularisation", "scales"),
)
_TASK = ("horizon", "start", "Q", "R", "final_Q", "targets")


@dataclass(frozen=True)
class Quantity:
    """One state, input or context: its name, unit and bounds.

    A `constant` state is always 1; logs need not have it. `scale` is the typical size of a state
    or input, if it is given. A context that `varies` may change during an episode.
    """

    name: str
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    constant: bool = False
    scale: float | None = None
    varies: bool = False

    @property
    def size(self) -> float | None:
        """The typical size: as given, or the larger of finite bounds."""
        if self.constant or self.scale is not None:
            return 1.0 if self.constant else self.scale
        most = max(abs(self.low), abs(self.high))
        return most if 0 < most < math.inf else None


@dataclass(frozen=True, eq=False, repr=False)
class FleetDescription:
    """A fleet, its task, and what is known about it before any log; see `read` and `parse`."""

    text: str
    states: tuple[Quantity, ...]
    inputs: tuple[Quantity, ...]
    contexts: tuple[Quantity, ...]
    context_map: ContextMap
    horizon: int | None  # None: the machines run on and on
    start: Float[Array, " d"]
    Q: Float[Array, "d d"]
    final_Q: Float[Array, "d d"]
    R: Float[Array, "m m"]
    targets: Float[Array, "H d"] | None
    noise_level: float
    regularisation: float | None
    known: Mapping[int, Float[Array, " p"]]
    machine_column: str | None = None  # of logs; if it is not given, `machine` where they have it
    prior: Prior | None = None
    scales: Float[Array, " y"] | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> FleetDescription:
        """Read a description from a file; files it names are looked up beside it."""
        if os.path.exists(path):
            require_regular(path)
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise DescriptionError(
                [f"{path}: this is not text in UTF-8; a description is a TOML file"]
            ) from None
        except FileNotFoundError:
            raise InputError(
                f"there is no file {path}; `contextual-lqr new {path}` writes one to start from"
            ) from None
        except (OSError, ValueError) as error:  # ValueError: a null byte in the name
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot read {path}: {reason}") from error
        return cls.parse(text, str(path), folder=Path(path).parent)

    @classmethod
    def parse(
        cls,
        text: str,
        name: str = "fleet.toml",
        *,
        folder: Path | None = None,
        targets: Array | None = None,
        horizon: int | None = None,
    ) -> FleetDescription:
        """Read a description from text; `targets` and `horizon` replace those it names."""
        from contextual_lqr.data.fleet_file import FleetFile  # which makes descriptions

        return FleetFile(text, name, folder or Path(), targets).description(horizon)

    @property
    def state_names(self) -> tuple[str, ...]:
        """The states in the order of x."""
        return tuple(one.name for one in self.states)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs in the order of u."""
        return tuple(one.name for one in self.inputs)

    @property
    def input_bounds(self) -> dict[str, tuple[float, float]]:
        """What each input may be."""
        return {one.name: (one.low, one.high) for one in self.inputs}

    @property
    def context_names(self) -> tuple[str, ...]:
        """The values of a context."""
        return tuple(one.name for one in self.contexts)

    @property
    def varying_names(self) -> tuple[str, ...]:
        """The values of a context that may change during an episode."""
        return tuple(one.name for one in self.contexts if one.varies)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """States, inputs and contexts."""
        return self.states + self.inputs + self.contexts

    @property
    def logged(self) -> tuple[Quantity, ...]:
        """The quantities that a log must have: all but constant states."""
        return tuple(one for one in self.quantities if not one.constant)

    @property
    def units(self) -> dict[str, str]:
        """The unit of every state, input and context; "" where there is none."""
        return {one.name: one.unit for one in self.quantities}

    @property
    def labels(self) -> list[str | None]:
        """What to write at the axes of the states and inputs; None for a constant state."""
        return [
            None if one.constant else f"{one.name} [{one.unit}]" if one.unit else one.name
            for one in self.states + self.inputs
        ]

    @property
    def cost(self) -> Cost:
        """What a step costs in the long run, or with a horizon an episode."""
        if self.horizon is None:
            return StationaryCost(self.Q, self.R)
        return self.episode_cost

    @cached_property
    def episode_cost(self) -> QuadraticCost:
        """The cost of an episode: Σ (x - target)ᵀ Q (x - target) + uᵀ R u."""
        if self.horizon is None:
            return self.with_horizon(RUN).episode_cost
        Q = np.repeat(self.Q[None], self.horizon, axis=0)
        Q[-1] = self.final_Q
        if self.targets is not None:
            # x - target = (I - target eᵀ) x, where e picks the coordinate that is 1.
            one = next(i for i, state in enumerate(self.states) if state.constant)
            away = np.repeat(np.eye(len(Q[0]))[None], self.horizon, axis=0)
            away[:, :, one] -= self.targets
            Q = away.swapaxes(1, 2) @ Q @ away
            Q = Q / 2 + Q.swapaxes(1, 2) / 2
        return QuadraticCost(Q, np.repeat(self.R[None], self.horizon - 1, axis=0))

    @property
    def prior_in_words(self) -> str:
        """Where the sizes come from that Θ is expected to have."""
        if self.prior is not None:
            return "as [prior] says"
        if self.scales is not None:
            return "about 0, by the scales of states and inputs"
        if self.regularisation is not None:
            return f"about 0, regularisation {self.regularisation:g}"
        return "next to none, in proportion to the logs"

    def with_horizon(self, horizon: int) -> FleetDescription:
        """The same fleet with a task of another length; the last target is held."""
        require(
            type(horizon) is int and 2 <= horizon <= LONGEST_HORIZON,
            f"the horizon must be a whole number of at least 2 and at most {LONGEST_HORIZON:,}, "
            f"not {horizon!r}",
        )
        targets = self.targets
        if targets is not None:
            targets = targets[np.minimum(np.arange(horizon), len(targets) - 1)]
        return replace(self, horizon=horizon, targets=targets)

    def new_decoder(self) -> Decoder:
        """A decoder of this fleet that has learnt nothing yet."""
        return Decoder(
            self.context_map,
            self.regularisation,
            noise_level=self.noise_level,
            known=self.known,
            prior=self.prior,
            scales=self.scales,
        )

    def differences(self, other: FleetDescription, *, task: bool = True) -> list[str]:
        """What differs between two descriptions; without `task`, only what affects learning."""
        names = (*_LEARNING, *(_TASK if task else ()))
        odd = [name for name in names if not _equal(getattr(self, name), getattr(other, name))]
        same = other.prior is None if self.prior is None else self.prior.same_as(other.prior)
        odd += [] if same else ["prior"]
        mine, its = (
            {i: row.tolist() for i, row in sorted(one.known.items())} for one in (self, other)
        )
        return odd if mine == its else [*odd, "known"]

    def __repr__(self) -> str:
        kinds = ("states", "inputs", "contexts")
        named = (", ".join(one.name for one in getattr(self, kind)) for kind in kinds)
        said = "; ".join(f"{kind} {names}" for kind, names in zip(kinds, named, strict=True))
        task = "a constant gain" if self.horizon is None else f"horizon {self.horizon}"
        return f"<FleetDescription: {said}; {task}>"


def _equal(mine: Any, its: Any) -> bool:
    if isinstance(mine, Array) or isinstance(its, Array):
        return np.array_equal(mine, its)
    return bool(mine == its)
