"""Iterative LQR beside Crocoddyl's and a trajax-style one in JAX, on one problem and one thread.

Writes a section of docs/measured/nonlinear.md from what a run printed:
`python benchmarks/ilqr.py > rounds` (or with the names of some contestants), then
`python benchmarks/ilqr.py --page rounds`. `--replan` times a step of a live agent, and writes its
section.

The problem: two links on a table, the motor between them (d = 4, m = 1), 50 steps of 0.02 s from
100 starts about straight, to be brought there. All begin from no input. Crocoddyl's is its own
C++: Pinocchio's rigid bodies, its semi-implicit Euler step, its DDP, one solver a machine. JAX's is
compiled beforehand, and its batch is one call. Times are the processor's, the least of some rounds.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pages import write_section
from peers import ONE_THREAD

import contextual_lqr as clqr
from contextual_lqr.fleets import cart_pole_swing_up

STEPS, DT, BATCH, ROUNDS = 50, 0.02, 100, 10
M1, M2, L1, L2 = 1.0, 1.0, 0.5, 0.5  # point masses at the ends of links on a table
Q, LAST, R = np.array([5.0, 5.0, 0.1, 0.1]), 20.0, 0.01
STOP = 1e-9

TEXT = """# How quickly a path is found

Written by `benchmarks/ilqr.py`: two links on a table, the motor between them (d = 4, m = 1), 50
steps, 100 starts about straight, the same steps, cost and first guess for all, one thread, the
least of ROUNDS rounds of the processor's time. Ours is `solve_trajectory`, from features as text.
All find the same costs (SAME).

| | 100 machines | a machine | iterations, median | times ours |
|---|---|---|---|---|
"""

REPLAN = """# A step planned anew

Written by `benchmarks/ilqr.py --replan`. An agent with `adapt="step"` on a cart and pole (d = 4,
m = 1, 50 steps) plans at each step the rest of the episode anew, from the path before. The first
step of an episode, which has no path before it and begins from several guesses, takes FIRST ms of
the processor; the others MIDDLE ms in the median and MOST ms at most (of ROUNDS episodes the least,
step by step; one thread).
"""


def starts() -> np.ndarray:
    """States about straight, and still."""
    rng = np.random.default_rng(0)
    return np.concatenate(
        (rng.uniform(-0.4, 0.4, (BATCH, 2)), rng.uniform(-0.5, 0.5, (BATCH, 2))), 1
    )


# M q'' + C = [0, torque], angles from straight, the second relative to the first.
S2, C2 = "sin(second)", "cos(second)"
M11 = f"({M1 * L1**2 + M2 * (L1**2 + L2**2)} + {2 * M2 * L1 * L2}*{C2})"
M12, M22 = f"({M2 * L2**2} + {M2 * L1 * L2}*{C2})", f"{M2 * L2**2}"
F1 = f"({M2 * L1 * L2}*{S2}*(2*rate_1*rate_2 + rate_2**2))"
F2 = f"(torque - {M2 * L1 * L2}*{S2}*rate_1**2)"
DET = f"({M11}*{M22} - {M12}**2)"
ONE, TWO = f"({M22}*{F1} - {M12}*{F2})/{DET}", f"({M11}*{F2} - {M12}*{F1})/{DET}"


def ours() -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Features as text, Θ of an Euler step."""
    dynamics = clqr.FeatureDynamics(
        ["first", "second", "rate_1", "rate_2", ONE, TWO],
        states=["first", "second", "rate_1", "rate_2"],
        inputs=["torque"],
    )
    theta = np.zeros((4, 6))
    theta[:, :4] = np.eye(4)
    theta[0, 2] = theta[1, 3] = theta[2, 4] = theta[3, 5] = DT
    theta[0, 4] = theta[1, 5] = DT**2
    machine = clqr.DynamicsBelief.known(dynamics, {}, theta)
    weights = [DT * np.diag(Q)] * STEPS + [LAST * np.diag(Q)]
    cost = clqr.TargetCost(weights, [[[DT * R]]] * STEPS)
    x = starts()

    def solve() -> tuple[np.ndarray, np.ndarray]:
        found = clqr.solve_trajectory(machine, cost, x, iterations=500, tolerance=STOP)
        return found.cost, found.iterations

    return solve


