"""Very unstable systems: answers to 1e-6, or a status that says so; against hundreds of digits."""

from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from numpy import ndarray as Array
from numpy.random import Generator, default_rng

from contextual_lqr import (
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    Status,
    UnsolvableError,
    kernels,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.kernels import INACCURATE, SOLVED, Outcome, reference
from problems import random_covariance, random_dynamics, random_stages

TWINS = [reference.recursions] + [kernels.recursions] * (kernels.compiled is not None)
twins = pytest.mark.parametrize("run", TWINS, ids=["reference", "native"][: len(TWINS)])


def decimals(M: Array) -> Array:
    return np.array([Decimal(float(entry)) for entry in M.flat], object).reshape(M.shape)


def eliminate(S: Array, G: Array) -> Array:
    S, G = S.copy(), G.copy()
    for k, i in ((k, i) for k in range(len(S)) for i in range(len(S)) if i != k):
        f = S[i, k] / S[k, k]
        S[i], G[i] = S[i] - f * S[k], G[i] - f * G[k]
    return G / np.diagonal(S)[:, None]


def exact(problem: dict[str, Any]) -> dict[str, Array]:
    """Cost, values, constants and gains in 200 digits, each stage's form in (x, u) in full."""
    with localcontext(Context(200, Emin=-9999, Emax=9999)):
        given = {name: None if M is None else decimals(M) for name, M in problem.items()}
        A, B, Q, R, N, W, x = (given[name] for name in ("A", "B", "Q", "R", "N", "noise", "start"))
        policy, dither, C = (given.get(name) for name in ("policy", "dither", "covariances"))
        both, d = np.concatenate((A, B), -1), A.shape[-1]
        P, c = Q[-1], Decimal(0)
        values, constants, gains = [P], [c], []
        for h in reversed(range(len(R))):
            M = both[h] if both.ndim == 3 else both
            form = np.block([[Q[h], N[h]], [N[h].T, R[h]]]) + M.T @ P @ M
            if C is not None:
                form = form + (np.diagonal(P)[:, None, None] * C).sum(0)
            K = -eliminate(form[d:, d:], form[d:, :d]) if policy is None else policy[h]
            c = c + (P * W).sum() + (0 if dither is None else (form[d:, d:] * dither[h]).sum())
            stack = np.vstack((np.eye(d, dtype=object), K))
            P = stack.T @ form @ stack
            values, constants, gains = [P, *values], [c, *constants], [K, *gains]
        found = {"cost": x @ P @ x + c, "values": values, "constants": constants, "gains": gains}
        return {name: np.array(M, float) for name, M in found.items()}


def wild(rng: Generator, d: int, m: int, H: int, radius: float) -> dict[str, Any]:
    """The operands of one problem: noise, cross terms, and inputs that hardly reach all states."""
    A, B = random_dynamics(rng, d, m, radius)
    Q, R, N = random_stages(rng, d, m, H, d)
    W, x = random_covariance(rng, d, "full"), rng.standard_normal(d)
    return {"A": A, "B": B, "Q": Q, "R": R, "N": N, "noise": W, "start": x}


def hopeless(slowest: float) -> dict[str, Any]:
    problem = wild(default_rng(1), 7, 1, 30, 1.0)
    return {**problem, "A": np.diag(np.linspace(slowest, 2 * slowest, 7))}


def batched(problem: dict[str, Any]) -> dict[str, Any]:
    return {name: None if M is None else M[None] for name, M in problem.items()} | {"batch": 1}


def assert_right(found: Outcome, right: dict[str, Array], tolerance: float = 1e-6) -> None:
    """What is solved is right; values entry by entry, relative to √(P_ii P_jj)."""
    if found.status[0] != SOLVED:
        return
    assert found.cost is not None
    assert found.values is not None
    assert found.constants is not None
    assert found.cost[0] == pytest.approx(right["cost"], rel=tolerance)
    sizes = np.sqrt(np.diagonal(right["values"], axis1=1, axis2=2))
    bound = tolerance * sizes[:, :, None] * sizes[:, None]
    assert (np.abs(found.values[0] - right["values"]) <= bound).all()
    np.testing.assert_allclose(found.constants[0], right["constants"], rtol=tolerance)


@twins
@pytest.mark.parametrize("seed", range(12))
def test_what_is_solved_is_right(run: Any, seed: int) -> None:
    rng = default_rng(seed)
    d, H, radius = int(rng.integers(3, 7)), int(rng.integers(15, 51)), 10 ** rng.uniform(0.7, 1.7)
    m = 1 + seed % 2
    problem = wild(rng, d, m, H, radius)
    optimal = exact(problem)
    found = run(**batched(problem), gains=True, values=True)
    assert found.status[0] == SOLVED
    assert_right(found, optimal)
    np.testing.assert_allclose(found.gains[0], optimal["gains"], rtol=1e-6)
    dither = random_covariance(rng, m, "full", (H - 1,))
    played = {**problem, "policy": optimal["gains"], "dither": dither}
    assert_right(run(**batched(played), values=True), exact(played))
    sizes = 1e-6 * problem["A"].std() ** 2 * rng.random((d, 1, 1))
    hedged = {**problem, "covariances": sizes * random_covariance(rng, d + m, "full", (d,))}
    assert_right(run(**batched(hedged), values=True), exact(hedged))


@twins
def test_without_refinement_members_are_as_16_digits_have_them(run: Any) -> None:
    """Where no digits are lost it makes no difference; where they are, nothing mends it."""
    changed = 0
    for seed in range(12):
        rng = default_rng(seed)
        calm, unstable = wild(rng, 4, 2, 20, 0.9), wild(rng, 6, 1, 40, 10.0)
        for problem in (calm, unstable):
            plain = run(**batched(problem), gains=True, values=True, refine=False)
            better = run(**batched(problem), gains=True, values=True)
            same = all(np.array_equal(*pair) for pair in zip(plain[:4], better[:4], strict=True))
            assert same or problem is unstable
            assert plain.status[0] != SOLVED or np.isfinite(plain.gains).all()
            changed += not same
    assert changed > 6


def changing(rng: Generator, members: int, d: int, m: int, H: int) -> list[dict[str, Any]]:
    """Machines with another A and B at each step, stable to very unstable; one diagonal cost."""
    Q = np.stack([np.diag(10 ** rng.uniform(-1, 1, d))] * H)
    R, N = np.stack([np.eye(m)] * (H - 1)), np.zeros((H - 1, d, m))
    steps = [
        [random_dynamics(rng, d, m, radius) for _ in range(H - 1)]
        for radius in 10 ** rng.uniform(-0.5, 1.5, members)
    ]
    stacked = [[np.stack(one) for one in zip(*own, strict=True)] for own in steps]
    W = random_covariance(rng, d, "full")
    starts = rng.standard_normal((members, d))
    return [
        {"A": A, "B": B, "Q": Q, "R": R, "N": N, "noise": W, "start": x}
        for (A, B), x in zip(stacked, starts, strict=True)
    ]


@twins
def test_machines_that_change_in_company(run: Any) -> None:
    """In large batches sizes may prove that no digits are lost; where they do not, 32 are taken."""
    many = changing(default_rng(3), 20, 4, 1, 16)
    together = {name: np.stack([one[name] for one in many]) for name in ("A", "B", "start")}
    shared = {name: many[0][name][None] for name in ("Q", "R", "noise")}
    found = run(**together, **shared, N=None, batch=20, gains=True, values=True)
    assert (found.status == SOLVED).all()
    for i, problem in enumerate(many):
        assert_right(
            Outcome(*(part if part is None else part[i : i + 1] for part in found)), exact(problem)
        )


@twins
@pytest.mark.parametrize("seed", [6, 7])
def test_inputs_that_cost_next_to_nothing(run: Any, seed: int) -> None:
    """One state counts, so that S is R, of 1e-22, but for one direction: K has few digits there."""
    problem = wild(default_rng(seed), 4, 4, 14, 40.0)
    Q, R = np.zeros((14, 4, 4)), np.stack([1e-22 * np.eye(4)] * 13)
    Q[:, 0, 0] = 1
    problem |= {"Q": Q, "R": R, "N": None, "noise": None}
    found = run(**batched(problem), values=True)
    assert found.status[0] in (SOLVED, INACCURATE)
    zeros = {"N": np.zeros((13, 4, 4)), "noise": np.zeros((4, 4))}
    assert_right(found, exact(problem | zeros))


@pytest.mark.parametrize(("radius", "modes"), [(4.5, True), (9.0, True), (37.0, False)])
def test_costs_that_were_wrong_in_silence(radius: float, modes: bool) -> None:
    """Five states, one input, 30 steps: in plain arithmetic they are off by 1e-4 and more."""
    rescued = 0
    for seed in range(5):
        rng = default_rng(seed)
        A, B = random_dynamics(rng, 5, 1, radius)
        if modes:  # real ones, about as fast as each other
            V = rng.standard_normal((5, 5))
            A = V @ np.diag(radius * rng.uniform(0.5, 1, 5)) @ np.linalg.inv(V)
        Q, R, x = np.stack([np.eye(5)] * 31), np.ones((30, 1, 1)), rng.standard_normal(5)
        none = {"N": np.zeros((30, 5, 1)), "noise": np.zeros((5, 5))}
        problem = {"A": A, "B": B, "Q": Q, "R": R, **none, "start": x}
        optimal, system, cost = exact(problem), LinearSystem(A, B), QuadraticCost(Q, R)
        solution = solve(system, cost)
        assert solution.status in (Status.SOLVED, Status.INACCURATE)
        if solution.status == Status.INACCURATE:
            continue
        assert solution.cost(x) == pytest.approx(optimal["cost"], rel=1e-6)
        paid = exact({**problem, "policy": solution.policy.gains})["cost"]
        assert policy_cost(solution.policy, system, cost, x) == pytest.approx(paid, rel=1e-6)
        P = Q[-1]
        for _ in range(30):  # plain arithmetic
            K = -(B.T @ P @ A) / (1 + B.T @ P @ B)
            P = np.eye(5) + K.T @ K + (A + B @ K).T @ P @ (A + B @ K)
        rescued += abs(x @ P @ x / optimal["cost"] - 1) > 1e-4
    assert rescued


@twins
def test_gradients_of_an_unstable_system(run: Any) -> None:
    """Against differences of exact costs."""
    rng = default_rng(3)
    problem = wild(rng, 5, 1, 25, 12.0)
    found = run(**batched(problem), gradient=True)
    for name in ("A", "B"):
        direction = rng.standard_normal(problem[name].shape) * problem[name]
        step = 2.0**-20  # the differences are exact to 1e-12, what they leave out about as small
        costs = [exact({**problem, name: problem[name] + s * direction})["cost"]
                 for s in (-step, step)]  # fmt: skip
        slope = (costs[1] - costs[0]) / (2 * step)
        assert (getattr(found, f"d{name}")[0] * direction).sum() == pytest.approx(slope, rel=1e-3)


@twins
@pytest.mark.parametrize("slowest", [4.0, 40.0])
def test_what_cannot_be_had_says_so(run: Any, slowest: float) -> None:
    """Many modes of about one radius, and one input: 32 digits are not enough."""
    problem = hopeless(slowest)
    found = run(**batched(problem), gains=True, values=True, gradient=True)
    assert found.status[0] == INACCURATE
    for name in ("gains", "values", "dA", "dB"):
        assert np.isnan(getattr(found, name)).all(), name
    assert np.isposinf(found.constants).all()
    assert np.isposinf(found.cost).all()


def test_what_cannot_be_had_has_no_cost() -> None:
    """And the error of solve(check=True) says why; its neighbours in a batch are unharmed."""
    problem = hopeless(4.0)
    gains, x = exact(problem)["gains"], problem["start"]
    A = np.stack([problem["A"], problem["A"] / 8])
    system = LinearSystem(A, problem["B"], problem["noise"])
    cost = QuadraticCost(problem["Q"], problem["R"], problem["N"])
    assert solve(system, cost).status.tolist() == [Status.INACCURATE, Status.SOLVED]
    assert np.isposinf(optimal_cost(system, cost, x)).tolist() == [True, False]
    assert np.isposinf(policy_cost(LinearPolicy(gains), system, cost, x)[0])
    with pytest.raises(UnsolvableError, match=r"member 0: .* too many digits are lost"):
        solve(system, cost, check=True)
    assert "too many digits" in repr(solve(LinearSystem(A[0], problem["B"]), cost))


@twins
def test_a_start_where_large_terms_cancel(run: Any) -> None:
    """Nothing is unstable, but xᵀPx is 1e-12 of its terms."""
    A, B = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[1.0], [0.5]])
    Q = np.stack([np.array([[1.0, -1.0], [-1.0, 1.0 + 2.0**-40]])] * 4)
    rest = {"N": np.zeros((3, 2, 1)), "noise": np.zeros((2, 2)), "start": np.ones(2)}
    problem = {"A": A, "B": B, "Q": Q, "R": np.ones((3, 1, 1)), **rest}
    right = float(exact(problem)["cost"])
    assert right < 1e-11
    found = run(**batched(problem))
    assert found.status[0] == SOLVED
    assert found.cost[0] == pytest.approx(right, rel=1e-9)


