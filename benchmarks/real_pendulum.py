"""A real double pendulum in three builds: one decoder over the lengths of its links.

`python benchmarks/real_pendulum.py` predicts, from measured states and torques, both angles 0.1,
0.25 and 0.5 s ahead: of runs that nobody learnt from, and of a build that nobody learnt from.
`--write` writes docs/measured/real-pendulum.md and its pictures. PySINDy is compared where it is
installed. The runs are in data/double-pendulum.parquet; data/README.md says whose they are.

    M(q) a + c(q, v) + g(q) + friction(v) = torque,    linear in the parameters π: torque = Y π

A point mass of 0.6 kg at the end of each link is a nominal machine π₀ of any lengths, M₀ and a₀.
About it a = a₀ + Σ_j (π_j - π₀_j) ∂a/∂π_j with ∂a/∂π_j = -M₀⁻¹ Y_j(q, v, a₀): what the features
of the speeds are, times the step; those of the angles are half of that times the step again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl
from numpy import ndarray as Array
from numpy.lib.stride_tricks import sliding_window_view

import contextual_lqr as clqr
from contextual_lqr.certificates.path_calibration import PathCalibration, calibration_of

DATA = Path(__file__).parent / "data" / "double-pendulum.parquet"
STEP, FINE = 0.01, 0.002  # s: of a prediction, and of the logs
AHEAD = {0.1: 10, 0.25: 25, 0.5: 50}
GRAVITY, MASS, SMOOTH = 9.81, 0.6, 0.3  # m/s², kg, rad/s: below it friction fades
LENGTHS = {"A.0": (0.3, 0.2), "C.0": (0.2, 0.3), "C.1": (0.2, 0.3)}
# What its makers identified: m1, m2, r1, r2, I1, I2.
MAKERS = {
    "A.0": (0.559, 0.604, 0.300, 0.184, 0.0535, 0.0239),
    "C.0": (0.642, 0.564, 0.200, 0.321, 0.0267, 0.0539),
    "C.1": (0.523, 0.626, 0.200, 0.256, 0.0319, 0.0509),
}
NOMINAL = np.array([MASS] * 5 + [0.0] * 4)
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "real-pendulum.svg"
NAMES = ("angle1", "angle2", "speed1", "speed2")


class Run(NamedTuple):
    """A run every 10 ms: smoothed over 60 ms, as known at the time, as measured, and torques."""

    build: str
    name: str
    smooth: Array  # (n, 4), from 30 ms on either side: to learn from
    now: Array  # (n, 4), from the 30 ms before: where predictions begin
    raw: Array  # (n, 4)
    torques: Array  # (n-1, 2), means over a step


def load() -> list[Run]:
    """All runs."""
    table, found = pl.read_parquet(DATA), []
    for (build, name), one in table.group_by(["design", "run"], maintain_order=True):
        stamps = one["time"].to_numpy()
        grid = np.arange(0.0, stamps[-1], FINE)
        q, v, u = (
            np.stack([one[f"{what}{i}"].to_numpy().astype(float) for i in (1, 2)], 1)
            for what in ("angle", "speed", "torque")
        )
        v[1:-1] = np.median([v[:-2], v[1:-1], v[2:]], axis=0)  # single samples that jump
        q, v = (np.stack([np.interp(grid, stamps, x) for x in part.T], 1) for part in (q, v))
        work = np.cumsum((u[1:] + u[:-1]) / 2 * np.diff(stamps)[:, None], 0)
        work = np.concatenate((np.zeros((1, 2)), work))
        at = np.arange(50, len(grid) - 50, round(STEP / FINE))
        total = np.stack([np.interp(grid[at], stamps, x) for x in work.T], 1)
        raw = np.concatenate((q, v), 1)
        found.append(
            Run(
                build,
                name,
                _fitted(q, v, at, 15, 15, 4),
                _fitted(q, v, at, 15, 0, 2),
                raw[at],
                np.diff(total, axis=0) / STEP,
            )
        )
    return found


def _fitted(q: Array, v: Array, at: Array, back: int, on: int, degree: int) -> Array:
    """Angles and speeds by polynomials through both, an error of 0.1 rad/s as bad as 0.2 mrad."""
    s = FINE * np.arange(-back, on + 1)
    P = np.vander(s, degree + 1, increasing=True)
    D = np.zeros_like(P)
    D[:, 1:] = P[:, :-1] * np.arange(1, degree + 1)
    weights = np.linalg.pinv(np.concatenate((P, 0.002 * D)))[:2]  # of the value and the slope
    both = np.concatenate(
        [sliding_window_view(x, len(s), axis=0)[at - back] for x in (q, 0.002 * v)], -1
    )
    return np.concatenate([both @ row for row in weights], -1)


def terms(lengths: Any, x: Array, a: Array) -> Array:
    """Y (..., 2, 9): the torques that accelerations take, for each parameter."""
    l1, l2 = lengths
    q1, q2, v1, v2 = np.moveaxis(x, -1, 0)
    a1, a2, zero = a[..., 0], a[..., 1], np.zeros_like(x[..., 0])
    c, s, weight = np.cos(q2), np.sin(q2), GRAVITY * l2 * np.sin(q1 + q2)
    pairs = [
        (2 * l1**2 * a1, zero),
        (l2**2 * (a1 + a2),) * 2,
        (l1 * l2 * (c * (2 * a1 + a2) - s * (2 * v1 + v2) * v2), l1 * l2 * (c * a1 + s * v1**2)),
        (2 * GRAVITY * l1 * np.sin(q1), zero),
        (weight, weight),
        (v1, zero),
        (zero, v2),
        (np.tanh(v1 / SMOOTH), zero),
        (zero, np.tanh(v2 / SMOOTH)),
    ]
    return np.stack([np.stack(pair, -1) for pair in pairs], -1)


def mass_inverse(pi: Array, lengths: Any, x: Array) -> tuple[Array, Array]:
    """M⁻¹ (..., 2, 2), and the torques without accelerations (..., 2)."""
    zero = np.zeros_like(x[..., :2])
    still = terms(lengths, x, zero) @ pi
    columns = [terms(lengths, x, zero + np.eye(2)[i]) @ pi - still for i in range(2)]
    (m11, m21), (m12, m22) = (np.moveaxis(one, -1, 0) for one in columns)
    det = m11 * m22 - m12 * m21
    inverse = np.stack((np.stack((m22, -m12), -1), np.stack((-m21, m11), -1)), -2)
    return inverse / det[..., None, None], still


def step_of(pi: Array, lengths: Any, x: Array, u: Array) -> Array:
    """Where a machine with these parameters is after a step: Runge and Kutta's rule."""

    def rate(x: Array) -> Array:
        inverse, still = mass_inverse(pi, lengths, x)
        return np.concatenate((x[..., 2:], (inverse @ (u - still)[..., None])[..., 0]), -1)

    k1 = rate(x)
    k2 = rate(x + STEP / 2 * k1)
    k3 = rate(x + STEP / 2 * k2)
    k4 = rate(x + STEP * k3)
    return x + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def features(context: Any, x: Array, u: Array) -> Array:
    """(..., 4, 10): of each state, where the nominal machine goes, and what parameters change."""
    lengths = context["length1"], context["length2"]
    after = step_of(NOMINAL, lengths, x, u)
    middle = (x + after) / 2
    inverse, still = mass_inverse(NOMINAL, lengths, middle)
    a = (inverse @ (u - still)[..., None])[..., 0]
    push = -STEP * inverse @ terms(lengths, middle, a)  # (..., 2, 9), on the speeds
    both = np.concatenate((STEP / 2 * push, push), -2)
    return np.concatenate((after[..., None], both), -1)


