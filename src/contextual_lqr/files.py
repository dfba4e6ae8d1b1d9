"""Files that are written whole or not at all, and read only if every bit is as it was written.

A writer fills a temporary file beside the target, which then takes its place; whoever reads sees
the old file or the new one. A program that reads a file, changes what it read and writes it back
either holds `locked` meanwhile, or takes a `stamp` first and writes `since` that: then nobody's
change is lost. Files of arrays are safetensors files with a checksum over every byte.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.errors import FormatError, InputError

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be deleted: that is lock enough
    fcntl = None  # type: ignore[assignment]

Name = str | os.PathLike[str]
_OURS = ".contextual-lqr-"  # how hidden files of ours begin
_TEMPORARY = re.compile(re.escape(_OURS) + r"[0-9a-f]{32}\.part")
_SETTLED = 2.0  # seconds after which a temporary file that nobody holds was left by the dead
_PATIENCE = 10.0  # seconds to wait for another process that holds a file


# -- reading ---------------------------------------------------------------------------------------


def read_whole(path: Name) -> bytes:
    """The bytes of a regular file; what would have to be waited for, such as a FIFO, is refused."""
    require_regular(path)
    with reporting("read", path), open(path, "rb", opener=_at_once) as file:
        return file.read()


def require_regular(path: Name) -> None:
    """Refuse what is no regular file before somebody else opens it, and waits for it."""
    with reporting("read", path):
        _require_name(path)
        _require_regular("read", path, os.stat(path))


def real_path(path: Name) -> Path:
    """Where a file is, whatever links lead there."""
    with reporting("write", path):
        _require_name(path)
        return Path(os.path.realpath(path))


def stamp(path: Name) -> str:
    """What a file holds, as a digest; of a file that is not there, an empty one."""
    with reporting("read", path):
        return "" if _about(path) is None else _digest(read_whole(path))


def _require_name(path: object) -> None:
    """Refuse what names no file; an integer would be a file that somebody else has open."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise InputError(
            f"the name of a file must be a string or a path, not {type(path).__name__}"
        )


def _about(path: Name) -> os.stat_result | None:
    """What the system says about a file, links followed; nothing, if there is none."""
    _require_name(path)
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _at_once(path: str, flags: int) -> int:
    """Open, also a FIFO, without waiting for anybody."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _require_regular(doing: str, path: Name, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(about.st_mode), "a device")
        raise InputError(f"cannot {doing} {path}: it is {kind}, not a regular file")


@contextmanager
def reporting(doing: str, path: Name) -> Iterator[None]:
    """What the system refuses, as a sentence."""
    try:
        yield
    except FileNotFoundError as error:
        if doing == "read":
            raise InputError(f"there is no file {path}") from None
        raise InputError(f"cannot {doing} {path}: No such file or folder") from error
    except (OSError, ValueError) as error:  # a name may hold a null byte
        if isinstance(error, InputError):
            raise
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot {doing} {path}: {why}") from error


# -- writing ---------------------------------------------------------------------------------------


def atomic_write(path: Name, content: bytes, *, since: str | None = None) -> None:
    """Put a file in its place: whatever happens, the old file or the new one is there, whole.

    A link stays a link, and an existing file keeps its mode. With `since`, a `stamp`, it is
    refused if the file has changed meanwhile.
    """
    with nullcontext() if since is None else locked(path):
        if since is not None and stamp(path) != since:
            raise InputError(
                f"{path} has been changed by another process since it was read, and was not "
                "overwritten: read it again, and repeat your change"
            )
        with reporting("write", path):
            beside, file = open_beside(path)
            target = real_path(path)
            try:
                with file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                    if fcntl is not None:  # held until it has its name
                        os.replace(beside, target)
                if fcntl is None:
                    os.replace(beside, target)
                _settle(target.parent)
            finally:
                beside.unlink(missing_ok=True)


def require_writable(path: Name, reads: Iterable[Name] = ()) -> os.stat_result | None:
    """Refuse what cannot be written, or what the work itself `reads`, before that work begins.

    Returns what the system says about the file that is there now, if there is one.
    """
    with reporting("write", path):
        old = _about(path)
        if old is not None:
            _require_regular("write", path, old)
            if any(os.path.exists(one) and os.path.samestat(old, os.stat(one)) for one in reads):
                raise OSError(None, "it is one of the files that are read")
            if not os.access(path, os.W_OK):
                raise PermissionError(None, "it is read-only")
        if not real_path(path).parent.is_dir():
            raise FileNotFoundError
        return old


def open_beside(path: Name) -> tuple[Path, IO[bytes]]:
    """A temporary file in the folder of `path`, with the mode of `path`, to be renamed to it.

    Those that a process of ours left behind there when it was killed are removed.
    """
    with reporting("write", path):
        old, target = require_writable(path), real_path(path)
        _tidy(target.parent)
        beside = target.with_name(f"{_OURS}{secrets.token_hex(16)}.part")
        mode = 0o666 if old is None else stat.S_IMODE(old.st_mode)
        file = open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
        try:
            if fcntl is not None:
                _like_the_old(file.fileno(), old)
        except BaseException:
            file.close()
            beside.unlink()
            raise
        return beside, file


def _like_the_old(descriptor: int, old: os.stat_result | None) -> None:
    with suppress(OSError):  # not every file system has locks
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # whoever tidies up sees that we are alive
    if old is not None:
        with suppress(PermissionError):  # only root may give files away
            os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _settle(folder: Path) -> None:
    """See to it that a new name outlives a power cut, where folders can be told so."""
    if hasattr(os, "O_DIRECTORY"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@lru_cache(maxsize=64)
def _tidy(folder: Path) -> None:
    """Remove temporary files of processes that were killed; once a run."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    _remove_dead(entry)


