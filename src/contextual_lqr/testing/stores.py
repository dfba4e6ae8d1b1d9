"""What every store of a study must satisfy: nothing lost, nothing counted twice, one order."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from contextual_lqr.context import FeatureContext
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, QuadraticCost, Trajectory
from contextual_lqr.lqr.rollout import simulate
from contextual_lqr.planning.agent import Agent
from contextual_lqr.testing.verdict import expect, refused

_COST = QuadraticCost(Q=[np.eye(1)] * 5, R=[np.eye(1)] * 4)
_MACHINE = LinearSystem([[0.9]], [[0.5]], noise=[[1e-4]])


def check_store(url: str, threads: int = 8, processes: int = 2) -> None:
    """Open, fill and open again a study at an address where there is none yet.

    What is told is there, once, in one order for all readers; a late, a repeated and an unasked
    episode are welcome, another one under a key that is taken is not; an ask is answered alike
    under its key; whoever opens the study folds the same belief, bit for bit, also from a snapshot;
    machines are counted; threads and processes lose nothing, also if they tell the same; what does
    not fit is refused, and changes nothing.
    """
    from contextual_lqr.study import Study
    from contextual_lqr.study.learner import agent_bytes

    def belief(study: Any) -> bytes:
        study.status()  # which catches up with the log
        return agent_bytes(study._learner.agent)

    study = Study.open(url, _agent())
    other = Study.open(url)
    expect(study.status().episodes == 0, "there is a study at this address already")

    plan = study.ask({"mass": 2.0}, machine="M-1", key="first")
    again = other.ask({"mass": 2.0}, machine="M-1", key="first")
    same = np.array_equal(plan.offsets, again.offsets)
    expect(same, "asking again under the same key gives another plan")
    with refused("another context under the same key"):
        other.ask({"mass": 3.0}, machine="M-1", key="first")
    expect(other.status().waiting == 1, "an ask of one reader is not seen by another")

    played = _played(0)
    expect(study.tell(plan, played) == (1, True), "the first episode is not number 1")
    expect(other.tell(plan, played) == (1, False), "an episode that is told twice counts twice")
    expect(other.tell("first", played) == (1, False), "an ask's key is not its plan")
    expect(other.status().waiting == 0, "what is told is still waited for")
    late = study.ask({"mass": 2.0}, machine="M-2", lease=1e-9)
    expect(study.status().late == 1, "an ask whose lease has run out is not late")
    expect(other.tell(late, _played(1)) == (2, True), "a late episode is not welcome")
    unasked = study.tell({"mass": 1.5}, _played(2), "M-3")
    expect(unasked == (3, True), "an episode that nobody asked for is not welcome")

    before = belief(study)
    for what, odd in (
        ("an episode of two states", Trajectory(np.zeros((5, 2)), np.zeros((4, 1)))),
        ("what is no trajectory", [[1.0]]),
    ):
        with refused(what):
            study.tell({"mass": 1.5}, odd)  # type: ignore[arg-type]
    with refused("a context without its mass"):
        study.tell({}, played)
    expect(belief(study) == before, "what was refused has changed something")

    with ThreadPoolExecutor(threads) as pool:
        jobs = [(k % 2, 1 + k % 5, k) for k in range(3, 3 + 4 * threads)]
        told = list(
            pool.map(
                lambda job: (study, other)[job[0]].tell({"mass": job[1]}, _played(job[2])), jobs
            )
        )
    numbers = sorted(one.number for one in told)
    expect(numbers == list(range(4, 4 + len(jobs))), f"threads were given the numbers {numbers}")
    expect(belief(study) == belief(other), "two readers of one log do not hold the same belief")
    fresh = Study.open(url)
    expect(belief(fresh) == belief(study), "opening it again gives a different belief")
    fresh.compact()
    fresh.tell({"mass": 4.0}, _played(1000))
    snapshot = Study.open(url)
    expect(belief(snapshot) == belief(study), "opening a snapshot gives another belief")

    number, _ = study.tell({"mass": 1.0}, _played(5000), "M-9", key="run")
    repeated = other.tell({"mass": 1.0}, _played(5000), "M-9", key="run")
    expect(repeated == (number, False), "an episode told again under its key counts twice")
    with refused("another episode under a key that is taken"):
        other.tell({"mass": 1.0}, _played(5001), "M-9", key="run")
    expect(study.status().machines.get("M-9") == 1, "what was refused is counted")

    begun, keys = study.status(), [f"{k}" for k in range(3 * processes)]
    _in_processes(url, processes, keys)
    now = study.status()
    expect(now.episodes == begun.episodes + len(keys), "what two processes tell counts twice")
    expect(now.machines.get("M-7", 0) == len(keys), f"the machine is counted as {now.machines}")
    expect(sum(now.machines.values()) == now.episodes, "machines do not have all episodes")
    expect(now.waiting == begun.waiting, "what processes asked and told is still waited for")
    last = Study.open(url)
    expect(belief(last) == belief(study), "after processes have told, two readers differ")
    last.close()

    copied = [study.import_(record) for record in study.export()]
    expect(not any(one.new for one in copied), "what was exported is imported twice")
    with refused("another fleet"):
        Study.open(url, _agent(2.0))
    for one in (study, other, fresh, snapshot):
        one.close()


def _in_processes(url: str, processes: int, keys: list[str]) -> None:
    """Each asks and tells the same episodes, under the same keys, at once."""
    program = "from contextual_lqr.testing import stores; import sys; stores._tell(*sys.argv[1:])"
    run = [sys.executable, "-c", program, url, *keys]
    workers = [subprocess.Popen(run) for _ in range(processes)]
    codes = [one.wait() for one in workers]
    expect(not any(codes), f"processes that tell at once end with {codes}")


def _tell(url: str, *keys: str) -> None:
    from contextual_lqr.study import Study

    with Study.open(url) as study:
        for key in keys:
            plan = study.ask({"mass": 2.0}, "M-7", key=f"ask {key}")
            study.tell(plan, _played(6000 + int(key)))


def _agent(start: float = 1.0) -> Agent:
    context_map = FeatureContext(["1", "1/mass"], bounds={"mass": (0.1, 10.0)})
    return Agent(context_map, _COST, [start])


def _played(seed: int) -> Trajectory:
    rng = np.random.default_rng(seed)
    return simulate(LinearPolicy(rng.normal(size=(4, 1, 1)) / 5), _MACHINE, [1.0], rng)
