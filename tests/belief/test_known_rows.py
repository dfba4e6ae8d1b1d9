"""Rows of Θ that are known: exactly kept, never in doubt, and no worse for the others."""

from pathlib import Path

import numpy as np
import pytest

from contextual_lqr import Agent, Cautious, ConfidenceSet, Decoder, InputError, Optimism
from contextual_lqr.belief.confidence import DeterminantBeta
from episodes import MAP, THETA, episode

KNOWN = {1: THETA[1]}


def pair(seed: int = 0, n: int = 6) -> tuple[Decoder, Decoder]:
    rng = np.random.default_rng(seed)
    plain, knowing = Decoder(MAP, 1e-4), Decoder(MAP, 1e-4, known=KNOWN)
    for one in [episode(rng) for _ in range(n)]:
        plain.update(*one)
        knowing.update(*one)
    return plain, knowing


def test_the_other_rows_are_learnt_as_before() -> None:
    plain, knowing = pair()
    assert np.array_equal(knowing.estimate[1], THETA[1])
    assert np.array_equal(knowing.estimate[0], plain.estimate[0])
    assert np.array_equal(knowing.factor, plain.factor)
    assert np.linalg.eigvalsh(knowing.noise_estimate).min() > 0


def test_no_member_of_the_set_moves_a_known_row() -> None:
    _, knowing = pair()
    rng = np.random.default_rng(1)
    plausible = ConfidenceSet(knowing, 0.3)
    members = [
        plausible.sample(200, rng),
        plausible.draw(50, rng, [0.1, 0.2]),
        plausible.lowest_linear(rng.normal(size=(20, 2, 6))),
    ]
    for thetas in members:
        assert (thetas[:, 1] == THETA[1]).all()
        assert (np.ptp(thetas[:, 0], axis=0) > 0).all()
    assert plausible.contains(members[0]).all()
    moved = members[0][0].copy()
    moved[1, 0] += 1e-9
    assert plausible.distance(moved) == np.inf
    # Uniform in the ball of the 6 unknown numbers: beta^6 is uniform.
    u = (plausible.distance(plausible.sample(4000, rng)) / 0.3) ** 3
    assert abs(u.mean() - 0.5) < 0.03
    assert abs((u < 0.1).mean() - 0.1) < 0.03


def test_the_lowest_is_the_lowest_of_many() -> None:
    _, knowing = pair()
    rng = np.random.default_rng(2)
    plausible = ConfidenceSet(knowing, 1.0)
    direction = rng.normal(size=(2, 6))
    lowest = (plausible.lowest_linear(direction) * direction).sum()
    assert lowest <= (plausible.sample(5000, rng) * direction).sum((1, 2)).min()


def test_the_radius_is_that_of_the_unknown_rows() -> None:
    plain, knowing = pair()
    rule = DeterminantBeta(1.0, 0.01, 0.05)
    assert rule(knowing) < rule(plain)


def test_files_merging_and_refusals(tmp_path: Path) -> None:
    plain, knowing = pair()
    knowing.save(tmp_path / "k")
    again = Decoder.load(tmp_path / "k")
    assert np.array_equal(again.estimate, knowing.estimate)
    again.merge(knowing.copy(), allow_repeats=True)
    assert np.array_equal(again.estimate[1], THETA[1])
    with pytest.raises(InputError, match="known rows"):
        plain.merge(knowing)
    for known, said in (
        ({2: THETA[1]}, "known row 2"),
        ({1: THETA[1, :3]}, "known row 1"),
        ({0: THETA[0], 1: THETA[1]}, "nothing to learn"),
        ({0: [np.nan] * 6}, "finite"),
    ):
        with pytest.raises(InputError, match=said):
            Decoder(MAP, known=known)


def test_strategies_never_doubt_a_known_row() -> None:
    from contextual_lqr import QuadraticCost

    _, knowing = pair(n=2)
    cost = QuadraticCost([np.eye(2)] * 6, [np.eye(1)] * 5)
    for strategy in (Optimism(certify=False), Cautious()):
        agent = Agent(MAP, cost, [1.0, 0.0], strategy, noise_level=0.01)
        agent.decoder = knowing.copy()
        assert np.array_equal(agent.ask({"gain": 1.0}).theta[1], THETA[1])
