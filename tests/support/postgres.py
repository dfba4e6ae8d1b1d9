"""A PostgreSQL server of our own on a socket in a folder, where its programs are installed."""

import glob
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def programs() -> Path:
    """Where initdb and pg_ctl are; the test is skipped if they are nowhere."""
    found = shutil.which("pg_ctl") or next(
        iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/pg_ctl"), reverse=True)), None
    )
    if found is None:
        pytest.skip("PostgreSQL is not installed")
    return Path(found).parent


def run(folder: Path, program: str, *arguments: str) -> None:
    """One of its programs, as a user that is not root."""
    user = _user()
    root = os.getuid() == 0
    subprocess.run(
        [programs() / program, *arguments],
        check=True,
        capture_output=True,
        user=user.pw_uid if root else None,
        group=user.pw_gid if root else None,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        timeout=120,
    )


def _user() -> pwd.struct_passwd:
    return pwd.getpwnam("postgres") if os.getuid() == 0 else pwd.getpwuid(os.getuid())


def start(folder: Path, connections: int = 100) -> None:
    """Start the server of a folder; if it was killed, it recovers."""
    options = f"-k {folder / 's'} -c listen_addresses='' -c max_connections={connections}"
    where = ("-D", str(folder / "data"), "-w", "-l", str(folder / "log"))
    run(folder, "pg_ctl", *where, "-o", options, "start")


@contextmanager
def server(folder: Path, connections: int = 100) -> Iterator[str]:
    """The address of an empty database."""
    user, data, sockets = _user(), folder / "data", folder / "s"
    for one in (folder, sockets):
        one.mkdir(exist_ok=True)
        os.chown(one, user.pw_uid, user.pw_gid)
    auth = ("-U", "clqr", "-A", "trust", "-E", "UTF8", "--no-sync")
    run(folder, "initdb", "-D", str(data), *auth)
    start(folder, connections)
    try:
        yield f"postgresql://clqr@/postgres?host={sockets}"
    finally:
        run(folder, "pg_ctl", "-D", str(data), "-m", "immediate", "stop")
