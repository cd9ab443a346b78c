"""A claim that listed a partition before another batch stopped or finished it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, event

from include.tiering.runs.contract import SegmentOutcome, WorkItem
from include.tiering.runs.store import SqlWorkStore
from tests.doubles.databases import POSTGRESQL
from tests.doubles.present import present
from tests.doubles.segments import CLUSTER_ID, partition_of, planned

pytestmark = pytest.mark.integration

A = partition_of("a")


@pytest.fixture(scope="module")
def database_kind() -> str:
    """SQLite has one writer at a time: there no list is stale."""
    return POSTGRESQL


@pytest.mark.parametrize("outcome", [SegmentOutcome.FAILED, SegmentOutcome.COPIED])
def test_gives_nothing(engine: Engine, outcome: SegmentOutcome):
    work = SqlWorkStore(engine, CLUSTER_ID)
    segments = 2 if outcome is SegmentOutcome.FAILED else 1
    work.save_plan("run-1", [planned(A, segments)])
    # The second batch finds the lease expired, not given back: it lists the partition.
    first = present(work.claim("run-1", "batch-1", lease_ms=0))

    def meanwhile() -> None:
        work.record_outcome(first, WorkItem(A, planned(A).segments[0], outcome))
        work.release(first)

    with _before_the_first(engine, "INSERT INTO leases", meanwhile):
        assert work.claim("run-1", "batch-2", lease_ms=60_000) is None
    with engine.connect() as connection:
        row = connection.exec_driver_sql("SELECT token, expires_at_ms FROM leases").one()
    assert row == (first.fence.token, 0)


@contextmanager
def _before_the_first(engine: Engine, beginning: str, action: Callable[[], None]) -> Iterator[None]:
    """Run `action` in another thread just before a statement that begins like this, once."""
    pending = [action]

    def intervene(_connection, _cursor, statement: str, *_rest: object) -> None:
        if pending and statement.startswith(beginning):
            thread = threading.Thread(target=pending.pop())
            thread.start()
            thread.join()

    event.listen(engine, "before_cursor_execute", intervene)
    yield
    event.remove(engine, "before_cursor_execute", intervene)
    assert not pending
