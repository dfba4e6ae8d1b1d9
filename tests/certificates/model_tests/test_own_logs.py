"""Machines whose own logs contradict what is believed of them, or hold rows that do not belong."""

from __future__ import annotations

import numpy as np
import pytest

import contextual_lqr as clqr

COST = clqr.QuadraticCost(Q=[np.eye(2)] * 20, R=[np.eye(2)] * 19)
START = np.array([1.0, -0.5])


def fleet(glued: int = 0, unit: float = 1.0) -> clqr.Decoder:
    """Machines under controllers of their own; two runs of the first few were glued together."""
    rng, decoder = np.random.default_rng(0), clqr.Decoder(clqr.FeatureContext(["1", "size"]))
    for i in range(30):
        size = rng.uniform(-1, 1)
        A = np.array([[0.9, 0.3 + 0.05 * size], [-0.1, 0.8]])
        B = np.array([[0.5, 0.1], [0.1 * size, 0.6]])
        machine = clqr.LinearSystem(A, B, 1e-4 * np.eye(2))
        gains = clqr.solve(machine, COST).policy.gains
        runs = []
        for _ in range(3):
            x = rng.standard_normal((1, 2))
            u = np.zeros((0, 2))
            for K in gains:
                u = np.concatenate((u, [K @ x[-1] + 0.1 * rng.standard_normal(2)]))
                w = 0.01 * rng.standard_normal(2)
                x = np.concatenate((x, [A @ x[-1] + B @ u[-1] + w]))
            runs.append([x, u])
        if i < glued:
            runs[0] = [np.concatenate((a[:10], b[:10])) for a, b in zip(*runs[:2], strict=True)]
            runs[0][1] = runs[0][1][:19]
        for x, u in runs:
            decoder.update({"size": size}, clqr.Trajectory(unit * x, u), machine=f"M-{i}")
    return decoder


def certified(decoder: clqr.Decoder, machine: str | None, unit: float = 1.0) -> clqr.Certificate:
    store = decoder.store
    assert store is not None
    size = 0.3 if machine is None else float(store.contexts[store.labels.index(machine)][1])
    cost = clqr.QuadraticCost(COST.Q / unit**2, COST.R)
    about = {"size": size}
    return clqr.certify(decoder, about, cost, unit * START, machine=machine, bounds=False)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_rows_that_do_not_belong_spoil_their_machine_alone(unit: float) -> None:
    decoder = fleet(glued=1, unit=unit)
    spoilt = certified(decoder, "M-0", unit)
    assert spoilt.verdict == "caution"
    assert "in its own logs are" in spoilt.reason
    assert "times the usual: do all rows belong to it" in spoilt.reason
    assert certified(decoder, "M-1", unit).verdict == "trust"
    assert certified(decoder, None, unit).verdict == "trust"


def test_where_many_logs_are_spoilt_nothing_is_trusted() -> None:
    decoder = fleet(glued=10)
    for machine in ("M-0", "M-20", None):
        one = certified(decoder, machine)
        assert one.verdict != "trust"
        assert "the logs of 10 of 30 machines have errors far larger" in one.reason
    assert not clqr.backtest(decoder, COST, START).trusted


def test_logs_in_order_raise_no_doubt() -> None:
    decoder = fleet()
    assert {certified(decoder, m).verdict for m in ("M-0", "M-7", None)} == {"trust"}


def test_a_machine_whose_inputs_act_otherwise_than_believed_is_not_trusted() -> None:
    """The belief is made to be wrong: as if the others had outvoted the machine."""
    from contextual_lqr.certificates.model_tests import own_logs

    decoder, names = fleet(), ["x1", "x2", "u1", "u2"]
    population = decoder.population
    assert population is not None
    assert own_logs.own_doubts(population, [0, None], names) == ["", ""]
    assert own_logs.spoilt_logs(decoder) == ("", "")
    decoder.kept.clear()
    population.factors.F[:2] *= 0.7  # inputs and states that act less
    said = own_logs.own_doubts(population, [0, None, 2], names)
    assert "% off what is believed of it" in said[0]
    assert said[1:] == ["", ""]
    assert "in the logs of 2 of 30 machines" in own_logs.spoilt_logs(decoder)[1]
