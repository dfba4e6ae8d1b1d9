"""The control problem, against solutions found in other ways; its failures; what is refused."""

from dataclasses import FrozenInstanceError
from types import SimpleNamespace as Some
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray as Array
from numpy.random import default_rng
from scipy.linalg import solve_discrete_are

from contextual_lqr.errors import InputError, UnsolvableError
from contextual_lqr.lqr import (
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    Status,
    Trajectory,
    cost_gradient,
    optimal_cost,
    policy_cost,
    simulate,
    solve,
)
from strategies import (
    cross_term,
    dense_solution,
    lifted_policy_cost,
    random_cost,
    random_policy,
    random_system,
    recipes,
    unsolvable_at,
)

single = recipes(batches=st.just(()))
I2 = np.eye(2)


def t(M: Array) -> Array:
    return M.swapaxes(-1, -2)


def assert_near(found: Any, expected: Any, tolerance: float) -> None:
    """Relative to the largest entry."""
    largest = np.abs(expected).max(initial=0.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * largest)


def same_bits(a: Any, b: Any) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def everything(system: LinearSystem, cost: QuadraticCost, start: Array) -> dict[str, Any]:
    solution, gradient = solve(system, cost), cost_gradient(system, cost, start)
    return {
        **{"gains": solution.policy.gains, "P": solution.value_matrices},
        **{"c": solution.value_constants, "cost": solution.cost(start)},
        **{"optimal cost": optimal_cost(system, cost, start), **gradient._asdict()},
        **{"status": solution.status, "failed_step": solution.failed_step},
    }


# ---- right ---------------------------------------------------------------------------------------


@given(single)
def test_solve_is_the_dense_solution(recipe):
    p = recipe.make()
    quiet = LinearSystem(p.system.A, p.system.B)
    starts = p.rng.standard_normal((4, p.system.state_size))
    solution = solve(quiet, p.cost, check=True)
    costs, inputs = dense_solution(quiet, p.cost, starts)
    # A nearly unobserved unstable mode reaches 2^40 at no cost, and takes digits from the dense
    # solution (refining it shows that they are its own): hence not 1e-12.
    assert_near(solution.cost(starts), costs, 1e-8)
    assert_near(starts @ solution.policy.gains[0].T, inputs, 1e-8)


@given(recipes(max_horizon=7, batches=st.just(())))
def test_value_constants_are_the_dense_costs_of_the_noise(recipe):
    p = recipe.make()
    found = solve(p.system, p.cost).value_constants
    # Noise that enters at step k+1 is a start of its own there: c_k = Σ over later noises.
    spread, directions = np.linalg.eigh(p.system.noise)
    columns = (directions * np.sqrt(np.maximum(spread, 0))).T
    expected = np.zeros(p.cost.horizon)
    for h in reversed(range(p.cost.horizon - 1)):
        costs, _ = dense_solution(p.system, p.cost, columns, first=h + 1)
        expected[h] = expected[h + 1] + costs.sum()
    assert_near(found, expected, 1e-9)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("radius", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (8, 4), (20, 3)], ids=str)
def test_long_horizon_is_the_algebraic_riccati_equation(size, radius, cross):
    (d, m), rng, H = size, default_rng(4), 400
    system = random_system(rng, d, m, radius)
    stage = random_cost(rng, d, m, 2)
    Q, R, N = stage.Q[0] + np.eye(d), stage.R[0], stage.N[0] if cross else np.zeros((d, m))
    forever = [np.broadcast_to(M, (n, *M.shape)) for M, n in ((Q, H), (R, H - 1), (N, H - 1))]
    solution = solve(system, QuadraticCost(*forever[:2], forever[2] if cross else None))
    P = solve_discrete_are(system.A, system.B, Q, R, s=N)
    S = R + system.B.T @ P @ system.B
    assert_near(solution.value_matrices[0], P, 1e-8)
    assert_near(
        solution.policy.gains[0], -np.linalg.solve(S, system.B.T @ P @ system.A + N.T), 1e-8
    )
    per_step = solution.value_constants[0] - solution.value_constants[1]
    assert per_step == pytest.approx(np.trace(P @ system.noise), rel=1e-8)


