"""MuJoCo's cart and pole, hanging at first, with the pole's length and mass as context.

Writes a section of docs/measured/nonlinear.md and its figure.

`python benchmarks/cart_pole.py [seeds]`: seeds from 300000; features, cost and planner were chosen
on seeds below 1000.
"""

import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import NamedTuple

import gymnasium.envs.mujoco as home
import mujoco
import numpy as np
from films import film
from numpy import ndarray as Array
from pages import write_section
from pictures import BLUE, FIGURES, GREY

import contextual_lqr as clqr
from contextual_lqr.figures import figure_style
from contextual_lqr.paper.style import save_figure

FIRST_SEED, EPISODES, UNSEEN, STEPS, LAST = 300_000, 20, 100, 200, 50
UPRIGHT, DT, CART, PUSH = 0.2, 0.02, 10.472, 3.0  # rad, s, kg, motor
BOUNDS = {"mass": (3.0, 8.0), "length": (0.4, 0.9)}

# A uniform rod on a cart, J = m L²/3 about its hinge and l = L/2: its mass matrix, inverted, times
# each force. Angles are those in the middle of the step, which the rates say well enough.
S, C = "sin(angle + 0.01*rate)", "cos(angle + 0.01*rate)"
J, L, ALL = "(mass*length**2/3)", "(mass*length/2)", f"({CART} + mass)"
D = f"({ALL}*{J} - {L}**2*{C}**2)"
ON_CART = [
    f"{J}*push/{D}",
    f"{J}*velocity/{D}",
    f"{J}*{L}*{S}*rate**2/{D}",
    f"{L}**2*{C}*{S}/{D}",
    f"{L}*{C}*rate/{D}",
]
ON_POLE = [
    f"{L}*{C}*push/{D}",
    f"{L}*{C}*velocity/{D}",
    f"{L}**2*{C}*{S}*rate**2/{D}",
    f"{ALL}*{L}*{S}/{D}",
    f"{ALL}*rate/{D}",
]
DYNAMICS = clqr.FeatureDynamics(
    {
        "position": ["position", "velocity", *ON_CART],
        "angle": ["angle", "rate", *ON_POLE],
        "velocity": ["velocity", *ON_CART],
        "rate": ["rate", *ON_POLE],
    },
    states=["position", "angle", "velocity", "rate"],
    inputs=["push"],
    bounds=BOUNDS,
)
COST = clqr.TargetCost(
    Q=[np.diag([20.0, 2.0, 0.1, 0.1])] * (STEPS + 1), R=[[[0.1]]] * STEPS, angles=[1]
)
HANGING = np.array([0.0, np.pi, 0.0, 0.0])

TEXT = f"""# A pole never tried, swung up and held

Written by `benchmarks/cart_pole.py`. Gymnasium's `InvertedPendulum` model in MuJoCo, which hangs at
first, with the pole's mass (3 to 8 kg) and length (0.4 to 0.9 m) as context. The rail ends at ±1 m,
the motor at ±300 N; of the model file only the pole, and the limit of its hinge, are changed. The
features are the accelerations that a uniform rod on a cart would have, term by term; rod, friction
and the engine's integration (a step is {DT} s) differ from them. An agent plays {EPISODES}
episodes, each on another machine; then {UNSEEN} machines that it has never seen, one plan an
episode of {STEPS} steps. *Held*: within {UPRIGHT} rad of upright in all of the last {LAST} steps.
SEEDS

| seed | held | of them within the rail | median cost | error of a step |
|---|---|---|---|---|
"""

AFTER = """
The error is that of the angular rate after one step along the unseen runs, relative to how much it
changes, in the median.

![Angles of 100 unseen poles](../figures/cart-pole-swing-up.svg)

The first of them, as it moved:

![An unseen pole swings up](../figures/cart-pole-film.gif)
"""


class Machine:
    """One of the poles in MuJoCo."""

    def __init__(self, context: dict[str, float], rng: np.random.Generator) -> None:
        tree = xml.parse(Path(home.__file__).parent / "assets" / "inverted_pendulum.xml")
        root = tree.getroot()
        for joint in root.iter("joint"):
            if joint.get("name") == "hinge":
                joint.set("limited", "false")
        for geom in root.iter("geom"):
            if geom.get("name") == "cpole":
                geom.set("mass", repr(context["mass"]))
                geom.set("fromto", f"0 0 0 0 0 {context['length']!r}")
            if geom.get("name") == "cart":
                geom.set("mass", repr(CART))
        self.model = mujoco.MjModel.from_xml_string(xml.tostring(root, encoding="unicode"))
        self.data = mujoco.MjData(self.model)
        start = HANGING + rng.uniform(-0.01, 0.01, 4)
        self.data.qpos[:], self.data.qvel[:] = start[:2], start[2:]
        mujoco.mj_forward(self.model, self.data)

    @property
    def state(self) -> Array:
        """Position, angle, velocity, rate."""
        return np.concatenate((self.data.qpos, self.data.qvel))

    def play(self, policy: object) -> clqr.Trajectory:
        """One episode."""
        states, inputs = [self.state], []
        for step in range(STEPS):
            inputs.append(np.asarray(policy(step, states[-1])))
            self.data.ctrl[:] = inputs[-1]
            mujoco.mj_step(self.model, self.data)
            states.append(self.state)
        return clqr.Trajectory(states, inputs)


