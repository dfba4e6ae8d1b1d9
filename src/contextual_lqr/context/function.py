"""Contexts through a function of the user's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.context.base import ContextMap


@final
@dataclass(frozen=True, eq=False)
class FunctionContext(ContextMap):
    """G = f(context), for whatever the other maps cannot express.

    Parameters
    ----------
    f : function
        From a context to G, (p, d+m).
    states, inputs, bounds, allow_outside
        As for `ContextMap`.
    """

    f: Callable[[Any], Any]

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """(p, d, m), known once the map is sized and has seen a context."""
        if self.states is None or self.inputs is None or not (self._seen or self._tried()):
            return None
        return self._seen["G"][0], self.states, self.inputs

    def _arguments(self) -> dict[str, Any]:
        return {"f": self.f, **super()._arguments()}

    def _matrix(self, context: Any) -> Float[Array, "p n"]:
        G = self._answer("G", self.f, context)
        self._seen["G"] = G.shape
        return G