@given(recipes())
def test_bellman_equation_holds_at_every_step(recipe):
    p = recipe.make()
    A, B, W, Q, R = p.system.A, p.system.B, p.system.noise, p.cost.Q, p.cost.R
    solution = solve(p.system, p.cost, check=True)
    P, c, K = solution.value_matrices, solution.value_constants, solution.policy.gains
    assert P.shape == (*p.batch, *Q.shape[-3:])
    np.testing.assert_array_equal(P, t(P))
    eigenvalues = np.linalg.eigvalsh(P)
    assert (eigenvalues[..., 0] >= -1e-12 * eigenvalues[..., -1]).all()
    np.testing.assert_array_equal(P[..., -1, :, :], np.broadcast_to(Q[..., -1, :, :], A.shape))
    np.testing.assert_array_equal(c[..., -1], 0)
    for h in range(p.cost.horizon - 1):
        after = P[..., h + 1, :, :]
        S = R[..., h, :, :] + t(B) @ after @ B
        G = t(B) @ after @ A + (0 if p.cost.N is None else t(p.cost.N[..., h, :, :]))
        without_input = Q[..., h, :, :] + t(A) @ after @ A
        scale = np.abs(without_input).max((-2, -1)) + 1e-300
        residual = without_input - t(G) @ np.linalg.solve(S, G) - P[..., h, :, :]
        assert (np.abs(residual).max((-2, -1)) <= 1e-11 * scale).all()
        slope = S @ K[..., h, :, :] + G  # of the cost-to-go by the input, at the optimum
        slope_scale = np.abs(S).max((-2, -1)) * np.abs(K[..., h, :, :]).max((-2, -1)) + 1e-300
        assert (np.abs(slope).max((-2, -1)) <= 1e-11 * slope_scale).all()
        added = (after * W).sum((-2, -1))
        np.testing.assert_allclose(c[..., h] - c[..., h + 1], added, rtol=0, atol=1e-12 * c.max())


@given(recipes())
def test_no_policy_costs_less_than_the_optimal_one(recipe):
    p = recipe.make()
    solution = solve(p.system, p.cost)
    best = solution.cost(p.start)
    np.testing.assert_allclose(optimal_cost(p.system, p.cost, p.start), best, rtol=1e-12)
    gains = solution.policy.gains
    np.testing.assert_allclose(
        policy_cost(solution.policy, p.system, p.cost, p.start), best, rtol=1e-9
    )
    for size in (1e-6, 1e-3, 1.0):
        other = LinearPolicy(gains + size * p.rng.standard_normal(gains.shape))
        assert (policy_cost(other, p.system, p.cost, p.start) >= best * (1 - 1e-12)).all()


@given(single)
def test_policy_cost_is_what_the_moments_say(recipe):
    p = recipe.make()
    d, m, H = p.system.state_size, p.system.input_size, p.cost.horizon
    policy = random_policy(p.rng, d, m, H)
    expected = lifted_policy_cost(policy, p.system, p.cost, p.start)
    assert policy_cost(policy, p.system, p.cost, p.start) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_policy_cost_is_the_mean_of_many_rollouts(seed):
    rng, d, m, H, n = default_rng(seed), 3, 2, 6, 100_000
    system = random_system(rng, d, m, 1.1, "some coordinates" if seed == 1 else "full")
    cost, policy = random_cost(rng, d, m, H, cross=seed != 2), random_policy(rng, d, m, H)
    start = rng.standard_normal(d)
    played = simulate(policy, system, np.broadcast_to(start, (n, d)), rng)
    x, u = played.states, played.inputs
    costs = np.einsum("nhi,hij,nhj->n", x, cost.Q, x, optimize=True)
    costs += np.einsum("nhi,hij,nhj->n", u, cost.R, u, optimize=True)
    costs += 2 * np.einsum("nhi,hij,nhj->n", x[:, :-1], cross_term(system, cost), u, optimize=True)
    error = costs.std(ddof=1) / np.sqrt(n)
    assert abs(costs.mean() - policy_cost(policy, system, cost, start)) <= 4 * error
    assert error < 0.02 * costs.mean()


