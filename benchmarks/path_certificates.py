"""Certificates of planned paths held against the truth, where features are exact and where not.

Writes a section of docs/measured/nonlinear.md.

`python benchmarks/path_certificates.py [seeds] [results.json]`: seeds from 400000; what is trusted
was chosen on seeds below 1000. Runs found in the file are not run again.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array
from pages import write_section

import contextual_lqr as clqr
from contextual_lqr.certificates.paths.path_calibration import PathCalibration, calibration_of
from contextual_lqr.certificates.paths.path_certificate import certify_path
from contextual_lqr.fleets import (
    NonlinearFleet,
    cart_pole_swing_up,
    pendulum_swing_up,
    slippery_curve,
    two_tanks,
)

FIRST_SEED, LOGGED, RUNS, UNSEEN, BAD = 400_000, 24, 2, 20, 0.05
FLEETS = {
    "pendulum": pendulum_swing_up,
    "cart-pole": cart_pole_swing_up,
    "car": slippery_curve,
    "tanks": two_tanks,
}
# What the truth has and the features lack: the state whose rate of change it is, and the term.
MISSING = {
    "pendulum": ("speed", "tanh(5*speed)/(mass*length**2)", -0.3),  # dry friction, of 3 N m
    "cart-pole": ("velocity", "tanh(10*velocity)/cart_mass", -2.0),  # N, of 20
    "car": ("drift", "tanh(2*drift)", -0.3),  # m/s²
    "tanks": ("upper", "upper*upper/upper_area", -0.05),  # a leak: of 0.3 through the outlet
}
SETTINGS = {
    "exact": {},
    "missing, a third": {"missing": 1 / 3},
    "missing": {"missing": 1.0},
    "missing, threefold": {"missing": 3.0},
    "5 %": {"vary": 0.05},
    "10 %": {"vary": 0.1},
}

TEXT = f"""# Which paths are trusted, and rightly

