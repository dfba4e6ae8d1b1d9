"""Time the engine beside its peers, one thread each, and write it to docs/measured/speed.md.

`make bench` runs all of it. `python benchmarks/run.py --no-peers` leaves the peers out and prints
only, for work on the kernels.
"""

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

import numpy as np
from numpy_baseline import solve as numpy_solve
from pages import write_section
from peers import ONE_THREAD, Array, Peer, Solver, available
from rich.console import Console
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr import kernels
from contextual_lqr.fleets import path_following

Data = tuple[Array, Array, Array, Array, Array]
OURS, FRESH, BASELINE = "contextual-lqr", "and LinearSystem(A, B)", "NumPy"
# (d, m, states an episode, batch) and how many times quicker than batched NumPy we mean to be.
WORKLOADS = {
    (5, 2, 20, 1): 10,
    (5, 2, 20, 100): 12,
    (5, 2, 20, 10000): 10,
    (20, 5, 50, 100): 2.5,
    (100, 20, 20, 1): 1.5,
}
CHECKS = [(3, 1, 2, 1), (3, 2, 7, 4), (5, 2, 20, 250), (20, 5, 50, 3)]
TOLERANCE = 1e-8
ROUNDS, SECONDS = 15, 12.0  # of every contestant on a workload: so many rounds, or so long
TURN = 0.02  # seconds; what is shorter is called several times in a turn


@dataclass(frozen=True)
class Timing:
    """Milliseconds: the median over the rounds, and the quartiles as a measure of the noise."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ms"

    @property
    def noise(self) -> float:
        """Half the distance of the quartiles, relative to the median."""
        return (self.high - self.low) / 2 / self.median


def problem(d: int, m: int, H: int, batch: int) -> Data:
    """A, B, Q, R, start: spectral radius about 0.9, costs random at every step."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(batch, d, d)) * 0.9 / np.sqrt(d)
    B = rng.normal(size=(batch, d, m)) / np.sqrt(d)
    Q, R = rng.normal(size=(H, d, d)) / np.sqrt(d), rng.normal(size=(H - 1, m, m)) / np.sqrt(m)
    Q, R = Q @ Q.swapaxes(1, 2), R @ R.swapaxes(1, 2) + np.eye(m)
    return A, B, Q, R, rng.normal(size=(batch, d))


def ours(d: int, m: int, H: int, batch: int, *, fresh: bool = False) -> Solver:
    """Through the public API; `fresh`: the systems are copied and checked on every call."""
    A, B, Q, R, _ = problem(d, m, H, batch)
    system, cost = clqr.LinearSystem(A, B), clqr.QuadraticCost(Q, R)

    def solve(A: Array, B: Array, Q: Array, R: Array, start: Array) -> tuple[Array, Array, Array]:
        solution = clqr.solve(clqr.LinearSystem(A, B) if fresh else system, cost)
        return solution.policy.gains, solution.value_matrices, solution.cost(start)

    return solve


def worst_error(prepare: Callable[..., Solver]) -> float:
    """The largest relative difference from the NumPy baseline in gains, values and costs."""
    errors = []
    for workload in CHECKS:
        data = problem(*workload)
        for found, right in zip(prepare(*workload)(*data), numpy_solve(*data), strict=True):
            if found is not None:
                errors.append(float(np.abs(found - right).max() / np.abs(right).max()))
    return max(errors)


