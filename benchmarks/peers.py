"""Other packages' finite-horizon LQR solvers behind one small protocol, for the benchmark.

The problem: minimise the sum of x'Q_h x + u'R_h u over h = 1..H-1, plus x'Q_H x, for the systems
x_{h+1} = A x_h + B u_h of a batch: A (n, d, d), B (n, d, m), Q (H, d, d), R (H-1, m, m), start
(n, d). `available()` lists the peers; `peer.prepare(d, m, H, batch)` does what one does once and
returns a solver, to be called once before timing (the JAX peers compile then):
`solver(A, B, Q, R, start) -> gains (n, H-1, m, d), values (n, H, d, d) or None, costs (n,)`.

`run.py` holds every peer against the NumPy baseline, and times them.
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Solution = tuple[Array, Array | None, Array]
Solver = Callable[[Array, Array, Array, Array, Array], Solution]

# To be set before the process starts: NPROC is the size of XLA's thread pool.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
}


@dataclass(frozen=True)
class Peer:
    """A package's solver: `timed` says what a call covers, `reason` why it cannot be used."""

    name: str
    distribution: str
    modules: tuple[str, ...]
    timed: str
    prepare: Callable[[int, int, int, int], Solver]
    reason: str | None = None


def _costs(values: Array, start: Array) -> Array:
    return np.einsum("ni,nij,nj->n", start, values[:, 0], start)


def _diffilqrax(d: int, m: int, H: int, batch: int, *, parallel: bool) -> Solver:
    """Backward pass, sequential or by associative scan, jitted; batches in chunks of 100.

    The chunks (`lax.map` of a `vmap`) are about twice as fast as one vmap over 10000 systems.
    """
    import jax
    import jax.numpy as jnp
    from diffilqrax.lqr import lqr_backward_pass, lqr_forward_pass
    from diffilqrax.plqr import plqr_backward_pass
    from diffilqrax.typs import LQR, LQRParams

    jax.config.update("jax_enable_x64", True)
    T = H - 1

    def one(A: Any, B: Any, Q: Any, R: Any, x: Any) -> tuple[Any, Any, Any]:
        A, B = jnp.broadcast_to(A, (T, d, d)), jnp.broadcast_to(B, (T, d, m))
        a, r, S = jnp.zeros((T, d)), jnp.zeros((T, m)), jnp.zeros((T, d, m))
        params = LQRParams(x, LQR(A, B, a, Q[:-1], a, R, r, S, Q[-1], a[0]))
        if parallel:
            _, gains, _, (_, values) = plqr_backward_pass(params, return_values=True)
            return gains.K, values, x @ values[0] @ x
        _, gains = lqr_backward_pass(params.lqr)
        X, U = lqr_forward_pass(gains, params)
        quadratic = "hi,hij,hj->"
        return gains.K, None, jnp.einsum(quadratic, X, Q, X) + jnp.einsum(quadratic, U, R, U)

    @jax.jit
    def many(A: Any, B: Any, Q: Any, R: Any, start: Any) -> tuple[Any, Any, Any]:
        if batch <= 100:
            return jax.vmap(one, in_axes=(0, 0, None, None, 0))(A, B, Q, R, start)
        chunked = (A, B, start)
        return jax.lax.map(lambda abx: one(abx[0], abx[1], Q, R, abx[2]), chunked, batch_size=100)

    def solve(A: Array, B: Array, Q: Array, R: Array, start: Array) -> Solution:
        gains, values, costs = many(A, B, Q, R, start)
        values = None if values is None else np.asarray(values)
        return np.asarray(gains), values, np.asarray(costs)

    return solve


def _diffilqrax_sequential(d: int, m: int, H: int, batch: int) -> Solver:
    return _diffilqrax(d, m, H, batch, parallel=False)


def _diffilqrax_parallel(d: int, m: int, H: int, batch: int) -> Solver:
    return _diffilqrax(d, m, H, batch, parallel=True)


def _mpc(d: int, m: int, H: int, batch: int) -> Solver:
    """Run the backward pass of `LQRStep`, then a roll-out for the costs.

    The public call returns neither gains nor values, and its line search costs time and an (n, n)
    matrix a step, so the backward pass is taken out of the closure it is defined in.
    """
    import torch
    from mpc.mpc import LQRStep  # not from mpc.lqr_step: that is a circular import

    torch.set_num_threads(1)
    step = inspect.getclosurevars(LQRStep(d, m, H).__self__.forward)
    backward = step.nonlocals["lqr_backward"]
    C = torch.zeros(H, 1, d + m, d + m, dtype=torch.float64)
    C[-1, 0, d:, d:] = torch.eye(m)  # it wants a last control: a cost that makes it zero
    c = torch.zeros(H, batch, d + m, dtype=torch.float64)

    @torch.inference_mode()
    def solve(A: Array, B: Array, Q: Array, R: Array, start: Array) -> Solution:
        Qs, Rs, x = torch.from_numpy(Q), torch.from_numpy(R), torch.from_numpy(start)
        C[:, 0, :d, :d], C[:-1, 0, d:, d:] = Qs, Rs
        F = torch.cat((torch.from_numpy(A), torch.from_numpy(B)), 2)
        context = SimpleNamespace(current_u=None)
        Ks, _, _ = backward(context, C.expand(-1, batch, -1, -1), c, [F] * (H - 1), None)
        states, controls = [x], []
        for K in Ks[:0:-1]:  # last step first, and the spare last control dropped
            controls.append((K @ states[-1][..., None])[..., 0])
            both = torch.cat((states[-1], controls[-1]), 1)
            states.append((F @ both[..., None])[..., 0])
        X, U, quadratic = torch.stack(states), torch.stack(controls), "hni,hij,hnj->n"
        costs = torch.einsum(quadratic, X, Qs, X) + torch.einsum(quadratic, U, Rs, U)
        return torch.stack(Ks[:0:-1], 1).numpy(), None, costs.numpy()

    return solve


