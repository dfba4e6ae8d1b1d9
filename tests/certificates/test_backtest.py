"""Certificates held against machines left out: what is counted, what is refused, what is kept."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import Decoder, InputError, QuadraticCost, certify, certify_many
from contextual_lqr.belief.machines.population import Population
from contextual_lqr.certificates.backtest import backtest
from contextual_lqr.certificates.backtest_records import FEWEST
from contextual_lqr.certificates.fleet_check import fleet_check
from deviating_fleet import NOISE, context_map, contexts, episode, learnt, machines

COST = QuadraticCost(np.broadcast_to(np.eye(2), (10, 2, 2)), 0.1 * np.ones((9, 1, 1)))
START = np.array([1.0, 0.0])


def test_machines_that_obey_the_law_are_trusted_rightly() -> None:
    decoder, _ = learnt(24, 0.0, default_rng(0))
    found = backtest(decoder, COST, START)
    assert [one.machine for one in found.machines] == [f"m{i}" for i in range(24)]
    assert all(one.rows == 30 for one in found.machines)
    assert found.counted
    assert (found.trusted, found.wrongly) == (24, 0)
    assert found.hedge == 0
    assert "24 of 24 machines would have been trusted" in str(found)


def test_counts_are_those_of_the_machines() -> None:
    decoder, _ = learnt(24, 0.05, default_rng(1))
    found = backtest(decoder, COST, START, trusted_excess=0.2)
    trusted = [one for one in found.machines if one.trusted]
    assert found.trusted == len(trusted) == sum(o.claimed_excess <= 0.2 for o in found.machines)
    assert found.wrongly == sum(one.realised_excess > 0.05 for one in trusted)
    written = found.as_dict()
    assert (written["trusted"], written["wrongly"]) == (found.trusted, found.wrongly)
    assert len(written["machines"]) == 24
    # No more than one machine of twenty is above what was claimed, once claims are scaled.
    above = sum(one.realised_excess > one.claimed_excess * (1 + 1e-9) for one in found.machines)
    assert above <= 24 - np.ceil(0.95 * 25)
    assert found.factor >= 1


def test_too_few_machines_cannot_show_95_percent() -> None:
    decoder, _ = learnt(FEWEST - 1, 0.05, default_rng(2))
    found = backtest(decoder, COST, START)
    assert not found.counted
    assert found.factor == 1
    assert found.widening == (0, 0)
    assert "fewer than 19 machines cannot show 95 %" in str(found)
    enough, _ = learnt(FEWEST, 0.05, default_rng(2))
    assert backtest(enough, COST, START).counted


def test_less_than_two_machines_are_refused() -> None:
    alone, _ = learnt(1, 0.0, default_rng(3))
    apart = Decoder(context_map(), 1e-4, noise_level=NOISE, deviations=None)
    rng = default_rng(3)
    apart.update(contexts(2)[0], episode(machines(2, 0.0, rng)[0], 20, rng))
    for decoder in (alone, apart):
        with pytest.raises(InputError, match="it needs two at least, kept apart"):
            backtest(decoder, COST, START)
    with pytest.raises(InputError, match="start must be 2 numbers"):
        backtest(alone, COST, [1.0, 2.0, 3.0])


def test_the_check_is_kept_until_data_come() -> None:
    decoder, _ = learnt(20, 0.05, default_rng(4))
    first = fleet_check(decoder, COST, START)
    assert fleet_check(decoder, COST, START) is first
    assert fleet_check(decoder, COST, 2 * START) is not first  # another task
    rng = default_rng(5)
    twin = decoder.copy()
    twin.update({"inertia": 1.0}, episode(machines(20, 0.0, rng)[9], 15, rng), machine="more")
    assert not twin.kept
    assert fleet_check(twin, COST, START) is not first
    assert fleet_check(decoder, COST, START) is first


def test_a_certificate_knows_a_machine_by_its_own_data() -> None:
    rng = default_rng(6)
    decoder, _ = learnt(30, 0.1, rng)
    context, M = {"inertia": 1.1}, machines(30, 0.1, rng)[15]
    for _ in range(8):
        decoder.update(context, episode(M, 15, rng), machine="own")
    never, own = (
        certify(decoder, context, COST, START, machine=label, bounds=False)
        for label in (None, "own")
    )
    assert own.likely_excess < never.likely_excess
    both = certify_many(decoder, [context] * 2, COST, START, machine=[None, "own"], bounds=False)
    assert both[0].likely_excess == pytest.approx(never.likely_excess, rel=1e-6)
    assert both[1].likely_excess == pytest.approx(own.likely_excess, rel=1e-6)


def test_what_the_model_misses_counts_at_what_it_may_cost() -> None:
    """Inputs that act late forbid trust, and are named; a little error in what is seen does not."""
    rng = default_rng(7)
    exact = Decoder(context_map(), 1e-4, noise_level=NOISE)
    late, noisy = exact.copy(), exact.copy()
    for i, (context, M) in enumerate(zip(contexts(24), machines(24, 0.0, rng), strict=True)):
        for _ in range(3):
            run = episode(M, 25, rng, noise=1e-3)
            seen = run.states + 0.02 * rng.standard_normal(run.states.shape)
            for decoder, states, inputs in (
                (exact, run.states, run.inputs),
                (late, run.states[:-1], run.inputs[1:]),
                (noisy, seen, run.inputs),
            ):
                decoder.update(context, type(run)(states, inputs), machine=f"m{i}")
    sound, delayed, harmless = (
        certify(one, {"inertia": 1.1}, COST, START) for one in (exact, late, noisy)
    )
    assert sound.verdict == "trust"
    assert delayed.verdict != "trust"
    assert "input 1 acts late" in delayed.reason
    # What is kept of the tests has no caller's names in it.
    names = {"states": ["angle", "rate"], "input_bounds": {"torque": (-np.inf, np.inf)}}
    named = certify(late, {"inertia": 1.1}, COST, START, **names)
    assert "torque acts late" in named.reason
    assert "of the error in rate is" in named.reason
    again = certify(late, {"inertia": 1.1}, COST, START)
    assert again.reason == delayed.reason
    assert again.likely_excess == delayed.likely_excess == named.likely_excess
    assert harmless.verdict == "trust"
    assert harmless.likely_excess > sound.likely_excess
    assert harmless.interval[1] > sound.interval[1]


def test_with_data_of_their_own_machines_fare_better() -> None:
    decoder, _ = learnt(24, 0.2, default_rng(8))
    found = backtest(decoder, COST, START, own_steps=[4, 12, 30])
    zero = float(np.median([one.realised_excess for one in found.machines]))
    excess = [one.median_excess for one in found.few_shot]
    assert zero > excess[0] > excess[1] > excess[2]
    assert [one.steps for one in found.few_shot] == [4, 12, 30]
    assert found.as_dict()["few_shot"][1]["steps"] == 12
    assert found.few_shot[-1].trusted >= found.trusted
    with pytest.raises(InputError, match="own_steps must be at least 1, not 0"):
        backtest(decoder, COST, START, own_steps=[0])


def test_thinned_rows_are_distributed_as_fewer_rows_would_be() -> None:
    """√f F + √(1-f) noise, against machines that have shown a share f of the rows."""
    decoder, _ = learnt(24, 0.0, default_rng(9))
    population = decoder.population
    assert population is not None
    whole, same = population.own(), population.own(steps=30, rng=default_rng(0))
    np.testing.assert_array_equal(whole.means, same.means)
    # With S given as large, the posterior mean is the machine's own least squares.
    wide = replace(population, deviations=1e6 * np.tile(np.eye(3), (2, 1, 1)))
    errors = []
    for seed in range(200):
        few = wide.own(steps=10, rng=default_rng(seed))
        off = few.means - wide.own().means
        errors.append(np.einsum("nri,nij,nrj->nr", off, _information(wide), off))
    # (β_f - β)ᵀ RᵀR (β_f - β) / σ² has mean y (1 - f) / f: here 3 · (2/3) / (1/3) = 6.
    ratio = np.mean(errors, 0) / population.variances / 6
    assert abs(ratio.mean() - 1) < 0.02


def _information(population: Population) -> np.ndarray:
    R = population.factors.R
    return R.swapaxes(1, 2) @ R


def test_a_cost_with_a_cross_term_is_another_task() -> None:
    decoder, _ = learnt(24, 0.05, default_rng(4))
    plain = certify(decoder, contexts(24)[0], COST, START)
    cross = QuadraticCost(COST.Q, COST.R, 0.1 * np.ones((9, 2, 1)))
    crossed = certify(decoder, contexts(24)[0], cross, START)
    assert crossed.predicted_cost != pytest.approx(plain.predicted_cost, rel=1e-3)
    assert fleet_check(decoder, cross, START) is not fleet_check(decoder, COST, START)


def test_one_machine_that_would_have_been_trusted_wrongly_is_named() -> None:
    """Its input is reversed. By counting, 1 of 40 does not widen what is claimed of others."""
    rng = default_rng(11)
    decoder = Decoder(context_map(), 1e-4, noise_level=NOISE)
    for i, (context, M) in enumerate(zip(contexts(40), machines(40, 0.0, rng), strict=True)):
        M[1, 2] *= -1 if i == 17 else 1
        for _ in range(3):
            decoder.update(context, episode(M, 20, rng), machine=f"m{i}")
    found = backtest(decoder, COST, START)
    assert (found.wrongly, found.factor) == (1, 1.0)
    one = certify(decoder, {"inertia": 1.1}, COST, START, bounds=False)
    assert one.verdict == "caution"
    assert "1 wrongly, m17 above all (is its label right?)" in one.reason
    own = certify(decoder, contexts(40)[16], COST, START, machine="m16", bounds=False)
    assert own.verdict == "trust"
