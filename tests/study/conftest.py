"""A PostgreSQL server for all tests of a file, and an empty database in it for each."""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from postgres import server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def _server() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path has 107 characters
        Path(folder).chmod(0o755)
        with server(Path(folder)) as url:
            yield url


@pytest.fixture
def postgres(_server: str) -> str:
    url = sqlalchemy.make_url(_server)
    engine = sqlalchemy.create_engine(
        url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    name = f"fleet_{next(_numbers)}"
    with engine.connect() as now:
        now.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return url.set(database=name).render_as_string()
