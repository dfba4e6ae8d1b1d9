"""What the records of the control problem show of themselves, and a policy that is called."""

import numpy as np
import pytest

from contextual_lqr import (
    Agent,
    CertaintyEquivalence,
    Decoder,
    FeatureContext,
    InputError,
    LinearPolicy,
    LinearSystem,
    ModelUncertainty,
    QuadraticCost,
    Trajectory,
    certify,
    solve,
)
from contextual_lqr.display import Displayed, context_fact

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


def test_what_has_learnt_says_what_it_has_learnt() -> None:
    context_map = FeatureContext(["1", "gain"], bounds={"gain": (0, 3)})
    states, gain = [[1.0, 0.0], [0.5, 0.1], [0.2, 0.1]], {"gain": 1 / 3}
    decoder = Decoder(context_map)
    assert repr(decoder) == "<Decoder: episodes 0, rows 0, machines 0, deviations estimated>"
    decoder.update(gain, Trajectory(states, [[0.1], [-0.1]]), "cart 1")
    decoder.update(gain, Trajectory(states, [[0.1], [-0.1]]), "cart 1")
    learnt = "states 2, inputs 1, Θ 2 x 6, episodes 1, rows 2"
    assert repr(decoder) == (f"<Decoder: {learnt}, repeats 1, machines 1, deviations estimated>")
    belief = decoder.machine(gain)
    largest = np.sqrt(np.einsum("rii->ri", belief.covariances).max())
    assert repr(belief) == (
        f"<MachineBelief: states 2, inputs 1, largest deviation {largest:.3g}, identified no>"
    )
    agent = Agent(context_map, COST, [1.0, 0.0], CertaintyEquivalence(0.0))
    plan = agent.ask(gain)
    agent.tell(plan, Trajectory(states, [[0.1], [-0.1]]))
    assert repr(agent) == (
        f"<Agent: strategy CertaintyEquivalence, {learnt}, prior scales, deviations none, "
        "steps 2, plans told 1>"
    )
    assert repr(plan) == (
        "<Plan: context gain=0.333333, states 2, inputs 1, steps 2, promised cost 3.001, "
        "dither none, input bounds none>"
    )
    certificate = certify(decoder, gain, COST, [1.0, 0.0])
    assert repr(certificate).startswith("<Certificate: context gain=0.333333, verdict do not use,")
    for shown in (decoder, belief, agent, plan, certificate):
        assert shown._repr_html_().count("<tr>") == len(shown._facts()) > 3
    assert context_fact((1, 2)) == {"context": "(1, 2)"}
    assert context_fact({}) == {"context": "none"}


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