def jax_one() -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """As trajax does it: scan backward, roll out with a line search in a while loop, vmapped."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def step(x: Any, u: Any) -> Any:
        s2, c2 = jnp.sin(x[1]), jnp.cos(x[1])
        m11 = M1 * L1**2 + M2 * (L1**2 + L2**2) + 2 * M2 * L1 * L2 * c2
        m12, m22 = M2 * L2**2 + M2 * L1 * L2 * c2, M2 * L2**2
        f1 = M2 * L1 * L2 * s2 * (2 * x[2] * x[3] + x[3] ** 2)
        f2 = u[0] - M2 * L1 * L2 * s2 * x[2] ** 2
        a = jnp.array([m22 * f1 - m12 * f2, m11 * f2 - m12 * f1]) / (m11 * m22 - m12**2)
        v = x[2:] + DT * a
        return jnp.concatenate((x[:2] + DT * v, v))

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
            _, xs, us, new, good = jax.lax.while_loop(
                lambda t: ~t[4] & (t[0] > 1e-3), search, trial
            )
            done = (-(lin + quad) <= STOP * cost) | ~good
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
    root = model.addJoint(0, pinocchio.JointModelRY(), pinocchio.SE3.Identity(), "root_joint")
    tip = pinocchio.SE3(np.eye(3), np.array([0.0, 0.0, L1]))
    at = np.zeros((3, 3))
    model.appendBodyToJoint(
        root, pinocchio.Inertia(M1, np.array([0.0, 0.0, L1]), at), pinocchio.SE3.Identity()
    )
    elbow = model.addJoint(root, pinocchio.JointModelRY(), tip, "elbow")
    model.appendBodyToJoint(
        elbow, pinocchio.Inertia(M2, np.array([0.0, 0.0, L2]), at), pinocchio.SE3.Identity()
    )
    model.gravity = pinocchio.Motion.Zero()
    state = crocoddyl.StateMultibody(model)
    motor = crocoddyl.ActuationModelFloatingBase(state)  # all but the first joint
    assert motor.nu == 1

    def action(weight: float, cost_of_input: float) -> Any:
        costs = crocoddyl.CostModelSum(state, 1)
        residual = crocoddyl.ResidualModelState(state, np.zeros(4), 1)
        by_size = crocoddyl.ActivationModelWeightedQuad(2 * Q)
        costs.addCost("state", crocoddyl.CostModelResidual(state, by_size, residual), weight)
        control = crocoddyl.ResidualModelControl(state, 1)
        costs.addCost("input", crocoddyl.CostModelResidual(state, control), 2 * cost_of_input)
        return crocoddyl.DifferentialActionModelFreeFwdDynamics(state, motor, costs)

    running = crocoddyl.IntegratedActionModelEuler(action(1.0, R), DT)
    last = crocoddyl.IntegratedActionModelEuler(action(LAST, 0.0), 0.0)
    solvers = []
    for x in starts():
        problem = crocoddyl.ShootingProblem(x, [running] * STEPS, last)
        problem.nthreads = 1
        solver = crocoddyl.SolverDDP(problem)
        solver.th_stop = STOP
        solvers.append(solver)
    idle = [np.zeros(1)] * STEPS

    def solve() -> tuple[np.ndarray, np.ndarray]:
        costs, counts = [], []
        for solver in solvers:
            solver.solve(solver.problem.rollout(idle), idle, 500, True)
            costs.append(solver.cost)
            counts.append(solver.iter)
        return np.array(costs), np.array(counts)

    return solve


CONTESTANTS = {
    "contextual-lqr": ours,
    "Crocoddyl": crocoddyl_each,
    "JAX, as trajax does it": jax_one,
}


def measure(names: list[str]) -> None:
    """The least of some rounds, interleaved; printed as JSON."""
    solvers = {name: CONTESTANTS[name]() for name in names}
    found = {name: solve() for name, solve in solvers.items()}  # and compiled
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name, solve in solvers.items():
            begun = time.process_time()
            solve()
            times[name].append(time.process_time() - begun)
    for name in names:
        cost, count = found[name]
        print(json.dumps([name, min(times[name]), cost.tolist(), count.tolist()]))


def page(rounds: str) -> None:
    """The section, from what a run printed."""
    found = [json.loads(line) for line in Path(rounds).read_text("utf-8").splitlines()]
    _, best, costs, _ = found[0]
    off = max(abs(np.array(one[2]) / np.array(costs) - 1).max() for one in found)
    lines = [
        f"| {name} | {1000 * least:.3g} ms | {1e6 * least / BATCH:.0f} µs | "
        f"{np.median(count):.0f} | {least / best:.1f} |"
        for name, least, _, count in found
    ]
    text = TEXT.replace("ROUNDS", str(ROUNDS)).replace("SAME", f"to {off:.0e}")
    write_section("nonlinear", "ilqr", text + "\n".join(lines) + "\n")


def replan() -> None:
    """What a step of a live agent takes, planned anew."""
    fleet, times = cart_pole_swing_up(horizon=STEPS + 1), []
    rng, agent = np.random.default_rng(0), fleet.agent()
    for _ in range(4):
        fleet.teach(agent, fleet.sample_context(rng), rng)
    for _ in range(ROUNDS):
        context, x = fleet.sample_context(rng), fleet.start
        with agent.episode(context, "step") as episode:
            while not episode.finished:
                begun = time.process_time()
                u = episode.act(x)
                times.append(time.process_time() - begun)
                x = fleet.step(context, x, u, rng)
                episode.observe(x)
    each = 1000 * np.reshape(times, (ROUNDS, STEPS)).min(0)  # the least of the rounds, a step each
    first, rest = each[0], each[1:]
    shown = {
        "FIRST": f"{first:.0f}",
        "MIDDLE": f"{np.median(rest):.2f}",
        "MOST": f"{rest.max():.2f}",
    }
    said = REPLAN.replace("ROUNDS", str(ROUNDS))
    for word, number in shown.items():
        said = said.replace(word, number)
    write_section("nonlinear", "replan", said)


if __name__ == "__main__":
    if sys.argv[1:] == ["--replan"]:
        replan()
    elif sys.argv[1:2] == ["--page"]:
        page(sys.argv[2])
    else:
        os.environ.update(ONE_THREAD)
        measure(sys.argv[1:] or list(CONTESTANTS))
