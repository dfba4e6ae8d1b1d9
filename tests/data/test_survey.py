"""What `check` says of logs that are written in few digits, or in which little moves."""

import numpy as np
import polars as pl

from contextual_lqr.data import TEMPLATE, FleetDescription, survey_logs

NAMES = ["machine", "episode", "step", "position", "velocity", "force", "mass"]


def written(path, digits=None, constant=False, memory=0.0):
    """Eight carts; the position is exact but for its digits, or lags behind by some memory."""
    rng, rows = np.random.default_rng(0), []
    for k in range(8):
        p, v, mass, before = 0.3, 0.0, 1.0 + k / 2, 0.0
        for step in range(250):
            force = 1.1 if constant else rng.normal()
            rows.append((f"m{k}", k, step, p, v, force, mass))
            p, before = p + 0.01 * v + memory * before, 0.01 * v
            v = 0.98 * v + 0.1 * force / mass + 0.01 * rng.normal()
    table = pl.DataFrame(rows, NAMES, orient="row")
    table.write_csv(path, float_precision=digits)
    return survey_logs(FleetDescription.parse(TEMPLATE), path)


def test_an_input_that_never_changes_has_nothing_free(tmp_path):
    found = {one.name: one for one in written(tmp_path / "log.csv", constant=True).quantities}
    assert (found["force"].spread, found["force"].free) == (0.0, 0.0)
    assert found["velocity"].free > 0.5


def test_rounding_is_not_taken_for_a_state_that_is_missing(tmp_path):
    """Successive errors of what is written in few digits have a value in common."""
    for digits in (4, 6):
        assert written(tmp_path / "log.csv", digits).history == []
    (said,) = written(tmp_path / "log.csv", 6, memory=0.01).history
    assert "error in position: is the whole state measured?" in said