def test_policies_systems_and_starts_broadcast():
    rng, d, m, H = default_rng(2), 4, 2, 9
    policies, systems = random_policy(rng, d, m, H, (3, 1)), random_system(rng, d, m, batch=(2,))
    cost, starts = random_cost(rng, d, m, H), rng.standard_normal((5, 1, 1, d))
    found = policy_cost(policies, systems, cost, starts)
    assert found.shape == (5, 3, 2)
    for s, i, j in np.ndindex(5, 3, 2):
        policy = LinearPolicy(policies.gains[i, 0])
        system = LinearSystem(systems.A[j], systems.B[j], systems.noise[j])
        assert found[s, i, j] == policy_cost(policy, system, cost, starts[s, 0, 0])
    solution, together = solve(systems, cost), optimal_cost(systems, cost, starts)
    np.testing.assert_allclose(solution.cost(starts), together, rtol=1e-12)
    assert together.shape == (5, 1, 2)
    assert isinstance(optimal_cost(system, cost, starts[0, 0, 0]), float)


@given(recipes(batches=st.tuples(st.integers(1, 3), st.integers(1, 3))))
@settings(max_examples=30)
def test_a_batch_is_its_members(recipe):
    p = recipe.make()
    together = everything(p.system, p.cost, p.start)
    for i in np.ndindex(p.batch):
        for name, one in everything(*p.member(i)).items():
            assert same_bits(together[name][i], one), name


@given(single)
def test_gradient_is_the_finite_difference(recipe):
    p = recipe.make()
    d, m = p.system.state_size, p.system.input_size
    AB = np.concatenate([p.system.A, p.system.B], axis=1)
    directions = np.eye(d * (d + m)).reshape(-1, d, d + m)

    def change(step: float) -> Array:
        both = np.array([step, -step])[:, None, None, None] * directions + AB
        systems = LinearSystem(both[..., :d], both[..., d:], p.system.noise)
        up, down = optimal_cost(systems, p.cost, p.start)
        return (up - down) / (2 * step)

    step = 4e-5
    expected = (4 * change(step) - change(2 * step)) / 3  # Richardson: the error is step⁴
    found = cost_gradient(p.system, p.cost, p.start)
    off = np.abs(np.concatenate([found.dA, found.dB], axis=1).ravel() - expected).max()
    rounding = 1e-10 * optimal_cost(p.system, p.cost, p.start)  # of the differences: ε J / step
    assert off <= 1e-6 * np.abs(expected).max() + rounding


# ---- scales --------------------------------------------------------------------------------------


@given(recipes(max_radius=1.5), st.sampled_from([1e-8, 1e12]))
@settings(max_examples=30)
def test_a_cost_in_other_units_has_the_same_policy(recipe, unit):
    p = recipe.make()
    cost = p.cost
    scaled = QuadraticCost(unit * cost.Q, unit * cost.R, None if cost.N is None else unit * cost.N)
    one, other = solve(p.system, cost, check=True), solve(p.system, scaled, check=True)
    assert_near(other.policy.gains, one.policy.gains, 1e-9)
    np.testing.assert_allclose(other.cost(p.start), unit * one.cost(p.start), rtol=1e-9)


