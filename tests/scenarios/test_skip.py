"""`./tiering skip` over the log dirs of a real broker: retention is quicker than the copy, somebody decides, and the
archive goes on behind the hole."""

import json
from pathlib import Path
from typing import Any

import pytest

from include.tiering.cli.command import author
from include.tiering.copying.plan import HeldBack
from include.tiering.database.schema import events
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition
from include.tiering.reading.fetch import FetchedRecords, PartitionFetch
from include.tiering.units import MIB
from include.tiering.verification.verify_segments import verify_segments
from tests.doubles.archive import Archive, Command
from tests.doubles.plain_evaluator import PlainEvaluator

pytestmark = pytest.mark.integration

WHY = "expired while the store was full, agreed in OPS-12"
BEFORE, BEHIND = [0, 96], [808]
HOLE, GREW = "188..663", "664..807"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Two segments of partition 0 are copied; the broker has deleted the next two."""
    archive = Archive.of(tmp_path)
    while len(archive.offsets(0)) < len(BEFORE):
        archive.copy(limit_bytes=1)
    archive.raise_broker_log_start(0, 664)
    return archive


def skip(app: Command, *options: str) -> tuple[int, Any]:
    done = app("skip", "orders", "--partition", "0", "--reason", WHY, "--json", *options)
    return done.exit_code, json.loads(done.stdout or "null")


def partition_0(archive: Archive) -> TopicIdPartition:
    (partition,) = [one for one in archive.remote() if one.partition == 0]
    return partition


def fetched(archive: Archive, partition: TopicIdPartition, offset: int) -> FetchedRecords:
    with archive.open() as opened:
        (answer,) = opened.reading.fetch_records([PartitionFetch(partition, offset, MIB)])
    return answer


def require_held_at(archive: Archive, offsets: str) -> None:
    (held,) = [one for one in archive.copy().held_back if one.topic_id_partition.partition == 0]
    assert (held.reason, held.detail) == (
        HeldBack.HOLE,
        f"offsets {offsets} are no longer in the source; see ./tiering skip",
    )


def test_a_hole_is_lost_for_ever_only_by_decision(archive: Archive, app: Command) -> None:
    partition = partition_0(archive)
    require_held_at(archive, HOLE)
    assert archive.offsets(0) == BEFORE
    assert "./tiering skip orders --partition 0" in app("doctor", "orders").stdout

    code, refused = skip(app)
    assert (code, refused["refusal"]) == (1, "without a terminal it needs --approve")
    assert (refused["first_offset"], refused["last_offset"], refused["offsets"]) == (188, 663, 476)
    require_held_at(archive, HOLE)

    code, recorded = skip(app, "--approve")
    assert (code, recorded["recorded"][0]["author"], recorded["waits"]) == (0, author(), None)
    archive.raise_broker_log_start(0, 808)
    require_held_at(archive, GREW)
    assert archive.offsets(0) == BEFORE
    code, recorded = skip(app, "--approve")
    assert (code, recorded["first_offset"], recorded["last_offset"]) == (0, 664, 807)
    with archive.open() as opened, opened.adapters.engine.connect() as connection:
        kept = connection.execute(events.select().where(events.c.kind == "skipped-offsets")).all()
    assert [(event.detail, event.author) for event in kept] == [(f"{o}: {WHY}", author()) for o in (HOLE, GREW)]

    archive.copy()
    assert archive.offsets(0) == [*BEFORE, *BEHIND]
    nothing = skip(app, "--approve")[1]
    assert (nothing["offsets"], [one["first_offset"] for one in nothing["recorded"]]) == (0, [188, 664])
    with archive.open() as opened:
        measured = verify_segments(
            opened.adapters.stores.metadata,
            opened.adapters.storage,
            PlainEvaluator(),
            quotas=opened.adapters.quotas,
            clock=opened.adapters.clock,
        )
        assert (measured.failed, measured.warnings) == ((), ())
    archive.require_served()
    archive.require_no_other_objects()

    before = fetched(archive, partition, 100)
    assert (before.error, before.next_offset) == (None, 188)
    inside = str(fetched(archive, partition, 188).error)
    assert f"{HOLE} were skipped by {author()} ({WHY}); go on at offset 664" in inside
    assert "go on at offset 808" in str(fetched(archive, partition, 664).error)
    behind = fetched(archive, partition, 808)
    assert (behind.error, behind.base_offset) == (None, 808)

    archive.set(retention_bytes=1)
    archive.expire()
    assert archive.offsets(0) == []
    assert "below the log start" in str(fetched(archive, partition, 188).error)


def test_what_is_there_is_never_skipped_and_nothing_of_another_owner(archive: Archive, app: Command) -> None:
    done = app("skip", "orders", "--partition", "1", "--reason", WHY, "--approve")
    assert (done.exit_code, done.stdout.strip()) == (0, "orders-1: there is nothing to skip")
    unknown = app("skip", "orders", "--partition", "7", "--reason", WHY, "--approve")
    assert unknown.exit_code == 2
    assert "nothing proves what is gone" in unknown.stderr
    with archive.open() as opened:
        topic_id, before = partition_0(archive).topic_id, TopicOwner.PLATFORM
        opened.adapters.stores.registry.set_owner(
            topic_id, "orders", TopicOwner.HANDING_OVER, expected=before, author="test"
        )
    code, nothing = skip(app, "--approve")
    assert (code, nothing["offsets"]) == (0, 0)
    assert nothing["waits"] == "another owner copies this topic: owner: handing-over"
