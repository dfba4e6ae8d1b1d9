"""Logs of small carts with a known truth, for the tests of logs."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from contextual_lqr.data import TEMPLATE, FleetDescription

# These carts are made by Euler's rule, so that it is exact for them, and known.
CARTS = TEMPLATE.replace('"exact: velocity integrates"', '"position + 0.1 * velocity"')
DESCRIPTION = FleetDescription.parse(CARTS)
TRUTH = np.array([[1, 0.1, 0, 0, 0, 0], [0, 0.95, 0, 0, 0, 0.1]])  # features 1 and 1/mass


def cart_rows(
    masses: list[float],
    seed: int = 0,
    *,
    steps: int = 12,
    episodes: int = 2,
    first: int = 0,
    last_row: bool = True,
    actual: dict[int, float] | None = None,
) -> pl.DataFrame:
    """A log; `actual` has the true masses of machines that are not what they say."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    for i, mass in enumerate(masses):
        M = TRUTH @ DESCRIPTION.context_map.matrix({"mass": (actual or {}).get(i, mass)})
        for k in range(episodes):
            x = rng.normal(size=2)
            for h in range(steps):
                last = h == steps - 1
                u = None if last else float(rng.normal() * 3)
                if not last or last_row:
                    episode = first + i * episodes + k
                    rows.append((f"cart {i}", episode, h, *map(float, x), u, mass))
                if u is not None:
                    x = M @ [*x, u] + [0, 0.01 * rng.normal()]
    names = ["machine", "episode", "step", "position", "velocity", "force", "mass"]
    return pl.DataFrame(rows, schema=names, orient="row")


def write(frame: pl.DataFrame, path: Path) -> str:
    """To Parquet or CSV, by the name."""
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path, row_group_size=50)
    return str(path)


def write_minari(frame: pl.DataFrame, name: str) -> None:
    """A dataset in the folder of MINARI_DATASETS_PATH."""
    import gymnasium as gym
    import minari
    from minari.data_collector import EpisodeBuffer

    buffers = []
    for episode in frame.partition_by("episode", maintain_order=True):
        n = len(episode)
        buffers.append(
            EpisodeBuffer(
                observations=episode.select("position", "velocity").to_numpy(),
                actions=episode["force"].to_numpy()[:-1, None],
                rewards=np.zeros(n - 1),
                terminations=np.zeros(n - 1, bool),
                truncations=np.arange(1, n) == n - 1,
                infos={"mass": episode["mass"].to_numpy()},
            )
        )
    with warnings.catch_warnings(action="ignore"):  # that nobody signs the dataset
        minari.create_dataset_from_buffers(
            name,
            buffers,
            observation_space=gym.spaces.Box(-np.inf, np.inf, (2,), np.float64),
            action_space=gym.spaces.Box(-np.inf, np.inf, (1,), np.float64),
        )
