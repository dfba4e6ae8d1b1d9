"""A real double pendulum in three builds: one decoder over the lengths of its links.

`python benchmarks/real_pendulum.py` predicts, from measured states and torques, both angles 0.1,
0.25 and 0.5 s ahead: of runs that nobody learnt from, and of a build that nobody learnt from.
`--write` writes docs/measured/real-pendulum.md and its picture. PySINDy is compared where it is
installed, or by the Python that PYSINDY_PYTHON names. The runs are in `pendulum_runs.py`, the
features in `pendulum_model.py`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy import ndarray as Array
from pendulum_model import CHOSEN, FORMS, context_of, learnt, makers_step, nominal_of
from pendulum_runs import LENGTHS, STEP, Run, load, splits

import contextual_lqr as clqr

AHEAD = {0.1: 10, 0.25: 25, 0.5: 50}
STEPS = np.array(list(AHEAD.values()))
SHARE = 0.9
FIGURES = Path(__file__).parent.parent / "docs" / "figures"


def starts_of(run: Run, every: int = 5) -> Array:
    """Where predictions begin: every 50 ms."""
    return np.arange(5, len(run.smooth) - STEPS.max(), every)


def course(step: Any, runs: list[Run], start: str = "now") -> Array:
    """Medians of the distances of both angles from what was measured, over all starts: (50,)."""
    found: list[list[Array]] = [[] for _ in range(STEPS.max())]
    for run in runs:
        at = starts_of(run)
        x = getattr(run, start)[at]
        for h, some in enumerate(found, 1):
            x = step(run.build, x, run.torques[at + h - 1])
            off = np.linalg.norm(x[:, :2] - run.raw[at + h, :2], axis=1)
            some.append(np.where(np.isfinite(off), off, np.inf))
    return np.array([np.median(np.concatenate(some)) for some in found])


def medians(step: Any, runs: list[Run], start: str = "now") -> list[float]:
    """The same, 0.1, 0.25 and 0.5 s ahead."""
    return course(step, runs, start)[STEPS - 1].tolist()


def belief_of(decoder: clqr.Decoder, build: str) -> Any:
    """What is believed of a build, which was learnt from or not."""
    known = build if build in decoder.machine_labels else None
    return decoder.machine(context_of(build), known)


def decoder_step(decoder: clqr.Decoder) -> Any:
    """The predictions of a decoder."""
    believed = {build: belief_of(decoder, build) for build in LENGTHS}

    def step(build: str, x: Array, u: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(believed[build].step(np.clip(x, -50, 50), u))

    return step


def draws_of(decoder: clqr.Decoder, run: Run, at: Array, n: int, rng: np.random.Generator) -> Array:
    """Angles (n, starts, steps, 2) of posterior draws, each with noise and a start of its own.

    A start is off by as much as starts are from what is known of them 30 ms later.
    """
    belief = belief_of(decoder, run.build)
    theta, noise = belief.draw(n, rng), np.sqrt(np.diagonal(belief.noise))
    off = np.sqrt(np.square(run.now - run.smooth).mean(0))
    x = run.now[at] + off * rng.standard_normal((n, len(at), 4))
    found = []
    for h in range(STEPS.max()):
        u = np.broadcast_to(run.torques[at + h], (*x.shape[:-1], 2))
        phi = decoder.context_map.features(context_of(run.build), np.clip(x, -50, 50), u)
        x = (theta[:, None] @ phi[..., None])[..., 0] + noise * rng.standard_normal(x.shape)
        found.append(x[..., :2])
    return np.stack(found, 2)


def ratios(decoder: clqr.Decoder, runs: list[Run], draws: int = 60) -> Array:
    """How far measured angles are from the middle of the band, 1 at its edge: (k, ahead, 2)."""
    rng, found = np.random.default_rng(0), []
    for run in runs:
        at = starts_of(run, 30)
        band = draws_of(decoder, run, at, draws, rng)[:, :, STEPS - 1]
        low, middle, high = np.quantile(band, [0.5 - SHARE / 2, 0.5, 0.5 + SHARE / 2], axis=0)
        off = np.stack([run.raw[at + steps, :2] for steps in STEPS], 1) - middle
        found.append(np.where(off > 0, off / (high - middle), off / (low - middle)))
    return np.concatenate(found)


def left_out(runs: list[Run], known: bool) -> list[tuple[list[Run], list[Run]]]:
    """What bands are held against: the other half of all runs, or, of builds not known, a build."""
    if known:
        halves = [[run.part(half) for run in runs] for half in (slice(0, 490), slice(490, None))]
        return [(halves[0], halves[1]), (halves[1], halves[0])]
    builds = dict.fromkeys(run.build for run in runs)
    return [
        ([run for run in runs if run.build != b], [run for run in runs if run.build == b])
        for b in builds
    ]


def widening(runs: list[Run], known: bool, deviations: Any) -> Array:
    """What bands of these runs must be widened by, so far ahead, for 90 % to be inside."""
    pairs = left_out(runs, known)
    found = [ratios(learnt(old, deviations), new) for old, new in pairs]
    return np.quantile(np.concatenate(found), SHARE, axis=(0, 2))


def sindy_medians(old: list[Run], new: list[Run]) -> list[float] | None:
    """Those of PySINDy's ParameterizedLibrary, by the Python that has it; None without one."""
    python = os.environ.get("PYSINDY_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        parts = {"nominal": nominal_of(old)}
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
    """All figures of the page but those of the forms."""
    found: dict[str, Any] = {}
    for name, (old, new) in splits(runs).items():
        known = any(run.build == new[0].build for run in old)
        own, law = learnt(old), learnt(old, None)
        found[name] = {
            "decoder, builds deviate": medians(decoder_step(own), new),
            "decoder, one law": medians(decoder_step(law), new),
            "PySINDy": sindy_medians(old, new),
            "makers' model": medians(makers_step, new),
            "angles stay": medians(lambda build, x, u: x, new),
            "raw": medians(decoder_step(own), new, "raw"),
        }
        for decoder, deviations in ((own, "estimated"), (law, None)):
            off, by = ratios(decoder, new), widening(old, known, deviations)
            shares = [(off <= wide).mean((0, 2)).tolist() for wide in (1.0, by[:, None])]
            found[name][f"bands {deviations}"] = [*shares, by.tolist()]
        print(name, json.dumps(found[name]), flush=True)
    return found


def forms(runs: list[Run]) -> dict[str, dict[str, tuple[float, list[float]]]]:
    """Of each form, for each build left out: a score by the other two builds alone, and errors.

    The score is the geometric mean of the errors with which each of the two predicts the other.
    """
    found: dict[str, dict[str, tuple[float, list[float]]]] = {form: {} for form in FORMS}
    for build in LENGTHS:
        old, new = splits(runs)[f"{build}, from the other two"]
        for form in FORMS:
            inner = [
                medians(decoder_step(learnt(one, form=form)), other)
                for one, other in left_out(old, known=False)
            ]
            errors = medians(decoder_step(learnt(old, form=form)), new)
            found[form][build] = float(np.exp(np.mean(np.log(inner)))), errors
        print(build, {form: one[build] for form, one in found.items()}, flush=True)
    return found


def text_of(found: dict[str, Any], tried: dict[str, Any]) -> str:
    """The section of the page."""
    names = ("decoder, builds deviate", "decoder, one law", "PySINDy", "makers' model")
    lines = ["# Errors and bands", "", "Written by `benchmarks/real_pendulum.py`.", ""]
    lines += _row("predicted", *names, "angles stay") + _row(*["---"] * (len(names) + 2))
    for name, one in found.items():
        lines += _row(name, *(_three(one[key]) for key in (*names, "angles stay")))
    lines += ["", "The share of angles inside the band of 90 %, as it is and widened; by what:", ""]
    lines += _row("predicted", *("builds deviate", "widened", "by", "one law", "widened", "by"))
    lines += _row(*["---"] * 7)
    for name, one in found.items():
        cells = []
        for deviations in ("estimated", None):
            *shares, by = one[f"bands {deviations}"]
            cells += [" / ".join(f"{x:.0%}" for x in share) for share in shares]
            cells += [" / ".join(f"{x:.1f}" for x in by)]
        lines += _row(name, *cells)
    name, one = next(iter(found.items()))
    lines += ["", f"From raw readings in place of filtered ones, {name}: {_three(one['raw'])}."]
    lines += ["", "Which unknowns, where builds deviate: by the two builds learnt from alone (the"]
    lines += [
        "geometric mean of the errors with which each predicts the other), and the errors for"
    ]
    lines += ["the build left out.", ""]
    lines += _row("unknowns", *(f"{build} left out: by two | errors" for build in LENGTHS))
    lines += _row(*["---"] * (1 + 2 * len(LENGTHS)))
    for form, each in tried.items():
        cells = [
            text for score, errors in each.values() for text in (f"{score:.4f}", _three(errors))
        ]
        lines += _row(f"**{form}**" if form == CHOSEN else form, *cells)
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> list[str]:
    return ["| " + " | ".join(cells) + " |"]


def _three(values: list[float] | None) -> str:
    return "not run" if values is None else " / ".join(f"{x:.3f}" for x in values)


def drawn(runs: list[Run]) -> bytes:
    """Three half-seconds of the build that nobody learnt from, with bands."""
    from contextual_lqr.figures import GREY, PALETTE, panels, rendered

    old, new = splits(runs)["A.0, from the other two"]
    decoder, by = learnt(old), widening(old, False, "estimated")
    step, rng, times = decoder_step(decoder), np.random.default_rng(0), STEP * np.arange(51)
    wide = np.interp(times[1:], list(AHEAD), by)[:, None]

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
            band = draws_of(decoder, run, np.array([at]), 200, rng)[:, 0]
            low, middle, high = np.quantile(band, [0.5 - SHARE / 2, 0.5, 0.5 + SHARE / 2], axis=0)
            low, high = middle + wide * (low - middle), middle + wide * (high - middle)
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


def courses(runs: list[Run]) -> bytes:
    """How errors grow, of each build from the other two."""
    from contextual_lqr.figures import GREY, PALETTE, panels, rendered

    times = STEP * np.arange(1, STEPS.max() + 1)
    shown = {name: pair for name, pair in splits(runs).items() if name.startswith(("A", "C"))}

    def draw(figure: Any) -> None:
        axes = panels(figure, 3, 3, 3.2, 2.6)
        for axis, (name, (old, new)) in zip(axes, shown.items(), strict=True):
            for label, step, style in (
                ("angles stay", lambda build, x, u: x, {"color": GREY, "linestyle": "--"}),
                ("makers' model", makers_step, {"color": GREY, "linestyle": ":"}),
                ("decoder", decoder_step(learnt(old)), {"color": PALETTE[0]}),
            ):
                axis.plot(times, course(step, new), label=label, linewidth=1.6, **style)
            axis.set_yscale("log")
            axis.set_ylim(0.001, 2)
            axis.set_xlabel("time ahead (s)")
            axis.set_title(name)
        axes[0].set_ylabel("median error (rad)")
        axes[0].legend()

    return rendered(draw, "svg")


def main() -> None:
    """Measure, and write what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--picture", action="store_true", help="write the pictures alone")
    options = parser.parse_args()
    runs = load()
    if options.write or not options.picture:
        text = text_of(measured(runs), forms(runs))
        if options.write:
            from pages import write_section

            write_section("real-pendulum", "pendulum", text)
        else:
            print(text)
    if options.write or options.picture:
        (FIGURES / "real-pendulum.svg").write_bytes(drawn(runs))
        (FIGURES / "real-pendulum-errors.svg").write_bytes(courses(runs))


if __name__ == "__main__":
    main()
