"""MuJoCo's double pendulum, which is far from linear where it falls."""

import warnings
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.mark.slow
def test_an_agent_holds_double_pendulums_that_it_never_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("mujoco")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import double_pendulum as benchmark

    from contextual_lqr.envs import rollout

    monkeypatch.setattr(benchmark, "EPISODES", 14)
    held = {}
    for name, region in (("own", None), ("all rows", np.inf)):
        env = benchmark.DoublePendulum()
        with warnings.catch_warnings(action="ignore"):
            agent = benchmark.taught(env, 3, region=region)
        played = [
            rollout(agent.controller(context), env, context=context, seed=start)
            for context, start in benchmark.unseen(env, 3)[:10]
        ]
        held[name] = sum(not one.terminated for one in played)
    assert held["own"] >= 9
    assert held["all rows"] <= 2
