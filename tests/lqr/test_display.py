"""What the records of the control problem show of themselves, and a policy that is called."""

import numpy as np
import pytest

from contextual_lqr import (
    InputError,
    LinearPolicy,
    LinearSystem,
    ModelUncertainty,
    QuadraticCost,
    Trajectory,
    solve,
)
from contextual_lqr.display import Displayed

I2 = np.eye(2)
SYSTEM = LinearSystem(I2, np.ones((2, 1)), I2)
COST = QuadraticCost([I2] * 3, [np.eye(1)] * 2, np.zeros((2, 2, 1)))
MANY = LinearSystem([0.5 * I2, 1e200 * I2], np.ones((2, 1)))
BAD = QuadraticCost([I2] * 3, [-5 * np.eye(1)] * 2, indefinite=True)
SHOWN = {
    "<LinearSystem: states 2, inputs 1, noise yes>": SYSTEM,
    "<LinearSystem: states 2, inputs 1, noise none, batch 2>": MANY,
    "<QuadraticCost: states 2, inputs 1, steps 2, cross term yes>": COST,
    "<ModelUncertainty: states 2, inputs 1, largest deviation 2, batch 4 x 5>": ModelUncertainty(
        np.broadcast_to(4 * np.eye(3), (4, 5, 2, 3, 3))
    ),
    "<LinearPolicy: states 2, inputs 1, steps 5, batch 3>": LinearPolicy(np.zeros((3, 5, 1, 2))),
    "<Trajectory: states 2, inputs 1, steps 0>": Trajectory(np.zeros((1, 2)), np.zeros((0, 1))),
    "<Solution: states 2, inputs 1, steps 2, status solved>": solve(SYSTEM, COST),
    "<Solution: states 2, inputs 1, steps 2, batch 2, status 1 of 2 solved>": solve(MANY, COST),
    "<Solution: states 2, inputs 1, steps 2, status R + BᵀPB is not positive definite, "
    "step 2>": solve(SYSTEM, BAD),
}


@pytest.mark.parametrize("text", SHOWN)
def test_records_say_what_they_are(text: str) -> None:
    shown = SHOWN[text]
    assert repr(shown) == text
    html = shown._repr_html_()
    assert html.startswith(f"<table><caption>{type(shown).__name__}</caption>")
    for name, value in shown._facts().items():
        assert f"<tr><th>{name}</th><td>{value}</td></tr>" in html


def test_what_is_shown_is_escaped() -> None:
    class Named(Displayed):
        def _facts(self) -> dict[str, object]:
            return {"name": "<script>"}

    assert "<td>&lt;script&gt;</td>" in Named()._repr_html_()


def test_a_policy_is_called_with_a_step_and_a_state() -> None:
    gains = np.random.default_rng(0).normal(size=(3, 4, 2, 5))
    states = np.random.default_rng(1).normal(size=(3, 5))
    many = LinearPolicy(gains)(2, states)
    for i in range(3):
        one = LinearPolicy(gains[i])
        np.testing.assert_allclose(one(2, states[i]), gains[i, 2] @ states[i], rtol=1e-12)
        np.testing.assert_allclose(many[i], one(2, states[i]), rtol=1e-12)
    for step in (-1, 4):
        with pytest.raises(InputError, match=f"the policy has steps 0 to 3, not {step}"):
            one(step, states[0])
    with pytest.raises(InputError, match="state must have 5 coordinates, not 2"):
        one(0, [1.0, 2.0])
    with pytest.raises(InputError, match="state must be finite"):
        one(0, [1.0, np.nan, 0.0, 0.0, 0.0])
