"""Files: nothing lost to a kill, a full disk, a flipped bit or another process."""

import multiprocessing
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from contextual_lqr import FormatError, InputError
from contextual_lqr.files import (
    _tidy,
    atomic_write,
    load_arrays,
    locked,
    open_beside,
    read_whole,
    require_regular,
    save_arrays,
    stamp,
)
from processes import forked

STATE = {"β": 1e-300, "names": ["a", "b"], "none": None, "zeros": "0" * 70}
ARRAYS = {
    "data": np.arange(6.0).reshape(2, 3),
    "seen": np.arange(3, dtype=np.uint64),
    "empty": np.zeros((0, 4)),
    "one": np.array(2.5),
}


def save(path: Path, state: Any = STATE, arrays: Any = ARRAYS, **options: Any) -> str:
    return save_arrays(path, "test", 3, state, arrays, **options)


# -- damage ----------------------------------------------------------------------------------------


def test_a_file_holds_everything_to_the_bit_and_is_the_same_every_time(tmp_path: Path) -> None:
    file = tmp_path / "a"
    assert save(file) == stamp(file)
    state, arrays = load_arrays(file, "test", 3)
    assert state == STATE
    assert list(state) == list(STATE)  # the order of names may mean something
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.tobytes()
        assert arrays[name].flags.writeable
    assert set(load_file(file)) == set(ARRAYS)  # anybody's safetensors reads it
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "import test_files; test_files.save(test_files.Path(sys.argv[1]))"
    )
    for i in range(3):  # a process each: the order of hashes differs
        other = tmp_path / f"b{i}"
        path = [str(Path(__file__).parent), *sys.path]
        subprocess.run([sys.executable, "-c", code, str(other), *path], check=True)
        assert other.read_bytes() == file.read_bytes()
    save(tmp_path / "c", arrays=dict(reversed(ARRAYS.items())))
    assert (tmp_path / "c").read_bytes() == file.read_bytes()


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "a"
    save(file)
    whole = file.read_bytes()
    for bit in range(8 * len(whole)):
        file.write_bytes(flipped(whole, bit))
        with pytest.raises(FormatError, match=f"{file} is (damaged|not a test file)"):
            load_arrays(file, "test", 3)
    save(file, arrays={"large": np.random.default_rng(1).normal(size=(300, 100))})
    whole = file.read_bytes()
    for bit in np.random.default_rng(2).integers(0, 8 * len(whole), 300):
        file.write_bytes(flipped(whole, int(bit)))
        with pytest.raises(FormatError):
            load_arrays(file, "test", 3)


def test_what_is_cut_lengthened_or_another_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a"
    save(file)
    whole = file.read_bytes()
    nested = b'{"__metadata__":' + b"[" * 100_000
    odd = [whole[:n] for n in range(0, len(whole), 3)]
    odd += [whole + b"\0", b"[fleet]\n" * 30, len(nested).to_bytes(8, "little") + nested]
    for content in odd:
        file.write_bytes(content)
        with pytest.raises(FormatError, match=f"{file} is (damaged|not a test file)"):
            load_arrays(file, "test", 3)
    for metadata in (None, {"format": "another"}, {"contextual-lqr": "[]"}):
        save_file({"data": np.eye(2)}, file, metadata)
        with pytest.raises(FormatError, match=r"not a test file"):
            load_arrays(file, "test", 3)
    save_file({"data": np.eye(2)}, file, {"format": "contextual-lqr test", "version": "1"})
    with pytest.raises(FormatError, match=r"a release before 0.2.*create it again from its logs"):
        load_arrays(file, "test", 3)
    save(file)
    with pytest.raises(FormatError, match="not a decoder file, but a test file"):
        load_arrays(file, "decoder", 3)
    for version, word in ((2, "newer"), (4, "older")):
        with pytest.raises(FormatError, match=f"version 3, but .* version {version}.*{word} one"):
            load_arrays(file, "test", version)


