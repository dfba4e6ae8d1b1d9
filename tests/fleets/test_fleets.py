"""What every simulated fleet must keep to, and the paper's experiment on one of them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from contextual_lqr import (
    ConfidenceSet,
    Decoder,
    InputError,
    LinearPolicy,
    LinearSystem,
    certify_many,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.fleets import (
    FLEETS,
    Fleet,
    chain,
    misfit,
    path_following,
    quadrotor,
    true_decoder,
    true_system,
)
from contextual_lqr.testing import check_fleet

STATE = [1.0, 0.3, -0.2, 0.1, 0.4]
PATHS: dict[str, dict[str, Any]] = {
    "circle": {"path": "circle"},
    "circle, literal": {"path": "circle", "closed_curves": "literal", "decay": 1.0},
    "parabola": {"path": "parabola", "start": "origin"},
    "lemniscate": {"path": "lemniscate", "start": STATE},
    "lemniscate, literal": {"path": "lemniscate", "closed_curves": "literal"},
    "own path": {"path": np.linspace((0, 1), (3, -2), 7), "horizon": 7, "start": "origin"},
}


# A fleet joins all the tests that every fleet must pass by one line here, or by being in FLEETS.
EVERY: dict[str, Callable[[], Fleet]] = {
    **{name: lambda o=options: path_following(**o) for name, options in PATHS.items()},
    **FLEETS,
    "chain of one": lambda: chain(1),
    "quadrotor, always loaded": lambda: quadrotor(payload=(0.1, 0.2), horizon=5),
}
PHYSICAL = [name for name in FLEETS if name != "path-following"]


@pytest.fixture(params=EVERY)
def fleet(request: pytest.FixtureRequest) -> Fleet:
    return EVERY[request.param]()


@pytest.fixture(params=PATHS)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"horizon": 20, "start": "path", "closed_curves": "turn"} | PATHS[request.param]


@pytest.fixture
def path_fleet(options: dict[str, Any]) -> Fleet:
    return path_following(**options)


def some_policy(fleet: Fleet, seed: int = 0) -> LinearPolicy:
    steps, m = fleet.cost.R.shape[:2]
    return LinearPolicy(
        np.random.default_rng(seed).normal(0, 0.3, (steps, m, fleet.cost.state_size))
    )


# -- every fleet -------------------------------------------------------------------------------


def test_it_passes_the_suite_for_fleets(fleet: Fleet) -> None:
    check_fleet(fleet)


def test_a_fleet_says_what_its_numbers_are(fleet: Fleet) -> None:
    assert len(fleet.states) == len(fleet.start)
    assert len(fleet.inputs) == fleet.cost.input_size
    assert set(fleet.units) == set(fleet.context_map.names or ())
    assert np.array_equal(fleet.noise_level**2, np.diag(fleet.noise))
    limit = np.inf if fleet.state_limit is None else np.array(fleet.state_limit)
    assert (np.abs(fleet.start) < limit).all()


# What the best Θ may miss, relative to [A - I, B]; docs/fleets.md says so.
MISSES = {
    "path-following": 1e-15,
    "quadrotor": 1e-12,
    "cart-pole": 2e-3,
    "heating": 5e-3,
    "vehicle": 1e-2,
    "chain": 0.08,
}


@pytest.mark.parametrize("name", FLEETS)
def test_the_features_are_as_good_as_they_are_said_to_be(name: str) -> None:
    fleet, rng = FLEETS[name](), np.random.default_rng(7)
    contexts = [fleet.sample_context(rng) for _ in range(40)]
    off = misfit(fleet, contexts).max()
    assert off <= MISSES[name]
    exact = name in ("path-following", "quadrotor")
    assert exact or off > MISSES[name] / 20  # nobody claims less than there is
    theta, d = true_decoder(fleet), len(fleet.start)
    for context in contexts[:10]:
        M, truth = theta @ fleet.context_map.matrix(context), true_system(fleet, context)
        policy = solve(LinearSystem(M[:, :d], M[:, d:]), fleet.cost).policy
        paid = policy_cost(policy, truth, fleet.cost, fleet.start)
        assert paid <= (1 + 2e-4) * optimal_cost(truth, fleet.cost, fleet.start)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "adapt", "episodes"),
    [("cart-pole", "step", 8), ("quadrotor", "episode", 15)],
)
def test_an_agent_learns_the_fleet(name: str, adapt: Any, episodes: int) -> None:
    """The claim of docs/measured/accuracy.md, small: some episodes, then machines never tried."""
    fleet, rng = FLEETS[name](), np.random.default_rng(8)
    agent, above = fleet.agent(), []
    for _ in range(episodes):
        fleet.teach(agent, fleet.sample_context(rng), rng, adapt)
    for _ in range(15):
        context = fleet.sample_context(rng)
        truth, policy = true_system(fleet, context), agent.controller(context)
        best = optimal_cost(truth, fleet.cost, fleet.start)
        above.append(policy_cost(policy, truth, fleet.cost, fleet.start) / best - 1)
        states = fleet.play(policy, context, rng).states
        assert (np.abs(states) <= np.array(fleet.state_limit)).all()
    assert np.median(above) < 0.02


@pytest.mark.parametrize(("name", "later"), [("path-following", 0.9), ("cart-pole", 0.0)])
def test_certificates_of_machines_never_tried_agree_with_the_truth(name: str, later: float) -> None:
    """The claim of docs/measured/certificates.md, small: early, when most are bad, and later."""
    fleet, rng = FLEETS[name](), np.random.default_rng(14)
    agent, trusted = fleet.agent(), []
    for episodes in (2, 8):
        for _ in range(episodes):
            fleet.teach(agent, fleet.sample_context(rng), rng)
        contexts = [fleet.sample_context(rng) for _ in range(25)]
        said = certify_many(agent.decoder, contexts, fleet.cost, fleet.start, draws=100)
        excess = []
        for context, one in zip(contexts, said, strict=True):
            truth = true_system(fleet, context)
            paid = policy_cost(one.policy, truth, fleet.cost, fleet.start)
            low, high = one.interval
            assert low <= paid <= high
            excess.append(paid / optimal_cost(truth, fleet.cost, fleet.start) - 1)
        good = np.array(excess) <= 0.05
        trust = np.array([one.verdict == "trust" for one in said])
        assert good[trust].all()
        assert episodes > 2 or not good.all()  # so that something had to be told apart
        trusted.append(trust.mean())
    assert trusted[0] < 0.4
    assert trusted[1] >= later


# -- physics -----------------------------------------------------------------------------------
# The equations of motion, not linearised, and written in another way than in the fleets.


def cart_and_pole(x: Any, u: Any, c: dict[str, float]) -> Any:
    """Lagrange: the mass matrix times the accelerations is what pushes."""
    M, m, half, (angle, rate) = c["cart_mass"], c["pole_mass"], c["length"] / 2, x[2:]
    mass = [[M + m, m * half * math.cos(angle)], [m * half * math.cos(angle), 4 / 3 * m * half**2]]
    push = [10 * u[0] + m * half * rate**2 * math.sin(angle), m * 9.81 * half * math.sin(angle)]
    slide, turn = np.linalg.solve(mass, push)
    return [x[1], slide, rate, turn]


def rotors(x: Any, u: Any, c: dict[str, float]) -> Any:
    """Two bodies on a rod, thrust along the body's axis."""
    low = c["payload"]
    both, thrust = 0.5 + low, 0.5 * 9.81 + u[0]
    above = low / both * c["arm"]  # of the vehicle over the centre of mass
    inertia = 0.005 + 0.5 * above**2 + low * (c["arm"] - above) ** 2
    lean = thrust / both * math.sin(x[3])
    return [0, *x[4:], lean, thrust / both * math.cos(x[3]) - 9.81, 0.1 * u[1] / inertia]


