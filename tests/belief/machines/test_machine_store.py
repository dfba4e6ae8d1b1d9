"""What each machine has shown is kept apart, however it came in, and goes with the decoder."""

from pathlib import Path

import numpy as np
import pytest
from numpy import ndarray as Array
from numpy.random import default_rng

from contextual_lqr import Decoder, FeatureContext, InputError, Trajectory
from contextual_lqr.belief.machines import machine_store
from contextual_lqr.belief.machines.machine_store import MachineStore
from deviating_fleet import NOISE, context_map, contexts, episode, learnt, machines


def new() -> Decoder:
    return Decoder(context_map(), 1e-4, noise_level=NOISE)


def store_of(decoder: Decoder) -> MachineStore:
    assert decoder.store is not None
    return decoder.store


def grams(decoder: Decoder) -> dict[str, Array]:
    """TᵀT of each labelled machine: the same for every factor of the same rows."""
    store = store_of(decoder)
    T, *_ = store.tested(decoder.context_map)
    return dict(zip(store.labels, T.swapaxes(1, 2) @ T, strict=True))


def rows_of(one: Trajectory) -> tuple[Array, Array, Array]:
    return one.states[:-1], one.inputs, one.states[1:]


@pytest.fixture
def runs() -> list[Trajectory]:
    rng = default_rng(1)
    return [episode(M, 8 + i, rng) for i, M in enumerate(machines(3, 0.1, rng))]


def test_a_machine_is_its_rows(runs: list[Trajectory]) -> None:
    decoder = new()
    decoder.update(contexts(3)[0], runs[0], machine="a")
    decoder.update(contexts(3)[0], runs[1], machine="a")
    expected = 0
    for one in runs[:2]:
        y = np.concatenate((one.states[:-1], one.inputs), 1)
        before = np.concatenate((y[:1], y[:-1]))
        curves = (np.sign(y), y * np.abs(y), np.abs(y), np.ones((len(y), 1)))
        moving = np.arange(len(y))[:, None] * y, np.sign(y - before)[:, 2:], y[:, 2:] ** 5
        rows = np.concatenate((y, before, *curves, *moving, one.states[1:]), 1)
        expected = expected + rows.T @ rows
    np.testing.assert_allclose(grams(decoder)["a"], expected, rtol=1e-10, atol=1e-10)
    assert store_of(decoder).counts.tolist() == [len(runs[0]) + len(runs[1])]


def test_however_it_came_in(runs: list[Trajectory]) -> None:
    names, c = ["a", "b", "a"], contexts(3)
    c[2] = c[0]
    one_by_one, together, by_rows, merged, other = (new() for _ in range(5))
    for context, run, name in zip(c, runs, names, strict=True):
        one_by_one.update(context, run, machine=name)
    together.update_many(c, runs, machine=names)
    columns = [np.concatenate(part) for part in zip(*map(rows_of, runs), strict=True)]
    labels = [name for name, run in zip(names, runs, strict=True) for _ in range(len(run))]
    inertia = [each["inertia"] for each, run in zip(c, runs, strict=True) for _ in range(len(run))]
    by_rows.update_rows({"inertia": np.array(inertia)}, *columns, machine=labels)
    merged.update(c[0], runs[0], machine="a")
    other.update_many(c[1:], runs[1:], machine=names[1:])
    merged.merge(other)
    expected = grams(one_by_one)
    assert set(expected) == {"a", "b"}
    for decoder in (together, by_rows, merged):
        found = grams(decoder)
        assert set(found) == set(expected)
        for name, gram in expected.items():
            np.testing.assert_allclose(found[name], gram, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            decoder.machine(c[0], "a").mean, one_by_one.machine(c[0], "a").mean, atol=1e-8
        )


def test_one_label_for_all_rows(runs: list[Trajectory]) -> None:
    decoder = new()
    decoder.update_rows({"inertia": np.full(len(runs[0]), 0.5)}, *rows_of(runs[0]), machine="a")
    assert store_of(decoder).labels == ["a"]
    assert store_of(decoder).counts.tolist() == [len(runs[0])]


def test_without_labels_every_episode_is_another_machine(runs: list[Trajectory]) -> None:
    by_episode, by_rows = new(), new()
    by_episode.update_many([contexts(3)[0]] * 3, runs)
    columns = [np.concatenate(part) for part in zip(*map(rows_of, runs), strict=True)]
    by_rows.update_rows({"inertia": np.full(len(columns[0]), 0.5)}, *columns)
    for decoder in (by_episode, by_rows):
        assert sorted(store_of(decoder).counts.tolist()) == [len(run) for run in runs]
        assert store_of(decoder).labels == ["", "", ""]


def test_labels_must_be_as_many_as_what_they_are_of(runs: list[Trajectory]) -> None:
    decoder = new()
    with pytest.raises(InputError, match="3 trajectories, but 2 labels in machine"):
        decoder.update_many(contexts(3), runs, machine=["a", "b"])
    with pytest.raises(InputError, match="8 rows, but 1 labels in machine"):
        decoder.update_rows({"inertia": np.ones(8)}, *rows_of(runs[0]), machine=["a"])
    assert decoder.rows == 0
    assert decoder.store is None


