"""Rows -> medians, interquartile means and their uncertainty.

A trial that failed counts: what it did not live to measure is infinite. Medians and interquartile
means stay finite as long as few fail, and nothing is left out of an average.
"""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.paper.reproduce.config import Config
from contextual_lqr.paper.reproduce.trial import MEASURED, bench

CHECKPOINTS = (1, 3, 5, 10, 25, 50, 100)
SUMMARISED = (
    "decoder_error",
    "control_error",
    "worst_control_error",
    "cumulative_regret",
    "largest_state",
)
RESAMPLES = 1000


class Measurements:
    """The rows as arrays (strategies, settings, seeds, episodes); inf where a trial had failed.

    `largest_state` is the largest so far.
    """

    def __init__(self, config: Config, rows: pl.DataFrame) -> None:
        self.config, self.rows = config, rows
        names = [setting.name for setting in config.settings]
        place = (
            _places(rows["strategy"], list(config.strategies)),
            _places(rows["setting"], names),
            rows["seed"].to_numpy() - config.first_seed,
            rows["episode"].to_numpy() - 1,
        )
        shape = (len(config.strategies), len(names), config.seeds, config.episodes)
        self._columns = {name: np.full(shape, np.inf) for name in MEASURED}
        for name, column in self._columns.items():
            values = rows[name].to_numpy()
            column[place] = np.where(np.isnan(values), np.inf, values)
        largest = self._columns["largest_state"]
        self._columns["largest_state"] = np.maximum.accumulate(largest, axis=-1)

    def of(self, column: str, strategy: str | None = None) -> Float[Array, "settings seeds k"]:
        """One column of one strategy, of the one the claims are about unless given."""
        chosen = self.config.lead if strategy is None else strategy
        return np.asarray(self._columns[column][self.config.strategies.index(chosen)])

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The trials that failed, and why."""
        failed = self.rows.filter(pl.col("failure").is_not_null())
        return failed.select("setting", "strategy", "seed", "failure").to_dicts()


def interquartile_mean(values: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """The mean of the middle half: without the lowest and the highest quarter (rounded down)."""
    ordered = np.sort(values, axis=-1)
    n = ordered.shape[-1]
    return np.asarray(ordered[..., n // 4 : n - n // 4].mean(-1))


def median(values: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """The median, also where some are infinite."""
    ordered = np.sort(values, axis=-1)
    n = ordered.shape[-1]
    return np.asarray((ordered[..., (n - 1) // 2] + ordered[..., n // 2]) / 2)


def described(
    values: Float[Array, "strata n"], rng: np.random.Generator, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """Median and interquartile mean of all values, with 95 % intervals; and the worst value.

    The bootstrap is stratified: seeds are drawn again within every stratum (a setting).
    """
    strata, n = values.shape
    drawn = rng.integers(n, size=(resamples, strata, n))
    again = np.sort(values[np.arange(strata)[:, None], drawn].reshape(resamples, -1), axis=-1)
    found: dict[str, Any] = {}
    for name, mean in (("median", median), ("interquartile_mean", interquartile_mean)):
        # Order statistics, for between infinities there is no mean.
        interval = np.quantile(mean(again), [0.025, 0.975], method="nearest")
        found |= {name: float(mean(values.ravel())), f"{name}_interval": interval.tolist()}
    return found | {"worst": float(values.max())}


def summarise(measured: Measurements) -> dict[str, Any]:
    """All of it as one tree, for `summary.json`: the same rows give the same summary."""
    config, failures = measured.config, measured.failures
    rng = np.random.default_rng([config.mass_seed, 3])
    checkpoints = (*(k for k in CHECKPOINTS if k < config.episodes), config.episodes)

    def after(strategy: str, settings: slice) -> dict[int, Any]:
        columns = {name: measured.of(name, strategy)[settings] for name in SUMMARISED}
        return {
            k: {name: described(column[..., k - 1], rng) for name, column in columns.items()}
            for k in checkpoints
        }

    by_setting, by_strategy = [], []
    for strategy in config.strategies:
        failed = [one["setting"] for one in failures if one["strategy"] == strategy]
        by_setting += [
            {
                "setting": setting.name,
                "strategy": strategy,
                "failed": failed.count(setting.name),
                "after": after(strategy, slice(i, i + 1)),
            }
            for i, setting in enumerate(config.settings)
        ]
        one = {"strategy": strategy, "failed": len(failed), "after": after(strategy, slice(None))}
        by_strategy.append(one)
    return {
        "config": asdict(config),
        "versions": versions(),
        "trials": len(config.trials),
        "failed": len(failures),
        "failures": failures,
        "optimal_cost": {
            setting.name: float(bench(config, setting).test.optimal_costs.mean())
            for setting in config.settings
        },
        "strategies": by_strategy,
        "settings": by_setting,
    }


def versions() -> dict[str, str]:
    """What computed the numbers."""
    packages = ("contextual-lqr", "numpy", "scipy", "polars", "joblib", "matplotlib")
    return {
        **{name: version(name) for name in packages},
        "python": platform.python_version(),
        "kernels": f"compiled for {kernels.compiled}" if kernels.compiled else "NumPy reference",
    }


def _places(column: pl.Series, names: list[str]) -> Array:
    return column.replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
