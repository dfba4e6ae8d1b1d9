"""Both stores are held to the suite that we ship; what happens to a store is a sentence."""

import sqlite3
from pathlib import Path

import pytest

from contextual_lqr import Study
from contextual_lqr.errors import FormatError, InputError
from contextual_lqr.fleets import chain
from contextual_lqr.study.log import StoreError
from contextual_lqr.testing import check_store


def test_sqlite_is_a_store(tmp_path: Path) -> None:
    check_store(f"sqlite:///{tmp_path}/fleet.db")


def test_postgresql_is_a_store(postgres: str) -> None:
    check_store(postgres)


def test_no_study_and_no_fleet(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no study at .*: give its fleet"):
        Study.open(f"sqlite:///{tmp_path}/fleet.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["fleet.db", "", "sqlite//x", "nosuch://here"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(InputError, match=r"address|driver"):
        Study.open(url, chain())


def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(StoreError, match="cannot be used: unable to open database file"):
        Study.open("sqlite:////nowhere/at/all/fleet.db", chain())


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "fleet.db").write_text("mass,position\n" * 100)
    with pytest.raises(StoreError, match="file is not a database"):
        Study.open(f"sqlite:///{tmp_path}/fleet.db", chain())


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/fleet.db"
    Study.open(url, chain()).close()
    with sqlite3.connect(tmp_path / "fleet.db") as database:
        database.execute("update clqr_study set schema_version = 99")
    database.close()
    with pytest.raises(FormatError, match="schema 99, but this release reads up to 2"):
        Study.open(url)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(StoreError) as caught:
        Study.open("postgresql://user:hidden@localhost:1/none", chain())
    assert "hidden" not in str(caught.value)
