"""How a study grows: the time to open it, to ask and to tell, by the number of its episodes.

Logs of up to a million episodes are written in bulk, as `tell` would have left them: every row, the
counts, and a snapshot that is behind by as much as one may be. The learner of that snapshot has
learnt as many episodes, many at a time. Then a new process opens the study, asks and tells.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from contextual_lqr import Agent, FeatureContext, QuadraticCost, Study, Trajectory
from contextual_lqr.study import schema
from contextual_lqr.study.encoding import context_text, episode_bytes, episode_key
from contextual_lqr.study.learner import _STRIDE, agent_bytes, agent_from, what_no_file_holds
from contextual_lqr.study.schema import sql

COST = QuadraticCost(Q=[np.eye(2)] * 21, R=[np.eye(1)] * 20)
SOME = 250
A, B = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([0.0, 0.1])


def agent(deviations: str | None) -> Agent:
    """Carts of different masses, on a rail; kept apart if they deviate."""
    context_map = FeatureContext(["1", "1/mass"], bounds={"mass": (0.5, 3.0)})
    return Agent(context_map, COST, [1.0, 0.0], deviations=deviations)


def episodes(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masses, states and inputs of carts that are pushed about."""
    mass = rng.uniform(0.5, 3.0, count).round(3)
    x = np.tile([1.0, 0.0], (count, 1))
    states, inputs = [x], []
    for _ in range(20):
        u = rng.normal(size=(count, 1)) - 0.5 * x.sum(1, keepdims=True)
        x = x @ A.T + u * B / mass[:, None] + 0.01 * rng.normal(size=(count, 2))
        states.append(x)
        inputs.append(u)
    return mass, np.stack(states, 1), np.stack(inputs, 1)


def write(url: str, count: int, machines: int | None, deviations: str | None) -> int:
    """A study of so many episodes, of so many machines or without labels; its snapshot's bytes."""
    rng, block = np.random.default_rng(7), []
    with Study.open(url, agent(deviations)) as study:
        database, learnt = study._log.database, study._learner.agent
        own = what_no_file_holds(learnt)
        learnt = agent_from(agent_bytes(learnt), "it", own)
        lag = min(count - 1, _STRIDE - 1)
        told: dict[str, int] = {}
        for first in range(0, count, SOME):
            n = min(SOME, count - first)
            mass, x, u = episodes(rng, n)
            labels = [None if machines is None else f"M-{k % machines}" for k in range(n)]
            contexts = [{"mass": float(one)} for one in mass]
            if machines is not None:  # a machine keeps its mass
                contexts = [{"mass": 0.5 + 2.5 * (k % machines) / machines} for k in range(n)]
            rows = []
            for k in range(n):
                text = context_text(contexts[k])
                content = episode_bytes(Trajectory(x[k], u[k]))
                key = episode_key(text, labels[k], content)
                row = {"number": first + k + 1, "key": key, "ask": None, "machine": labels[k]}
                row |= {"context": text, "content": content, "worker": None}
                rows.append(row | {"told_at": float(first + k), "cost": 1.0, "steps": 20})
                told[labels[k] or ""] = told.get(labels[k] or "", 0) + 1
            block += rows
            if len(block) >= 10_000 or first + n == count:
                with database.writing() as now:
                    now.execute(sql.insert(schema.episodes), block)
                block = []
            last = min(n, count - lag - first)
            if last > 0:
                learnt.decoder.update_many(
                    contexts[:last], Trajectory(x[:last], u[:last]), labels[:last]
                )
        with database.writing() as now:
            now.execute(sql.update(schema.study).values(episodes=count))
            rows = [
                {"machine": one, "context": context_text({"mass": 1.0})}
                | {"episodes": n, "last_told_at": 0.0}
                for one, n in told.items()
            ]
            now.execute(sql.insert(schema.machines), rows)
        content = agent_bytes(learnt)
        study._log.add_snapshot(count - lag, content)
        study._log.database.tidy()
        return len(content)


def timed(url: str) -> dict[str, float]:
    """In this process, which has done nothing yet: open, ask, tell and status, in seconds.

    All of the processor, but for how long opening took by the clock.
    """
    _, x, u = episodes(np.random.default_rng(time.time_ns()), 40)
    start, clock = time.process_time(), time.perf_counter()
    study = Study.open(url)
    found = {"open": time.process_time() - start, "clock": time.perf_counter() - clock}
    asks, tells = [], []
    for k in range(20):
        start = time.process_time()
        plan = study.ask({"mass": 1.5}, machine=f"M-{k % 10}")
        asks.append(time.process_time() - start)
        start = time.process_time()
        study.tell(plan, Trajectory(x[k], u[k]))
        tells.append(time.process_time() - start)
    start = time.process_time()
    study.status()
    found["status"] = time.process_time() - start
    study.close()
    return found | {"ask": float(np.median(asks)), "tell": float(np.median(tells))}


def measured(count: int, machines: int | None, deviations: str | None) -> dict[str, float]:
    """Write such a study, and time it in three new processes: the first opening, else the best."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/fleet.db"
        size = write(url, count, machines, deviations)
        runs = []
        for _ in range(3):
            run = [sys.executable, __file__, url]
            out = subprocess.run(run, check=True, capture_output=True, text=True).stdout
            runs.append(dict(zip(*[iter(out.split())] * 2, strict=True)))
        best = {name: min(float(run[name]) for run in runs) for name in runs[0]}
        for name in ("open", "clock"):  # the first leaves a snapshot for the others
            best[name] = float(runs[0][name])
        file = Path(folder, "fleet.db").stat().st_size
    return best | {"snapshot": size, "file": file, "episodes": count}


def table(counts: tuple[int, ...]) -> str:
    """As Markdown."""
    lines = [
        "| episodes | machines | snapshot | open | by the clock | ask | tell | status |",
        "|---|---|---|---|---|---|---|---|",
    ]
    kinds: tuple[tuple[str, int | None, str | None], ...] = (
        ("one law", 100, None),
        ("100, kept apart", 100, "estimated"),
        ("without labels, kept apart", None, "estimated"),
    )
    for name, machines, deviations in kinds:
        for count in counts:
            one = measured(count, machines, deviations)
            names = ("open", "clock", "ask", "tell", "status")
            times = " | ".join(f"{1e3 * one[k]:,.1f} ms" for k in names)
            lines.append(f"| {count:,} | {name} | {one['snapshot'] / 1e6:.2f} MB | {times} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("sqlite"):
        print(*(f"{name} {value}" for name, value in timed(sys.argv[1]).items()))
    else:
        table(tuple(int(one) for one in sys.argv[1:]) or (1000, 30_000, 1_000_000))