def springs(x: Any, u: Any, c: dict[str, float]) -> Any:
    """Each mass feels its two joints; the walls stand still."""
    n = len(x) // 2
    places, speeds = [0, *x[:n], 0], [0, *x[n:], 0]
    pull = [0.0] * n
    for i in range(n):
        for j in (i, i + 2):
            pull[i] += c["stiffness"] * (places[j] - places[i + 1])
            pull[i] += c["damping"] * (speeds[j] - speeds[i + 1])
    pull[0] += u[0]
    pull[-1] += u[1]
    return [*x[n:], *(force / c["mass"] for force in pull)]


def single_track(x: Any, u: Any, c: dict[str, float]) -> Any:
    """Slip angles, forces of the axles, and Newton and Euler in the car's frame."""
    m, v, yaw = c["mass"], c["speed"], x[3]
    side = (x[1] - v * math.sin(x[2])) / math.cos(x[2])  # lateral speed in the car's frame
    front = 160_000 * (0.1 * u[0] - math.atan2(side + 1.1 * yaw, v))
    rear = 160_000 * -math.atan2(side - 1.58 * yaw, v)
    slide, turn = (front + rear) / m - v * yaw, (1.1 * front - 1.58 * rear) / (m * 2873 / 1573)
    return [x[1], slide + v * yaw, yaw, turn]


