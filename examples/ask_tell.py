"""Ask and tell around a simulator of your own, of which the library knows nothing.

Here it is a car on cruise control: drag grows with the square of the speed, so the machine is only
nearly linear about the speed wanted. The context is its mass.
"""

import numpy as np

import contextual_lqr as clqr


def simulator(mass: float, throttle: float, off_speed: float, gust: float) -> float:
    """The next deviation from 25 m/s: your code, a physics engine, or a real car."""
    speed = 25 + off_speed
    force = 3000 * throttle + 0.4 * (25**2 - speed**2)  # at 25 m/s the cruise throttle holds
    return off_speed + 0.5 * force / mass + gust


H = 25
agent = clqr.Agent(
    clqr.FeatureContext(["1", "1000/mass"], states=1, inputs=1, bounds={"mass": (800, 3000)}),
    clqr.QuadraticCost(np.ones((H, 1, 1)), np.full((H - 1, 1, 1), 0.5)),
    start=[-2.0],  # 2 m/s too slow
    noise_level=0.02,
    input_bounds=(-1, 1),
)
rng = np.random.default_rng(0)
for episode in range(8):
    context = {"mass": float(rng.uniform(800, 3000))}
    plan = agent.ask(context)
    states, inputs = [np.array([-2.0])], []
    for step in range(H - 1):
        inputs.append(plan.input(step, states[-1]))
        gust = 0.02 * rng.standard_normal()
        states.append(np.array([simulator(context["mass"], *inputs[-1], *states[-1], gust)]))
    agent.tell(plan, clqr.Trajectory(states, inputs))
    reached = next((h for h, x in enumerate(states) if abs(x[0]) < 0.2), None)
    when = "not yet within 0.2 m/s" if reached is None else f"within 0.2 m/s after {reached / 2} s"
    print(f"episode {episode + 1}: a car of {context['mass']:4.0f} kg is {when}")
