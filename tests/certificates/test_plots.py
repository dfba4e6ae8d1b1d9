"""What is drawn is what was computed, and a missing Matplotlib is said."""

import sys
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.random import default_rng

import deviating_fleet
from contextual_lqr import (
    Certificate,
    Decoder,
    FeatureContext,
    InputError,
    QuadraticCost,
    backtest,
    certify_many,
    plot_backtest,
    plot_certificates,
    plot_closed_loop,
    plot_decoder,
    plot_tradeoff,
)
from contextual_lqr.errors import MissingExtraError
from fleet_play import small_fleet, taught

FLEET = small_fleet()


@pytest.fixture(scope="module")
def learnt() -> Decoder:
    return taught(FLEET, 30, regularisation=1e-4).decoder


@pytest.fixture(scope="module")
def certificates(learnt: Decoder) -> list[Certificate]:
    gains = [{"gain": float(gain)} for gain in (2.0, 0.5, 1.0)]
    return certify_many(learnt, gains, FLEET.cost, FLEET.start)


def test_the_closed_loop_is_that_of_the_policy(
    learnt: Decoder, certificates: list[Certificate]
) -> None:
    figure, fleet = Figure(), FLEET
    axes = plot_closed_loop(learnt, certificates[0], fleet.cost, fleet.start, figure=figure)
    assert [one.get_ylabel() for one in axes] == ["x1", "x2", "u1"]
    assert figure.get_suptitle() == "gain=2: band of 90%"
    states = np.stack([one.lines[1].get_ydata() for one in axes[:2]], 1)
    inputs = axes[2].lines[1].get_ydata()
    gains, machine = certificates[0].policy.gains, learnt.machine({"gain": 2.0}).system
    np.testing.assert_allclose(states[0], fleet.start)
    for h, u in enumerate(inputs):
        np.testing.assert_allclose(u, gains[h, 0] @ states[h])
        np.testing.assert_allclose(states[h + 1], machine.A @ states[h] + machine.B[:, 0] * u)
    labels = ["position [m]", None, "force [N]"]
    plan = taught(fleet, 30).ask({"gain": 2.0})
    axes = plot_closed_loop(
        learnt, plan, fleet.cost, fleet.start, labels=labels, runs=20, rng=default_rng(1),
        figure=Figure(),
    )  # fmt: skip
    assert [one.get_ylabel() for one in axes] == ["position [m]", "force [N]"]
    with pytest.raises(InputError, match="labels must be 3, one for each state and input"):
        plot_closed_loop(learnt, plan, fleet.cost, fleet.start, labels=["a"], figure=Figure())


def test_certificates_stand_in_the_order_of_their_contexts(certificates: Any) -> None:
    cost, above = plot_certificates(certificates, label="gain [N/V]", figure=Figure())
    order = [1, 2, 0]
    np.testing.assert_array_equal(cost.lines[0].get_xdata(), [0.5, 1.0, 2.0])
    np.testing.assert_array_equal(
        cost.lines[0].get_ydata(), [certificates[i].predicted_cost for i in order]
    )
    np.testing.assert_array_equal(
        above.lines[0].get_ydata(), [certificates[i].likely_excess for i in order]
    )
    assert above.get_xlabel() == "gain [N/V]"
    assert plot_certificates(certificates, "gain", figure=Figure())[1].get_xlabel() == "gain"
    for wrong, name, said in (
        ([], None, "there are no certificates to draw"),
        (certificates[:1], None, "name the value of the context to draw over: none change"),
        (certificates, "mass", "the contexts do not all have a 'mass'"),
    ):
        with pytest.raises(InputError, match=said):
            plot_certificates(wrong, name, figure=Figure())


def test_theta_is_drawn_with_its_intervals(learnt: Decoder) -> None:
    axes = plot_decoder(learnt, labels=["position [m]", "speed [m/s]", "force [N]"])
    assert axes[0].get_ylabel() == "next\nposition [m]"
    ticks = [one.get_text() for one in axes[1].get_xticklabels()]
    assert ticks == ["position", "speed", "force"] + [
        f"gain · {name}" for name in ("position", "speed", "force")
    ]
    V = learnt.factor.T @ learnt.factor
    for r, one in enumerate(axes):
        drawn = {}
        for points in one.containers:
            bars = points.lines[2][0].get_segments()
            for (x, low), (_, high) in bars:
                drawn[round(float(x))] = low, high
        half = 1.96 * np.sqrt(learnt.posterior.variance[r] * np.diag(np.linalg.inv(V)))
        ends = np.array([drawn[j] for j in range(6)])
        np.testing.assert_allclose(ends.mean(1), learnt.estimate[r], atol=1e-12)
        np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 2 * half, rtol=1e-6)
    with pytest.raises(InputError, match="labels must be 3"):
        plot_decoder(learnt, labels=["a"], figure=Figure())


def test_before_any_data_there_is_the_prior_to_draw() -> None:
    empty = Decoder(FeatureContext(["1", "gain"], states=2, inputs=1, bounds={"gain": (0, 1)}))
    assert len(plot_decoder(empty, figure=Figure())) == 2


def test_without_matplotlib_the_extra_is_named(
    learnt: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"Matplotlib is not installed.*lqr\[plot\]"):
        plot_decoder(learnt)


def test_a_backtest_shows_every_machine_and_amount_of_own_data() -> None:
    decoder, _ = deviating_fleet.learnt(8, 0.1, default_rng(0))
    cost = QuadraticCost([np.eye(2)] * 10, [np.eye(1)] * 9)
    found = backtest(decoder, cost, [1.0, 0.0], own_steps=[2, 8])
    claims, amounts = plot_backtest(found, figure=Figure())
    drawn = np.concatenate([line.get_xdata() for line in claims.lines if line.get_marker() == "o"])
    assert len(drawn) == len(found.machines)
    assert amounts.lines[0].get_xdata().tolist() == [0, 2, 8]
    assert amounts.lines[0].get_ydata()[1] == found.few_shot[0].median_excess
    (alone,) = plot_backtest(backtest(decoder, cost, [1.0, 0.0]), figure=Figure())
    assert alone.get_xscale() == "log"


def test_a_tradeoff_is_drawn_for_the_machine_and_over_the_belief(learnt: Decoder) -> None:
    (ax,) = plot_tradeoff(
        learnt, {"gain": 1.0}, FLEET.cost, FLEET.start, factors=[0.1, 1, 10], draws=20
    )
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert "gain" in ax.figure.get_suptitle()  # type: ignore[union-attr]
    lines = [line for line in ax.lines if len(line.get_xdata()) == 3]
    assert lines
