"""What the data hardly excite is named, and nothing that leans on it is trusted."""

from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import Decoder, FeatureContext, QuadraticCost, Trajectory, certify

COST = QuadraticCost([np.eye(2)] * 20, [0.1 * np.eye(1)] * 19)


def learnt(pushes: float, size: float = 1.0, **options: Any) -> Decoder:
    """Forty machines x'' = u / mass, pushed so much, inputs in units of `size`."""
    context_map = FeatureContext(["1", "1/mass"], bounds={"mass": (0.5, 2.0)})
    decoder = Decoder(context_map.sized(2, 1), noise_level=[0.01, 0.01], **options)
    rng = default_rng(0)
    for mass in rng.uniform(0.5, 2.0, 40):
        A, B = np.array([[1.0, 0.1], [0.0, 0.95]]), np.array([[0.0], [0.1 / mass]])
        states, inputs = [np.array([1.0, 0.0])], []
        for _ in range(19):
            inputs.append(pushes * rng.normal(size=1))
            states.append(A @ states[-1] + B @ inputs[-1] + 0.01 * rng.normal(size=2))
        decoder.update({"mass": mass}, Trajectory(states, size * np.array(inputs)))
    return decoder


@pytest.mark.parametrize("options", [{}, {"scales": [1.0, 1.0, 1.0]}, {"regularisation": 1e-4}])
def test_an_input_that_stood_still_is_named(options: dict[str, Any]) -> None:
    found = certify(learnt(0.0, **options), {"mass": 1.7}, COST, [1.0, 0.0], bounds=False)
    assert found.verdict != "trust"
    assert "the data hardly excite input 1; " in found.reason


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_hardly_is_in_natural_sizes(size: float) -> None:
    cost = QuadraticCost(COST.Q, COST.R / size**2)
    for pushes, named in ((1e-4, True), (1.0, False)):
        decoder = learnt(pushes, size, scales=[1.0, 1.0, size])
        found = certify(decoder, {"mass": 1.7}, cost, [1.0, 0.0], bounds=False)
        assert ("hardly excite input 1" in found.reason) == named
        assert (found.verdict == "trust") != named
