"""Rows that are put on a grid."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from contextual_lqr.data import FleetDescription
from contextual_lqr.data.sources import as_one_part, find_sources
from fleet_logs import write

MOTORS = """
[outputs]
angle = {{ unit = "rad", wraps = 6.0{bounds} }}
history = 2
delay = 0
[inputs]
current = "A"
[contexts]
inertia = "g m2"
[context_map]
kind = "features"
features = ["1", "1/inertia"]
[task]
horizon = 10
[cost]
Q = [1.0]
R = [1.0]
[learning]
noise_level = 0.1
[logs]
time = "t"
period = 0.1
resample = true
"""


@pytest.mark.parametrize(("bounds", "low"), [("", None), (", low = -3.0, high = 3.0", -3.0)])
def test_an_angle_that_wraps_is_interpolated_the_short_way_round(
    tmp_path: Path, bounds: str, low: float | None
) -> None:
    t = np.cumsum(np.random.default_rng(0).uniform(0.05, 0.12, 300))
    turned = 20.0 - 1.5 * t
    wrapped = (turned - (low or 0)) % 6.0 + (low or 0)
    columns = {"machine": "a", "t": t, "angle": wrapped, "current": t, "inertia": 2.0}
    log = write(pl.DataFrame(columns), tmp_path / "log.parquet")
    fleet = FleetDescription.parse(MOTORS.format(bounds=bounds))
    made = pl.concat(as_one_part(find_sources([log])).pieces[0].frames(fleet))
    angle, at = made["angle"].to_numpy(), made["current"].to_numpy()
    off = angle - (20.0 - 1.5 * at)
    np.testing.assert_allclose(off, 6.0 * np.round(off / 6.0), atol=1e-9)
    if low is not None:
        assert low <= angle.min() < angle.max() < low + 6.0
