"""Iterative LQR beside Crocoddyl's and a trajax-style one in JAX: same problem, same cost, one thread.

Writes a section of docs/measured/nonlinear.md.

The problem: a cart and a pole (d = 4, m = 1), explicit Euler steps of 0.02 s, 50 of them, from 100
starts hanging nearly still, towards upright, input free. All begin from no input, and stop when a step
is expected to save, or saves, less than 1e-9 of the cost. Crocoddyl's model is its own C++ engine with
Pinocchio's rigid bodies (free forward dynamics, its integrator: a semi-implicit Euler step), one solver
a machine; JAX's is compiled beforehand, and its batch is one call.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from peers import ONE_THREAD

import contextual_lqr as clqr

STEPS, DT, BATCH, ROUNDS = 50, 0.02, 100, 7
M, MASS, HALF, G = 1.0, 0.2, 0.3, 9.81  # a point mass on a rod without one, as in textbooks
J = MASS * HALF**2
Q, LAST, R = np.array([1.0, 5.0, 0.1, 0.1]), 20.0, 0.01

TEXT = """# How quickly a path is found

Written by `benchmarks/ilqr.py`: a cart and a pole (d = 4, m = 1), 50 steps, 100 starts near hanging,
the same problem, the same first guess and one thread for all; the least of ROUNDS interleaved rounds.
All converge to the same costs (to DIFFER). Ours is `solve_trajectory`, from features as text.

| | 100 machines | a machine | times ours |
|---|---|---|---|
"""


def starts() -> np.ndarray:
    """States near hanging."""
    rng = np.random.default_rng(0)
    x = 0.2 * rng.standard_normal((BATCH, 4))
    x[:, 1] += np.pi
    return x


# Position and angle from upright: (M + m) p'' + m l cos θ'' - m l sin θ'² = F,
#                                  m l cos p'' + m l² θ'' - m g l sin = 0.
S, C = "sin(angle)", "cos(angle)"
D = f"({M} + {MASS}*{S}**2)"
CART = f"(force + {MASS}*{S}*({HALF}*rate**2 - {G}*{C}))/{D}"
POLE = f"(-force*{C} - {MASS * HALF}*rate**2*{S}*{C} + {(M + MASS) * G}*{S})/({HALF}*{D})"


def ours() -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Features as text, Θ of an Euler step."""
    dynamics = clqr.FeatureDynamics(
        ["position", "angle", "velocity", "rate", CART, POLE],
        states=["position", "angle", "velocity", "rate"],
        inputs=["force"],
    )
    theta = np.zeros((4, 6))
    theta[:, :4] = np.eye(4)
    theta[0, 2] = theta[1, 3] = theta[2, 4] = theta[3, 5] = DT
    machine = clqr.DynamicsBelief.known(dynamics, {}, theta)
    weights = [DT * np.diag(Q)] * STEPS + [LAST * np.diag(Q)]
    cost = clqr.TargetCost(weights, [[[DT * R]]] * STEPS)
    x = starts()

    def solve() -> tuple[np.ndarray, np.ndarray]:
        found = clqr.solve_trajectory(machine, cost, x, iterations=500)
        return found.cost, found.iterations

    return solve


