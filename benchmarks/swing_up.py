"""Gymnasium's Pendulum-v1 with gravity, mass and length as context, swung up at the first attempt.

Writes a section of docs/measured/nonlinear.md and its figure.

`python benchmarks/swing_up.py [seeds]`: seeds from 200000; the planner was developed on seeds below
1000. Three episodes on machines drawn at random, then 100 unseen machines, each from a start drawn
as the environment draws it, one plan an episode. The return is the environment's own.
"""

import sys
from typing import NamedTuple

import gymnasium
import numpy as np
from films import film
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from numpy import ndarray as Array
from pages import write_section
from pictures import BLUE, FIGURES, GREY

import contextual_lqr as clqr
from contextual_lqr.figures import figure_style
from contextual_lqr.paper.style import save_figure

FIRST_SEED, EPISODES, UNSEEN, STEPS, LAST = 200_000, 3, 100, 200, 50
UPRIGHT = 0.2  # rad
BOUNDS = {"g": (8.0, 12.0), "mass": (0.8, 1.2), "length": (0.8, 1.2)}
TORQUE, FASTEST, DT = 2.0, 8.0, 0.05
DYNAMICS = clqr.FeatureDynamics(
    ["angle", "speed", "g*sin(angle)/length", "torque/(mass*length**2)"],
    states=["angle", "speed"],
    inputs=["torque"],
    bounds=BOUNDS,
)
TRUTH = np.array([[1.0, DT, 1.5 * DT**2, 3 * DT**2], [0.0, 1.0, 1.5 * DT, 3 * DT]])
COST = clqr.TargetCost(
    Q=[np.diag([1.0, 0.1])] * (STEPS + 1), R=[[[0.001]]] * STEPS, target=[0.0, 0.0], angles=[0]
)

TEXT = """# A pendulum never tried swings up at its first attempt

Written by `benchmarks/swing_up.py`. Gymnasium's `Pendulum-v1` with its gravity (8 to 12), mass and
length (0.8 to 1.2) as context; torque and speed are limited by the environment (2 and 8), so that
it must swing to and fro before it is up. An agent with four features (angle, speed,
`g*sin(angle)/length`, `torque/(mass*length**2)`) plays three episodes on three machines; then 100
machines that it has never seen, each from a start as the environment draws it, with one plan an
episode. *Upright*: within 0.2 rad in all of the last 50 of 200 steps. Beside it, the same planner
with the true equations. SEEDS

| seed | upright | with the true model | mean return | with the true model | behind by |
|---|---|---|---|---|---|
"""

AFTER = """
Rows in which the environment stops the speed at its limit are left out of what is learnt, and no
model knows of that limit: where a plan meets it, its feedback repairs what it can.

![Angles of 100 unseen pendulums](../figures/swing-up.svg)

One of them that began near hanging, as it moved:

![An unseen pendulum swings up](../figures/swing-up-film.gif)
"""


class Score(NamedTuple):
    """Of one model on the unseen machines of one seed."""

    upright: int
    returns: Array
    angles: Array
    contexts: list[dict[str, float]]


def environment(context: dict[str, float], rng: np.random.Generator) -> tuple[PendulumEnv, Array]:
    """The environment of a machine, reset, and the state it begins in."""
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.g, env.m, env.l = context["g"], context["mass"], context["length"]
    env.reset(seed=int(rng.integers(2**31)))
    return env, np.array(env.state)


def play(env: PendulumEnv, policy: object) -> tuple[clqr.Trajectory, float]:
    """One episode; its return is what the environment says."""
    states, inputs, total = [np.array(env.state)], [], 0.0
    for step in range(STEPS):
        u = policy(step, states[-1])
        inputs.append(u)
        _, reward, *_ = env.step(u)
        total += float(reward)
        states.append(np.array(env.state))
    return clqr.Trajectory(states, inputs), total


def pieces(played: clqr.Trajectory) -> list[clqr.Trajectory]:
    """The stretches without a step that the environment stopped at its fastest."""
    good = np.abs(played.states[1:, 1]) < FASTEST
    edges = np.flatnonzero(np.diff(np.concatenate(([0], good, [0]))))
    return [
        clqr.Trajectory(played.states[a : b + 1], played.inputs[a:b])
        for a, b in edges.reshape(-1, 2)
    ]