def _crocoddyl(d: int, m: int, H: int, batch: int) -> Solver:
    """SolverDDP's backward pass, the matrices written into the problem's data; a Python loop.

    `setLQR`, `calc` and `calcDiff` would only copy the same matrices there, more slowly.
    """
    import crocoddyl

    models = [crocoddyl.ActionModelLQR(d, m) for _ in range(H)]
    problem = crocoddyl.ShootingProblem(np.zeros(d), models[:-1], models[-1])
    problem.nthreads = 1
    solver = crocoddyl.SolverDDP(problem)
    solver.setCandidate([np.zeros(d)] * H, [np.zeros(m)] * (H - 1), True)
    steps = list(problem.runningDatas)

    def solve(A: Array, B: Array, Q: Array, R: Array, start: Array) -> Solution:
        gains, values = np.empty((batch, H - 1, m, d)), np.empty((batch, H, d, d))
        for step, Qh, Rh in zip(steps, Q[:-1], R, strict=True):
            step.Lxx, step.Luu = Qh, Rh
        problem.terminalData.Lxx = Q[-1]
        for i, (Ai, Bi) in enumerate(zip(A, B, strict=True)):
            for step in steps:
                step.Fx, step.Fu = Ai, Bi
            solver.backwardPass()
            gains[i], values[i] = solver.K, solver.Vxx
        return np.negative(gains, out=gains), values, _costs(values, start)

    return solve


def _drake(d: int, m: int, H: int, batch: int) -> Solver:
    """FiniteHorizonLinearQuadraticRegulator on a discrete LinearSystem; a Python loop.

    Its costs are constant in time but for the final one, so it is called for each stretch of
    steps with the same costs (each step, where they all differ), the last value as final cost.
    """
    from pydrake.systems.controllers import (
        FiniteHorizonLinearQuadraticRegulator,
        FiniteHorizonLinearQuadraticRegulatorOptions,
    )
    from pydrake.systems.primitives import LinearSystem

    C, D, f0, y0 = np.zeros((0, d)), np.zeros((0, m)), np.zeros(d), np.zeros(0)
    system = LinearSystem(np.zeros((d, d)), np.zeros((d, m)), C, D, 1.0)
    context = system.CreateDefaultContext()
    system.get_input_port().FixValue(context, np.zeros(m))
    options = FiniteHorizonLinearQuadraticRegulatorOptions()

    def solve(A: Array, B: Array, Q: Array, R: Array, start: Array) -> Solution:
        gains, values = np.empty((batch, H - 1, m, d)), np.empty((batch, H, d, d))
        changed = (Q[1:-1] != Q[:-2]).any((1, 2)) | (R[1:] != R[:-1]).any((1, 2))
        edges = [0, *(np.flatnonzero(changed) + 1).tolist(), H - 1]
        stretches = list(pairwise(edges))[::-1]
        values[:, -1] = Q[-1]
        for i, (Ai, Bi) in enumerate(zip(A, B, strict=True)):
            system.UpdateCoefficients(Ai, Bi, f0, C, D, y0)
            for first, end in stretches:
                options.Qf = values[i, end]
                result = FiniteHorizonLinearQuadraticRegulator(
                    system, context, 0.0, float(end - first), Q[first], R[first], options
                )
                for h in range(first, end):
                    gains[i, h] = result.K.value(h - first)
                    values[i, h] = result.S.value(h - first)
        return np.negative(gains, out=gains), values, _costs(values, start)

    return solve


# fmt: off
PEERS = [
    Peer("diffilqrax", "diffilqrax", ("diffilqrax.lqr",),
         "gains, cost by roll-out; no values", _diffilqrax_sequential),
    Peer("diffilqrax scan", "diffilqrax", ("diffilqrax.plqr",),
         "gains, values, cost", _diffilqrax_parallel),
    Peer("mpc.pytorch", "mpc", ("torch", "mpc.mpc"),
         "gains (private backward pass), cost by roll-out; no values", _mpc),
    Peer("crocoddyl", "crocoddyl", ("crocoddyl",), "gains, values, cost; loop", _crocoddyl),
    Peer("drake", "drake", ("pydrake.systems.controllers",), "gains, values, cost; loop", _drake),
]
# fmt: on


def available() -> list[Peer]:
    """Import every peer; one that does not import is listed all the same, with its reason."""
    peers = []
    for peer in PEERS:
        try:
            for module in peer.modules:
                importlib.import_module(module)
            peers.append(replace(peer, name=f"{peer.name} {version(peer.distribution)}"))
        except Exception as error:
            peers.append(replace(peer, reason=f"{type(error).__name__}: {error}"))
    return peers
