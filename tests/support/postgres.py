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


@contextmanager
def server(folder: Path, connections: int = 100) -> Iterator[str]:
    """The address of an empty database."""
    where = programs()
    user = pwd.getpwnam("postgres") if os.getuid() == 0 else pwd.getpwuid(os.getuid())

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [where / program, *arguments],
            check=True,
            capture_output=True,
            user=user.pw_uid if os.getuid() == 0 else None,
            group=user.pw_gid if os.getuid() == 0 else None,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            timeout=120,
        )

    data, sockets = folder / "data", folder / "s"
    for one in (folder, sockets):
        one.mkdir(exist_ok=True)
        os.chown(one, user.pw_uid, user.pw_gid)
    run("initdb", "-D", str(data), "-U", "clqr", "-A", "trust", "-E", "UTF8", "--no-sync")
    options = f"-k {sockets} -c listen_addresses='' -c max_connections={connections}"
    run("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql://clqr@/postgres?host={sockets}"
    finally:
        run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
