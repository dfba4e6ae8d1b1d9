"""What is run: a frozen configuration, from which every number of a run follows.

A setting is a path and a decay; a trial is one setting, one strategy, one seed. The masses are
the same in all of them, as in the paper.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.errors import FormatError, InputError

PathName = Literal["circle", "parabola", "lemniscate"]
StrategyName = Literal[
    "paper", "cautious", "cautious-step", "optimism", "thompson", "certainty", "paper-literal"
]
FORMAT = "contextual-lqr reproduce, version 1"

_LEAST = {"episodes": 1, "seeds": 1, "samples": 1, "horizon": 2, "test_masses": 1}
_LEAST |= {"mass_seed": 0, "first_seed": 0}
_CHOICES = {
    "paths": get_args(PathName),
    "strategies": get_args(StrategyName),
    "start": ("path", "origin"),
    "closed_curves": ("turn", "literal"),
}


class Setting(NamedTuple):
    """One task: a path, and how quickly velocity decays."""

    path: str
    decay: float

    @property
    def name(self) -> str:
        """As it is written in tables, figures and rows."""
        return f"{self.path}, k = {self.decay:g}"


class Trial(NamedTuple):
    """One run of one strategy."""

    setting: Setting
    strategy: str
    seed: int

    @property
    def file(self) -> str:
        """The name of the file that holds its rows while others still run."""
        return f"{self.setting.path}-{self.setting.decay!r}-{self.strategy}-{self.seed}.parquet"


@dataclass(frozen=True)
class Config:
    """The paper's experiment, unless told otherwise.

    `samples` and `beta` (β) are those of the paper's rule. `noise` is the variance of each
    physical coordinate. `mass_seed` alone decides the training masses (episode k plays the k-th of
    them) and the test masses; the noise and a strategy's randomness come from the trial's seed,
    which counts up from `first_seed`.
    """

    paths: tuple[str, ...] = get_args(PathName)
    decays: tuple[float, ...] = (1.0, 0.7)
    episodes: int = 100
    seeds: int = 20
    strategies: tuple[str, ...] = get_args(StrategyName)
    samples: int = 100
    beta: float = 1e4
    horizon: int = 20
    noise: float = 1e-4
    masses: tuple[float, float] = (0.1, 10.0)
    test_masses: int = 100
    mass_seed: int = 2020
    first_seed: int = 0
    start: str = "path"
    closed_curves: str = "turn"

    def __post_init__(self) -> None:
        def check(name: str, good: object, wanted: str) -> None:
            require(good, f"{name} must be {wanted}, not {getattr(self, name)!r}")

        for name, least in _LEAST.items():
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            check(name, whole, f"a whole number of at least {least}")
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            if isinstance(getattr(Config, name), str):
                check(name, value in known, f"one of {', '.join(known)}")
            else:
                good = _different(value) and set(value) <= set(known)
                check(name, good, f"some of {', '.join(known)}, each once")
        good = _different(self.decays) and all(_number(k) and 0 < k <= 1 for k in self.decays)
        check("decays", good, "different numbers above 0 and at most 1")
        for name in ("beta", "noise"):
            value = getattr(self, name)
            check(name, _number(value) and value > 0, "a positive number")
        pair = isinstance(self.masses, tuple) and len(self.masses) == 2
        pair = pair and all(map(_number, self.masses)) and 0 < self.masses[0] <= self.masses[1]
        check("masses", pair, "a pair 0 < low <= high")

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every path with every decay."""
        return tuple(Setting(path, float(decay)) for path in self.paths for decay in self.decays)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All of them, seed by seed: whenever a run is stopped, every setting is as far."""
        return tuple(
            Trial(setting, strategy, self.first_seed + seed)
            for seed in range(self.seeds)
            for setting in self.settings
            for strategy in self.strategies
        )

    @property
    def lead(self) -> str:
        """The strategy that the figures 1 and 2 and the claims are about: the paper's, if run."""
        return "paper" if "paper" in self.strategies else self.strategies[0]

    def training_masses(self) -> Float[Array, " episodes"]:
        """One for each episode; more episodes leave the first ones as they are."""
        return np.random.default_rng([self.mass_seed, 1]).uniform(*self.masses, self.episodes)

    def unseen_masses(self) -> Float[Array, " test_masses"]:
        """The masses on which the estimate is tested after every episode."""
        return np.random.default_rng([self.mass_seed, 2]).uniform(*self.masses, self.test_masses)

    # -- files -----------------------------------------------------------------------------------

    def written(self) -> str:
        """The content of `config.json`, with the release that runs it."""
        header = {"format": FORMAT, "release": version("contextual-lqr")}
        return json.dumps(header | dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def load(cls, path: Path) -> Config:
        """Read such a file."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"there is no file {path}") from None
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        except ValueError as error:
            raise FormatError(f"{path} is damaged or no configuration: {error}") from None
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise FormatError(f"{path} is not a configuration of `reproduce` for this release")
        content.pop("release", None)
        unknown = sorted(set(content) - set(cls.__dataclass_fields__))
        if unknown:
            raise FormatError(f"{path} has unknown entries: {', '.join(unknown)}")
        lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
        try:
            return cls(**content | lists)
        except (InputError, TypeError, OverflowError) as error:
            raise FormatError(f"{path}: {error}") from None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and value is not True and math.isfinite(value)


def _different(values: Any) -> bool:
    return isinstance(values, tuple) and 0 < len(values) == len(set(values))
