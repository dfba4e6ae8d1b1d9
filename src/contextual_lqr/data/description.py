"""What a fleet is, as its user writes it down in `fleet.toml`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.fading import keep_of
from contextual_lqr.belief.output_history import OutputHistory
from contextual_lqr.belief.prior import Prior
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap, Dynamics
from contextual_lqr.data.fleet_toml.layout import Layout
from contextual_lqr.data.fleet_toml.toml_errors import DescriptionError
from contextual_lqr.data.histories.history import History
from contextual_lqr.deployment.task import Task
from contextual_lqr.errors import InputError
from contextual_lqr.files import require_regular
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.lqr.stationary import Cost, StationaryCost
from contextual_lqr.lqr.target_cost import TargetCost

LONGEST_HORIZON = 1_000_000
RUN = 100  # states of a run, where one is asked for and the task has no horizon
_LEARNING = tuple(
    ["states", "inputs", "contexts", "context_map", "noise_level", "regularisation", "scales"]
)
_TASK = ("horizon", "start", "Q", "R", "final_Q", "targets", "set_point", "integral", "angles")


@dataclass(frozen=True)
class Quantity:
    """One state, input or context: its name, unit and bounds.

    A `constant` state is always 1; logs need not have it. `scale` is the typical size of a state or
    input, if it is given. An output that `wraps` starts over after that much, as an encoder does. A
    context that `varies` may change during an episode. A `measured` state is a disturbance: known
    when acting, and expected to stay as it is.
    """

    name: str
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    constant: bool = False
    scale: float | None = None
    wraps: float | None = None
    varies: bool = False
    measured: bool = False

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
    rates: Mapping[str, str] = field(default_factory=dict)  # of states that are their integrals
    machine_column: str | None = None  # of logs; if it is not given, `machine` where they have it
    prior: Prior | None = None
    scales: Float[Array, " y"] | None = None
    set_point: Mapping[str, float] = field(default_factory=dict)  # states held at a value
    integral: Mapping[str, float | None] = field(default_factory=dict)  # None: the usual weight
    angles: tuple[int, ...] = ()  # states of which a whole turn is no difference
    lags: tuple[tuple[str, int], ...] = ()  # of each state its column, and how many stages ago
    history: History | None = None  # if the state is made of outputs
    layout: Layout = field(default_factory=Layout)  # of logs

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
        history: History | None = None,
    ) -> FleetDescription:
        """Read a description from text; `targets`, `horizon`, `history` replace those it names."""
        from contextual_lqr.data.fleet_toml.fleet_file import FleetFile  # which makes descriptions

        file = FleetFile(text, name, folder or Path(), targets)
        return file.description(horizon, history)

    def with_history(self, outputs: int, delay: int, spacing: float) -> FleetDescription:
        """The same fleet, once the logs have determined what was left to them."""
        assert self.history is not None
        found = self.history.found(outputs, delay, spacing)
        text, targets, horizon = self.text, self.targets_now, self.horizon
        told = self.parse(text, targets=targets, horizon=horizon, history=found)
        return replace(told, layout=self.layout)  # whose paths do not depend on where we are

    @property
    def targets_now(self) -> Float[Array, "H k"] | None:
        """The targets of what is declared, without those of the past."""
        return None if self.targets is None else self.targets[:, : len(self.declared)]

    @property
    def declared(self) -> tuple[Quantity, ...]:
        """What is measured now of the state, or is constant: the columns of a log."""
        lags = self.lags or ((one.name, 0) for one in self.states)
        return tuple(one for one, (_, lag) in zip(self.states, lags, strict=True) if lag == 0)

    @property
    def output_history(self) -> OutputHistory | None:
        """The state as an `OutputHistory`, if it is one: of outputs, disturbances and 1 alone."""
        if self.history is None:
            return None
        outputs = {column for column, lag in self.lags if column not in self.input_names}
        learnt = [one for i, one in enumerate(self.declared) if i not in self.known]
        still = [one for one in self.declared if one.constant]
        if len(still) > 1 or still != list(self.declared[: len(still)]) or not outputs:
            return None
        kept = self.history
        about = OutputHistory(
            len(learnt),
            len(self.inputs),
            kept.outputs,
            kept.delay,
            kept.input_history,
            len(self.declared) - len(learnt) - len(still),
            bool(still),
            kept.spacing,
        )
        return about if about.state_size == len(self.states) else None

    @property
    def state_names(self) -> tuple[str, ...]:
        """The states in the order of x."""
        return tuple(one.name for one in self.states)

    @property
    def measured_names(self) -> tuple[str, ...]:
        """The disturbances: states that are known when acting, and not controlled."""
        return tuple(one.name for one in self.states if one.measured)

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
        columns = self.declared + self.inputs + self.contexts
        return tuple(one for one in columns if not one.constant)

    @property
    def units(self) -> dict[str, str]:
        """The unit of every state, input and context; "" where there is none."""
        return {one.name: one.unit for one in self.quantities}

    @property
    def labels(self) -> list[str | None]:
        """What to write at the axes of states and inputs; None for what is constant or past."""
        shown = {one.name for one in (*self.declared, *self.inputs) if not one.constant}
        return [
            None if one.name not in shown else f"{one.name} [{one.unit}]" if one.unit else one.name
            for one in self.states + self.inputs
        ]

    @property
    def cost(self) -> Cost:
        """What a step costs in the long run, or with a horizon an episode."""
        return self.long_run_cost if self.horizon is None else self.episode_cost

    @property
    def long_run_cost(self) -> StationaryCost:
        """The cost per step of machines that run continuously."""
        still = [i for i, one in enumerate(self.states) if one.constant or one.measured]
        return StationaryCost(self.Q, self.R, constant=still)

    @cached_property
    def episode_cost(self) -> QuadraticCost:
        """The cost of an episode: Σ (x - target)ᵀ Q (x - target) + uᵀ R u."""
        if self.horizon is None:
            return self.with_horizon(RUN).episode_cost
        Q = np.repeat(self.Q[None], self.horizon, axis=0)
        Q[-1] = self.final_Q
        R = np.repeat(self.R[None], self.horizon - 1, axis=0)
        if isinstance(self.context_map, Dynamics):
            target = 0.0 if self.targets is None else self.targets
            return TargetCost(Q, R, target=target, angles=self.angles)
        if self.targets is not None:
            # x - target = (I - target eᵀ) x, where e picks the coordinate that is 1.
            one = next(i for i, state in enumerate(self.states) if state.constant)
            away = np.repeat(np.eye(len(Q[0]))[None], self.horizon, axis=0)
            away[:, :, one] -= self.targets
            Q = away.swapaxes(1, 2) @ Q @ away
            Q = Q / 2 + Q.swapaxes(1, 2) / 2
        return QuadraticCost(Q, R)

    @property
    def runs_to_a_set_point(self) -> bool:
        """Whether machines run continuously, with more to do than to go to 0."""
        return self.horizon is None and bool(self.set_point or self.integral)

    def control_task(self, cost: StationaryCost | None = None, **changes: Any) -> Task:
        """The task of a controller that runs continuously; `target` and `integral` may be changed.

        States follow the set-point, whatever targets an episode has.
        """
        held = {"target": self.set_point or None, "integral": self.integral or None}
        given = {name: value for name, value in changes.items() if value is not None}
        return Task.of(
            self.long_run_cost if cost is None else cost,
            **(held | given),
            input_bounds=self.input_bounds,
            states=self.state_names,
            constant=[one.name for one in self.states if one.constant],
            measured=[one.name for one in self.states if one.measured],
            lags=self.lags if self.history is not None else (),
            fades=self._fades,
        )

    @property
    def _fades(self) -> list[float]:
        """How much of each state stays in a step, of those whose past fades."""
        if self.history is None:
            return []
        late = dict.fromkeys(self.input_names, self.history.delay)  # what is on its way does not
        keep = keep_of(self.history.spacing)
        return [keep if lag > late.get(column, 0) else 0.0 for column, lag in self.lags]

    @property
    def prior_in_words(self) -> str:
        """Where the expected sizes of Θ come from."""
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
            noise_level=self._noise_levels,
            known=self.known,
            prior=self.prior,
            scales=self.scales,
        )

    @property
    def _noise_levels(self) -> float | Float[Array, " d"]:
        """Of each state; what is past is exact."""
        if self.history is None:
            return self.noise_level
        return np.array(
            [
                0.0 if lag or one.constant else self.noise_level
                for one, (_, lag) in zip(self.states, self.lags, strict=True)
            ]
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
