"""Engines and statements."""

import logging
import os
import socket
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import URL, Engine, event, text
from sqlalchemy.exc import OperationalError

from include.tiering.database.engine import _use_write_ahead_log, open_engine
from include.tiering.database.transactions import reading, reading_together, stored_text, writing
from include.tiering.errors import MetadataUnavailableError, RemoteMetadataError, SettingError
from tests.doubles.manual_clock import ManualClock
from tests.doubles.partial import Partial

# Opening databases: URLs, passwords, the rules of a SQLite file.

PASSWORD = "s3cr3t-word"


class TestUrls:
    @pytest.mark.parametrize(
        "url",
        [
            "",
            "tiering.db",
            f"postgresql//me:{PASSWORD}@host/db",
            f"mysql://me:{PASSWORD}@host/db",
            f"postgresql+psycopg2://me:{PASSWORD}@host/db",
            f"postgresql+asyncpg://me:{PASSWORD}@host/db",
            "sqlite+aiosqlite:///a.db",
            "sqlite:///file:a.db?uri=true",
            "sqlite:///a.db?timeout=soon",
            "sqlite:///a.db?mode=ro",
            "sqlite:///a\0.db",
            f"postgresql://me@host:{PASSWORD}/db",
        ],
    )
    def test_others_are_refused_without_their_password(self, url: str):
        with pytest.raises(SettingError, match=r"metadata\.url") as caught:
            open_engine(url)
        assert PASSWORD not in str(caught.value)
        assert caught.value.__cause__ is None

    @pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
    def test_postgresql_means_psycopg_3(self, scheme: str):
        engine = open_engine(f"{scheme}://me:{PASSWORD}@host/db")
        assert engine.driver == "psycopg"
        assert PASSWORD not in repr(engine)
        engine.dispose()

    @pytest.mark.parametrize(
        ("password", "message", "shown"),
        [
            ("p", "connection to server at host, port 5999 failed", "connection to server at host, port 5999 failed"),
            ("p", "password p of user u:p@h", "password *** of user u:***@h"),
            (PASSWORD, f"x{PASSWORD}x", "x***x"),
            # Of seven characters it may be a part of another word, of eight it is no accident.
            ("connect", "reconnecting failed: connect", "reconnecting failed: ***"),
            ("database", "thedatabases: database", "the***s: ***"),
            ("a+b", "no a+b; no aab", "no ***; no aab"),
        ],
    )
    def test_a_password_is_masked_and_no_word_that_contains_a_short_one(self, password: str, message: str, shown: str):
        engine = open_engine(URL.create("postgresql", "u", password, "host", database="db").render_as_string(False))

        def refuse(*_: object) -> None:
            raise psycopg.OperationalError(message)

        event.listen(engine, "do_connect", refuse)
        with pytest.raises(MetadataUnavailableError) as caught, writing(engine):
            pass
        assert str(caught.value) == f"database postgresql+psycopg://u:***@host/db: {shown}"
        engine.dispose()

    def test_a_server_that_vanishes_is_noticed_by_the_connection_itself(self):
        engine = open_engine("postgresql://host/db")
        asked: dict[str, Any] = {}

        def connect(_dialect: object, _record: object, _arguments: object, options: dict[str, Any]) -> None:
            asked.update(options)
            raise ConnectionAbortedError

        event.listen(engine, "do_connect", connect)
        with pytest.raises(ConnectionAbortedError):
            engine.connect()
        assert asked["tcp_user_timeout"] == 30_000
        assert asked["keepalives_idle"] + asked["keepalives_interval"] * asked["keepalives_count"] <= 30
        engine.dispose()

    def test_an_absent_server_is_unavailable_and_the_password_stays_hidden(self, caplog: pytest.LogCaptureFixture):
        caplog.set_level(logging.DEBUG)
        engine = open_engine(f"postgresql://me:{PASSWORD}@127.0.0.1:1/db")
        with pytest.raises(MetadataUnavailableError, match=r"127\.0\.0\.1") as caught, reading(engine):
            pass
        assert caught.value.retriable
        shown: BaseException | None = caught.value
        while shown is not None:
            assert PASSWORD not in f"{shown}{shown!r}"
            shown = shown.__cause__ or shown.__context__
        assert PASSWORD not in caplog.text
        engine.dispose()