def jax_one() -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """As trajax does it: scan backward, roll out with a line search in a while loop, vmapped."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def step(x: Any, u: Any) -> Any:
        s, c = jnp.sin(x[1]), jnp.cos(x[1])
        D = M + MASS * s**2
        cart = (u[0] + MASS * s * (HALF * x[3] ** 2 - G * c)) / D
        pole = -u[0] * c - MASS * HALF * x[3] ** 2 * s * c + (M + MASS) * G * s
        return x + DT * jnp.array([x[2], x[3], cart, pole / (HALF * D)])

    W, WL = DT * jnp.diag(Q), LAST * jnp.diag(Q)

    def spent(X: Any, U: Any) -> Any:
        along = jnp.einsum("ti,ij,tj->", X[:-1], W, X[:-1]) + DT * R * (U**2).sum()
        return along + X[-1] @ WL @ X[-1]

    def roll(X: Any, U: Any, k: Any, K: Any, alpha: Any) -> tuple[Any, Any]:
        def one(x: Any, now: Any) -> tuple[Any, Any]:
            old, u, kt, Kt = now
            u = u + alpha * kt + Kt @ (x - old)
            new = step(x, u)
            return new, (new, u)

        _, (xs, us) = jax.lax.scan(one, X[0], (X[:-1], U, k, K))
        return jnp.concatenate((X[:1], xs)), us

    def backward(X: Any, U: Any) -> tuple[Any, Any, Any, Any]:
        A, B = jax.vmap(jax.jacfwd(step, (0, 1)))(X[:-1], U)

        def one(carry: Any, now: Any) -> tuple[Any, Any]:
            P, v, lin, quad = carry
            a, b, x, u = now
            qx, qu = W @ x + a.T @ v, DT * R * u + b.T @ v
            Mxx, Mux = W + a.T @ P @ a, b.T @ P @ a
            Muu = DT * R * jnp.eye(1) + b.T @ P @ b
            k, K = -jnp.linalg.solve(Muu, qu), -jnp.linalg.solve(Muu, Mux)
            P = Mxx + K.T @ Muu @ K + K.T @ Mux + Mux.T @ K
            v = qx + K.T @ (Muu @ k + qu) + Mux.T @ k
            return (P, v, lin + 2 * k @ qu, quad + k @ Muu @ k), (k, K)

        first = (WL, WL @ X[-1], 0.0, 0.0)
        (_, _, lin, quad), (k, K) = jax.lax.scan(one, first, (A, B, X[:-1], U), reverse=True)
        return k, K, lin, quad

    def solve_one(x0: Any) -> tuple[Any, Any]:
        U = jnp.zeros((STEPS, 1))
        X, _ = roll(jnp.zeros((STEPS + 1, 4)).at[0].set(x0), U, U, jnp.zeros((STEPS, 1, 4)), 0.0)

        def more(state: Any) -> Any:
            return ~state[3] & (state[4] < 500)

        def body(state: Any) -> Any:
            X, U, cost, _, count = state
            k, K, lin, quad = backward(X, U)

            def search(trial: Any) -> Any:
                alpha, *_ = trial
                alpha = alpha / 2
                xs, us = roll(X, U, k, K, alpha)
                new = spent(xs, us)
                good = cost - new >= -1e-4 * (alpha * lin + alpha**2 * quad)
                return alpha, xs, us, new, good

            trial = search((2.0, X, U, cost, False))
            alpha, xs, us, new, good = jax.lax.while_loop(
                lambda t: ~t[4] & (t[0] > 1e-3), search, trial
            )
            done = (-(lin + quad) <= 1e-9 * cost) | ~good
            keep = done
            return (
                jnp.where(keep, X, xs),
                jnp.where(keep, U, us),
                jnp.where(keep, cost, new),
                done,
                count + 1,
            )

        X, U, cost, _, count = jax.lax.while_loop(more, body, (X, U, spent(X, U), False, 0))
        return cost, count

    many, x = jax.jit(jax.vmap(solve_one)), jnp.asarray(starts())

    def solve() -> tuple[np.ndarray, np.ndarray]:
        cost, count = many(x)
        return np.asarray(cost), np.asarray(count)

    return solve


def crocoddyl_each() -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Crocoddyl's FDDP and its C++ models: Pinocchio's cart and pole, one solver a machine."""
    import crocoddyl
    import pinocchio

    model = pinocchio.Model()
    slider = model.addJoint(0, pinocchio.JointModelPX(), pinocchio.SE3.Identity(), "slider")
    model.appendBodyToJoint(
        slider, pinocchio.Inertia(M, np.zeros(3), np.zeros((3, 3))), pinocchio.SE3.Identity()
    )
    hinge = model.addJoint(slider, pinocchio.JointModelRY(), pinocchio.SE3.Identity(), "hinge")
    model.appendBodyToJoint(
        hinge,
        pinocchio.Inertia(MASS, np.array([0.0, 0.0, HALF]), np.zeros((3, 3))),
        pinocchio.SE3.Identity(),
    )
    state = crocoddyl.StateMultibody(model)
    push = np.array([[1.0], [0.0]])
    if hasattr(crocoddyl, "ActuationModelAbstract"):

        class Cart(crocoddyl.ActuationModelAbstract):  # type: ignore[misc]
            def __init__(self) -> None:
                crocoddyl.ActuationModelAbstract.__init__(self, state, 1)

            def calc(self, data: Any, x: Any, u: Any) -> None:
                data.tau[:] = push @ u

            def calcDiff(self, data: Any, x: Any, u: Any) -> None:
                data.dtau_du[:] = push

    def action(weight: float, cost_of_input: float) -> Any:
        costs = crocoddyl.CostModelSum(state, 1)
        residual = crocoddyl.ResidualModelState(state, np.zeros(4), 1)
        by_size = crocoddyl.ActivationModelWeightedQuad(2 * Q)
        costs.addCost("state", crocoddyl.CostModelResidual(state, by_size, residual), weight)
        control = crocoddyl.ResidualModelControl(state, 1)
        costs.addCost("input", crocoddyl.CostModelResidual(state, control), 2 * cost_of_input)
        return crocoddyl.DifferentialActionModelFreeFwdDynamics(state, Cart(), costs)

    running = crocoddyl.IntegratedActionModelEuler(action(1.0, R), DT)
    last = crocoddyl.IntegratedActionModelEuler(action(LAST, 0.0), 0.0)
    solvers = []
    for x in starts():
        problem = crocoddyl.ShootingProblem(x, [running] * STEPS, last)
        solver = crocoddyl.SolverDDP(problem)
        solver.th_stop = 1e-12
        solvers.append(solver)
    problems = [([x] + [x] * STEPS, [np.zeros(1)] * STEPS) for x in starts()]

    def solve() -> tuple[np.ndarray, np.ndarray]:
        costs, counts = [], []
        for solver, (_, us) in zip(solvers, problems, strict=True):
            xs = solver.problem.rollout(us)
            solver.solve(xs, us, 500, True, 0.0)
            costs.append(solver.cost)
            counts.append(solver.iter)
        return np.array(costs), np.array(counts)

    return solve


CONTESTANTS = {"contextual-lqr": ours, "JAX": jax_one, "Crocoddyl": crocoddyl_each}


def measure(names: list[str]) -> None:
    """The least of some rounds, interleaved; printed as JSON."""
    solvers = {name: CONTESTANTS[name]() for name in names}
    found = {name: solve() for name, solve in solvers.items()}  # and compiled
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name, solve in solvers.items():
            begun = time.perf_counter()
            solve()
            times[name].append(time.perf_counter() - begun)
    for name in names:
        cost, count = found[name]
        print(json.dumps([name, min(times[name]), cost.tolist(), count.tolist()]))


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    measure(sys.argv[1:] or list(CONTESTANTS))
