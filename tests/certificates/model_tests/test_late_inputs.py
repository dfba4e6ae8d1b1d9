"""What an input that acts late costs: by simulation, by least squares, and from logs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contextual_lqr as clqr
from contextual_lqr.certificates.model_tests.finding import Finding
from contextual_lqr.certificates.model_tests.late_inputs import late_excess
from contextual_lqr.certificates.model_tests.unmodelled import findings_of
from contextual_lqr.lqr.problem import LinearSystem, QuadraticCost

D, M, STEPS, N = 3, 2, 6, 4


def late(state: int, row: np.ndarray, j: int = 0) -> Finding:
    """An input that acts late upon one state."""
    return Finding("late input", 1e-9, 0.5, 0.1, state, D + j, "late", late_row=tuple(row))


@given(st.integers(0, 10**6), st.integers(0, M - 1))
def test_the_excess_is_over_the_best_inputs_for_the_late_machine(seed: int, j: int) -> None:
    rng = np.random.default_rng(seed)
    A, B = 0.5 * rng.normal(size=(N, D, D)), rng.normal(size=(N, D, M))
    gains, start = 0.3 * rng.normal(size=(N, STEPS, M, D)), rng.normal(size=D)
    cost = QuadraticCost(np.tile(np.eye(D), (STEPS + 1, 1, 1)), np.tile(np.eye(M), (STEPS, 1, 1)))
    rows = {0: 0.3 * rng.normal(size=D + M + 1), 2: 0.3 * rng.normal(size=D + M + 1)}
    findings = [late(state, row, j) for state, row in rows.items()]
    found = late_excess(j, findings, LinearSystem(A, B), gains, cost, start)

    def played(i: int, inputs: np.ndarray | None) -> np.ndarray:
        x, before, seen = start, 0.0, [start]
        for t in range(STEPS):
            u = gains[i, t] @ x if inputs is None else inputs[t]
            after = A[i] @ x + B[i] @ u
            for state, row in rows.items():
                after[state] += row[:-1] @ np.append(x, u) + row[-1] * before
            x, before = after, u[j]
            seen += [u, x]
        return np.concatenate(seen)  # all of it squared is the cost

    for i in range(N):
        free = played(i, np.zeros((STEPS, M)))
        moves = np.eye(STEPS * M).reshape(-1, STEPS, M)
        slopes = np.stack([played(i, one) - free for one in moves], 1)
        best = played(i, -np.linalg.lstsq(slopes, free)[0].reshape(STEPS, M))
        paid = played(i, None)
        expected = paid @ paid / (best @ best) - 1
        assert found[i] == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("varied", [0.0, 0.1])
def test_logs_tell_the_late_machine(varied: float) -> None:
    """Under feedback the law takes most of the delay for its own; it is found all the same."""
    rng, decoder = np.random.default_rng(3), clqr.Decoder(clqr.FeatureContext(["1"], states=2))
    cost = clqr.QuadraticCost([np.diag([1.0, 0.3])] * 30, [0.05 * np.eye(1)] * 29)
    A, B = np.array([[1.0, 0.2], [0.0, 0.9]]), np.array([0.0, 0.15])
    for number in range(40):
        own = 1 + varied * rng.normal()
        x, gain = np.array([1.0, 0.0]), np.array([-1.0, -1.5])
        before = gain @ x  # as if it had stood there
        states, inputs = [x], []
        for _ in range(60):
            u = gain @ x + 0.1 * rng.normal()
            x = A @ x + own * B * before + 0.002 * rng.normal(size=2)
            before = u
            states.append(x)
            inputs.append([u])
        decoder.update({}, clqr.Trajectory(states, inputs), f"M-{number}")
    (one, *_) = [f for f in findings_of(decoder, cost) if f.state == 1 and f.late == 2]
    machine = decoder.machine({})
    told = np.append(machine.mean[1], 0.0) + one.late_row
    np.testing.assert_allclose(told, [0.0, 0.9, 0.0, B[1]], atol=0.01)
    certificate = clqr.certify(decoder, {}, cost, [1.0, 0.0])
    big, push = np.zeros((3, 3)), np.array([[0.0], [0.0], [1.0]])
    big[:2, :2], big[:2, 2] = A, B
    noise = np.diag([4e-6, 4e-6, 0.0])
    true = clqr.LinearSystem(big, push, noise)
    whole = clqr.QuadraticCost([np.diag([1.0, 0.3, 0.0])] * 30, [0.05 * np.eye(1)] * 29)
    played = clqr.LinearPolicy(np.pad(certificate.policy.gains, ((0, 0), (0, 0), (0, 1))))
    start = [1.0, 0.0, 0.0]
    paid = clqr.policy_cost(played, true, whole, start)
    excess = paid / clqr.optimal_cost(true, whole, start) - 1
    assert certificate.verdict != "trust"
    assert excess > 0.05
    assert certificate.likely_excess == pytest.approx(excess, rel=0.5)
    assert "acts late" in certificate.reason