Written by `benchmarks/path_certificates.py`. The four fleets that are not linear; {LOGGED}
machines, {RUNS} runs each, that follow the middle machine's path with pushes; then certificates of
machines never seen, held against iterative LQR with their true equations. *Exact*: the features are
those of the truth. *Missing*: the truth has a term that the features lack (dry friction of a tenth
of the largest input, a tyre's drag, a leak), also a third of it and threefold. *5 %*, *10 %*: each
number of each machine's equations is off by so much, at random. *Bad*: over 5 % above the optimum.
*Stretch*: what the backtest widens the draws by, in the median over seeds. *Inside*: the share of
costs, with noise, inside the interval of 95 %. Last, the same without the backtest. Seeds from
{FIRST_SEED}, none used in development.

""" + (
    "| fleet | features | machines | bad | stretch | trusted | of them bad | inside "
    "| without: trusted | of them bad | inside |\n" + "|---" * 11 + "|\n"
)

READ = """
Where machines vary by 5 or 10 %, up to eight in ten plans are bad, and next to none is trusted: how
they vary is estimated from the logs. A missing term makes the runs go where they were not expected,
and the backtest sees it. It costs trust where the plan is good nevertheless, because feedback
repairs what the model lacks: that the model is wrong shows in the runs, that it does not matter
does not.
"""


class Truth:
    """A fleet as it really is: with a term that nobody knows of, or machines that vary."""

    def __init__(self, name: str, missing: float = 0.0, vary: float = 0.0) -> None:
        self.fleet: NonlinearFleet = FLEETS[name]()
        known, (state, term, size) = self.fleet.context_map, MISSING[name]
        assert isinstance(known, clqr.FeatureDynamics)
        lists = {one: list(own) for one, own in rows_of(known).items()}
        lists[state].append(term)
        self.dynamics = clqr.FeatureDynamics(
            lists, states=known.state_names, inputs=known.input_names, bounds=known.bounds
        )
        self.theta = np.zeros((len(lists), len(self.dynamics.feature_names)))
        for j, text in enumerate(known.feature_names):
            self.theta[:, self.dynamics.feature_names.index(text)] = self.fleet._truth[:, j]
        row = known.state_names.index(state)
        dt = {"pendulum": 0.05, "cart-pole": 0.02, "car": 0.05, "tanks": 0.5}[name]
        self.theta[row, self.dynamics.feature_names.index(term)] = missing * size * dt
        self.vary = vary

    def machine(self, rng: np.random.Generator) -> clqr.DynamicsBelief:
        """One machine of it."""
        stays = self.dynamics.persistence
        assert stays is not None
        rates = (self.theta - stays) * (1 + self.vary * rng.standard_normal(self.theta.shape))
        context = self.fleet.sample_context(rng)
        return clqr.DynamicsBelief.known(self.dynamics, context, stays + rates, self.fleet.noise)

    def best(self, machine: clqr.DynamicsBelief) -> clqr.TrajectorySolution:
        """Its best path."""
        fleet = self.fleet
        limits: Any = {"input_bounds": fleet.input_bounds}
        return clqr.solve_trajectory(machine, fleet.cost, fleet.start, attempts=25, **limits)

    def played(
        self, machine: clqr.DynamicsBelief, policy: Any, noise: float, rng: np.random.Generator
    ) -> clqr.Trajectory:
        """One run, with so much of the noise."""
        x, u = [self.fleet.start], []
        for step in range(self.fleet.cost.horizon - 1):
            u.append(np.clip(policy(step, x[-1]), *self.fleet.input_bounds))
            shock = noise * self.fleet.noise_level * rng.standard_normal(len(x[-1]))
            x.append(machine.step(x[-1], u[-1]) + shock)
        return clqr.Trajectory(np.array(x), np.array(u))


def rows_of(known: clqr.FeatureDynamics) -> dict[str, list[str]]:
    """The features of each state's row."""
    used = known.used
    assert used is not None
    names = np.array(known.feature_names, object)
    return {state: list(names[own]) for state, own in zip(known.state_names, used, strict=True)}


def logs(truth: Truth, rng: np.random.Generator, machines: int) -> clqr.Decoder:
    """What runs of machines teach that follow the middle machine's path, with pushes."""
    fleet = truth.fleet
    decoder = clqr.Decoder(fleet.context_map, noise_level=fleet.noise_level)
    middle = {k: sum(ends) / 2 for k, ends in (fleet.context_map.bounds or {}).items()}
    nominal = clqr.DynamicsBelief.known(fleet.context_map, middle, fleet._truth)
    path = truth.best(nominal).policy
    low, high = fleet.input_bounds
    for i in range(machines):
        machine = truth.machine(rng)
        for _ in range(RUNS):
            pushes = 0.15 * (high - low) * np.repeat(rng.standard_normal((100, len(low))), 5, 0)

            def policy(step: int, x: Array, pushes: Array = pushes) -> Array:
                return np.asarray(path(step, x)) + pushes[step]

            played = truth.played(machine, policy, 1.0, rng)
            decoder.update(machine.context, played, machine=f"machine {i}")
    return decoder


def run(name: str, setting: str, seed: int) -> dict[str, Any]:
    """The certificates of unseen machines, calibrated or not, and what came of them."""
    kinds = list(SETTINGS).index(setting)
    rng = np.random.default_rng([seed, sorted(FLEETS).index(name), kinds])
    truth = Truth(name, **SETTINGS[setting])
    fleet = truth.fleet
    decoder = logs(truth, rng, LOGGED)
    found: dict[str, Any] = {"excess": [], "trusted": [], "inside": []}
    found |= {f"{what}, plain": [] for what in ("trusted", "inside")}
    for _ in range(UNSEEN):
        machine = truth.machine(rng)
        task: Any = (decoder, machine.context, fleet.cost, fleet.start)
        best = float(truth.best(machine).cost)
        for kind, calibration in (("", None), (", plain", PathCalibration({}, 1.0, 0.0))):
            said = certify_path(*task, input_bounds=fleet.input_bounds, calibration=calibration)
            noisy = truth.played(machine, said.policy, 1.0, rng)
            low, high = said.interval
            paid = float(clqr.trajectory_cost(noisy, fleet.cost))
            found[f"trusted{kind}"].append(said.verdict == "trust")
            found[f"inside{kind}"].append(bool(low <= paid <= high))
        played = truth.played(machine, said.policy, 0.0, rng)
        found["excess"].append(float(clqr.trajectory_cost(played, fleet.cost)) / best - 1)
    found["stretch"] = calibration_of(decoder, fleet.cost.horizon - 1).stretch
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    """A row for each fleet and setting, and one for all."""
    lines = []
    for name in FLEETS:
        for setting in SETTINGS:
            runs = [one for key, one in found.items() if key.startswith(f"{name}/{setting}/")]
            if runs:
                stretch = f"{np.median([one['stretch'] for one in runs]):.2f}"
                lines.append(line(runs, name, setting, stretch))
    return "".join(lines) + line(list(found.values()), "all", "", "")


def line(runs: list[dict[str, Any]], name: str, setting: str, stretch: str) -> str:
    """What came of some runs."""
    bad = np.concatenate([one["excess"] for one in runs]) > BAD
    cells = [name, setting, len(bad), f"{bad.mean():.0%}", stretch]
    for kind in ("", ", plain"):
        trusted = np.concatenate([one[f"trusted{kind}"] for one in runs]).astype(bool)
        inside = np.concatenate([one[f"inside{kind}"] for one in runs])
        cells += [trusted.sum(), (trusted & bad).sum(), f"{inside.mean():.0%}"]
    return "| " + " | ".join(map(str, cells)) + " |\n"


def main() -> None:
    """Run what is not in the file yet, and write the section."""
    seeds = [FIRST_SEED + i for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3)]
    file = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    found = json.loads(file.read_text()) if file is not None and file.exists() else {}
    for seed in seeds:
        for name in FLEETS:
            for setting in SETTINGS:
                key = f"{name}/{setting}/{seed}"
                if key in found:
                    continue
                with warnings.catch_warnings(action="ignore"):
                    found[key] = run(name, setting, seed)
                one = found[key]
                bad = np.array(one["excess"]) > BAD
                wrong = [int((np.array(one[f"trusted{k}"]) & bad).sum()) for k in ("", ", plain")]
                print(key, sum(one["trusted"]), sum(one["trusted, plain"]), *wrong, flush=True)
                if file is not None:
                    file.write_text(json.dumps(found))
    write_section("nonlinear", "path_certificates", TEXT + table(found) + READ)


if __name__ == "__main__":
    main()