def race(calls: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, Timing]:
    """Time the contestants in turn, so that a busy moment of the machine hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    spent = dict.fromkeys(calls, 0.0)
    for call in calls.values():
        call()  # compile, and touch the memory
    for _ in range(rounds):
        for name, call in calls.items():
            if spent[name] > SECONDS:
                continue
            begin = time.perf_counter()
            call()  # brings its own code and data back into the caches; not counted if short
            warm = time.perf_counter() - begin
            count = max(1, min(50, int(TURN / warm)))
            begin = time.perf_counter()
            for _ in range(count if warm < TURN else 0):
                call()
            took = time.perf_counter() - begin
            spent[name] += warm + took
            times[name].append(took / count if warm < TURN else warm)
    return {name: _timing(seconds) for name, seconds in times.items()}


def _timing(seconds: list[float]) -> Timing:
    low, median, high = (
        (seconds[0],) * 3 if len(seconds) < 2 else statistics.quantiles(seconds, n=4)
    )
    return Timing(1e3 * median, 1e3 * low, 1e3 * high)


def repeat(call: Callable[[], object], times: int) -> Callable[[], None]:
    """Several calls as one, for what is too short to be timed alone."""

    def run() -> None:
        for _ in range(times):
            call()

    return run


def solve_table(peers: list[Peer]) -> list[str]:
    """Everything returned, for each workload and contestant."""
    contestants: dict[str, Callable[..., Solver]] = {OURS: ours, FRESH: partial(ours, fresh=True)}
    contestants[BASELINE] = lambda *_: numpy_solve
    contestants |= {peer.name: peer.prepare for peer in peers}
    lines = [
        f"| d, m, states, batch | {OURS} | {FRESH} | NumPy | times quicker | meant | "
        "quickest peer | times quicker | noise |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    details = [
        f"| d, m, states, batch | {' | '.join(contestants)} |",
        "|---" * 1 + "|---" * len(contestants) + "|",
    ]
    for workload, meant in track(WORKLOADS.items(), "solve, everything returned"):
        data = problem(*workload)
        solvers = {name: prepare(*workload) for name, prepare in contestants.items()}
        found = race({name: partial(solver, *data) for name, solver in solvers.items()})
        mine, numpy = found[OURS], found[BASELINE]
        rivals = {n: t for n, t in found.items() if n not in (OURS, FRESH, BASELINE)}
        rival = min(rivals, key=lambda n: rivals[n].median) if rivals else "none"
        versus = f"{rivals[rival].median / found[FRESH].median:.1f}" if rivals else ""
        size = ", ".join(str(n) for n in workload)
        lines.append(
            f"| {size} | {mine} | {found[FRESH]} | {numpy} | "
            f"{numpy.median / mine.median:.1f} | {meant} | "
            f"{rival} {found.get(rival, '')} | {versus} | ±{100 * mine.noise:.0f} % |"
        )
        details.append(f"| {size} | {' | '.join(str(found[name]) for name in contestants)} |")
    return [*lines, "", "All medians:", "", *details]


def parts_table() -> list[str]:
    """What an agent does between two episodes, at the paper's size."""
    fleet = path_following("circle")
    rng = np.random.default_rng(0)
    contexts = [fleet.sample_context(rng) for _ in range(1000)]
    policy = clqr.LinearPolicy(rng.normal(scale=0.1, size=(19, 2, 5)))
    episodes = [fleet.play(policy, c, rng) for c in contexts]
    together = clqr.Trajectory([e.states for e in episodes], [e.inputs for e in episodes])
    features = clqr.FeatureContext(["1", "1/mass"], states=5, inputs=2)
    masses = {"mass": np.array([c["mass"] for c in contexts])}
    decoder = clqr.Decoder(fleet.context_map, 1e-4)
    decoder.update(contexts[0], episodes[0])
    ellipsoid = clqr.ConfidenceSet(decoder, 1e4)
    A, B, Q, R, start = problem(5, 2, 20, 100)
    system, cost = clqr.LinearSystem(A, B), clqr.QuadraticCost(Q, R)

    def everything() -> object:
        return clqr.solve(system, cost).cost(start)

    calls = {
        "`solve` of 100 candidates, everything": (everything, 10, ""),
        "`optimal_cost` of 100 candidates (J alone)": (
            lambda: clqr.optimal_cost(system, cost, start),
            10,
            "1.3 times quicker than everything",
        ),
        "`cost_gradient` of 100 candidates": (
            lambda: clqr.cost_gradient(system, cost, start),
            10,
            "",
        ),
        "`Decoder.update`, one episode": (
            lambda: decoder.copy().update(contexts[1], episodes[1]),
            20,
            "0.1 ms",
        ),
        "`Decoder.update_many`, 1 000 episodes, block context": (
            lambda: decoder.copy().update_many(contexts, together),
            1,
            "10 ms",
        ),
        "`Decoder.update_many`, 1 000 episodes, features": (
            lambda: clqr.Decoder(features, 1e-4).update_many(masses, together),
            1,
            "10 ms",
        ),
        "`Decoder.estimate` after an update": (
            lambda: decoder.copy().update(contexts[1], episodes[1]) or decoder.estimate,
            20,
            "",
        ),
        "`ConfidenceSet.sample(100)`": (lambda: ellipsoid.sample(100, rng), 20, "0.1 ms"),
    }
    found = race({name: repeat(call, n) for name, (call, n, _) in calls.items()}, rounds=31)
    lines = ["| what | median | meant | noise |", "|---|---|---|---|"]
    for name, (_, n, meant) in calls.items():
        t = found[name]
        lines.append(f"| {name} | {t.median / n:.3g} ms | {meant} | ±{100 * t.noise:.0f} % |")
    whole, alone = list(found.values())[:2]
    lines += ["", f"J alone is {whole.median / alone.median:.2f} times quicker than everything."]
    return lines


def import_line() -> str:
    """How much longer `import contextual_lqr` takes than what it stands on."""

    def seconds(code: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - begin

    pairs = [
        (seconds("import contextual_lqr"), seconds("import numpy, scipy.linalg")) for _ in range(9)
    ]
    more = statistics.median(whole - base for whole, base in pairs)
    return (
        f"`import contextual_lqr` takes {more:.3f} s more than `import numpy, scipy.linalg` "
        "(meant: at most 0.3 s)."
    )


def main() -> None:
    """Check all contestants against the baseline, race them, write the page."""
    console = Console()
    peers = [] if "--no-peers" in sys.argv else available()
    usable = [peer for peer in peers if peer.reason is None]
    for name, prepare in [(OURS, ours), *((p.name, p.prepare) for p in usable)]:
        error = worst_error(prepare)
        if not error < TOLERANCE:
            sys.exit(f"{name} disagrees with the NumPy baseline by {error:.1e}")
    notes = [f"- {peer.name}: {peer.reason or peer.timed}" for peer in peers]
    page = [
        "# The engine beside its peers",
        "",
        "Written by `benchmarks/run.py`. One thread each, double precision, contestants timed in "
        "turn in",
        "one run; medians, and as noise half the distance of the quartiles. Compiling (JAX) and",
        "making models is not counted; handing over the numbers is. All contestants agree with the",
        f"NumPy baseline to {TOLERANCE:.0e}. Our first column is `solve` and `cost` of systems",
        "that were checked when made, against NumPy, which checks nothing; the second makes",
        "and checks the systems too, and is the one held against the peers.",
        "",
        f"Machine: {platform.machine()}, {os.cpu_count()} cores, kernels for {kernels.compiled}; "
        f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {version('scipy')}.",
        "",
        "## `solve`: gains, value matrices and cost",
        "",
        *solve_table(usable),
        "",
        *notes,
        "",
        "## The parts of a learning step, at the paper's size (d = 5, m = 2, 20 states, p = 7)",
        "",
        *parts_table(),
        "",
        import_line(),
        "",
    ]
    text = "\n".join(page)
    console.print(text, highlight=False, markup=False)
    if peers:
        write_section("speed", "engine", text)


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