class TestSqliteFile:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "tiering.db"

    @pytest.fixture
    def file_engine(self, path: Path):
        engine = open_engine(f"sqlite:///{path}")
        yield engine
        engine.dispose()

    def test_rules_of_the_connection(self, file_engine: Engine):
        with reading(file_engine) as connection:
            rules = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            found = [connection.execute(text(f"PRAGMA {rule}")).scalar_one() for rule in rules]
        assert found == ["wal", 2, 1, 30_000]

    def test_all_its_files_are_private(self, file_engine: Engine, path: Path):
        with writing(file_engine) as connection:
            connection.execute(text("CREATE TABLE t (a)"))
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
        assert modes == {"tiering.db": 0o600, "tiering.db-wal": 0o600, "tiering.db-shm": 0o600}

    def test_a_writer_holds_the_lock_from_its_begin_and_readers_do_not_wait(self, file_engine: Engine, path: Path):
        with writing(file_engine), reading(file_engine) as reader:
            assert reader.execute(text("SELECT 1")).scalar_one() == 1
            other = sqlite3.connect(path, timeout=0)
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
            other.close()

    def test_what_is_read_together_is_one_snapshot_of_one_connection(self, file_engine: Engine):
        def number() -> int:
            with reading(file_engine) as connection:
                return connection.execute(text("SELECT count(*) FROM t")).scalar_one()

        def add() -> None:
            with writing(file_engine) as connection:
                connection.execute(text("INSERT INTO t VALUES (1)"))

        with writing(file_engine) as connection:
            connection.execute(text("CREATE TABLE t (a)"))
        begun: list[object] = []
        note = begun.append
        with reading_together():
            event.listen(file_engine, "begin", note)
            assert number() == 0
            add()
            assert number() == 0
            event.remove(file_engine, "begin", note)
            assert len(begun) == 2  # One of them writes.
        assert number() == 1

    def test_an_error_ends_what_is_read_together_and_gives_its_connection_back(self, file_engine: Engine):
        with pytest.raises(MetadataUnavailableError), reading_together(), reading(file_engine) as connection:
            connection.execute(text("SELECT a FROM nowhere"))
        assert file_engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        with reading(file_engine) as connection:
            assert connection.execute(text("SELECT 1")).scalar_one() == 1

    def test_an_error_at_the_end_of_what_is_read_together_has_its_type(self, file_engine: Engine):
        def fail(_connection: object) -> None:
            raise OperationalError("COMMIT", None, Exception("the server has gone away"))

        event.listen(file_engine, "commit", fail)
        with pytest.raises(MetadataUnavailableError, match="gone away"), reading_together(), reading(file_engine):
            pass

    def test_a_file_that_is_no_database(self, path: Path):
        path.write_bytes(b"not a database at all" * 100)
        engine = open_engine(f"sqlite:///{path}")
        with pytest.raises(RemoteMetadataError, match="not a database"), reading(engine):
            pass
        engine.dispose()

    def test_a_locked_database_is_unavailable(self, file_engine: Engine, path: Path):
        with reading(file_engine) as connection:
            connection.execute(text("PRAGMA busy_timeout = 0"))
        other = sqlite3.connect(path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(MetadataUnavailableError, match="locked"), writing(file_engine):
            pass
        other.close()


# Text from outside, as it may be stored.


@pytest.mark.parametrize(
    ("text", "stored"),
    [("plain é 漢", "plain é 漢"), ("a\x00b", "a\\x00b"), ("\x1b[2J\n", "\\x1b[2J\\n"), ("\udcff", "\\udcff")],
)
def test_what_a_terminal_or_database_would_not_take_is_escaped(text: str, stored: str):
    assert stored_text(text) == stored


@given(st.text(st.characters(), max_size=50))
def test_stored_text_is_utf_8_and_stays_as_it_is(text: str):
    stored = stored_text(text)
    assert stored.isprintable()
    stored.encode()
    assert stored_text(stored) == stored


def test_long_text_is_cut():
    assert stored_text("x" * 10_000) == "x" * 2_000


# Secrets in a URL's parameters, and patience with a file that another process holds.


@pytest.mark.parametrize("name", ["password", "sslpassword"])
def test_a_secret_that_is_a_parameter_of_the_url_is_not_in_the_error(name: str):
    engine = open_engine(f"postgresql://127.0.0.1:1/x?user=admin&{name}={PASSWORD}")
    with pytest.raises(MetadataUnavailableError, match="user=admin") as caught, reading(engine):
        pass
    assert PASSWORD not in str(caught.value)
    engine.dispose()


class TestPatience:
    def test_a_file_that_is_held_is_waited_for_as_long_as_was_said(self, tmp_path: Path):
        path = tmp_path / "tiering.db"
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("PRAGMA journal_mode = WAL")
        holder.execute("PRAGMA locking_mode = exclusive")
        holder.execute("BEGIN EXCLUSIVE")
        holder.execute("CREATE TABLE t (a)")
        clock = ManualClock()
        engine = open_engine(f"sqlite:///{path}", clock=clock, patience_ms=200)
        with pytest.raises(MetadataUnavailableError, match="locked"), reading(engine):
            pass
        assert clock.monotonic() - ManualClock().monotonic() <= 0.3
        holder.close()
        engine.dispose()

    def test_a_disk_error_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch):
        tries: list[str] = []

        class FullDisk(Partial):
            def execute(self, statement: str) -> Any:
                tries.append(statement)
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
                raise error

        with pytest.raises(sqlite3.OperationalError, match="disk"):
            _use_write_ahead_log(FullDisk(), ManualClock(), 30_000)
        assert len(tries) == 1