BOUNDS = {"length1": (0.1, 0.5), "length2": (0.1, 0.5)}
DYNAMICS = clqr.FunctionDynamics(features, NAMES, ["torque1", "torque2"], bounds=BOUNDS)


def context_of(build: str) -> dict[str, float]:
    """The lengths of its links."""
    return dict(zip(BOUNDS, LENGTHS[build], strict=True))


# How far a build may be off the nominal one: 0.15 kg, and what friction of such motors may be.
OFF = np.array([0.0] + [0.15] * 5 + [0.02] * 2 + [0.15] * 2)
PRIOR = clqr.Prior(np.kron(np.eye(4), np.eye(10)[0]), [np.diag(np.tile(OFF, 4) ** 2)] * 4)


def learnt(runs: list[Run], deviations: Any = "estimated") -> clqr.Decoder:
    """What these runs teach; each build is a machine."""
    decoder = clqr.Decoder(DYNAMICS, prior=PRIOR, deviations=deviations)
    for run in runs:
        played = clqr.Trajectory(run.smooth, run.torques)
        decoder.update(context_of(run.build), played, machine=run.build)
    return decoder


def starts_of(run: Run) -> Array:
    """Where predictions begin: every 50 ms."""
    return np.arange(5, len(run.smooth) - max(AHEAD.values()), 5)