# -- outputs ---------------------------------------------------------------------------------------


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    for content in (b"one", b"two"):  # the first of them makes the file
        atomic_write(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "there" / "file").read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == ["link", "there"]
    assert os.listdir(tmp_path / "there") == ["file"]
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match=r"cannot write .*loop"):
        atomic_write(tmp_path / "loop", b"x")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o755])
def test_the_mode_stays(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(mode)
    old = os.umask(0o077)
    try:
        atomic_write(file, b"new")
        atomic_write(tmp_path / "fresh", b"new")
    finally:
        os.umask(old)
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o600  # as the user's umask says


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/null")
    kinds = {"fifo": "a FIFO", "folder": "a folder", "link": "a device"}
    for name, kind in kinds.items():
        with pytest.raises(InputError, match=f"cannot write .*{name}: it is {kind}, not a regular"):
            atomic_write(tmp_path / name, b"x")
        for read in (read_whole, require_regular):  # at once, however long nobody writes into it
            with pytest.raises(InputError, match=f"cannot read .*{name}: it is {kind}, not a reg"):
                read(tmp_path / name)
    with pytest.raises(InputError, match="cannot write /dev/null: it is a device"):
        atomic_write("/dev/null", b"x")
    assert sorted(os.listdir(tmp_path)) == ["fifo", "folder", "link"]
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)


def test_where_it_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*nowhere/a: No such file or folder"):
        atomic_write(tmp_path / "nowhere" / "a", b"x")
    with pytest.raises(InputError, match="cannot write a\0b: embedded null byte"):
        atomic_write("a\0b", b"x")
    with pytest.raises(InputError, match=r"cannot write a+: File name too long"):
        atomic_write("a" * 300, b"x")
    atomic_write(tmp_path / ("a" * 255), b"x")  # the longest name there is, and not one less
    with pytest.raises(InputError, match="there is no file"):
        read_whole(tmp_path / "none")


@pytest.mark.slow  # as for a user, whose types nobody checks
@pytest.mark.parametrize("wrong", [1, True, None, b"bytes", ["a"], 2.5])
def test_only_a_name_is_a_name(wrong: Any) -> None:
    """The integer 1 would be standard output, and closed after it was read."""
    for act in (read_whole, require_regular, stamp, lambda p: atomic_write(p, b"x")):
        with pytest.raises(InputError, match="the name of a file must be a string or a path, not"):
            act(wrong)
    with pytest.raises(InputError, match="the name of a file"), locked(wrong):
        pass
    os.fstat(1)


def _in_a_child(work: Any, *arguments: Any) -> str:
    """What `work` sent, in a process of its own."""
    ours, its = multiprocessing.Pipe()
    child = forked(work, its, *arguments)
    child.join()
    assert child.exitcode == 0
    return str(ours.recv())


def _write_refused(pipe: Any, file: Path, limit: int | None) -> None:
    if limit is None:
        os.setuid(65534)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        atomic_write(file, b"x" * 10_000)
    except InputError as error:
        pipe.send(str(error))


def test_a_full_disk_and_a_folder_that_is_read_only_leave_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    said = _in_a_child(_write_refused, file, 5_000)
    assert said == f"cannot write {file}: File too large"  # as a full disk is met, by the system
    if os.geteuid() == 0:
        for folder in (tmp_path, *tmp_path.parents):
            folder.chmod(0o755)
            if folder.name.startswith("pytest-of-"):
                break
        said = _in_a_child(_write_refused, file, None)
        assert said == f"cannot write {file}: it is read-only"
        file.chmod(0o666)
        said = _in_a_child(_write_refused, file, None)
        assert said == f"cannot write {file}: Permission denied"
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def _killed_while_writing(folder: str, ready: Any) -> None:
    _, file = open_beside(Path(folder) / "file")
    file.write(b"half")
    file.flush()
    ready.set()
    time.sleep(60)


