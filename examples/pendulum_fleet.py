"""Ten MuJoCo pendulums in ten processes, which learn together through a service.

    python examples/pendulum_fleet.py [machines] [episodes of each] [steps of the test]

Needs the extras `mujoco` and `serve`. Every machine has another cart, pole and length, plays when
it likes, and begins each episode with what all have learnt by then. Watch them at the address that
is printed. In the end, machines that nobody tried are balanced.
"""

import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import contextual_lqr as clqr
from contextual_lqr.envs import rollout
from contextual_lqr.envs.inverted_pendulum import InvertedPendulum, inverted_pendulum

given = [int(word) for word in sys.argv[1:]]
MACHINES, EPISODES, STEPS = given + [10, 15, 250][len(given) :]


@contextmanager
def service(store: str) -> Iterator[str]:
    """The address of the study, while it is served."""
    command = [sys.executable, "-m", "contextual_lqr", "serve", "--store", store, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process.stderr.readline().split()[0]
    finally:
        process.terminate()
        process.communicate()


def machine(url: str, number: int) -> None:
    """One pendulum: the only thing that it shares with the others is the address."""
    rng = np.random.default_rng(number)
    context = inverted_pendulum().sample_context(rng)
    env = InvertedPendulum()
    with clqr.Study.open(url) as study:
        for _ in range(EPISODES):
            seen, _ = env.reset(seed=int(rng.integers(2**31)), options={"context": context})
            x, up = np.array(seen["obs"], float), True
            with study.episode(context, "step", machine=f"pendulum {number}", start=x) as episode:
                while up and not episode.finished:
                    u = np.clip(episode.act(x), -env.input_scale, env.input_scale)
                    seen, _, fallen, _, _ = env.step((u / env.input_scale).astype(np.float32))
                    x, up = np.array(seen["obs"], float), not fallen
                    episode.observe(x, u)
    env.close()


def main() -> None:
    """Begin a study, serve it, let the machines learn, and balance new ones."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/pendulums.db"
        agent = inverted_pendulum().agent(
            region=(None, 0.2, None, None)
        )  # rad: beyond, none is linear
        clqr.Study.open(store, agent).close()
        with service(store) as url, clqr.Study.open(url) as study:
            print(f"watch {MACHINES} pendulums learn: {url}", flush=True)
            spawn = multiprocessing.get_context("spawn")
            fleet = [spawn.Process(target=machine, args=(url, k)) for k in range(MACHINES)]
            for one in fleet:
                one.start()
            for one in fleet:
                one.join()
            report(study)
            if sys.stdin.isatty() and sys.stdout.isatty():
                input("Enter ends the service")


def report(study: clqr.Study) -> None:
    """How the poles stood and what that cost, episode by episode; and machines never tried."""
    played: dict[str, list[clqr.Trajectory]] = {}
    for one in study.export():
        told = clqr.Trajectory(one["states"], one["inputs"])
        played.setdefault(one["machine"], []).append(told)
    cost = study.cost
    for number, round_ in enumerate(zip(*played.values(), strict=True)):
        up = [len(one) for one in round_]
        paid = [clqr.trajectory_cost(one, cost) for one in round_ if len(one) == cost.horizon - 1]
        middle = f"median cost {np.median(paid):.2g}" if paid else "none to the end"
        print(f"episode {number + 1:2}: all up for {min(up)} steps, {middle}")
    rng, task = np.random.default_rng(1000), inverted_pendulum(horizon=STEPS + 1)
    for _ in range(5):
        context = task.sample_context(rng)
        trusted = clqr.certify(study.decoder, context, task.cost, task.start, bounds=False)
        played = rollout(trusted.policy, InvertedPendulum(), context=context, seed=0).trajectory
        facts = ", ".join(f"{name.replace('_', ' ')} {v:.2f}" for name, v in context.items())
        print(f"never tried: {facts}: {trusted.verdict}, up for {len(played)} of {STEPS} steps")


if __name__ == "__main__":
    main()
