"""What every simulated fleet must keep to, and the paper's experiment on one of them."""

import math
from typing import Any

import numpy as np
import pytest

from contextual_lqr import (
    ConfidenceSet,
    Decoder,
    InputError,
    LinearPolicy,
    LinearSystem,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.fleets import Fleet, path_following, true_decoder, true_system

STATE = [1.0, 0.3, -0.2, 0.1, 0.4]
FLEETS: dict[str, dict[str, Any]] = {
    "circle": {"path": "circle"},
    "circle, literal": {"path": "circle", "closed_curves": "literal", "decay": 1.0},
    "parabola": {"path": "parabola", "start": "origin"},
    "lemniscate": {"path": "lemniscate", "start": STATE},
    "lemniscate, literal": {"path": "lemniscate", "closed_curves": "literal"},
    "own path": {"path": np.linspace((0, 1), (3, -2), 7), "horizon": 7, "start": "origin"},
}


@pytest.fixture(params=FLEETS)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"horizon": 20, "start": "path", "closed_curves": "turn"} | FLEETS[request.param]


@pytest.fixture
def fleet(options: dict[str, Any]) -> Fleet:
    return path_following(**options)


def some_policy(fleet: Fleet, seed: int = 0) -> LinearPolicy:
    steps, m = fleet.cost.R.shape[:2]
    return LinearPolicy(
        np.random.default_rng(seed).normal(0, 0.3, (steps, m, fleet.cost.state_size))
    )


# -- every fleet -------------------------------------------------------------------------------


def test_an_episode_obeys_the_truth_but_for_noise(fleet: Fleet) -> None:
    rng, shocks = np.random.default_rng(0), []
    for _ in range(200):
        context = fleet.sample_context(rng)
        played = fleet.play(some_policy(fleet), context, rng)
        y = np.concatenate((played.states[:-1], played.inputs), 1)
        M = true_decoder(fleet) @ fleet.context_map.matrix(context)
        shocks.append(played.states[1:] - y @ M.T)
        assert np.array_equal(played.states[0], fleet.start)
        assert len(played.states) == fleet.cost.horizon
        system = true_system(fleet, context)
        assert np.array_equal(np.hstack((system.A, system.B)), M)
        assert np.array_equal(system.noise, fleet.noise)
    w = np.concatenate(shocks)
    exact = np.diag(fleet.noise) == 0
    assert np.abs(w[:, exact]).max(initial=0) < 1e-12
    scales = np.sqrt(np.diag(fleet.noise)[~exact])
    white = w[:, ~exact] / scales
    n = len(white)
    assert (np.abs(white.mean(0)) < 4 / math.sqrt(n)).all()
    off = np.abs(white.T @ white / n - np.eye(white.shape[1]))
    assert (off < 5 * np.sqrt(2 / n)).all()


def test_same_seed_same_episode(fleet: Fleet) -> None:
    def played(seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        return fleet.play(some_policy(fleet), fleet.sample_context(rng), rng).states.tobytes()

    assert played(1) == played(1)
    assert played(1) != played(2)


def test_every_feature_of_the_context_changes_the_dynamics(fleet: Fleet) -> None:
    rng = np.random.default_rng(3)
    names = fleet.context_map.names
    assert names
    for name in names:
        one, other = fleet.sample_context(rng), fleet.sample_context(rng)
        changed = true_system(fleet, one | {name: other[name]})
        before = true_system(fleet, one)
        assert max(np.abs(changed.A - before.A).max(), np.abs(changed.B - before.B).max()) > 1e-6
    low_high = np.array([fleet.context_map.bounds[name] for name in names])
    sampled = np.array([[fleet.sample_context(rng)[n] for n in names] for _ in range(500)])
    inside = (sampled - low_high[:, 0]) / (low_high[:, 1] - low_high[:, 0])
    assert ((inside >= 0) & (inside <= 1)).all()
    assert (inside.min(0) < 0.02).all()
    assert (inside.max(0) > 0.98).all()


def test_a_state_bound_ends_an_episode(fleet: Fleet) -> None:
    wild = LinearPolicy(np.full((fleet.cost.horizon - 1, 2, 5), 3.0))
    played = fleet.play(wild, {"mass": 0.1}, np.random.default_rng(4), state_bound=50.0)
    assert len(played.states) < fleet.cost.horizon
    assert np.abs(played.states[-1]).max() > 50 >= np.abs(played.states[:-1]).max()


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
    fleet: Fleet, options: dict[str, Any]
) -> None:
    targets = targets_of(options)
    assert fleet.cost.horizon == options["horizon"] == len(targets)
    rng = np.random.default_rng(5)
    for Q, target in zip(fleet.cost.Q, targets, strict=True):
        x = np.array([1, *rng.normal(0, 3, 4)])
        assert x @ Q @ x == pytest.approx(((x[1:3] - target) ** 2).sum(), rel=1e-12)
    assert (np.eye(2) == fleet.cost.R).all()
    start = options["start"]
    if isinstance(start, str):
        start = [1, *(targets[0] if start == "path" else (0, 0)), 0, 0]
    assert fleet.start == pytest.approx(np.array(start), abs=1e-15)


def test_the_dynamics_are_those_of_a_pushed_object(fleet: Fleet, options: dict[str, Any]) -> None:
    k = options.get("decay", 0.7)
    system = true_system(fleet, {"mass": 4.0})
    x, u = np.array([1, 0.3, -2, 0.5, 7]), np.array([3.0, -1.0])
    after = [1, 0.8, 5, 0.5 * k + 0.75, 7 * k - 0.25]
    assert system.A @ x + system.B @ u == pytest.approx(np.array(after), rel=1e-14)
    assert np.array_equal(fleet.noise, np.diag([0, 1e-4, 1e-4, 1e-4, 1e-4]))


def test_the_constant_coordinate_stays_exactly_one(fleet: Fleet) -> None:
    rng = np.random.default_rng(6)
    wild = LinearPolicy(np.full((fleet.cost.horizon - 1, 2, 5), 3.0))
    for policy in (some_policy(fleet), wild):
        for _ in range(20):
            played = fleet.play(policy, fleet.sample_context(rng), rng)
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
    assert (np.diff(best[np.argsort(masses)]) > 0).all()  # what is heavy is dear
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