def drawn(rng: np.random.Generator) -> dict[str, float]:
    """Any machine of the fleet."""
    return {name: float(rng.uniform(*ends)) for name, ends in BOUNDS.items()}


def taught(seed: int) -> clqr.Agent:
    """An agent after its three episodes."""
    rng = np.random.default_rng(seed)
    agent = clqr.Agent(
        DYNAMICS, COST, [np.pi, 0.0], noise_level=1e-3, input_bounds=(-TORQUE, TORQUE), seed=seed
    )
    for _ in range(EPISODES):
        context = drawn(rng)
        env, start = environment(context, rng)
        plan = agent.ask(context, start=start)
        played, _ = play(env, plan.input)
        for piece in pieces(played):
            agent.tell(context, piece)
    return agent


def scored(seed: int, agent: clqr.Agent | None) -> Score:
    """The unseen machines, by what was learnt, or by the truth."""
    rng = np.random.default_rng((seed, 1))
    returns, angles, contexts, upright = [], [], [], 0
    for _ in range(UNSEEN):
        context = drawn(rng)
        contexts.append(context)
        env, start = environment(context, rng)
        machine = (
            clqr.DynamicsBelief.known(DYNAMICS, context, TRUTH)
            if agent is None
            else agent.decoder.machine(context)
        )
        path = clqr.solve_trajectory(
            machine, COST, start, input_bounds=(-TORQUE, TORQUE), attempts=13
        )
        played, total = play(env, path.policy)
        turned = (played.states[:, 0] + np.pi) % (2 * np.pi) - np.pi
        upright += bool((np.abs(turned[-LAST:]) < UPRIGHT).all())
        returns.append(total)
        angles.append(played.states[:, 0])
    return Score(upright, np.array(returns), np.array(angles), contexts)


def draw(angles: Array) -> None:
    """The angles of all unseen machines, brought to the turn they end in."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4))
    axes = figure.add_subplot()
    ends = 2 * np.pi * np.round(angles[:, -1:] / (2 * np.pi))
    seconds = DT * np.arange(angles.shape[1])
    axes.plot(seconds, (angles - ends).T, color=BLUE, linewidth=0.6, alpha=0.5)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="time [s]", ylabel="angle from upright [rad]")
    axes.set_yticks([-2 * np.pi, -np.pi, 0, np.pi, 2 * np.pi], ["-2π", "-π", "0", "π", "2π"])
    save_figure(figure, FIGURES, "swing-up")
    (FIGURES / "swing-up.png").unlink()  # the site shows the SVG


def shot(angles: Array, contexts: list[dict[str, float]]) -> None:
    """A film of the machine that began nearest to hanging."""
    at = int(np.cos(angles[:, 0]).argmin())
    c = contexts[at]
    says = f"g {c['g']:.1f}, {c['mass']:.2f} kg, {c['length']:.2f} m"
    film("swing-up-film", -angles[at], c["length"], DT * STEPS, says=says)


def main() -> None:
    """All seeds, and the page."""
    seeds = [FIRST_SEED + i for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5)]
    lines, first = [], None
    for seed in seeds:
        ours, best = scored(seed, taught(seed)), scored(seed, None)
        first = first or ours
        a, b = ours.returns.mean(), best.returns.mean()
        lines.append(
            f"| {seed} | {ours.upright} of {UNSEEN} | {best.upright} of {UNSEEN} | {a:.1f} | "
            f"{b:.1f} | {abs(a / b - 1):.2%} |"
        )
        print(lines[-1], flush=True)
    if len(seeds) > 1:
        assert first is not None
        with figure_style():
            draw(first.angles)
        shot(first.angles, first.contexts)
        said = f"{len(seeds)} seeds from {FIRST_SEED}, none used in development."
        text = TEXT.replace("SEEDS", said) + "\n".join(lines) + "\n" + AFTER
        write_section("nonlinear", "swing_up", text)


if __name__ == "__main__":
    main()