def room(x: Any, u: Any, c: dict[str, float]) -> Any:
    """Heat flows, in kW, from warm to cold."""
    inwards, outwards = 0.4 * (x[1] - x[2]), c["loss"] * (x[2] + 20)
    return [0, (u[0] - inwards) / 0.5, (inwards - outwards) / c["capacity"]]


EQUATIONS: dict[str, tuple[Any, float]] = {
    "cart-pole": (cart_and_pole, 0.04),
    "quadrotor": (rotors, 0.05),
    "chain": (springs, 0.2),
    "vehicle": (single_track, 0.03),
    "heating": (room, 0.25),
}


@pytest.mark.parametrize("name", PHYSICAL)
def test_a_step_is_that_of_the_equations_of_motion(name: str) -> None:
    fleet, (equation, dt) = FLEETS[name](), EQUATIONS[name]
    rng = np.random.default_rng(9)
    for _ in range(6):
        context = fleet.sample_context(rng)
        x = 1e-6 * rng.standard_normal(len(fleet.start))
        u = 1e-6 * rng.standard_normal(fleet.cost.input_size)
        if fleet.noise[0, 0] == 0:
            x[0] = 1.0  # the constant coordinate
        if name == "quadrotor":
            u[0] += 9.81 * context["payload"]  # hover
        exact = solve_ivp(
            lambda t, y, u=u, c=context: equation(y, u, c), (0, dt), x, rtol=1e-12, atol=1e-18
        ).y[:, -1]
        system = true_system(fleet, context)
        step = system.A @ x + system.B @ u
        assert np.abs(step - exact).max() <= 1e-4 * np.abs(exact - x).max()


@pytest.mark.parametrize(
    ("make", "bad", "match"),
    [
        ("cart-pole", {"length": (1.0, 0.5)}, "length must be a range 0 < low < high"),
        ("cart-pole", {"cart_mass": (0.0, 1.0)}, "cart_mass must be a range 0 < low"),
        ("quadrotor", {"payload": (-0.1, 1.0)}, "payload must be a range 0 <= low < high"),
        ("quadrotor", {"arm": (0.1, math.inf)}, "arm must be a range"),
        ("chain", {"n": 0}, "n must be a whole number of at least 1"),
        ("vehicle", {"speed": (0.0, 30.0)}, "speed must be a range 0 < low"),
        ("vehicle", {"dt": 0.0}, "dt must be a positive number"),
        ("chain", {"dt": math.nan}, "dt must be a positive number"),
        ("heating", {"noise": -1.0}, "noise must be a standard deviation"),
        ("heating", {"loss": (math.nan, 1.0)}, "loss must be a range"),
        ("heating", {"horizon": 1}, "horizon must be at least 2"),
    ],
)
def test_bad_arguments_of_physical_fleets_are_refused(
    make: str, bad: dict[str, Any], match: str
) -> None:
    with pytest.raises(InputError, match=match):
        FLEETS[make](**bad)


