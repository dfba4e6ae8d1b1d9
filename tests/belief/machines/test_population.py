"""Zero-shot, few-shot and own fit are one belief; where machines obey the law it is the old one."""

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import Decoder, InputError, QuadraticCost, certify
from deviating_fleet import NOISE, context_map, contexts, episode, learnt, machines

COST = QuadraticCost(np.broadcast_to(np.eye(2), (10, 2, 2)), 0.1 * np.ones((9, 1, 1)))


def test_without_deviations_it_is_the_plain_posterior() -> None:
    decoder, _ = learnt(12, 0.0, default_rng(0))
    assert not decoder.deviations.any()
    context = contexts(12)[3]
    plain = decoder.posterior.machine(decoder.context_map.matrix(context))
    for belief in (decoder.machine(context), decoder.machine(context, "m3")):
        np.testing.assert_allclose(belief.mean, plain.mean, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(belief.covariances, plain.covariances, rtol=1e-12, atol=1e-18)
        np.testing.assert_allclose(belief.noise, plain.noise, rtol=1e-12)


def test_own_data_take_over() -> None:
    rng = default_rng(4)
    decoder, _ = learnt(30, 0.1, rng)
    context, M = {"inertia": 1.1}, machines(30, 0.1, rng)[15]
    zero = decoder.machine(context)
    # Never seen, a machine may deviate from the law as the others do.
    assert (np.diagonal(zero.covariances[1]) >= np.diagonal(decoder.deviations[1])).all()
    errors, spreads = [np.abs(zero.mean - M).max()], [np.trace(zero.covariances[1])]
    for episodes in (1, 40):
        few = decoder.copy()
        rows = [episode(M, 15, rng) for _ in range(episodes)]
        few.update_many([context] * episodes, rows, machine="own")
        belief = few.machine(context, machine="own")
        errors.append(np.abs(belief.mean - M).max())
        spreads.append(np.trace(belief.covariances[1]))
    assert errors[2] < errors[1] < errors[0]
    assert spreads[2] < spreads[1] < spreads[0]
    # With much of it, it is the machine's own least squares.
    Y = np.concatenate([np.concatenate((one.states[:-1], one.inputs), 1) for one in rows])
    X = np.concatenate([one.states[1:] for one in rows])
    own = np.linalg.lstsq(Y, X, rcond=None)[0].T
    np.testing.assert_allclose(belief.mean[1], own[1], atol=2e-4)


def test_few_shot_is_bayes() -> None:
    """The posterior is that of the zero-shot prior and the machine's rows, by brute force."""
    rng = default_rng(5)
    decoder, truth = learnt(25, 0.1, rng)
    population, i = decoder.population, 7
    assert population is not None
    mean, covariances = (part[0] for part in population.others(np.array([i])))
    R, F = population.factors.R[i], population.factors.F[i]
    information = np.linalg.inv(covariances[1]) + R.T @ R / population.variances[1]
    expected = np.linalg.solve(
        information,
        np.linalg.solve(covariances[1], mean[1]) + R.T @ F[:, 1] / population.variances[1],
    )
    belief = decoder.machine(contexts(25)[i], f"m{i}")
    np.testing.assert_allclose(belief.mean[1], expected, atol=1e-8)
    np.testing.assert_allclose(belief.covariances[1], np.linalg.inv(information), rtol=1e-5)
    assert np.abs(belief.mean - truth[i]).max() < 0.05


def test_a_batch_is_its_members() -> None:
    decoder, _ = learnt(8, 0.1, default_rng(6))
    c = contexts(8)
    batch = decoder.machines([c[0], c[1], c[2]], [None, "m1", None])
    for k, label in enumerate((None, "m1", None)):
        one = decoder.machine(c[k], label)
        np.testing.assert_allclose(batch[k].mean, one.mean, rtol=1e-12)
        np.testing.assert_allclose(batch[k].covariances, one.covariances, rtol=1e-9, atol=1e-16)


def test_unknown_labels_are_refused() -> None:
    decoder, _ = learnt(4, 0.1, default_rng(7))
    with pytest.raises(InputError, match="no data of a machine 'm9' with this context"):
        decoder.machine(contexts(4)[0], "m9")
    with pytest.raises(InputError, match="no data of a machine 'm1' with this context"):
        certify(decoder, contexts(4)[0], COST, [1.0, 0.0], machine="m1")


def test_the_paper_keeps_no_machines_apart() -> None:
    decoder = Decoder(context_map(), 1e-4, noise_level=NOISE, deviations=None)
    rng = default_rng(8)
    for context, M in zip(contexts(3), machines(3, 0.1, rng), strict=True):
        decoder.update(context, episode(M, 15, rng), machine="a")
    assert decoder.store is None
    assert decoder.population is None
    assert not decoder.deviations.any()
    with pytest.raises(InputError, match="keeps no machines apart: deviations is None"):
        decoder.machine(contexts(3)[0], "a")


def test_given_covariances_are_used_as_they_are() -> None:
    given = np.zeros((2, 3, 3))
    given[1] = np.diag([1e-4, 4e-4, 9e-4])
    decoder = Decoder(context_map(), 1e-4, noise_level=NOISE, deviations=given)
    rng = default_rng(9)
    for i, (context, M) in enumerate(zip(contexts(10), machines(10, 0.0, rng), strict=True)):
        decoder.update(context, episode(M, 30, rng), machine=f"m{i}")
    np.testing.assert_array_equal(decoder.deviations, given)
    covariance = decoder.machine({"inertia": 1.2}).covariances[1]
    assert (np.linalg.eigvalsh(covariance - given[1]) >= -1e-12).all()


def test_two_machines_do_not_make_endless_deviations() -> None:
    """The prior of S, worth as much as the one deviation seen, would let it grow for ever."""
    rng = default_rng(10)
    decoder = Decoder(context_map(), 1e-8, noise_level=NOISE)
    truth = machines(2, 0.2, rng)
    for i, M in enumerate(truth):
        for _ in range(4):
            decoder.update({"inertia": 1.0}, episode(M, 15, rng), machine=f"m{i}")
    most = np.linalg.eigvalsh(decoder.deviations[1])[-1]
    seen = ((truth[0, 1] - truth[1, 1]) ** 2).sum() / 2
    assert 0.3 * seen < most < 10 * seen
