"""What limits of inputs cost: what the certificate says, beside many runs of the true machine."""

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from contextual_lqr import Decoder, LinearSystem, Trajectory, certify, solve, trajectory_cost
from contextual_lqr.certificates.saturation import compared
from contextual_lqr.fleets import cart_pole, true_system
from contextual_lqr.lqr.rollout import rollout

FLEET = cart_pole()
CONTEXT = {"cart_mass": 1.0, "pole_mass": 0.2, "length": 1.0}


def logged(rng: Generator, machines: int) -> Decoder:
    """Cart-poles held by good controllers, with some dither."""
    decoder = Decoder(FLEET.context_map, noise_level=FLEET.noise_level, deviations=None)
    for _ in range(machines):
        context = FLEET.sample_context(rng)
        system = true_system(FLEET, context)
        gain = solve(system, FLEET.cost).policy.gains[0]
        states, inputs = [np.array(FLEET.start) * rng.normal(size=4)], []
        for _ in range(30):
            inputs.append(gain @ states[-1] + 0.3 * rng.normal(size=1))
            shock = system.noise_factor @ rng.normal(size=4)
            states.append(system.A @ states[-1] + system.B @ inputs[-1] + shock)
        decoder.update(context, Trajectory(states, inputs))
    return decoder


def true_cost(policy: object, system: LinearSystem, limit: float, rng: Generator) -> float:
    """Of 4000 runs, clipped."""
    shocks = rng.standard_normal((4000, FLEET.cost.horizon - 1, 4)) @ system.noise_factor.T
    runs = rollout(
        policy,  # type: ignore[arg-type]
        system,
        FLEET.start,
        shocks,
        input_bounds=(-limit, limit),
        largest=1e50,
    )
    return float(np.mean(trajectory_cost(runs, FLEET.cost)))


@pytest.mark.parametrize("share", [3.0, 5.0])
def test_the_cost_of_a_weak_motor_is_predicted(share: float) -> None:
    """A third and a fifth of what the controller would use on the cart-pole: within 10 %."""
    decoder, truth = logged(default_rng(0), 60), true_system(FLEET, CONTEXT)
    free = certify(decoder, CONTEXT, FLEET.cost, FLEET.start, bounds=False)
    limit = float(np.abs(free.policy.gains[0] @ FLEET.start).max()) / share
    weak = certify(
        decoder, CONTEXT, FLEET.cost, FLEET.start, input_bounds=(-limit, limit), bounds=False
    )
    assert weak.saturation is not None
    assert weak.saturation.runs == 1.0
    paid = true_cost(weak.policy, truth, limit, default_rng(1))
    assert weak.predicted_cost == pytest.approx(paid, rel=0.1)
    assert weak.verdict != "trust"
    wide = certify(
        decoder, CONTEXT, FLEET.cost, FLEET.start, input_bounds=(-9.0, 9.0), bounds=False
    )
    assert (wide.verdict, wide.predicted_cost) == (free.verdict, free.predicted_cost)
    assert str(wide.saturation) == "no input meets its limit"


def test_how_well_it_is_known_is_told_apart_from_the_noise_of_runs() -> None:
    """Shares of machines differ by a tenth of themselves, and by the noise that two have shared."""
    rng = default_rng(0)
    paid = 1 + 0.3 * np.repeat(rng.random((4, 2500)), 2, 1)
    for spread in (0.0, 0.02):
        share = 0.2 + spread * rng.standard_normal(5000)
        noise = np.repeat(0.05 * rng.standard_normal((4, 2500)), 2, 1)
        found = compared(paid, paid * (1 + share) + noise, np.ones((4, 5000, 1), bool), 0.95)
        assert found.added_cost == pytest.approx(0.2, abs=2e-3)
        assert found.deviation == pytest.approx(spread, abs=1e-3)
    assert "adds 20 % to the cost, give or take 2 %" in str(found)


def test_few_draws_do_not_make_it_look_known() -> None:
    """A spread of 0.01 beside noise of 0.03: 200 draws see it, and so do four runs of a machine."""
    rng, all_clipped = default_rng(1), np.ones((4, 200, 1), bool)
    for _ in range(50):
        share = 0.2 + 0.01 * rng.standard_normal(200)
        noise = np.repeat(0.06 * rng.standard_normal((4, 100)), 2, 1)
        found = compared(np.ones((4, 200)), 1 + share + noise, all_clipped, 0.95)
        assert 0.008 < found.deviation < 0.013
    one = compared(np.ones((4, 1)), 1 + noise[:, :1], all_clipped[:, :1], 0.95)
    assert one.deviation == np.inf
    assert "give or take" not in str(one)


def test_give_or_take_is_the_spread_over_machines() -> None:
    """As 200 draws have it, each the mean of 200 runs, the same noise for all of them."""
    decoder = logged(default_rng(0), 120)
    free = certify(decoder, CONTEXT, FLEET.cost, FLEET.start, bounds=False)
    limit = float(np.abs(free.policy.gains[0] @ FLEET.start).max()) / 3
    bounds = {"input_bounds": (-limit, limit)}
    weak = certify(decoder, CONTEXT, FLEET.cost, FLEET.start, bounds=False, **bounds)
    drawn = decoder.machine(CONTEXT).draw(200, default_rng(2))
    noise = default_rng(3).standard_normal((200, 1, FLEET.cost.horizon - 1, 4))
    shocks = FLEET.noise_level * np.repeat(noise, 200, 1)
    paid, more = (
        np.mean(
            trajectory_cost(
                rollout(free.policy, drawn, FLEET.start, shocks, largest=1e50, **options),
                FLEET.cost,
            ),
            0,
        )
        for options in ({}, bounds)
    )
    assert weak.saturation is not None
    assert weak.saturation.deviation == pytest.approx((more / paid).std(), rel=0.2)