@given(recipes())
@settings(max_examples=30)
def test_states_in_other_units_have_the_same_cost(recipe):
    p = recipe.make()
    system, cost = p.system, p.cost
    units = 10.0 ** p.rng.choice([-6, 0, 6], system.state_size)
    rows, columns = units[:, None], units[None, :]
    scaled = LinearSystem(rows * system.A / columns, rows * system.B, rows * system.noise * columns)
    N = None if cost.N is None else cost.N / rows
    scaled_cost = QuadraticCost(cost.Q / rows / columns, cost.R, N)
    expected = optimal_cost(system, cost, p.start)
    np.testing.assert_allclose(
        optimal_cost(scaled, scaled_cost, units * p.start), expected, rtol=1e-9
    )
    gains = solve(scaled, scaled_cost).policy.gains * units
    assert_near(gains, solve(system, cost).policy.gains, 1e-9)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_one_state_and_no_input(batch):
    rng = default_rng(0)
    system, cost = random_system(rng, 3, 2, batch=batch), random_cost(rng, 3, 2, 1)
    start, policy = rng.standard_normal(3), LinearPolicy(np.zeros((0, 2, 3)))
    solution = solve(system, cost, check=True)
    expected = np.full(batch, start @ cost.Q[0] @ start)
    assert solution.policy.gains.shape == (*batch, 0, 2, 3)
    np.testing.assert_allclose(solution.cost(start), expected, rtol=1e-14)
    np.testing.assert_allclose(policy_cost(policy, system, cost, start), expected, rtol=1e-14)
    gradient = cost_gradient(system, cost, start)
    assert gradient.dA.shape == (*batch, 3, 3)
    assert gradient.dB.shape == (*batch, 3, 2)
    assert not gradient.dA.any()
    assert not gradient.dB.any()
    assert simulate(policy, system, start, rng).states.shape == (*batch, 1, 3)


# ---- failures ------------------------------------------------------------------------------------


KINDS = ("overflow", "negative R", "singular")


@pytest.mark.parametrize("kind", KINDS)
def test_an_unsolvable_member_is_marked_and_harms_no_other(kind):
    batch, bad = (2, 3), (1, 2)
    p, status, step = unsolvable_at(bad, kind, batch)
    together = everything(p.system, p.cost, np.broadcast_to(p.start, (*batch, 3)))
    assert (together["status"][bad], together["failed_step"][bad]) == (status, step)
    assert together["cost"][bad] == together["optimal cost"][bad] == np.inf
    assert all(np.isnan(together[name][bad]).all() for name in ("gains", "P", "dA", "dB"))
    for i in np.ndindex(batch):
        for name, one in everything(*p.member(i)).items():
            assert same_bits(together[name][i], one), name
            assert i == bad or np.isfinite(one).all(), name
    np.testing.assert_array_equal(solve(p.system, p.cost).solved, together["status"] == 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("at", "batch", "where"),
    [((), (), "^"), ((2,), (4,), "^member 2: "), ((1, 2), (2, 3), r"^member \(1, 2\): ")],
    ids=str,
)
def test_check_names_the_member_and_the_step(kind, at, batch, where):
    p, _, step = unsolvable_at(at, kind, batch)
    reason = "the value matrix leaves" if kind == "overflow" else r"R \+ BᵀPB is not positive"
    with pytest.raises(UnsolvableError, match=f"{where}{reason}.* at step {step} of 5$"):
        solve(p.system, p.cost, check=True)


def test_check_counts_the_failures():
    p, _, _ = unsolvable_at((slice(1, 3),), "overflow", (4,))
    with pytest.raises(UnsolvableError, match=r"^member 1: .*\(2 members of the batch failed\)"):
        solve(p.system, p.cost, check=True)


def test_a_cost_that_overflows_is_infinite():
    cost = QuadraticCost([[[1.0, -0.9], [-0.9, 1.0]]] * 2, np.ones((1, 1, 1)))
    system, policy = LinearSystem(0.5 * I2, [[1], [0]]), LinearPolicy(np.zeros((1, 1, 2)))
    for start in ([1e200, 1e200], [1e200, 0.5e200]):  # all terms positive; of either sign
        assert optimal_cost(system, cost, start) == np.inf
        assert solve(system, cost).cost(start) == np.inf
        assert policy_cost(policy, system, cost, start) == np.inf


@pytest.mark.parametrize("mixed", [0, 0.9])
def test_value_constants_that_overflow_are_a_failure(mixed):
    W = 1e300 * np.array([[1, mixed], [mixed, 1]])
    cost = QuadraticCost([[[1e10, -mixed * 1e10], [-mixed * 1e10, 1e10]]] * 2, np.ones((1, 1, 1)))
    solution = solve(LinearSystem(0.5 * I2, [[1], [0]], W), cost)
    assert solution.cost([1.0, 1.0]) == np.inf
    assert solution.status == Status.NOT_FINITE


# ---- rollouts ------------------------------------------------------------------------------------


