"""What `fit` makes and `design` reads: a decoder with the description of its fleet, in one file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.report import joined
from contextual_lqr.errors import FormatError, InputError
from contextual_lqr.files import load_arrays, save_arrays

FORMAT_VERSION = 1


@dataclass(eq=False)
class FittedFleet:
    """A decoder, the description of the fleet it learnt, and the range of contexts it saw."""

    description: FleetDescription
    decoder: Decoder
    context_range: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def new(cls, description: FleetDescription) -> FittedFleet:
        """A fleet of which no log has been seen."""
        return cls(description, description.new_decoder())

    def merge(self, other: FittedFleet) -> None:
        """Take in all that another fit of the same fleet has learnt."""
        if odd := self.description.differences(other.description):
            raise InputError(
                f"the fleets are described differently, in {', '.join(odd)}: decoders of one "
                "description can be merged"
            )
        self.decoder.merge(other.decoder)
        self.context_range = joined(self.context_range, other.context_range)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, beside it first and then renamed."""
        learnt, arrays = self.decoder.state()
        state = {
            "decoder": learnt,
            "description": self.description.text,
            "horizon": self.description.horizon,
            "context_range": {name: list(ends) for name, ends in self.context_range.items()},
        }
        targets = self.description.targets
        if targets is not None:
            arrays = arrays | {"targets": targets}
        save_arrays(path, "fleet", FORMAT_VERSION, state, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FittedFleet:
        """Read what `save` wrote, to the bit."""
        state, arrays = load_arrays(path, "fleet", FORMAT_VERSION)
        try:
            return cls._restored(state, arrays, str(path))
        except FormatError as error:
            raise FormatError(f"{path} is damaged: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path} is damaged: {error}") from error

    @classmethod
    def _restored(cls, state: dict[str, Any], arrays: dict[str, Array], name: str) -> FittedFleet:
        targets = arrays.get("targets")
        if targets is not None and not (
            targets.ndim == 2 and targets.dtype == np.float64 and np.isfinite(targets).all()
        ):
            raise FormatError("its target is no table of finite numbers")
        described = FleetDescription.parse(
            str(state["description"]), name, targets=targets, horizon=int(state["horizon"])
        )
        decoder = Decoder.from_state(state["decoder"], arrays, None, name)
        if decoder.context_map != described.context_map:
            raise FormatError("its decoder and its description have different context maps")
        seen = {
            str(key): (float(low), float(high))
            for key, (low, high) in dict(state["context_range"]).items()
        }
        return cls(described, decoder, seen)
