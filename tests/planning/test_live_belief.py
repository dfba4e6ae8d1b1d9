"""What a live episode believes from step to step, before the agent is told."""

import numpy as np

from contextual_lqr import Agent, FeatureContext, QuadraticCost, Trajectory

MAP = FeatureContext(["1", "1/mass"], bounds={"mass": (0.5, 2.0)})
COST = QuadraticCost([np.eye(2)] * 8, [np.eye(1)] * 7)
CONTEXT = {"mass": 0.8}


def test_it_is_what_the_decoder_would_learn_of_the_steps_so_far() -> None:
    agent, rng = Agent(MAP, COST, [1.0, 0.0]), np.random.default_rng(0)
    with agent.episode(CONTEXT, adapt="step") as episode:
        states = [np.array([1.0, 0.0])]
        inputs = []
        for _ in range(6):
            inputs.append(episode.act(states[-1]))
            x = np.array([[1.0, 0.1], [0.0, 1.0]]) @ states[-1] + [0.0, inputs[-1][0]]
            states.append(x + 0.01 * rng.standard_normal(2))
            episode.observe(states[-1])
            told, believed = agent.decoder.copy(), episode._believed
            told.update(CONTEXT, Trajectory(states, inputs))
            assert believed is not None
            assert believed.rows == told.rows == len(inputs)
            np.testing.assert_allclose(believed.estimate, told.estimate, rtol=1e-6, atol=1e-8)
            low, high = believed.logged.low, believed.logged.high
            assert (low == told.logged.low).all()
            assert (high == told.logged.high).all()
        assert agent.decoder.rows == 0  # until the block is left
    assert agent.decoder.rows == 6


def test_a_step_that_comes_again_counts_again() -> None:
    """A machine at rest repeats itself, and that is no copy of a log."""
    agent = Agent(MAP, COST, [0.0, 0.0])
    with agent.episode(CONTEXT, adapt="step") as episode:
        for _ in range(3):
            episode.act([0.0, 0.0])
            episode.observe([0.0, 0.0], played=[0.0])
        assert episode._believed is not None
        assert episode._believed.rows == 3