def test_the_seed_decides_the_episode():
    rng = default_rng(0)
    system, policy = random_system(rng, 3, 2), random_policy(rng, 3, 2, 8)
    one, again, other = (simulate(policy, system, np.ones(3), default_rng(s)) for s in (1, 1, 2))
    assert same_bits(one.states, again.states)
    assert same_bits(one.inputs, again.inputs)
    assert not np.isclose(one.states[1:], other.states[1:]).any()
    shocks = one.states[1:] - one.states[:-1] @ system.A.T - one.inputs @ system.B.T
    drawn = default_rng(1).standard_normal((7, 3)) @ system.noise_factor.T
    np.testing.assert_allclose(shocks, drawn, atol=1e-13)
    played = np.einsum("hij,hj->hi", policy.gains, one.states[:-1])
    np.testing.assert_allclose(one.inputs, played, rtol=1e-12)
    assert len(one) == 7


@given(recipes())
def test_a_coordinate_without_noise_is_exact(recipe):
    system = recipe.make().system
    L = system.noise_factor
    assert_near(L @ t(L), np.broadcast_to(system.noise, (L @ t(L)).shape), 1e-12)
    silent = np.einsum("...ii->...i", system.noise) == 0
    assert not L[silent].any()
    d, m = system.state_size, system.input_size
    still = LinearSystem(np.eye(d), np.zeros((d, m)), system.noise)
    played = simulate(LinearPolicy(np.ones((5, m, d))), still, np.full(d, 0.1), default_rng(0))
    stays = (played.states == 0.1).all(-2)
    np.testing.assert_array_equal(stays, np.broadcast_to(silent, stays.shape))


DOUBLING, IDLE = LinearSystem(np.diag([2.0, 1.0]), np.zeros((2, 1))), np.zeros((6, 1, 2))


@pytest.mark.parametrize(
    ("bound", "start", "states"),
    [
        (3.0, [1, 1], 3),
        (4.0, [1, 1], 4),
        ([1e9, 0.5], [1, 0.4], 7),
        ([3, 9], [1, 5], 3),
        (3.0, [-1, 1], 3),
        (1e9, [1, 1], 7),
        (0.5, [1, 1], 1),  # the start is the first state
    ],
)
def test_a_bound_stops_the_episode_after_the_state_beyond_it(bound, start, states):
    played = simulate(LinearPolicy(IDLE), DOUBLING, start, default_rng(0), state_bound=bound)
    expected = np.stack([2.0 ** np.arange(7) * start[0], np.full(7, start[1])], axis=1)
    np.testing.assert_array_equal(played.states, expected[:states])
    assert len(played) == states - 1


def test_an_overflow_stops_the_episode_before_it():
    huge = LinearSystem([[1e200]], [[1.0]])
    played = simulate(LinearPolicy(np.zeros((6, 1, 1))), huge, [1.0], default_rng(0))
    np.testing.assert_array_equal(played.states, [[1], [1e200]])
    steep = LinearPolicy(np.full((6, 1, 1), 1e200))  # u overflows where B u is nothing
    played = simulate(steep, LinearSystem([[1e150]], [[0.0]]), [1.0], default_rng(0))
    np.testing.assert_array_equal(played.states, [[1], [1e150]])


@pytest.mark.parametrize("bound", [None, 1e-9, 1.5, 1e9])
def test_what_is_drawn_does_not_depend_on_where_an_episode_stops(bound):
    rng, expected = default_rng(3), default_rng(3)
    simulate(LinearPolicy(IDLE), DOUBLING, [1, 1], rng, state_bound=bound)
    expected.standard_normal((6, 2))
    assert rng.random() == expected.random()


def test_a_batch_of_episodes_is_its_members():
    rng = default_rng(1)
    systems = random_system(rng, 3, 2, noise="absent", batch=(2,))
    policies, starts = random_policy(rng, 3, 2, 5, (4, 1)), rng.standard_normal((3, 1, 1, 3))
    played = simulate(policies, systems, starts, rng)
    assert played.states.shape == (3, 4, 2, 5, 3)
    assert played.inputs.shape == (3, 4, 2, 4, 2)
    for s, i, j in np.ndindex(3, 4, 2):
        system, policy = LinearSystem(systems.A[j], systems.B[j]), policies.gains[i, 0]
        one = simulate(LinearPolicy(policy), system, starts[s, 0, 0], rng)
        np.testing.assert_allclose(played.states[s, i, j], one.states, rtol=1e-12)
        np.testing.assert_allclose(played.inputs[s, i, j], one.inputs, rtol=1e-12)