def test_what_the_dead_left_is_cleaned_up_and_the_living_keep_theirs(tmp_path: Path) -> None:
    started = []
    for _ in range(2):
        ready = multiprocessing.get_context("fork").Event()
        started.append(forked(_killed_while_writing, str(tmp_path), ready))
        assert ready.wait(30)
    dead, living = started
    os.kill(dead.pid or 0, signal.SIGKILL)
    dead.join()
    theirs = tmp_path / ".contextual-lqr-notes.part"  # not a name that we give
    theirs.touch()
    long_ago = time.time() - 60
    for one in tmp_path.iterdir():
        os.utime(one, (long_ago, long_ago))
    assert len(os.listdir(tmp_path)) == 3
    _tidy.cache_clear()  # as a new process
    atomic_write(tmp_path / "other", b"x")
    left = sorted(os.listdir(tmp_path))
    assert len(left) == 3
    assert {"other", theirs.name} < set(left)
    living.kill()
    living.join()
    _tidy.cache_clear()
    atomic_write(tmp_path / "other", b"x")
    assert sorted(os.listdir(tmp_path)) == [theirs.name, "other"]


@pytest.mark.parametrize("where", ["os.replace", "os.fsync", "os.open", "os.fchmod"])
def test_a_failure_anywhere_leaves_the_old_file(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(where, fail)
        with pytest.raises(InputError, match=r"cannot write .*file: No space left on device"):
            atomic_write(file, b"new")
    assert os.listdir(tmp_path) == ["file"]
    assert file.read_bytes() == b"old"


# -- lost updates ----------------------------------------------------------------------------------


def _adds_one(path: str, how: str) -> None:
    """Twenty times: read, change, write back."""
    done = 0
    while done < 20:
        if how == "locked":
            with locked(path, 60):
                atomic_write(path, str(int(read_whole(path)) + 1).encode())
            done += 1
            continue
        seen = stamp(path)
        number = int(read_whole(path))
        time.sleep(0.001)
        try:
            atomic_write(path, str(number + 1).encode(), since=seen)
            done += 1
        except InputError as error:
            if "changed by another process since it was read" not in str(error):
                raise


@pytest.mark.parametrize("how", ["locked", "since"])
def test_no_update_is_lost(how: str, tmp_path: Path) -> None:
    file = tmp_path / "count"
    file.write_text("0")
    several = [forked(_adds_one, str(file), how) for _ in range(3)]
    for one in several:
        one.join()
    assert [one.exitcode for one in several] == [0, 0, 0]
    assert file.read_text() == "60"
    assert os.listdir(tmp_path) == ["count"]


def test_a_stamp_is_of_what_the_file_holds(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert stamp(file) == ""
    atomic_write(file, b"first", since="")
    with pytest.raises(InputError, match="file has been changed by another process since"):
        atomic_write(file, b"mine", since="")
    (tmp_path / "link").symlink_to(file)
    assert stamp(tmp_path / "link") == stamp(file)
    seen = save(file, since=stamp(file))
    seen = save(tmp_path / "link", {"more": 1}, since=seen)
    assert seen == stamp(file)
    assert load_arrays(file, "test", 3)[0] == {"more": 1}


def _holds(path: str, ready: Any) -> None:
    with locked(path):
        ready.set()
        time.sleep(60)


def test_a_lock_is_waited_for_and_ends_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "file"
    ready = multiprocessing.get_context("fork").Event()
    one = forked(_holds, str(file), ready)
    assert ready.wait(30)
    with pytest.raises(InputError, match=r"another process is using .*file: try again"):
        locked(file, 0.05).__enter__()
    one.kill()
    one.join()
    with locked(file, 5):
        atomic_write(file, b"x")
    assert os.listdir(tmp_path) == ["file"]
    with (
        pytest.raises(InputError, match=r"cannot write .*nowhere/x"),
        locked(tmp_path / "nowhere/x"),
    ):
        pass
