"""What is said of an error of the database: which kind it is, whether its disk is full, and no secret."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError, ProgrammingError

from include.tiering.database.engine import open_engine
from include.tiering.database.transactions import reading, secrets_of, stored_text
from include.tiering.errors import MetadataUnavailableError, RemoteMetadataError


def _sqlite_error(code: int, words: str = "disk I/O error") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = open_engine(f"sqlite:///{tmp_path / 'tiering.db'}")
    yield made
    made.dispose()


def _said(engine: Engine, error: Exception) -> tuple[type[Exception], str]:
    with pytest.raises(RemoteMetadataError) as caught, reading(engine):
        raise error
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("code", "is_told"),
    [
        (sqlite3.SQLITE_IOERR, True),
        (sqlite3.SQLITE_IOERR_WRITE, True),
        (sqlite3.SQLITE_FULL, True),
        (sqlite3.SQLITE_BUSY, False),
        (sqlite3.SQLITE_CANTOPEN, False),
    ],
)
def test_what_is_left_of_the_disk_is_told_where_the_disk_failed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, code: int, is_told: bool
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=2, f_frsize=1_024))
    kind, said = _said(engine, OperationalError("SELECT 1", None, _sqlite_error(code)))
    assert (kind, said.endswith("; its disk has 2.0 KiB left")) == (MetadataUnavailableError, is_told), said


def test_without_a_file_or_a_disk_that_answers_nothing_is_told_of_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OperationalError("SELECT 1", None, _sqlite_error(sqlite3.SQLITE_FULL))
    in_memory = open_engine("sqlite://")
    assert _said(in_memory, full)[1].endswith("disk I/O error")
    in_memory.dispose()

    def fail(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "statvfs", fail)
    assert _said(engine, full)[1].endswith("disk I/O error")


def _with_state(kind: type[DBAPIError], sqlstate: str | None, *, is_invalidated: bool = False) -> DBAPIError:
    cause: Any = Exception("as the driver says")
    cause.sqlstate = sqlstate
    return kind("SELECT 1", None, cause, connection_invalidated=is_invalidated)


@pytest.mark.parametrize(
    ("error", "is_unavailable"),
    [
        (_with_state(OperationalError, None), True),
        (_with_state(InterfaceError, None), True),
        (_with_state(ProgrammingError, "42P01"), True),
        (_with_state(ProgrammingError, "42703"), True),
        (_with_state(ProgrammingError, "42601"), False),
        (_with_state(IntegrityError, "23505"), False),
        (_with_state(IntegrityError, "23505", is_invalidated=True), True),
    ],
    ids=["operational", "interface", "no table", "no column", "syntax", "integrity", "the connection broke"],
)
def test_another_try_may_help_unless_the_statement_is_wrong(
    engine: Engine, error: DBAPIError, is_unavailable: bool
) -> None:
    kind, said = _said(engine, error)
    assert (kind is MetadataUnavailableError) is is_unavailable
    assert said.endswith(": as the driver says")


@pytest.mark.parametrize(("words", "shown"), [("first\nsecond", "first"), ("  first  ", "first"), ("", "Exception")])
def test_the_first_line_of_the_driver_is_shown_or_else_its_kind(engine: Engine, words: str, shown: str) -> None:
    assert _said(engine, OperationalError("SELECT 1", None, Exception(words)))[1].endswith(f": {shown}")


def test_the_longest_secret_is_masked_first() -> None:
    """The password may be the beginning of another secret, whose rest would be left otherwise."""
    url = make_url("postgresql://me:hunter22@host/db?sslpassword=hunter22-and-more&sslmode=require")
    assert secrets_of(url) == ["hunter22-and-more", "hunter22"]
    assert secrets_of(make_url("postgresql://me@host/db")) == []


@pytest.mark.parametrize(("length", "stored"), [(1_999, 1_999), (2_000, 2_000), (2_001, 2_000)])
def test_text_from_outside_is_cut_at_two_thousand_characters(length: int, stored: int) -> None:
    assert len(stored_text("x" * length)) == stored
