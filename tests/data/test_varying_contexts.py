"""Logs whose context changes during an episode, and `design --schedule`."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from contextual_lqr import InputError, Schedule, Trajectory
from contextual_lqr.cli.design import design
from contextual_lqr.data import FleetDescription, fit
from fleet_logs import CARTS, DESCRIPTION, TRUTH, write

VARYING = CARTS.replace("mass = { unit", "mass = { varies = true, unit")
STEPS = 30


def refuelled(seed: int, episodes: int) -> pl.DataFrame:
    """Carts that lose mass as they go."""
    rng, rows = np.random.default_rng(seed), []
    for episode in range(episodes):
        x, first = rng.normal(size=2), rng.uniform(2.0, 4.5)
        for h in range(STEPS + 1):
            mass = first * (1 - 0.5 * h / STEPS)
            u = None if h == STEPS else float(3 * rng.normal())
            rows.append((f"cart {episode % 4}", episode, h, *map(float, x), u, mass))
            if u is not None:
                M = TRUTH @ DESCRIPTION.context_map.matrix({"mass": mass})
                x = M @ [*x, u] + [0, 0.01 * rng.normal()]
    names = ["machine", "episode", "step", "position", "velocity", "force", "mass"]
    return pl.DataFrame(rows, schema=names, orient="row")


def test_a_log_with_a_varying_context_teaches_what_its_schedules_teach(tmp_path: Path) -> None:
    frame, described = refuelled(0, 8), FleetDescription.parse(VARYING)
    log = write(frame, tmp_path / "log.parquet")  # in row groups of 50
    with pytest.raises(InputError, match=r"240 of them bad.*'mass' changes inside the episode"):
        fit(DESCRIPTION, [log])
    found = fit(described, [log])
    assert not found.report.bad
    decoder = described.new_decoder()
    for part in frame.partition_by("episode", maintain_order=True):
        x, u = part.select("position", "velocity").to_numpy(), part["force"].to_numpy()[:-1, None]
        plan = Schedule({"mass": part["mass"].to_numpy()[:-1]})
        decoder.update(plan, Trajectory(x, u), machine=part["machine"][0])
    assert (found.decoder.rows, found.decoder.episodes) == (decoder.rows, decoder.episodes)
    np.testing.assert_allclose(found.decoder.estimate, decoder.estimate, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.decoder.deviations, decoder.deviations, atol=1e-9)
    assert found.decoder.changing is not None
    assert len(found.decoder.changing) == 4
    again = fit(described, [log], into=found)
    assert again.decoder.rows == decoder.rows
    assert again.decoder.repeats == 8


def test_design_along_a_schedule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decoder, plan = tmp_path / "f.decoder", tmp_path / "masses.csv"
    log = write(refuelled(1, 40), tmp_path / "log.parquet")
    fit(FleetDescription.parse(VARYING), [log]).save(decoder)
    plan.write_text("mass\n" + "\n".join(f"{m:.3f}" for m in np.linspace(4, 2, 20)) + "\n")
    design(decoder, schedule=plan)
    said = capsys.readouterr().out
    assert "20 steps, from mass 4 kg to mass 2 kg" in said
    assert "no two machines were logged whose context stays" in " ".join(said.split())
    design(decoder, schedule=plan, as_json=True)
    found = json.loads(capsys.readouterr().out)
    (one,) = found["machines"]
    assert found["horizon"] == 21
    assert np.shape(one["gains"]) == (20, 1, 2)
    assert one["context"][0] == {"mass": 4.0}
    assert one["verdict"] == "caution"
    design(decoder, schedule=plan, csv=True, quick=True)
    assert capsys.readouterr().out.count("\n") == 2


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--context", "mass=2"], "--context gives every value"),
        (["--machine", "cart 1"], "--schedule is for one machine never seen"),
        (["--horizon", "7"], "so the horizon is 3: leave --horizon out"),
    ],
)
def test_what_does_not_go_with_a_schedule(tmp_path: Path, more: list[str], sentence: str) -> None:
    fitted = fit(FleetDescription.parse(VARYING), [write(refuelled(2, 4), tmp_path / "log.csv")])
    fitted.save(tmp_path / "f.decoder")
    (tmp_path / "plan.csv").write_text("mass\n2.0\n2.1\n")
    options = dict(zip((word.lstrip("-") for word in more[::2]), more[1::2], strict=True))
    given = {
        "context": [options["context"]] if "context" in options else None,
        "machine": options.get("machine"),
        "horizon": int(options["horizon"]) if "horizon" in options else None,
    }
    with pytest.raises(InputError, match=sentence):
        design(tmp_path / "f.decoder", schedule=tmp_path / "plan.csv", **given)


def test_varies_is_true_or_false() -> None:
    with pytest.raises(ValueError, match="varies must be true or false, not 1"):
        FleetDescription.parse(CARTS.replace("mass = { unit", "mass = { varies = 1, unit"))