# ---- what is refused -----------------------------------------------------------------------------

GOOD = {
    **{"A": I2, "B": np.ones((2, 1)), "noise": I2},
    **{"Q": np.stack([I2] * 3), "R": np.ones((2, 1, 1)), "N": np.zeros((2, 2, 1))},
    **{"gains": np.zeros((2, 1, 2)), "states": np.zeros((3, 2)), "inputs": np.zeros((2, 1))},
    **{"start": np.ones(2), "state_bound": np.ones(2)},
}


def use(**changed: Any) -> dict[str, Any]:
    """Make every record of these fields, and play with them."""
    v = Some(**GOOD | changed)
    system, policy = LinearSystem(v.A, v.B, v.noise), LinearPolicy(v.gains)
    cost, played = QuadraticCost(v.Q, v.R, v.N), Trajectory(v.states, v.inputs)
    policy_cost(policy, system, cost, v.start)
    simulate(policy, system, v.start, default_rng(0), state_bound=v.state_bound)
    return {**vars(system), **vars(cost), **vars(policy), **vars(played)}


def changed(name: str, place: tuple[int, ...], value: float) -> dict[str, Array]:
    M = GOOD[name].copy()
    M[place] = value
    return {name: M}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused(name, value):
    place = tuple(n - 1 for n in GOOD[name].shape)
    text = rf"^{name} must be finite, but holds {value} at index \({', '.join(map(str, place))}"
    with pytest.raises(InputError, match=text):
        use(**changed(name, place, value))


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("value", ["text", 1j, np.array(True), [[1.0], [1.0, 2.0]]], ids=str)
def test_what_is_no_array_of_numbers_is_refused(name, value):
    with pytest.raises(InputError, match=rf"^{name} must be an array of real numbers of shape \("):
        use(**{name: value})