def errors(step: Any, runs: list[Run], start: str = "now") -> dict[float, Array]:
    """The distances of both angles from what was measured, so far ahead."""
    found: dict[float, list[Array]] = {ahead: [] for ahead in AHEAD}
    for run in runs:
        at = starts_of(run)
        x = getattr(run, start)[at]
        for h in range(max(AHEAD.values())):
            x = step(run.build, x, run.torques[at + h])
            for ahead, steps in AHEAD.items():
                if steps == h + 1:
                    off = np.linalg.norm(x[:, :2] - run.raw[at + steps, :2], axis=1)
                    found[ahead].append(np.where(np.isfinite(off), off, np.inf))
    return {ahead: np.concatenate(some) for ahead, some in found.items()}


def medians(step: Any, runs: list[Run], start: str = "now") -> list[float]:
    """Of the errors, over all starts."""
    return [float(np.median(some)) for some in errors(step, runs, start).values()]


def makers_step(build: str, x: Array, u: Array) -> Array:
    """As the makers' model says, which has no friction."""
    m1, m2, r1, r2, i1, i2 = MAKERS[build]
    l1, l2 = LENGTHS[build]
    own = [(i1 + m2 * l1**2) / (2 * l1**2), i2 / l2**2, m2 * r2 / l2]
    pi = np.array([*own, (m1 * r1 + m2 * l1) / (2 * l1), m2 * r2 / l2, *[0.0] * 4])
    with np.errstate(all="ignore"):
        return step_of(pi, (l1, l2), x, u)


def known_machine(decoder: clqr.Decoder, build: str) -> str | None:
    """The label of a build that was learnt from; None for one that was not."""
    return build if build in decoder.machine_labels else None


