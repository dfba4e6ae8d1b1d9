"""The motors of `benchmarks/motors.py`, a few of them: from an encoder to controllers."""

from pathlib import Path

import numpy as np
import pytest

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
