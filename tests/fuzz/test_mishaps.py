"""Files under attack: flipped bits, kills, full disks, many threads; nothing is lost or believed.

Few cases in the tests; `make fuzz`, or CASES in the environment, has as many as one likes.
"""

import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import cases, small_fleet

from contextual_lqr import Agent, Decoder, FormatError, InputError
from contextual_lqr.data import FittedFleet
from contextual_lqr.files import _tidy, atomic_write
from episodes import MAP, episode, learnt
from fleet_play import off_policy
from fleet_play import small_fleet as simulated
from processes import forked


def written(folder: Path) -> dict[Path, Callable[[Path], Any]]:
    """A file of every kind that we write, and what reads it."""
    decoder, agent = folder / "a.belief", folder / "an.agent"
    learnt([episode(np.random.default_rng(i)) for i in range(4)]).save(decoder)
    fleet, rng = simulated(), np.random.default_rng(0)
    one = Agent(fleet.context_map, fleet.cost, fleet.start, seed=1)
    for _ in range(3):
        one.tell(*off_policy(fleet, rng))
    one.save(agent)
    fitted = small_fleet(folder / "logs") / "a.decoder"
    return {decoder: Decoder.load, agent: Agent.load, fitted: FittedFleet.load}


@pytest.mark.slow
def test_no_damage_is_believed(tmp_path: Path) -> None:
    """A bit, a byte, some bytes, a piece cut out, doubled or exchanged: never another belief."""
    rng = np.random.default_rng(cases(0))
    for file, read in written(tmp_path).items():
        whole = file.read_bytes()
        for number in range(cases(300) // 3):
            a, b = np.sort(rng.integers(0, len(whole), 2))
            changed = bytearray(whole)
            match number % 6:
                case 0 | 1 | 2:
                    changed[a] ^= 1 << rng.integers(8)
                case 3:
                    changed[a:b] = rng.bytes(int(b - a))
                case 4:
                    del changed[a:b]
                case 5:
                    changed[a:a] = whole[a:b]
            if changed == whole:
                continue
            file.write_bytes(changed)
            with pytest.raises(FormatError, match=f"{file} is (damaged|not a)"):
                read(file)
        file.write_bytes(whole)
        read(file)


def _saves(path: str, ready: Any) -> None:
    """A decoder that is saved after every episode, for ever."""
    decoder, number = Decoder(MAP), 0
    while True:
        decoder.update(*episode(np.random.default_rng(number)))
        decoder.save(path)
        number += 1
        ready.set()


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    file, rng, most = tmp_path / "a.belief", np.random.default_rng(1), 0
    for _ in range(min(cases(5), 1000)):
        ready = multiprocessing.get_context("fork").Event()
        one = forked(_saves, str(file), ready)
        assert ready.wait(60)
        time.sleep(rng.uniform(0, 0.02))
        os.kill(one.pid or 0, signal.SIGKILL)
        one.join()
        decoder = Decoder.load(file)  # whole, and what some moment had learnt
        most = max(most, decoder.episodes)
        again = learnt([episode(np.random.default_rng(i)) for i in range(decoder.episodes)])
        assert np.array_equal(again.estimate, decoder.estimate)
    assert most > 1
    long_ago = time.time() - 60
    for left in tmp_path.iterdir():
        os.utime(left, (long_ago, long_ago))
    _tidy.cache_clear()  # as the next run
    atomic_write(tmp_path / "next", b"")
    assert sorted(os.listdir(tmp_path)) == ["a.belief", "next"]


def _runs_out(path: str, room: int) -> None:
    """Learn more, and save it where there is no room."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    decoder = Decoder.load(path)
    decoder.update(*episode(np.random.default_rng(99)))
    try:
        decoder.save(path)
        os._exit(0)
    except InputError as error:
        os._exit(3 if str(error) == f"cannot write {path}: File too large" else 4)


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """Full after any number of bytes, as the system says of a file that may grow no further."""
    file = tmp_path / "a.belief"
    learnt([episode(np.random.default_rng(i)) for i in range(4)]).save(file)
    whole, rng = file.read_bytes(), np.random.default_rng(2)
    for _ in range(min(cases(5), 1000)):
        one = forked(_runs_out, str(file), int(rng.integers(0, len(whole))))
        one.join()
        assert one.exitcode == 3
        assert file.read_bytes() == whole
        assert os.listdir(tmp_path) == ["a.belief"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["one by one", "many at once", "merged"])
def test_eight_threads_teach_one_decoder(how: str) -> None:
    each = min(cases(40), 1000)
    told = [[episode(np.random.default_rng(8 * i + t)) for i in range(each)] for t in range(8)]
    decoder, start = Decoder(MAP), threading.Barrier(8)

    def teach(some: list[Any]) -> None:
        start.wait()
        match how:
            case "one by one":
                for one in some:
                    decoder.update(*one)
            case "many at once":
                decoder.update_many([one[0] for one in some], [one[1] for one in some])
            case _:
                decoder.merge(learnt(some))

    threads = [threading.Thread(target=teach, args=(some,)) for some in told]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    alone = learnt([one for some in told for one in some])
    assert (decoder.episodes, decoder.rows, decoder.repeats) == (8 * each, alone.rows, 0)
    V, W = decoder.factor.T @ decoder.factor, alone.factor.T @ alone.factor
    np.testing.assert_allclose(V, W, rtol=1e-10, atol=1e-10 * np.abs(W).max())
    np.testing.assert_allclose(decoder.estimate, alone.estimate, rtol=1e-6, atol=1e-9)
    decoder.update(*told[3][1])  # and every episode of every thread is known
    assert decoder.repeats == 1