def _remove_dead(entry: os.DirEntry[str]) -> None:
    if time.time() - entry.stat(follow_symlinks=False).st_mtime < _SETTLED:
        return
    if fcntl is None:
        os.unlink(entry)
        return
    with open(entry, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused if its writer lives
        os.unlink(entry)


# -- one at a time ---------------------------------------------------------------------------------


@contextmanager
def locked(path: Name, patience: float | None = None) -> Iterator[None]:
    """Keep other processes that ask for it from `path`, from reading it to writing it back.

    A lock ends with its process, however that ends. Inside, write without `since`.
    """
    deadline = time.monotonic() + (_PATIENCE if patience is None else patience)
    with reporting("write", path):
        require_writable(path)  # else the lock would be made beside a device
        target = real_path(path)
        lock = target.with_name(f"{_OURS}{_digest(os.fsencode(target.name))[:32]}.lock")
        while (held := _hold(lock)) is None:
            if time.monotonic() > deadline:
                raise InputError(f"another process is using {path}: try again when it has finished")
            time.sleep(0.01)
    try:
        yield
    finally:
        if fcntl is not None:
            with suppress(OSError):
                lock.unlink()
        os.close(held)


def _hold(lock: Path) -> int | None:
    """The lock, or nothing if another process has it."""
    if fcntl is None:  # the file goes when it is closed, also by the end of a process
        try:
            flags = os.O_CREAT | os.O_EXCL | getattr(os, "O_TEMPORARY", 0)
            return os.open(lock, flags)
        except (FileExistsError, PermissionError):
            return None
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):  # taken, or given up and gone a moment ago
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


# -- arrays ----------------------------------------------------------------------------------------

_ABOUT = "contextual-lqr"  # the only entry of the metadata, whose order would be random
_UNSEALED = "0" * 64


def save_arrays(
    path: Name,
    kind: str,
    version: int,
    state: Mapping[str, Any],
    arrays: Mapping[str, Array],
    *,
    since: str | None = None,
) -> str:
    """Write arrays and a JSON-able state; returns the `stamp` of the file."""
    content = packed(kind, version, state, arrays)
    atomic_write(path, content, since=since)
    return _digest(content)


def packed(kind: str, version: int, state: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """The content of a file of arrays and a JSON-able state; equal ones have equal contents.

    The checksum is of the whole with 64 zeros in its place.
    """
    from safetensors.numpy import save

    about = {"checksum": _UNSEALED, "kind": kind, "version": version, "state": state}
    content = save(
        {name: np.asarray(array, order="C") for name, array in arrays.items()},
        metadata={_ABOUT: json.dumps(about)},
    )
    return content.replace(_UNSEALED.encode(), _digest(content).encode(), 1)


def load_arrays(path: Name, kind: str, version: int) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read what `save_arrays` wrote, to the bit."""
    return unpacked(read_whole(path), kind, version, path)


def unpacked(
    content: bytes, kind: str, version: int, path: Name
) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `packed` made, to the bit; `path` says in an error where the content is from."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
        if metadata.get("format") == f"contextual-lqr {kind}":
            raise FormatError(
                f"{path} was written by a release before 0.2, whose files had no checksum: "
                "create it again from its logs or episodes, or read it with that release"
            )
        if _ABOUT not in metadata:
            raise FormatError(f"{path} is not a {kind} file")
        about = json.loads(metadata[_ABOUT])
        checksum, its, state = about["checksum"], about["version"], about["state"]
        if checksum != _digest(content.replace(checksum.encode(), _UNSEALED.encode(), 1)):
            raise FormatError(f"{path} is damaged: its checksum does not match its content")
        if about["kind"] != kind:
            raise FormatError(f"{path} is not a {kind} file, but a {about['kind']} file")
        if its != version:
            age = "a newer" if its > version else "an older"
            raise FormatError(
                f"{path} has format version {its}, but this release reads version {version}: "
                f"read it with the release, probably {age} one, that wrote it"
            )
        return dict(state), {name: np.array(array) for name, array in load(content).items()}
    except FormatError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError, MemoryError):
        raise FormatError(f"{path} is damaged or not a {kind} file") from None
    except SafetensorError as error:
        raise FormatError(f"{path} is damaged or not a {kind} file: {error}") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def finite(value: Any) -> Any:
    """What strict JSON can hold: arrays as lists, None for a number that is not finite."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
