"""The control problem, against solutions found in other ways, and its failures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray as Array
from numpy.random import default_rng
from scipy.linalg import solve_discrete_are

from compare import I2, assert_near, everything, same_bits, single, t
from contextual_lqr import (
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    Status,
    cost_gradient,
    optimal_cost,
    policy_cost,
    simulate,
    solve,
)
from contextual_lqr.errors import UnsolvableError
from problems import (
    cross_term,
    dense_solution,
    lifted_policy_cost,
    random_cost,
    random_policy,
    random_system,
    recipes,
    unsolvable_at,
)

# ---- right ---------------------------------------------------------------------------------------


@given(single)
def test_solve_is_the_dense_solution(recipe):
    p = recipe.make()
    quiet = LinearSystem(p.system.A, p.system.B)
    starts = p.rng.standard_normal((4, p.system.state_size))
    solution = solve(quiet, p.cost, check=True)
    costs, inputs = dense_solution(quiet, p.cost, starts)
    # One input that hardly reaches an unstable mode makes P huge, and rounding alone then moves the
    # answer of either by 1e-9 (the most that was seen in 1800 problems).
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
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (8, 4), (20, 3)], ids=str)
def test_long_horizon_is_the_algebraic_riccati_equation(size, beta, cross):
    (d, m), rng, H = size, default_rng(4), 400
    system = random_system(rng, d, m, beta)
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

    # Richardson's extrapolation, twice, over many steps; where two neighbours agree best is best.
    table = np.array([change(1e-5 * 2**k) for k in range(8)])
    for power in (4, 16):
        table = (power * table[:-1] - table[1:]) / (power - 1)
    expected = table[np.abs(np.diff(table, axis=0)).max(1).argmin()]
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
        optimal_cost(scaled, scaled_cost, units * p.start), expected, rtol=1e-8
    )
    gains = solve(scaled, scaled_cost).policy.gains * units
    assert_near(gains, solve(system, cost).policy.gains, 1e-8)


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
    reason = "the value matrix overflows" if kind == "overflow" else r"R \+ BᵀPB is not positive"
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