# -- path following ----------------------------------------------------------------------------


def targets_of(options: dict[str, Any]) -> np.ndarray:
    """The targets as the paper says, one by one: t is h/H, and so is the angle, or 2πh/H."""
    if not isinstance(options["path"], str):
        return np.asarray(options["path"])
    H, found = options["horizon"], []
    for h in range(1, H + 1):
        t = h / H
        s = 2 * math.pi * t if options["closed_curves"] == "turn" else t
        found.append(
            {
                "circle": (math.cos(s), math.sin(s)),
                "parabola": (t, t * t),
                "lemniscate": (
                    math.cos(s) / (1 + math.sin(s) ** 2),
                    math.sin(s) * math.cos(s) / (1 + math.sin(s) ** 2),
                ),
            }[options["path"]]
        )
    return np.array(found)


def test_the_cost_is_the_squared_distance_to_the_targets(
    path_fleet: Fleet, options: dict[str, Any]
) -> None:
    targets = targets_of(options)
    assert path_fleet.cost.horizon == options["horizon"] == len(targets)
    rng = np.random.default_rng(5)
    for Q, target in zip(path_fleet.cost.Q, targets, strict=True):
        x = np.array([1, *rng.normal(0, 3, 4)])
        assert x @ Q @ x == pytest.approx(((x[1:3] - target) ** 2).sum(), rel=1e-12)
    assert (np.eye(2) == path_fleet.cost.R).all()
    start = options["start"]
    if isinstance(start, str):
        start = [1, *(targets[0] if start == "path" else (0, 0)), 0, 0]
    assert path_fleet.start == pytest.approx(np.array(start), abs=1e-15)


def test_the_dynamics_are_those_of_a_pushed_object(
    path_fleet: Fleet, options: dict[str, Any]
) -> None:
    k = options.get("decay", 0.7)
    system = true_system(path_fleet, {"mass": 4.0})
    x, u = np.array([1, 0.3, -2, 0.5, 7]), np.array([3.0, -1.0])
    after = [1, 0.8, 5, 0.5 * k + 0.75, 7 * k - 0.25]
    assert system.A @ x + system.B @ u == pytest.approx(np.array(after), rel=1e-14)
    assert np.array_equal(path_fleet.noise, np.diag([0, 1e-4, 1e-4, 1e-4, 1e-4]))


def test_the_constant_coordinate_stays_exactly_one(path_fleet: Fleet) -> None:
    rng = np.random.default_rng(6)
    wild = LinearPolicy(np.full((path_fleet.cost.horizon - 1, 2, 5), 3.0))
    for policy in (some_policy(path_fleet), wild):
        for _ in range(20):
            played = path_fleet.play(policy, path_fleet.sample_context(rng), rng)
            assert (played.states[:, 0] == 1).all()
    assert np.abs(played.states).max() > 1e3