def test_a_file_carries_machines(tmp_path: Path, runs: list[Trajectory]) -> None:
    decoder, _ = learnt(6, 0.1, default_rng(2))
    decoder.update(contexts(6)[0], runs[0])
    decoder.save(tmp_path / "fleet.decoder")
    again = Decoder.load(tmp_path / "fleet.decoder")
    assert store_of(again).labels == store_of(decoder).labels
    *arrays, columns = store_of(again).tested(again.context_map)
    *expected, same = store_of(decoder).tested(decoder.context_map)
    for a, b in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert columns == same
    np.testing.assert_array_equal(again.deviations, decoder.deviations)
    # One more without a label is a machine of its own, there as here.
    again.update(contexts(6)[0], runs[1])
    assert len(store_of(again)) == len(store_of(decoder)) + 1


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    decoder, _ = learnt(3, 0.1, default_rng(2))
    state, arrays = decoder.state()
    arrays["machine_rows"] = arrays["machine_rows"][:-1]
    with pytest.raises(InputError, match="its machines do not fit together"):
        Decoder.from_state(state, arrays, None, "fleet.decoder")


def test_a_copy_is_independent(runs: list[Trajectory]) -> None:
    decoder, _ = learnt(5, 0.1, default_rng(3))
    before = grams(decoder)["m0"].copy()
    twin = decoder.copy()
    twin.update(contexts(5)[0], runs[0], machine="m0")
    twin.update(contexts(5)[0], runs[1], machine="new")
    assert len(store_of(twin)) == len(store_of(decoder)) + 1
    np.testing.assert_array_equal(grams(decoder)["m0"], before)
    assert not np.allclose(grams(twin)["m0"], before)


def test_a_decoder_without_some_machines_is_one_that_never_saw_them() -> None:
    rng = np.random.default_rng(8)
    masses = FeatureContext(["1", "1/mass"], states=2, inputs=1, bounds={"mass": (0.1, 9)})
    whole, alone = (Decoder(masses, 1e-4) for _ in range(2))
    for i in range(6):
        for _ in range(2):
            x, u = rng.normal(size=(8, 2)), rng.normal(size=(7, 1))
            played = {"mass": 1.0 + i}, Trajectory(x, u), f"cart {i}"
            whole.update(*played)
            if i not in (1, 4):
                alone.update(*played)
    left = whole.without(["cart 1", "cart 4"])
    assert left.machine_labels == alone.machine_labels
    assert left.rows == alone.rows == 4 * 14
    assert np.allclose(left.estimate, alone.estimate, rtol=1e-10, atol=1e-12)
    assert np.allclose(left.factor, alone.factor, rtol=1e-10, atol=1e-12)
    assert np.allclose(left.deviations, alone.deviations, rtol=1e-6, atol=1e-12)
    assert whole.rows == 6 * 14  # it stays as it was
    left.update(*played)  # what was set aside, or not, has been learnt
    assert left.repeats == 1


@pytest.mark.parametrize("most", [0, 1, 2])
def test_of_later_machines_their_own_rows_alone(
    most: int, runs: list[Trajectory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they come in, and however often; the population is the same as of all columns."""
    whole = new()
    for name in ("a", "b", "c"):
        i = "abc".index(name)
        whole.update(contexts(3)[i], runs[i], machine=name)
        whole.update(contexts(3)[i], runs[(i + 1) % 3], machine=name)
    monkeypatch.setattr(machine_store, "TESTED", most)
    by_run, by_rows, merged, other = (new() for _ in range(4))
    for i, name in enumerate("abc"):
        for k, run in enumerate((runs[i], runs[(i + 1) % 3])):
            by_run.update(contexts(3)[i], run, machine=name)
            by_rows.update_rows([contexts(3)[i]] * len(run), *rows_of(run), machine=name)
            (other if k else merged).update(contexts(3)[i], run, machine=name)
    merged.merge(other)
    by_run.save(tmp_path / "few.decoder")
    again = Decoder.load(tmp_path / "few.decoder")
    expected = store_of(whole).regressions(whole.context_map)
    for decoder in (by_run, by_rows, merged, again):
        store = store_of(decoder)
        assert store.labels == ["a", "b", "c"]
        assert len(store.some([0, 2])) == 2
        found = store.regressions(decoder.context_map)
        for name in ("R", "F"):  # as squares: rows of a factor have a sign
            a, b = getattr(found, name), getattr(expected, name)
            np.testing.assert_allclose(
                found.R.swapaxes(1, 2) @ a, expected.R.swapaxes(1, 2) @ b, rtol=1e-9, atol=1e-10
            )
        np.testing.assert_allclose(found.rss, expected.rss, rtol=1e-9)
        np.testing.assert_array_equal(found.rows, expected.rows)
        if most:
            assert len(store.tested(decoder.context_map)[0]) == most


@pytest.mark.parametrize("large", [False, True])
def test_rows_that_wait_in_their_machines_are_pooled_when_asked_for(
    large: bool, runs: list[Trajectory]
) -> None:
    """As `fit` tells them, with digests; a row beyond the limit ends the waiting."""
    waiting, other, plain = new(), new(), new()
    for i, run in enumerate(runs):
        x, u, after = (list(side.T) for side in rows_of(run))
        if large and i == 1:
            after[0] = after[0].copy()
            after[0][3] = 1e15  # above NOISE / ε
        inertia = {"inertia": np.full(len(run), contexts(3)[i]["inertia"])}
        digests = np.array([i], np.uint64)
        told = other if i == 2 else waiting
        told.update_columns(inertia, x, u, after, machine=f"m{i % 2}", digests=digests)
        plain.update_columns(inertia, x, u, after, machine=f"m{i % 2}")
    waiting.merge(other)
    waiting.update(contexts(3)[0], runs[0], machine="m0")  # beside what waits
    plain.update(contexts(3)[0], runs[0], machine="m0")
    assert (waiting.rows, waiting.ignored_rows) == (plain.rows, plain.ignored_rows)
    assert waiting.ignored_rows == large
    np.testing.assert_allclose(waiting.estimate, plain.estimate, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(waiting.factor, plain.factor, rtol=1e-8, atol=1e-10)
    assert store_of(waiting).counts.tolist() == store_of(plain).counts.tolist()