def decoder_step(decoder: clqr.Decoder) -> Any:
    """The predictions of a decoder, of builds that it knows or not."""
    believed = {b: decoder.machine(context_of(b), known_machine(decoder, b)) for b in LENGTHS}

    def step(build: str, x: Array, u: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(believed[build].step(np.clip(x, -50, 50), u))

    return step


def calibrated(decoder: clqr.Decoder, runs: list[Run]) -> PathCalibration:
    """What predictions of the builds, or of the runs, that it has learnt from were off by."""
    known = any(known_machine(decoder, run.build) for run in runs)
    return calibration_of(decoder, max(AHEAD.values()), known)


def bands(
    decoder: clqr.Decoder,
    run: Run,
    at: Array,
    draws: int,
    rng: np.random.Generator,
    stretch: float = 1.0,
) -> Array:
    """Angles (draws, starts, steps, 2) of posterior draws, each with noise and a start of its own.

    A start is off by as much as starts are from what is known of them 30 ms later. `stretch`
    widens the draws and the noise, as in a certificate.
    """
    belief = decoder.machine(context_of(run.build), known_machine(decoder, run.build))
    theta = belief.draw(draws, rng, stretch=stretch)
    spread = stretch * np.sqrt(np.diagonal(belief.noise))
    off = np.sqrt(np.square(run.now - run.smooth).mean(0))
    x = run.now[at] + off * rng.standard_normal((draws, len(at), 4))
    found = []
    for h in range(max(AHEAD.values())):
        u = np.broadcast_to(run.torques[at + h], (*x.shape[:-1], 2))
        phi = DYNAMICS.features(context_of(run.build), np.clip(x, -50, 50), u)
        x = (theta[:, None] @ phi[..., None])[..., 0] + spread * rng.standard_normal(x.shape)
        found.append(x[..., :2])
    return np.stack(found, 2)


def inside(
    decoder: clqr.Decoder, runs: list[Run], stretch: float = 1.0, draws: int = 60
) -> list[float]:
    """The share of angles within the middle 90 % of draws, so far ahead."""
    rng, found = np.random.default_rng(0), []
    for run in runs:
        at = starts_of(run)[::6]
        drawn = bands(decoder, run, at, draws, rng, stretch)
        low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
        for steps in AHEAD.values():
            true = run.raw[at + steps, :2]
            found.append(((low[:, steps - 1] <= true) & (true <= high[:, steps - 1])).mean())
    return list(np.reshape(found, (len(runs), len(AHEAD))).mean(0))


def splits(runs: list[Run]) -> dict[str, tuple[list[Run], list[Run]]]:
    """What is learnt from, and what is predicted."""
    early = [run for run in runs if run.name[-1] in "02"]
    found = {"half of the runs of each": (early, [run for run in runs if run.name[-1] in "13"])}
    for build in LENGTHS:
        old = [run for run in runs if run.build != build]
        found[f"{build}, from the other two"] = old, [run for run in runs if run.build == build]
    return found


def sindy_medians(old: list[Run], new: list[Run]) -> list[float] | None:
    """Those of PySINDy's ParameterizedLibrary, by the Python that has it; None without one."""
    python = os.environ.get("PYSINDY_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        parts = {}
        for kind, runs in (("old", old), ("new", new)):
            for i, run in enumerate(runs):
                l1 = LENGTHS[run.build][0]
                parts |= {f"{kind}{i}_{k}": getattr(run, k) for k in ("smooth", "now", "torques")}
                parts |= {f"{kind}{i}_raw": run.raw, f"{kind}{i}_length": np.array(l1)}
        np.savez(f"{folder}/runs.npz", **parts)
        script = [python, str(Path(__file__).with_name("sindy_pendulum.py")), f"{folder}/runs.npz"]
        done = subprocess.run(script, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def measured(runs: list[Run]) -> dict[str, Any]:
    """All figures of the page."""
    found: dict[str, Any] = {}
    for name, (old, new) in splits(runs).items():
        own, law = learnt(old), learnt(old, None)
        found[name] = {
            "decoder, builds deviate": medians(decoder_step(own), new),
            "decoder, one law": medians(decoder_step(law), new),
            "PySINDy": sindy_medians(old, new),
            "makers' model": medians(makers_step, new),
            "angles stay": medians(lambda build, x, u: x, new),
            "from raw readings": medians(decoder_step(own), new, "raw"),
            "inside": inside(own, new),
            "inside, one law": inside(law, new),
        }
        for kind, decoder in (("", own), (", one law", law)):
            backtest = calibrated(decoder, new)
            found[name] |= {
                f"stretch{kind}": backtest.stretch,
                f"shows{kind}": backtest.shows,
                f"widened{kind}": inside(decoder, new, backtest.stretch),
            }
        print(name, json.dumps(found[name]), flush=True)
    return found


def text_of(found: dict[str, Any]) -> str:
    """The section of the page."""
    names = ("decoder, builds deviate", "decoder, one law", "PySINDy", "makers' model")
    lines = [
        "| predicted | " + " | ".join((*names, "angles stay")) + " |",
        "|---" * (len(names) + 2) + "|",
    ]
    for name, one in found.items():
        cells = [_three(one[key]) for key in (*names, "angles stay")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "The share of angles inside the middle 90 % of draws:", ""]
    lines += ["| predicted | builds deviate | one law |", "|---|---|---|"]
    for name, one in found.items():
        shares = (" / ".join(f"{x:.0%}" for x in one[k]) for k in ("inside", "inside, one law"))
        lines.append(f"| {name} | " + " | ".join(shares) + " |")
    lines += ["", "The same, widened by what a backtest of the runs learnt from asks for:", ""]
    lines += ["| predicted | builds deviate | by | one law | by | machines show |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, one in found.items():
        cells = [name]
        for kind in ("", ", one law"):
            cells += [" / ".join(f"{x:.0%}" for x in one[f"widened{kind}"])]
            cells += [f"{one[f'stretch{kind}']:.1f}"]
        lines.append("| " + " | ".join(cells) + f" | {one['shows']:.0%} |")
    raw = _three(next(iter(found.values()))["from raw readings"])
    lines += ["", f"From raw readings in place of filtered ones, half of the runs of each: {raw}."]
    return (
        "# Errors and bands\n\nWritten by `benchmarks/real_pendulum.py`.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def _three(values: list[float] | None) -> str:
    return "not run" if values is None else " / ".join(f"{x:.3f}" for x in values)


def drawn(runs: list[Run]) -> bytes:
    """Three half-seconds of the build that nobody learnt from, with bands."""
    from contextual_lqr.figures import GREY, PALETTE, panels, rendered

    new = [run for run in runs if run.build == "A.0"]
    decoder = learnt([run for run in runs if run.build != "A.0"])
    step, rng, times = decoder_step(decoder), np.random.default_rng(0), STEP * np.arange(51)

    def draw(figure: Any) -> None:
        axes = panels(figure, 3, 3, 3.2, 2.6)
        for axis, run, at in zip(axes, new[1:], (200, 400, 600), strict=True):
            x, path, makers = run.now[[at]], [run.now[at]], [run.now[at]]
            other = x
            for h in range(50):
                x = step(run.build, x, run.torques[[at + h]])
                other = makers_step(run.build, other, run.torques[[at + h]])
                path.append(x[0])
                makers.append(other[0])
            band = bands(decoder, run, np.array([at]), 100, rng)[:, 0]
            low, high = np.quantile(band, [0.05, 0.95], axis=0)
            for i in range(2):
                axis.fill_between(
                    times[1:], low[:, i], high[:, i], color=PALETTE[i], alpha=0.2, linewidth=0
                )
                axis.plot(times, np.array(makers)[:, i], ":", color=GREY, linewidth=1.2)
                axis.plot(times, np.array(path)[:, i], color=PALETTE[i], linewidth=1.6)
                axis.plot(times, run.raw[at : at + 51, i], "o", color=PALETTE[i], markersize=2)
            span = run.raw[at : at + 51, :2]
            axis.set_ylim(span.min() - 0.6, span.max() + 0.6)
            axis.set_xlabel("time ahead (s)")
            axis.set_title(f"run {run.name}, from {at * STEP + 0.1:.1f} s")
        axes[0].set_ylabel("angles (rad)")

    return rendered(draw, "svg")


def main() -> None:
    """Measure, and write what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--picture", action="store_true", help="write the picture alone")
    options = parser.parse_args()
    runs = load()
    if options.write:
        from pages import write_section

        write_section("real-pendulum", "pendulum", text_of(measured(runs)))
    elif not options.picture:
        print(text_of(measured(runs)))
    if options.write or options.picture:
        FIGURE.write_bytes(drawn(runs))


if __name__ == "__main__":
    main()