@pytest.mark.parametrize(("decay", "regret"), [(1.0, 36.6), (0.7, 32.9)])
def test_the_circle_costs_what_the_notes_say(decay: float, regret: float) -> None:
    """Doing nothing costs 40 (the chords of one turn) and the noise; the optimum about 5."""
    fleet = path_following("circle", decay)
    nothing = LinearPolicy(np.zeros((19, 2, 5)))
    drift, spread = 0.0, np.zeros((2, 2))  # of position and velocity, along one axis
    for _ in range(20):
        drift += 2 * spread[0, 0]
        step = np.array([[1, 1], [0, decay]])
        spread = step @ spread @ step.T + 1e-4 * np.eye(2)
    masses = np.random.default_rng(7).uniform(0.1, 10, 400)
    systems = [true_system(fleet, {"mass": m}) for m in masses]
    idle = [policy_cost(nothing, system, fleet.cost, fleet.start) for system in systems]
    assert idle == pytest.approx([40 + drift] * 400, rel=1e-12)
    best = np.array([optimal_cost(system, fleet.cost, fleet.start) for system in systems])
    assert (best > 0).all()
    assert (np.diff(best[np.argsort(masses)]) > 0).all()  # what is heavy costs more
    assert 4 < best.mean() < 8
    assert np.mean(idle - best) == pytest.approx(regret, abs=1.0)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"path": "square"}, "path must be one of circle, parabola, lemniscate"),
    ({"path": np.ones((19, 2))}, r"path must have shape \(20, 2\)"),
    ({"path": np.full((20, 2), math.nan)}, "path must be finite"),
    ({"decay": 0.0}, "decay must be above 0"),
    ({"decay": 1.1}, "decay must be above 0 and at most 1"),
    ({"decay": math.nan}, "decay must be"),
    ({"horizon": 1}, "horizon must be at least 2"),
    ({"noise": -1e-9}, "noise must be a variance"),
    ({"noise": math.nan}, "noise must be"),
    ({"noise": math.inf}, "noise must be"),
    ({"masses": (2.0, 1.0)}, "mass"),
    ({"masses": (0.0, 1.0)}, "mass"),
    ({"masses": (-1.0, 1.0)}, "mass"),
    ({"masses": (1.0, math.inf)}, "mass"),
    ({"start": "here"}, 'start must be "path", "origin" or a state'),
    ({"start": [0.0] * 5}, "start must be 5 numbers, the first 1"),
    ({"start": [1.0] * 4}, "start must be 5 numbers"),
    ({"start": [1.0, 0, 0, 0, math.inf]}, "start must be finite"),
]


@pytest.mark.parametrize(("bad", "match"), REFUSED, ids=[str(bad)[:40] for bad, _ in REFUSED])
def test_bad_arguments_are_refused(bad: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        path_following(**bad)


def test_the_callers_arrays_stay_the_callers() -> None:
    start, path = np.array(STATE), np.ones((20, 2))
    fleet = path_following(path, start=start)
    start[1], path[0, 0] = 99, 99
    assert fleet.start[1] == STATE[1]
    assert fleet.cost.Q[0, 0, 1] == -1


# -- the paper's experiment --------------------------------------------------------------------


@pytest.mark.slow
def test_the_papers_circle_experiment_survives_its_explosions() -> None:
    """Best of 100 uniform samples, β = 1e4, λ = 1: states reach 1e10 to 1e24 on the way."""
    fleet = path_following("circle", 1.0)
    truth = true_decoder(fleet)
    size, off, ignored, off_normal = np.zeros((4, 200))
    for seed in range(200):
        rng = np.random.default_rng(seed)
        fleet.context_map.matrix({"mass": 1.0})
        decoder = Decoder(fleet.context_map, 1.0, noise_level=0.01)
        V, W = np.eye(7), np.zeros((7, 5))
        for _ in range(5):
            context = fleet.sample_context(rng)
            G = fleet.context_map.matrix(context)
            M = ConfidenceSet(decoder, 1e4).sample(100, rng) @ G
            costs = optimal_cost(
                LinearSystem(M[..., :5], M[..., 5:], fleet.noise), fleet.cost, fleet.start
            )
            best = M[int(np.argmin(costs))]
            policy = solve(LinearSystem(best[:, :5], best[:, 5:]), fleet.cost).policy
            played = fleet.play(policy, context, rng)
            size[seed] = max(size[seed], np.abs(played.states).max())
            decoder.update(context, played)
            Z = np.concatenate((played.states[:-1], played.inputs), 1) @ G.T
            V, W = V + Z.T @ Z, W + Z.T @ played.states[1:]
        off[seed] = np.linalg.norm(decoder.estimate - truth)
        off_normal[seed] = np.linalg.norm(np.linalg.solve(V, W).T - truth)
        ignored[seed] = decoder.ignored_rows
    within = size < 1e12
    assert off[within].max() < 0.05
    assert (size[within] > 1e10).any()
    assert ignored.any()
    assert not ignored[within].any()
    assert off_normal[within].max() > 0.05  # so the requirement is one that normal equations miss
