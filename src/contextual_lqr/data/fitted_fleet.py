"""A fitted fleet: the decoder with the description it learnt for, its designs and its file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.certificate import Certificate
from contextual_lqr.checks import require
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.designing import controller_for, design_many, hedge_of
from contextual_lqr.data.histories.history import History
from contextual_lqr.data.misfit import MisfitReport
from contextual_lqr.data.screening import LogReport, joined_ranges
from contextual_lqr.data.tables.table import KINDS
from contextual_lqr.deployment.controller import Controller
from contextual_lqr.display import Displayed
from contextual_lqr.errors import FormatError, InputError
from contextual_lqr.files import load_arrays, save_arrays
from contextual_lqr.lqr.stationary import Cost, StationaryCost

FORMAT_VERSION = 1
MANY = 0.05  # of the machines: more that stand out, and a new one is too likely to be another
_OTHER_FILES = {".toml": "a description"} | dict.fromkeys(KINDS, "a table")

PathLike = str | os.PathLike[str]


@dataclass(eq=False, repr=False)
class FittedFleet(Displayed):
    """A decoder with the description of the fleet it learnt, and the range of contexts it saw.

    `stand_out` are the machines that the alarm has named, set aside or not. `report` says what
    `fit` found in the logs, `alarm` all that is known about machines that stand out; both are None
    in a fleet that was loaded from a file, which does not hold them.
    """

    description: FleetDescription
    decoder: Decoder
    context_range: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    report: LogReport | None = None
    alarm: MisfitReport | None = None
    stand_out: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()  # what logs of outputs say against the description

    @property
    def doubt(self) -> str:
        """Why no controller of this fleet can be trusted: too many machines stand out; or ""."""
        if self.doubts:
            return "; ".join(self.doubts)
        odd = len(self.stand_out)
        total = len({*self.decoder.machine_labels, *self.stand_out})
        if odd < 2 or odd <= MANY * total:
            return ""
        return f"{odd} of {total} machines stand out from the fleet"

    def controller(self, context: Any, machine: str | None = None, **task: Any) -> Controller:
        """A controller that runs continuously on this machine: gain, set-point and so on.

        The task is the description's, unless `cost` (a `StationaryCost`), `target` or `integral`
        changes it; it hedges as `design` does. If the fleet is described by outputs, it takes
        outputs, and remembers the last of them. A context outside its declared bounds or outside
        the data is refused, as by what `export` writes.
        """
        return controller_for(self, context, machine, **task)

    def hedge(self, cost: StationaryCost | None = None) -> float:
        """How much of what is unknown a constant gain hedges against: as a backtest requires."""
        return hedge_of(self, self.description, cost)

    @classmethod
    def new(cls, description: FleetDescription) -> FittedFleet:
        """A fleet that has learnt from no log yet."""
        return cls(description, description.new_decoder())

    def design(
        self,
        context: Any,
        *,
        cost: Cost | None = None,
        start: ArrayLike | None = None,
        machine: str | None = None,
        measured: Mapping[str, float] | None = None,
        forecast: Mapping[str, ArrayLike] | None = None,
        **options: Any,
    ) -> Certificate:
        """The controller for one machine, and how far to trust it.

        Parameters
        ----------
        context
            The machine's context.
        cost
            A task other than the fleet's; nothing is fitted again. A `StationaryCost` for one
            constant gain, a `QuadraticCost` for an episode.
        start
            A start other than the fleet's.
        machine
            The label of a machine that has data of its own.
        measured
            The current values of `[measured]` disturbances, by name, if not those of the fleet's
            start. They are expected to stay as they are.
        forecast
            What they will be, by name: a value for each step of the episode, the first for now. The
            controller acts on what is to come.
        **options
            As for `certify_many`; `beta` is "regression" by default.

        Returns
        -------
        Certificate
            With the controller as its `policy`.
        """
        told: dict[str, Any] = {"measured": measured, "forecast": forecast, "machine": [machine]}
        return design_many(self, [context], cost=cost, start=start, **told, **options)[0]

    def merge(self, other: FittedFleet, *, allow_repeats: bool = False) -> None:
        """Take in everything that another fit of the same fleet has learnt.

        Refused if both have learnt from the same logs, unless repeats are allowed.
        """
        if odd := self.description.differences(other.description):
            raise InputError(
                f"the fleets are described differently, in {', '.join(odd)}: only fits of the same "
                "description can be merged"
            )
        self.decoder.merge(other.decoder, allow_repeats=allow_repeats)
        self.context_range = joined_ranges(self.context_range, other.context_range)
        self.stand_out = tuple(dict.fromkeys(self.stand_out + other.stand_out))

    def save(self, path: PathLike) -> None:
        """Write to one file, all of it or nothing."""
        learnt, arrays = self.decoder.state()
        state: dict[str, Any] = {
            "decoder": learnt,
            "description": self.description.text,
            "horizon": self.description.horizon,
            "context_range": {name: list(ends) for name, ends in self.context_range.items()},
            "stand_out": list(self.stand_out),
            "doubts": list(self.doubts),
        }
        if (history := self.description.history) is not None:
            numbers = history.outputs, history.input_history, history.delay, history.spacing
            state["history"] = list(numbers)
        targets = self.description.targets_now
        if targets is not None:
            arrays = arrays | {"targets": targets}
        save_arrays(path, "fleet", FORMAT_VERSION, state, arrays)

    @classmethod
    def load(cls, path: PathLike) -> FittedFleet:
        """Read what `save` wrote, to the bit."""
        if what := _OTHER_FILES.get(Path(path).suffix.lower()):
            command = "`contextual-lqr fit fleet.toml LOGS -o fleet.decoder`"
            raise FormatError(f"{path} is {what}, not a fitted fleet, which {command} writes")
        state, arrays = load_arrays(path, "fleet", FORMAT_VERSION)
        try:
            return cls._restored(state, arrays)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise FormatError(f"{path} is damaged: {error}") from error

    @classmethod
    def _restored(cls, state: dict[str, Any], arrays: dict[str, Array]) -> FittedFleet:
        targets = arrays.get("targets")
        if targets is not None and not (
            targets.ndim == 2 and targets.dtype == np.float64 and np.isfinite(targets).all()
        ):
            raise FormatError("its target is not a table of finite numbers")
        described = FleetDescription.parse(
            str(state["description"]),
            "its text",
            targets=targets,
            horizon=state["horizon"],
            history=_history(state.get("history")),
        )
        decoder = Decoder.from_state(state["decoder"], arrays, None, "its decoder")
        ours, its = decoder.state()[0], described.new_decoder().state()[0]
        for name in ("context_map", "regularisation", "noise_level", "known"):
            what = name.replace("_", " ")
            require(ours[name] == its[name], f"its decoder and its description differ in {what}")
        seen = {
            str(key): (float(low), float(high))
            for key, (low, high) in dict(state["context_range"]).items()
        }
        stand_out = tuple(str(label) for label in state.get("stand_out", ()))
        doubts = tuple(str(doubt) for doubt in state.get("doubts", ()))
        return cls(described, decoder, seen, stand_out=stand_out, doubts=doubts)

    def _facts(self) -> dict[str, object]:
        seen = {name: f"{low:g} to {high:g}" for name, (low, high) in self.context_range.items()}
        alarm = {} if self.alarm is None else {"alarm": str(self.alarm)}
        return {**self.decoder._facts(), **seen, **alarm}


def _history(saved: list[float] | None) -> History | None:
    if saved is None:
        return None
    outputs, inputs, delay = map(int, saved[:3])
    (spacing,) = map(float, saved[3:] or [1.0])
    return History(outputs, inputs, delay, spacing=spacing)