def test_the_cheapest_start_of_a_solution() -> None:
    """From the eigenvector of P with the least eigenvalue, the terms of xᵀPx cancel."""
    rescued = 0
    for seed in range(12):
        rng = default_rng(seed)
        problem = wild(rng, 5, 1, 20, 10 ** rng.uniform(0.5, 1.7)) | {"noise": np.zeros((5, 5))}
        cost = QuadraticCost(problem["Q"], problem["R"], problem["N"])
        solution = solve(LinearSystem(problem["A"], problem["B"]), cost)
        P = solution.value_matrices[0]
        x = np.linalg.eigh(P)[1][:, 0]
        right = float(exact({**problem, "start": x})["cost"])
        found = solution.cost(np.stack([x, problem["start"]]))[0]
        assert found == pytest.approx(right, rel=1e-6)
        rescued += abs(x @ P @ x / right - 1) > 1e-6
    assert rescued  # P, rounded, does not know it


@twins
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e12])
def test_a_cost_of_zero_is_no_lost_digit(run: Any, scale: float) -> None:
    """Only a difference costs: none from a start without, and none once the system removes it."""
    difference = scale * np.array([[1.0, -1.0], [-1.0, 1.0]])
    for A, x, H in (
        (np.eye(2) / 3, [0.7, 0.7], 6),
        (np.array([[0.7, 0.1], [0.7, 0.1]]), [0.3, 0.9], 2),
    ):
        Q = np.stack([0 * difference] * (H - 1) + [difference])
        stages = {"Q": Q, "R": np.ones((H - 1, 1, 1)), "N": None, "noise": None}
        problem = {"A": A, "B": np.array([[0.1], [0.2]]), "start": np.array(x), **stages}
        found = run(**batched(problem))
        assert found.status[0] == SOLVED
        assert abs(found.cost[0]) <= 1e-20 * scale