@pytest.mark.parametrize("name", [name for name in GOOD if name != "state_bound"])
def test_too_few_axes_are_refused(name):
    with pytest.raises(InputError, match=rf"^{name} must have shape \(.*\), but has shape \(\)"):
        use(**{name: np.array(1.0)})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"A": np.ones((2, 3))}, "A must be square"),
        ({"A": np.ones((0, 0))}, "A must be square"),
        ({"B": np.ones((3, 1))}, "B must have as many rows as A"),
        ({"B": np.ones((2, 0))}, "B must have as many rows as A"),
        ({"noise": np.eye(3)}, "noise must have shape"),
        (changed("noise", (0, 1), 1e-6), "noise must be symmetric"),
        (changed("noise", (1, 1), -1e-6), "noise must be a covariance"),
        ({"Q": np.ones((3, 2, 1))}, "Q must have shape"),
        ({"Q": np.ones((0, 2, 2))}, "Q must have shape"),
        (changed("Q", (1, 0, 1), 1e-6), "Q must be symmetric"),
        (changed("Q", (1, 1, 1), -1e-6), "Q must be positive semi-definite"),
        ({"R": np.ones((3, 1, 1))}, "R must have shape .* one matrix fewer than Q"),
        ({"R": np.ones((2, 1, 2))}, "R must have shape"),
        ({"R": [[[1, 0.1], [0, 1]]] * 2, "N": None}, "R must be symmetric"),
        (changed("R", (1, 0, 0), -1e-6), "R must be positive semi-definite"),
        ({"N": np.zeros((3, 2, 1))}, "N must have shape"),
        ({"N": np.zeros((2, 1, 2))}, "N must have shape"),
        (changed("N", (1, 0, 0), 1.001), "N is too large for Q and R"),
        # A flaw of a small matrix shows beside a large one, too.
        ({"Q": [1e12 * I2, I2, np.diag([-1, 1])]}, "Q must be positive semi-definite"),
        ({"Q": [1e12 * I2, I2, [[1, 1], [0, 1]]]}, "Q must be symmetric"),
        ({"noise": [1e12 * I2, np.diag([1, -1])]}, "noise must be a covariance"),
        ({"A": np.ones((3, 2, 2)), "B": np.ones((4, 2, 1))}, "do not broadcast"),
        ({"A": np.ones((3, 2, 2)), "noise": [I2, I2]}, "do not broadcast"),
        ({"Q": np.ones((4, 3, 2, 2)), "R": np.ones((5, 2, 1, 1))}, "do not broadcast"),
        ({"Q": np.ones((4, 3, 2, 2)), "N": np.zeros((5, 2, 2, 1))}, "do not broadcast"),
        ({"A": np.ones((3, 2, 2)), "Q": [GOOD["Q"]] * 2}, "broadcast.*system.*cost"),
        ({"A": np.ones((3, 2, 2)), "gains": [GOOD["gains"]] * 2}, "broadcast.*policy"),
        ({"A": np.ones((3, 2, 2)), "start": np.ones((2, 2))}, "broadcast.*start"),
        ({"A": np.eye(3), "B": np.ones((3, 1)), "noise": None}, "3 states and 1 inputs, but"),
        ({"start": np.ones(3)}, "start must have 2 coordinates, not 3"),
        ({"gains": np.zeros((2, 2, 2))}, "policy is for 2 states and 2 inputs, but"),
        ({"gains": np.zeros((2, 1, 3))}, "policy is for 3 states and 1 inputs, but"),
        ({"gains": np.zeros((3, 1, 2))}, "policy has 3 steps, but the cost 2"),
        ({"states": np.zeros((2, 2))}, "one state more than inputs"),
        ({"states": np.zeros((5, 3, 2))}, "one state more than inputs"),
        ({"state_bound": -1.0}, "state_bound must be positive"),
        ({"state_bound": [1.0, 0.0]}, "state_bound must be positive"),
        ({"state_bound": np.ones(3)}, "a number or 2 of them"),
        ({"start": np.ones((4, 2))}, "a state bound stops one episode"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        use(**fields)


@pytest.mark.parametrize("start", [np.ones(3), [np.nan, 1], "text", np.ones((4, 2))], ids=str)
def test_every_function_checks_its_start(start):
    system, cost = LinearSystem([I2] * 3, GOOD["B"]), QuadraticCost(GOOD["Q"], GOOD["R"])
    policy, solution = LinearPolicy(GOOD["gains"]), solve(system, cost)
    for call in (
        lambda: solution.cost(start),
        lambda: optimal_cost(system, cost, start),
        lambda: cost_gradient(system, cost, start),
        lambda: policy_cost(policy, system, cost, start),
        lambda: simulate(policy, system, start, default_rng(0)),
    ):
        with pytest.raises(InputError, match="start"):
            call()


def test_simulate_checks_the_policy():
    for gains in (np.zeros((2, 2, 2)), np.zeros((2, 1, 3))):
        with pytest.raises(InputError, match="the policy is for"):
            simulate(LinearPolicy(gains), DOUBLING, [1, 1], default_rng(0))


def test_what_is_meant_to_be_indefinite_is_accepted():
    cost = QuadraticCost(-GOOD["Q"], GOOD["R"], 9 + GOOD["N"], indefinite=True)
    np.testing.assert_array_equal(cost.Q, -GOOD["Q"])


def test_records_are_read_only_copies():
    mine = {name: M.copy() for name, M in GOOD.items()}
    records = use(**mine)
    for name in records.keys() & mine.keys():
        mine[name][...] = 7
        np.testing.assert_array_equal(records[name], GOOD[name], err_msg=name)
        with pytest.raises(ValueError, match="read-only"):
            records[name][...] = 7
    system, cost = LinearSystem(I2, GOOD["B"]), QuadraticCost(GOOD["Q"], GOOD["R"])
    with pytest.raises(FrozenInstanceError):
        system.A = I2
    with pytest.raises(ValueError, match="read-only"):
        solve(system, cost).policy.gains[...] = 0
