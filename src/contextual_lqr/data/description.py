"""What a fleet is, as its user writes it down in `fleet.toml`.

It is read by fleet_toml.py, which says all that is wrong with the file at once.
"""

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
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap
from contextual_lqr.data.toml_errors import DescriptionError
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import QuadraticCost


@dataclass(frozen=True)
class Quantity:
    """One state, input or context: its name, unit, and bounds.

    A `constant` state is always 1; logs need not have it.
    """

    name: str
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    constant: bool = False


@dataclass(frozen=True, eq=False)
class FleetDescription:
    """A fleet, its task, and what is known of it before any log. Made by `read` and `parse`."""

    text: str
    states: tuple[Quantity, ...]
    inputs: tuple[Quantity, ...]
    contexts: tuple[Quantity, ...]
    context_map: ContextMap
    horizon: int
    start: Float[Array, " d"]
    Q: Float[Array, "d d"]
    final_Q: Float[Array, "d d"]
    R: Float[Array, "m m"]
    targets: Float[Array, "H d"] | None
    noise_level: float
    regularisation: float
    known: Mapping[int, Float[Array, " p"]]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> FleetDescription:
        """The description in a file; the files it names are looked for beside it."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise DescriptionError([f"{path}: this is not text in UTF-8"]) from None
        except FileNotFoundError:
            raise InputError(
                f"there is no file {path}; `contextual-lqr new {path}` writes one to start from"
            ) from None
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
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
        """The description a text holds; `targets` and `horizon` stand for those it names."""
        from contextual_lqr.data.fleet_toml import Reader  # which makes descriptions

        return Reader(text, name, folder or Path(), targets).description(horizon)

    @property
    def state_names(self) -> tuple[str, ...]:
        """The states in the order of x."""
        return tuple(one.name for one in self.states)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs in the order of u."""
        return tuple(one.name for one in self.inputs)

    @property
    def context_names(self) -> tuple[str, ...]:
        """The values of a context."""
        return tuple(one.name for one in self.contexts)

    @property
    def logged_states(self) -> tuple[str, ...]:
        """The states that a log must have: all but the constant ones."""
        return tuple(one.name for one in self.states if not one.constant)

    @property
    def units(self) -> dict[str, str]:
        """The unit of every state, input and context; "" where there is none."""
        return {one.name: one.unit for one in self.quantities}

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """The bounds of every state, input and context; infinite where there are none."""
        return {one.name: (one.low, one.high) for one in self.quantities}

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """States, inputs and contexts."""
        return self.states + self.inputs + self.contexts

    @cached_property
    def cost(self) -> QuadraticCost:
        """The cost of an episode: Σ (x - target)ᵀ Q (x - target) + uᵀ R u."""
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

    def with_horizon(self, horizon: int) -> FleetDescription:
        """The same fleet with a task of another length; the last target is held."""
        require(
            isinstance(horizon, int) and horizon >= 2,
            f"the horizon must be a whole number of at least 2, not {horizon!r}",
        )
        targets = self.targets
        if targets is not None:
            targets = targets[np.minimum(np.arange(horizon), len(targets) - 1)]
        return replace(self, horizon=horizon, targets=targets)

    def new_decoder(self) -> Decoder:
        """A decoder of this fleet that has learnt nothing yet."""
        return Decoder(
            self.context_map, self.regularisation, noise_level=self.noise_level, known=self.known
        )

    def differences(self, other: FleetDescription, *, task: bool = True) -> list[str]:
        """What tells two descriptions apart; without `task`, in what a decoder learns by."""
        pairs: dict[str, tuple[Any, Any]] = {
            name: (getattr(self, name), getattr(other, name))
            for name in ("states", "inputs", "contexts", "context_map")
        }
        pairs["noise_level"] = self.noise_level, other.noise_level
        pairs["regularisation"] = self.regularisation, other.regularisation
        pairs["known"] = tuple(
            {i: row.tolist() for i, row in one.known.items()} for one in (self, other)
        )  # type: ignore[assignment]
        if task:
            pairs["horizon"] = self.horizon, other.horizon
            for name in ("start", "Q", "R", "final_Q", "targets"):
                mine, its = getattr(self, name), getattr(other, name)
                pairs[name] = tuple(None if a is None else a.tolist() for a in (mine, its))  # type: ignore[assignment]
        return [name for name, (mine, its) in pairs.items() if mine != its]
