"""Runs are kept in their order beside what is learnt from their rows: some, and none twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import contextual_lqr as clqr
from contextual_lqr.belief.evidence import logged_runs

TANK = clqr.FeatureDynamics(
    ["level", "sqrt(max(level, 0.01))/area", "pump/area"],
    states=["level"],
    inputs=["pump"],
    bounds={"area": (1.0, 2.0)},
)


def played(seed: int, steps: int = 6) -> clqr.Trajectory:
    rng = np.random.default_rng(seed)
    return clqr.Trajectory(rng.uniform(0, 1, (steps + 1, 1)), rng.uniform(0, 1, (steps, 1)))


def shown(decoder: clqr.Decoder) -> list[tuple[Any, str | None, bytes, bytes]]:
    return [
        (run.context, run.machine, run.trajectory.states.tobytes(), run.trajectory.inputs.tobytes())
        for run in decoder.logged_runs.runs
    ]


@pytest.fixture
def decoder() -> clqr.Decoder:
    found = clqr.Decoder(TANK, noise_level=0.01)
    for i in range(4):
        found.update({"area": 1.0 + i / 8}, played(i), machine=f"tank {i % 2}" if i else None)
    return found


def test_many_rows_and_tables_keep_what_single_episodes_do(decoder: clqr.Decoder) -> None:
    contexts = [{"area": 1.0 + i / 8} for i in range(4)]
    labels = [f"tank {i % 2}" if i else None for i in range(4)]
    runs = [played(i) for i in range(4)]
    many, table = (clqr.Decoder(TANK, noise_level=0.01) for _ in range(2))
    many.update_many(contexts, runs, labels)
    table.update_rows(
        {"area": np.repeat([one["area"] for one in contexts], 6)},
        np.concatenate([run.states[:-1] for run in runs]),
        np.concatenate([run.inputs for run in runs]),
        np.concatenate([run.states[1:] for run in runs]),
        machine=[label for label in labels for _ in range(6)],
    )
    assert shown(many) == shown(decoder)
    assert shown(table) == shown(decoder)


def test_nothing_is_kept_twice(decoder: clqr.Decoder) -> None:
    before = shown(decoder)
    decoder.update({"area": 1.0}, played(0))
    decoder.merge(decoder.copy(), allow_repeats=True)
    assert shown(decoder) == before


def test_files_have_them(decoder: clqr.Decoder, tmp_path: Path) -> None:
    decoder.save(tmp_path / "tanks.decoder")
    assert shown(clqr.Decoder.load(tmp_path / "tanks.decoder")) == shown(decoder)


def test_machines_without_are_without_their_runs(decoder: clqr.Decoder) -> None:
    left = shown(decoder.without(["tank 1"]))
    assert [label for _, label, *_ in left] == [None, "tank 0"]


def test_there_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_runs, "MACHINES", 3)
    monkeypatch.setattr(logged_runs, "RUNS", 2)
    monkeypatch.setattr(logged_runs, "STEPS", 4)
    found = clqr.Decoder(TANK, noise_level=0.01)
    for i in range(12):
        found.update({"area": 1.5}, played(i), machine=f"tank {i % 4}" if i % 3 else None)
    counts = [label for _, label, *_ in shown(found)]
    assert sum(label is None for label in counts) + len(set(counts) - {None}) == 3
    assert max(counts.count(label) for label in set(counts) - {None}) == 2
    assert all(len(run.trajectory) == 4 for run in found.logged_runs.runs)


def test_linear_fleets_keep_none() -> None:
    found = clqr.Decoder(clqr.FeatureContext(["1", "1/mass"]), noise_level=0.01)
    found.update({"mass": 1.0}, played(0))
    assert not found.logged_runs.runs
    assert not any(name.startswith("run_") for name in found.state()[1])
