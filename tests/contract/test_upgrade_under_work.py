"""A database is upgraded while a batch copies: the batch of the earlier schema ends its work, and loses none of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Engine

from include.tiering.copying.copy_segment import CopyStep
from include.tiering.database import migrations
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import HEAD, current_revision, migration_config, upgrade
from include.tiering.runs.contract import SegmentOutcome
from include.tiering.segments.sql_selected import SqlSelectedSegments
from tests.doubles.databases import POSTGRESQL, SHARED, new_name
from tests.doubles.deployment import World
from tests.doubles.segments import CLUSTER_ID


@pytest.fixture(params=SHARED)
def new_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A database without tables, in a file of SQLite or on a real PostgreSQL."""
    if request.param == POSTGRESQL:
        url = request.getfixturevalue("create_postgresql_database")(new_name())
    else:
        url = f"sqlite:///{tmp_path / 'metadata.sqlite'}"
    engine = open_engine(url)
    yield engine
    engine.dispose()


def at_revision(engine: Engine, revision: str) -> None:
    with engine.begin() as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


@pytest.mark.parametrize("step", [CopyStep.STARTED, CopyStep.SENT, CopyStep.FINISHED])
@pytest.mark.parametrize("revision", ["r0100", "r0102", "r0103", "r0104"])
def test_a_batch_goes_on_while_its_database_is_upgraded(
    new_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str, step: CopyStep
) -> None:
    """The batch is that of a version whose newest revision is the earlier one, also after the upgrade."""
    at_revision(new_engine, revision)
    monkeypatch.setattr(migrations, "HEAD", revision)
    world = World(new_engine, tmp_path)
    replica = world.source.add("orders", segments=4)
    world.plan()
    seen: list[str | None] = []

    def upgrade_now() -> None:
        with monkeypatch.context() as newer:
            newer.setattr(migrations, "HEAD", HEAD)
            upgrade(new_engine)
        seen.append(current_revision(new_engine))

    world.at[step, world.outcomes()[1][0]] = upgrade_now
    world.batch()
    assert seen == [HEAD]
    assert {outcome for _, outcome in world.outcomes()} == {SegmentOutcome.COPIED}
    assert len(world.offsets(replica)) == len(world.outcomes())
    # The triggers of the upgrade count what was there before them.
    assert SqlSelectedSegments(new_engine, CLUSTER_ID).counters_agree(replica.topic_id_partition)
    monkeypatch.setattr(migrations, "HEAD", HEAD)
    world.plan("next")
    assert world.outcomes("next") == []