def test_an_error_of_the_disk_says_how_much_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """SQLite says "disk I/O error" where the disk is full, and cannot even open the file then."""
    engine = open_engine(f"sqlite:///{tmp_path / 'tiering.db'}")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=3, f_frsize=4_096))
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    with pytest.raises(MetadataUnavailableError, match=r"disk I/O error; its disk has 12\.0 KiB left"), reading(engine):
        raise OperationalError("SELECT 1", None, error)
    engine.dispose()


# A listener that is no PostgreSQL, or one that says strange things.


def _error_response(message: bytes) -> bytes:
    fields = b"SFATAL\0VFATAL\0C28000\0M" + message + b"\0\0"
    return b"E" + (len(fields) + 4).to_bytes(4) + fields


@contextmanager
def _postgresql_that_says(answer: bytes) -> Iterator[str]:
    """Refuses TLS, gives this answer to whoever wants to log in, and closes."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    while request := connection.recv(4_096):
                        is_tls_or_gss = len(request) == 8
                        connection.sendall(b"N" if is_tls_or_gss else answer)
                        if not is_tls_or_gss:
                            break

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"postgresql://me:{PASSWORD}@127.0.0.1:{server.getsockname()[1]}/x"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        bytes(100),
        b"",
        b"R" + (2**31 - 1).to_bytes(4),
        _error_response(f"your password is {PASSWORD} \x1b[2J".encode()),
        _error_response(b"m" * 1_000_000),
        _error_response(b"\xff\xfe"),
    ],
    ids=["HTTP", "zeros", "nothing", "a huge frame", "the password", "a long message", "no UTF-8"],
)
def test_a_server_that_is_none_is_unavailable_in_a_short_line(answer: bytes):
    with _postgresql_that_says(answer) as url:
        engine = open_engine(url)
        with pytest.raises(MetadataUnavailableError) as caught, reading(engine):
            pass
        engine.dispose()
    said = str(caught.value)
    assert PASSWORD not in said
    assert said.isprintable()
    assert len(said) < 3_000
