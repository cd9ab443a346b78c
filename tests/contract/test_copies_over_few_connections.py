"""Many transfers of a copy batch share a few database connections: none waits for a second one while it has one."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event

from include.tiering.copying.copy_segment import CopyStep
from include.tiering.database import engine as engine_module
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from tests.doubles.databases import SHARED, each_database
from tests.doubles.deployment import Crash, World, crash

database_kind = each_database(SHARED)

TRANSFERS = 16


class Held:
    """How many connections each thread holds, and the most that one thread has held."""

    def __init__(self, engine: Engine) -> None:
        self._of_thread = threading.local()
        self.most = 0
        event.listen(engine, "checkout", self._taken)
        event.listen(engine, "checkin", self._given_back)

    def _taken(self, *_: object) -> None:
        self._of_thread.count = getattr(self._of_thread, "count", 0) + 1
        self.most = max(self.most, self._of_thread.count)

    def _given_back(self, *_: object) -> None:
        self._of_thread.count = getattr(self._of_thread, "count", 1) - 1


@pytest.fixture
def few_connections(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine with two connections: a thread that held one and waited for another could wait for itself."""

    def with_two(*args: Any, **options: Any) -> Engine:
        return create_engine(*args, **{**options, "pool_size": 2, "max_overflow": 0, "pool_timeout": 10})

    monkeypatch.setattr(engine_module, "create_engine", with_two)
    engine = open_engine(database_url)
    upgrade(engine)
    yield engine
    engine.dispose()


def test_a_batch_with_many_transfers_needs_one_connection_for_each_thread_at_a_time(few_connections, tmp_path: Path):
    world = World(few_connections, tmp_path)
    replicas = [world.source.add("orders", number, segments=16) for number in range(4)]
    world.plan("killed")
    world.at[CopyStep.VERIFIED, 0] = crash
    with pytest.raises(Crash):
        world.batch("killed", "killed/0")
    held = Held(few_connections)
    world.plan()
    result = world.batch(transfers=TRANSFERS)
    assert result.failed == ()
    assert [len(world.offsets(replica)) for replica in replicas] == [16] * 4
    assert held.most == 1