class Score(NamedTuple):
    """Of the unseen machines of one seed."""

    held: int
    within: int
    cost: float
    error: float
    angles: Array
    first: tuple[dict[str, float], clqr.Trajectory]


def drawn(rng: np.random.Generator) -> dict[str, float]:
    """Any machine of the fleet."""
    return {name: float(rng.uniform(*ends)) for name, ends in BOUNDS.items()}


def pieces(played: clqr.Trajectory) -> list[clqr.Trajectory]:
    """The stretches away from the ends of the rail, where the cart would bump."""
    free = np.abs(played.states[:, 0]) < 0.95
    good = free[1:] & free[:-1]
    edges = np.flatnonzero(np.diff(np.concatenate(([0], good, [0]))))
    return [
        clqr.Trajectory(played.states[a : b + 1], played.inputs[a:b])
        for a, b in edges.reshape(-1, 2)
    ]


def taught(seed: int, episodes: int = EPISODES) -> clqr.Agent:
    """An agent after its episodes."""
    rng = np.random.default_rng(seed)
    agent = clqr.Agent(
        DYNAMICS, COST, HANGING, noise_level=0.01, input_bounds=(-PUSH, PUSH), seed=seed
    )
    for _ in range(episodes):
        context = drawn(rng)
        machine = Machine(context, rng)
        plan = agent.ask(context, start=machine.state)
        for piece in pieces(machine.play(plan.input)):
            agent.tell(context, piece)
    return agent


def scored(seed: int, agent: clqr.Agent, unseen: int = UNSEEN) -> Score:
    """The unseen machines."""
    rng = np.random.default_rng((seed, 1))
    held, within, costs, errors, angles = 0, 0, [], [], []
    first: tuple[dict[str, float], clqr.Trajectory] | None = None
    for _ in range(unseen):
        context = drawn(rng)
        machine = Machine(context, rng)
        path = clqr.solve_trajectory(
            agent.decoder.machine(context),
            COST,
            machine.state,
            input_bounds=(-PUSH, PUSH),
            attempts=13,
        )
        played = machine.play(path.policy)
        first = first or (context, played)
        turned = (played.states[:, 1] + np.pi) % (2 * np.pi) - np.pi
        up = bool((np.abs(turned[-LAST:]) < UPRIGHT).all())
        held += up
        within += up and bool((np.abs(played.states[:, 0]) < 1.0).all())
        costs.append(float(clqr.trajectory_cost(played, COST)))
        ahead = agent.decoder.predict(context, played.states[:-1], played.inputs)[:, 3]
        change = played.states[1:, 3] - played.states[:-1, 3]
        errors.append(np.abs(played.states[1:, 3] - ahead).mean() / np.abs(change).mean())
        angles.append(played.states[:, 1])
    medians = (float(np.median(one)) for one in (costs, errors))
    assert first is not None
    return Score(held, within, *medians, np.array(angles), first)


def draw(angles: Array) -> None:
    """The angles of all unseen machines, brought to the turn they end in."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4))
    axes = figure.add_subplot()
    ends = 2 * np.pi * np.round(angles[:, -1:] / (2 * np.pi))
    axes.plot(DT * np.arange(angles.shape[1]), (angles - ends).T, color=BLUE, lw=0.6, alpha=0.5)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="time [s]", ylabel="angle from upright [rad]")
    axes.set_yticks([-2 * np.pi, -np.pi, 0, np.pi, 2 * np.pi], ["-2π", "-π", "0", "π", "2π"])
    save_figure(figure, FIGURES, "cart-pole-swing-up")
    (FIGURES / "cart-pole-swing-up.png").unlink()  # the site shows the SVG


def shot(context: dict[str, float], played: clqr.Trajectory) -> None:
    """A film of one machine."""
    film(
        "cart-pole-film",
        played.states[:, 1],
        context["length"],
        DT * STEPS,
        positions=played.states[:, 0],
        rail=1.0,
        says=f"{context['mass']:.1f} kg, {context['length']:.2f} m",
    )


def main() -> None:
    """All seeds, and the page."""
    seeds = [FIRST_SEED + i for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3)]
    lines, first = [], None
    for seed in seeds:
        found = scored(seed, taught(seed))
        first = first or found
        lines.append(
            f"| {seed} | {found.held} of {UNSEEN} | {found.within} | {found.cost:.1f} | "
            f"{found.error:.1%} |"
        )
        print(lines[-1], flush=True)
    assert first is not None
    with figure_style():
        draw(first.angles)
    shot(*first.first)
    said = f"{len(seeds)} seeds from {FIRST_SEED}, none used in development."
    text = TEXT.replace("SEEDS", said) + "\n".join(lines) + "\n" + AFTER
    write_section("nonlinear", "cart_pole", text)


if __name__ == "__main__":
    main()
