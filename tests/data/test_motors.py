"""The motors of `benchmarks/motors.py`, a few of them: from an encoder to controllers."""

from pathlib import Path

import numpy as np
import pytest

import contextual_lqr as clqr

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.mark.slow
def test_from_the_angle_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import motors

    for name, few in (("MOTORS", 16), ("EPISODES", 2), ("PLAYED", 40)):
        monkeypatch.setattr(motors, name, few)
    found = motors.run(1, 0, 250)
    assert found.found == 0
    assert found.named == found.odd  # the two whose labels are swapped
    assert np.median(found.excess) < 0.02
    assert found.excess.max() < 0.1
    assert found.trusted.sum() >= 12


def test_what_is_played_there_is_the_controller_of_a_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On many motors at once, as here on one; where it rests is estimated alike."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import motors

    history = clqr.OutputHistory(1, 1, n=4, spacing=3.0)
    rng, d = np.random.default_rng(0), history.state_size
    mean, noise = history.shift.copy(), np.zeros((d, d))
    mean[0], noise[0, 0] = 0.2 * rng.normal(size=d + 1), 0.3
    nothing = np.zeros((d, d + 1, d + 1))
    belief = clqr.MachineBelief(mean, nothing, noise, np.full(d, np.inf))
    gains, outputs = rng.normal(size=(8, 1, d)), rng.normal(size=8)
    controller = history.controller(clqr.LinearPolicy(gains), machine=belief)
    many = clqr.MachineBelief(mean[None], nothing[None], noise, np.full(d, np.inf))
    played = motors.Learnt(gains[None], history, many)
    for t, y in enumerate(outputs):
        assert np.allclose(played(t, np.array([[y]])), controller.input([y]), atol=1e-12)
