"""What systems have in common, constant or not: sizes, noise, and the A and B of a step."""

from __future__ import annotations

from functools import cached_property

from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.checks import read_only
from contextual_lqr.display import Displayed, batch_fact
from contextual_lqr.lqr.triangular_root import triangular_root


class Dynamics(Displayed):
    """What a `LinearSystem` and a `TimeVaryingSystem` have in common."""

    A: Array
    B: Array
    noise: Array
    batch_shape: tuple[int, ...]
    has_noise: bool

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