@twins
def test_other_units_give_the_same_answer(run: Any) -> None:
    rng = default_rng(7)
    problem = wild(rng, 5, 1, 30, 15.0)
    cost = run(**batched(problem)).cost[0]
    units, money = 2.0 ** rng.integers(-30, 40, 5), 2.0**-40
    scaled = {
        "A": units[:, None] * problem["A"] / units,
        "B": units[:, None] * problem["B"],
        "Q": money * problem["Q"] / units / units[:, None],
        "R": money * problem["R"],
        "N": money * problem["N"] / units[:, None],
        "noise": units[:, None] * problem["noise"] * units,
        "start": units * problem["start"],
    }
    found = run(**batched(scaled))
    assert found.status[0] == SOLVED
    assert found.cost[0] == pytest.approx(money * cost, rel=1e-9)


@twins
def test_a_large_system_with_an_unstable_part(run: Any) -> None:
    """19 more states, at rest at zero, make it large enough for the kernels' other layout."""
    problem, more = wild(default_rng(2), 5, 1, 20, 30.0), 19
    states = {"A": (0, 1), "B": (0,), "Q": (1, 2), "N": (1,), "noise": (0, 1), "start": (0,)}
    large = {
        name: np.pad(M, [(0, more * (axis in states.get(name, ()))) for axis in range(M.ndim)])
        for name, M in problem.items()
    }
    large["A"][5:, 5:] = large["Q"][:, 5:, 5:] = np.eye(more)
    found = run(**batched(large), gains=True)
    assert found.status[0] == SOLVED
    right = exact(problem)
    assert found.cost[0] == pytest.approx(right["cost"], rel=1e-6)
    np.testing.assert_allclose(found.gains[0, :, :, :5], right["gains"], rtol=1e-6)
    plain = kernels.best_decoder(
        np.hstack((problem["A"], problem["B"]))[None], np.eye(6),
        *(problem[name] for name in ("Q", "R", "N", "noise", "start")), 0.0,
    )  # fmt: skip
    assert plain.cost != pytest.approx(right["cost"], rel=1e-6)
