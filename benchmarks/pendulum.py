"""MuJoCo's inverted pendulum, 100 machines never tried; writes docs/pendulum-measured.md.

`python benchmarks/pendulum.py [seeds]`: 5 seeds unless told otherwise, from 90000. Weights were
chosen on seeds 0 to 2; that features have columns of their own, after a look at seeds from 80000.
"""

import os
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
from peers import ONE_THREAD
from rich.progress import track

from contextual_lqr.envs import PENDULUM, rollout
from contextual_lqr.envs.inverted_pendulum import MAPS, inverted_pendulum
from contextual_lqr.files import write_whole
from contextual_lqr.parallel import in_parallel

PAGE = Path(__file__).parent.parent / "docs" / "pendulum-measured.md"
FIRST_SEED, EPISODES, UNSEEN = 90_000, 40, 100
STARTS = {0.01: 1000, 0.15: 250}  # how far from upright at most, and for how many steps

TEXT = f"""# MuJoCo's pendulum, measured

Written by `benchmarks/pendulum.py`. Gymnasium's InvertedPendulum-v5 with cart mass 0.5 to 2 times,
pole mass 0.3 to 3 times and pole length 0.5 to 2 times the original. A cautious agent that plans
anew at every step plays {EPISODES} episodes of at most 49 steps (2 s), each on another machine.
Then {UNSEEN} machines never tried are balanced by the controller of the estimate, without any
trial. A machine counts if its pole is up at the end. The seeds start at {FIRST_SEED}; none was
used for tuning.

The context enters in one of four ways: through six physical features, each in the columns where
physics puts it; the same six in every column; linearly, as the three numbers themselves and a
constant; or not at all, one controller for all machines. Starts are Gymnasium's own, every
coordinate of the state within ±0.01, for 1000 steps (40 s), and hard ones, within ±0.15, for 250
steps; beyond 0.2 rad a pole counts as fallen.

| start | features | balanced of {UNSEEN}, each seed | median | worst | fell after, median |
|---|---|---|---|---|---|
"""


CONCLUSIONS = """
## How to read it

- **With physical features where physics puts them** all 500 machines stay up from Gymnasium's
  starts, and 499 of 500 from the hard ones. The target was 95 of 100 in the median seed and 85 in
  the worst.
- **The same six features in every column are worse,** 88 to 100 of 100 from Gymnasium's starts.
  They are 30 columns of Θ instead of 16. In the falls we looked at, while tuning, carts crept to
  the end of the rail: how position enters is badly known then, and it does not enter at all.
- **Balancing hardly needs the context.** One controller for all machines balances 97 to 100 of 100
  from Gymnasium's starts and 93 to 100 from the hard ones. The context entering linearly is worse
  than none in its worst seeds (88 and 86). A rough prototype had 0 and 41 to 64 there; with this
  agent and these weights we do not see that. Our guess, not tested: the motor is strong (300 N) and
  the weights are mild, so one controller is robust. What good features buy here is the last few
  machines of a hundred, not the first ninety.
- The seeds from 90000 were not looked at before. Those from 80000 were: after a run on them the six
  features were given columns of their own, and hard starts were added. On them the figures were
  100 in every seed (physical, both starts), 92 to 99 (six everywhere), 96 to 100 (linear) and 97 to
  100 (none) from Gymnasium's starts.
""".splitlines()


def run(job: tuple[str, int]) -> tuple[dict[float, list[int]], int, int]:
    """Learn, then balance: how long each machine stays up; falls on the way, and rows."""
    features, seed = job
    fleet, rng = inverted_pendulum(features), np.random.default_rng(seed)
    env, agent = gymnasium.make(PENDULUM), fleet.agent(seed=seed)
    fallen = 0
    for _ in range(EPISODES):
        context, start = fleet.sample_context(rng), int(rng.integers(2**31))
        fallen += rollout(agent, env, context=context, seed=start, adapt="step").terminated
    lasted: dict[float, list[int]] = {}
    for reach, steps in STARTS.items():
        machines = gymnasium.make(PENDULUM, reset_noise_scale=reach)
        long = inverted_pendulum(horizon=steps + 1).cost
        lasted[reach] = []
        for _ in range(UNSEEN):
            context, start = fleet.sample_context(rng), int(rng.integers(2**31))
            policy = agent.controller(context, cost=long)
            played = rollout(policy, machines, context=context, seed=start)
            lasted[reach].append(len(played.trajectory) - played.terminated)
    return lasted, fallen, agent.decoder.rows


def main() -> None:
    """Run everything, and write the page."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    jobs = [(name, FIRST_SEED + i) for i in range(seeds) for name in MAPS]
    begin = time.perf_counter()
    work = in_parallel(run, jobs, int(os.environ.get("WORKERS", "2")))
    found = dict(track(work, "balancing", len(jobs)))
    page = TEXT.splitlines()
    for reach, steps in STARTS.items():
        for name in MAPS:
            each = [found[name, FIRST_SEED + i][0][reach] for i in range(seeds)]
            ups = [sum(one == steps for one in lasted) for lasted in each]
            falls = [one for lasted in each for one in lasted if one < steps]
            cells = [f"±{reach}", name, ", ".join(map(str, ups))]
            cells += [f"{np.median(ups):g}", f"{min(ups)}"]
            cells += [f"{np.median(falls):g} steps" if falls else "none fell"]
            page.append(f"| {' | '.join(cells)} |")
    page += ["", "| features | training episodes that fell | rows learnt |", "|---|---|---|"]
    for name in MAPS:
        _, fallen, rows = zip(*(found[name, FIRST_SEED + i] for i in range(seeds)), strict=True)
        page.append(f"| {name} | {sum(fallen)} of {EPISODES * seeds} | {np.median(rows):g} |")
    page += CONCLUSIONS
    page += ["", f"Measured in {(time.perf_counter() - begin) / 60:.1f} minutes."]
    write_whole(PAGE, ("\n".join(page).rstrip() + "\n").encode())
    print("\n".join(page))


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
