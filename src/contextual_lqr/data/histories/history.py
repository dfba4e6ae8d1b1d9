"""A state that is made of the last outputs and inputs: of how many, and how late inputs act."""

from __future__ import annotations

from dataclasses import dataclass

from contextual_lqr.belief.fading import forgotten_after


@dataclass(frozen=True)
class History:
    """How many outputs and inputs the state is made of, and how late inputs act.

    Past ones are `spacing` samples apart, above 1 as means that fade. `auto` is what of this the
    logs are to tell: "history", "spacing", "delay". Until then it is provisional.
    """

    outputs: int
    input_history: int
    delay: int
    auto: tuple[str, ...] = ()
    inputs_given: bool = False  # whether input_history was written down, and stays
    spacing: float = 1.0

    def __str__(self) -> str:
        outputs = "as many as the logs need" if "history" in self.auto else str(self.outputs)
        delay = "found in the logs" if "delay" in self.auto else str(self.delay)
        apart = "" if self.spacing == 1 else f", {self.spacing:g} samples apart"
        return f"history {outputs}{apart}, delay {delay}"

    @property
    def reach(self) -> int:
        """How many steps pass before there is a whole history."""
        late = self.delay + forgotten_after(self.input_history - 1, self.spacing)
        return max(forgotten_after(self.outputs - 1, self.spacing), late)

    def found(self, outputs: int, delay: int, spacing: float) -> History:
        """With what the logs have told in the place of what was left to them."""
        n = outputs if "history" in self.auto else self.outputs
        late = delay if "delay" in self.auto else self.delay
        apart = spacing if "spacing" in self.auto else self.spacing
        r = self.input_history if self.inputs_given else n
        return History(n, r, late, spacing=apart)
