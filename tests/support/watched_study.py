"""A study to watch: carts of twelve masses and frictions, one of them with a wrong label."""

from collections.abc import Callable

import numpy as np

from contextual_lqr import LinearSystem, Study, Trajectory
from contextual_lqr.data import FleetDescription
from contextual_lqr.fleets.physics import discretised

FLEET = """
[states]
position = { unit = "m", scale = 1.0 }
velocity = { unit = "m/s", scale = 1.0 }

[inputs]
force = { unit = "N", low = -50.0, high = 50.0, scale = 5.0 }

[contexts]
mass = { unit = "kg", low = 0.5, high = 5.0 }
friction = { unit = "N s/m", low = 0.0, high = 2.0 }

[context_map]
kind = "features"
features = ["1", "1/mass", "friction/mass"]

[task]
horizon = 30
start = { position = 1.0 }

[cost]
Q = { position = 1.0, velocity = 0.1 }
R = [0.01]

[learning]
noise_level = 0.005
"""
PERIOD, NOISE = 0.1, 0.005
MISLABELLED = "cart-07"
GAIN = np.array([[-6.0, -5.0]])


def carts(rng: np.random.Generator, count: int) -> dict[str, dict[str, float]]:
    """Contexts by label, all over the range."""
    return {
        f"cart-{k + 1:02}": {
            "mass": round(float(rng.uniform(0.6, 4.5)), 2),
            "friction": round(float(rng.uniform(0.1, 1.8)), 2),
        }
        for k in range(count)
    }


def cart(context: dict[str, float]) -> LinearSystem:
    """The machine itself."""
    mass, friction = context["mass"], context["friction"]
    A = np.array([[0.0, 1.0], [0.0, -friction / mass]])
    return LinearSystem(
        *discretised(A, np.array([[0.0], [1 / mass]]), PERIOD), NOISE**2 * np.eye(2)
    )


def played(act: Callable, system: LinearSystem, rng: np.random.Generator) -> Trajectory:
    """What came of an episode with the inputs act(step, state)."""
    x, states, inputs = np.array([1.0, 0.0]), [np.array([1.0, 0.0])], []
    for step in range(29):
        inputs.append(act(step, x))
        x = system.A @ x + system.B @ inputs[-1] + system.noise_factor @ rng.standard_normal(2)
        states.append(x)
    return Trajectory(states, inputs)


def watched_study(
    url: str, machines: int = 12, episodes: int = 60, seed: int = 0, *, asked: bool = True
) -> Study:
    """A study in which each cart has played in turn; two are out, and one of these is late.

    If nothing was asked, somebody's gain was played, with dither: that is quicker.
    """
    rng = np.random.default_rng(seed)
    study = Study.open(url, FleetDescription.parse(FLEET))
    fleet = carts(rng, machines)
    labels = list(fleet)
    for k in range(episodes):
        label, worker = labels[k % machines], f"bench-{k % 3 + 1}"
        truth = dict(fleet[label])
        if label == MISLABELLED:
            truth["mass"] *= 0.5
        if asked:
            plan = study.ask(fleet[label], label, key=f"ask {k}", worker=worker)
            study.tell(plan, played(plan.input, cart(truth), rng), worker=worker)
        else:
            told = played(lambda _, x: GAIN @ x + 2 * rng.standard_normal(1), cart(truth), rng)
            study.tell(fleet[label], told, label, worker=worker)
    if machines > 3:
        study.ask(fleet[labels[1]], labels[1], key="late", lease=1e-3, worker="bench-2")
        study.ask(fleet[labels[2]], labels[2], key="out", worker="bench-3")
    return study
