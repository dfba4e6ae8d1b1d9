"""Check every peer against the NumPy baseline, then print the median times, all on one thread.

`python check_peers.py [part of a peer's name] ...`
"""

import os
import statistics
import sys
import time

import numpy as np
from numpy.typing import NDArray
from numpy_baseline import solve as numpy_solve
from peers import ONE_THREAD, Peer, Solver, available

Array = NDArray[np.float64]
WORKLOADS = [(5, 2, 20, 1), (5, 2, 20, 100), (5, 2, 20, 10000), (20, 5, 50, 100), (100, 20, 20, 1)]
CHECKS = [(3, 1, 2, 1), (3, 2, 7, 4), (5, 2, 20, 250), (20, 5, 50, 3)]
TOLERANCE = 1e-8
REPEATS, BUDGET = 15, 15.0  # as many repeats as fit into the budget of seconds, at least one


def problem(
    d: int, m: int, H: int, batch: int, *, constant: bool = False
) -> tuple[Array, Array, Array, Array, Array]:
    """Draw A, B, Q, R, start: spectral radius about 0.9, costs random in time or constant."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(batch, d, d)) * 0.9 / np.sqrt(d)
    B = rng.normal(size=(batch, d, m)) / np.sqrt(d)
    Q, R = rng.normal(size=(H, d, d)) / np.sqrt(d), rng.normal(size=(H - 1, m, m)) / np.sqrt(m)
    Q, R = Q @ Q.swapaxes(1, 2), R @ R.swapaxes(1, 2) + np.eye(m)
    if constant:
        Q[:-1], R[:] = Q[0].copy(), R[0].copy()
    return A, B, Q, R, rng.normal(size=(batch, d))


def worst_error(peer: Peer, workload: tuple[int, int, int, int], *, constant: bool) -> float:
    """Return the largest relative difference from the baseline in gains, values and costs."""
    data = problem(*workload, constant=constant)
    errors = []
    for found, right in zip(peer.prepare(*workload)(*data), numpy_solve(*data), strict=True):
        if found is not None:
            if found.shape != right.shape:
                raise ValueError(f"{peer.name}: shape {found.shape}, not {right.shape}")
            errors.append(float(np.abs(found - right).max() / np.abs(right).max()))
    return max(errors)


def median_time(
    solver: Solver, data: tuple[Array, Array, Array, Array, Array]
) -> tuple[float, int]:
    """Return the median of the repeated calls' times in milliseconds, and their number."""
    solver(*data)
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < BUDGET:
        begin = time.perf_counter()
        solver(*data)
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times), len(times)


def row(name: str, cells: list[str]) -> None:
    """Print a row of the table as soon as it is known."""
    print(f"{name:32s}" + "".join(f"{cell:>18s}" for cell in cells), flush=True)


def main() -> None:
    """Check, then time; exit with 1 if a peer disagrees with the baseline."""
    wanted = sys.argv[1:] or [""]
    peers = [peer for peer in available() if any(part in peer.name for part in wanted)]
    usable = [peer for peer in peers if peer.reason is None]
    failed = False
    for peer in peers:
        print(f"{peer.name}: {peer.reason or peer.timed}")
    for peer in usable:
        error = max(worst_error(peer, w, constant=c) for w in CHECKS for c in (False, True))
        failed |= not error < TOLERANCE
        print(f"{peer.name}: worst relative error {error:.1e}", flush=True)
    print("\nmedians in ms (number of repeats); costs vary in time unless said otherwise")
    row("(d, m, H, batch)", [str(w).replace(" ", "") for w in WORKLOADS])
    runs = [("numpy " + np.__version__, lambda *_: numpy_solve, False)]
    runs += [(peer.name, peer.prepare, False) for peer in usable]
    runs += [
        (f"{peer.name}, constant", peer.prepare, True) for peer in usable if "drake" in peer.name
    ]
    for name, prepare, constant in runs:
        cells = []
        for workload in WORKLOADS:
            data = problem(*workload, constant=constant)
            median, repeats = median_time(prepare(*workload), data)
            cells.append(f"{median:.3g} ({repeats})")
        row(name, cells)
    sys.exit(failed)


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
