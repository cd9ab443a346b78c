"""The PostgreSQL server cuts every connection at any step of a copy and of a deletion, refuses to write, or loses the
database: the same command again comes to the same end, and nothing dangles."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import make_url

from include.tiering.app import App, open_app
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.errors import MetadataUnavailableError, TieringError
from include.tiering.expiration.delete_segments import DeleteStep
from tests.doubles.archive import EVERYTHING, Archive, document, settings_of
from tests.doubles.databases import administer, new_name

pytestmark = pytest.mark.integration

Step = CopyStep | DeleteStep
_COPYING: Final = [step for step in CopyStep if "delete" not in step]
_CUT: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{0}' AND pid <> pg_backend_pid()"
_READ_ONLY: Final = 'ALTER DATABASE "{0}" SET default_transaction_read_only = on'
_WRITABLE: Final = 'ALTER DATABASE "{0}" RESET default_transaction_read_only'
_LOSE: Final = 'DROP DATABASE "{0}" WITH (FORCE)'


@pytest.fixture
def archive(
    tmp_path: Path, create_postgresql_database: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> Archive:
    monkeypatch.setattr(Archive, "new_database", staticmethod(lambda directory: create_postgresql_database(new_name())))
    return Archive.of(tmp_path)


def happens(archive: Archive, *statements: str) -> None:
    server = make_url(archive.database_url)
    administer(server, *(statement.format(server.database) for statement in statements))


@contextmanager
def struck(archive: Archive, at: Step, *statements: str) -> Iterator[App]:
    """The deployment to whose database `statements` happen once, when step `at` is reached."""
    pending = [statements]

    def observe(step: Step, *_: object) -> None:
        if step == at and pending:
            happens(archive, *pending.pop())

    with open_app(settings_of(archive.config), observe=observe) as app:
        yield app
    assert not pending, f"{at} was never reached"


def require_all_is_well(archive: Archive) -> None:
    with archive.open() as app:
        stored = app.adapters.stores.metadata
        rows = [row for partition in stored.partitions() for row in stored.list_segments(partition)]
    assert all(row.metadata.is_finished for row in rows)
    archive.require_served()
    archive.require_no_other_objects()
    assert document(archive.command("audit", "--json"))["findings"] == []


@pytest.mark.parametrize("statements", [(_CUT,), (_READ_ONLY, _CUT)], ids=["cut", "read-only"])
@pytest.mark.parametrize("step", _COPYING, ids=str)
def test_while_a_segment_is_copied(archive: Archive, step: CopyStep, statements: tuple[str, ...]) -> None:
    with struck(archive, step, *statements) as app:
        app.copying.plan("run")
        with suppress(TieringError):
            app.copying.run_batch("run", "run/0")
    happens(archive, _WRITABLE)
    with archive.open() as app:
        app.copying.run_batch("run", "run/0")
    archive.copy()
    assert archive.left() == EVERYTHING
    require_all_is_well(archive)


@pytest.mark.parametrize("step", DeleteStep, ids=str)
def test_while_segments_are_deleted(archive: Archive, step: DeleteStep) -> None:
    archive.copy()
    archive.set(retention_ms=1)
    with struck(archive, step, _CUT) as app:
        plan = app.expiration.plan("run")
        app.expiration.apply_limits("run")
        app.expiration.approve("run", plan.plan_hash, author="test")
        with suppress(TieringError):
            app.expiration.run_batch("run", "run/0")
    for _ in range(2):
        archive.expire()
    assert archive.left() == {number: [] for number in EVERYTHING}
    require_all_is_well(archive)


def test_a_database_that_is_lost_during_a_copy_is_made_again_from_the_store(archive: Archive) -> None:
    archive.copy(limit_bytes=1)
    with struck(archive, CopyStep.SENT, _LOSE) as app:
        app.copying.plan("run")
        with pytest.raises(MetadataUnavailableError, match="does not exist"):
            app.copying.run_batch("run", "run/0")
    lost = archive.command("status")
    assert (lost.exit_code, "internal error" in lost.output) == (3, False)

    archive.config.write_text(
        archive.config.read_text().replace(archive.database_url, Archive.new_database(archive.directory))
    )
    assert "./tiering rebuild" in archive.command("migrate").output
    rebuilt = archive.command("rebuild", "--approve", "--json")
    found = json.loads(rebuilt.stdout)
    # Another segment may have been in flight, too: what it left is named for a person, and nothing else is.
    unfinished = {each["message"] for each in found["failed"]}
    assert (rebuilt.exit_code, found["left_out"], found["other_names"]) == (1 if unfinished else 0, [], []), found
    assert not any(partition["holes"] for partition in found["partitions"])
    archive.copy()
    assert archive.left() == EVERYTHING
    archive.require_served()
