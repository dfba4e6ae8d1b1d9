"""What systems have in common, constant or not: sizes, noise, and the A and B of a step."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, TypeVar

from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.checks import broadcast_batches, read_only, record
from contextual_lqr.display import Displayed, batch_fact
from contextual_lqr.lqr.triangular_root import triangular_root

_System = TypeVar("_System", bound="Dynamics")


class Dynamics(Displayed):
    """What a `LinearSystem` and a `TimeVaryingSystem` have in common."""

    A: Array
    B: Array
    noise: Array
    batch_shape: tuple[int, ...]
    has_noise: bool
    _core: ClassVar[int] = 2  # axes that are not of the batch

    @classmethod
    def unchecked(cls: type[_System], A: Array, B: Array, noise: Array) -> _System:
        """A system from arrays that are known to be right, and that nobody else will write to."""
        return object.__new__(cls)._hold(read_only(A), read_only(B), read_only(noise))

    def _hold(self: _System, A: Array, B: Array, noise: Array) -> _System:
        parts = {"A": A, "B": B, "noise": noise}
        shape = broadcast_batches({name: M.shape[: -self._core] for name, M in parts.items()})
        return record(self, **parts, has_noise=bool(noise.any()), batch_shape=shape)

    @property
    def steps(self) -> int | None:
        """The number of inputs of an episode, if that is given; None if all steps are alike."""
        return None

    def at(self, step: int) -> tuple[Float[Array, "*_ d d"], Float[Array, "*_ d m"]]:
        """A and B of a step, counted from 0."""
        return self.A, self.B

    @property
    def state_size(self) -> int:
        """The number of states d."""
        return int(self.A.shape[-1])

    @property
    def input_size(self) -> int:
        """The number of inputs m."""
        return int(self.B.shape[-1])

    @cached_property
    def noise_factor(self) -> Float[Array, "*_ d d"]:
        """The lower triangle L with L Lᵀ = noise; a coordinate without noise has a row of zeros."""
        return read_only(triangular_root(self.noise))

    def _facts(self) -> dict[str, object]:
        facts = {"states": self.state_size, "inputs": self.input_size}
        facts |= {} if self.steps is None else {"steps": self.steps}
        noise = "yes" if self.has_noise else "none"
        return {**facts, "noise": noise, **batch_fact(self.batch_shape)}
