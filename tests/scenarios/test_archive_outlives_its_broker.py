"""An archive and the broker it came from: whatever the broker forgets, nothing archived goes or is hidden; then our own
retention is set, and only that deletes."""

import pytest

from include.tiering.errors import OffsetOutOfRangeError
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.retention import DeletionReason
from include.tiering.reading.fetch import PartitionFetch
from include.tiering.runs.deletion_run import DeletionOutcome
from tests.doubles.archive import EVERYTHING, Archive

pytestmark = pytest.mark.integration

HISTORY = LeaderEpochs.of([(0, 0), (2, 900), (4, 1600)])
BETWEEN_THIRD_AND_FOURTH_MS = 1_704_070_000_000
OTHER_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def require_all_there(archive: Archive) -> None:
    """Copying and expiring again changes nothing: every segment is listed, answers and can be read."""
    archive.copy()
    run, _ = archive.expire()
    assert run.items == []
    assert archive.left() == EVERYTHING
    archive.require_served()
    archive.require_no_other_objects()
    with archive.open() as app:
        for partition in archive.remote():
            retained = app.adapters.stores.metadata.retention_state(partition)
            assert retained.log_start_offset == 0
            if partition.partition == 0:
                assert retained.leader_epochs == HISTORY


def raised(archive: Archive) -> None:
    archive.raise_broker_log_start(0, 664)


def raised_beyond_all_that_was_copied(archive: Archive) -> None:
    archive.raise_broker_log_start(0, 1600)


def recreated(archive: Archive) -> None:
    archive.recreate_topic(OTHER_TOPIC_ID)


def unreachable(archive: Archive) -> None:
    archive.lose_log_dirs()


@pytest.mark.parametrize("ages", [raised, raised_beyond_all_that_was_copied, recreated, unreachable])
def test_nothing_that_happens_to_the_log_dirs_deletes(archive: Archive, ages) -> None:
    require_all_there(archive)
    ages(archive)
    require_all_there(archive)


def test_one_thing_after_another_and_then_only_our_retention_deletes(archive: Archive) -> None:
    for ages in (raised, raised_beyond_all_that_was_copied, recreated, unreachable):
        ages(archive)
        require_all_there(archive)
    with archive.open() as app:
        now_ms = app.adapters.stores.deletions.now_ms()
    archive.set(retention_ms=now_ms - BETWEEN_THIRD_AND_FOURTH_MS)
    run, result = archive.expire()
    assert [item.planned.start_offset for item in run.items] == [0, 96, 188]
    assert {item.planned.reason for item in run.items} == {DeletionReason.TIME}
    assert len(result.deleted) == 3
    assert archive.left() == EVERYTHING | {0: [282, 664, 808]}
    archive.require_served()
    archive.require_no_other_objects()
    archive.set(retention_ms=None)
    assert archive.expire()[0].items == []


def test_by_size_local_bytes_that_cannot_be_known_count_as_nothing_and_are_named(archive: Archive) -> None:
    archive.lose_log_dirs()
    archive.set(retention_bytes=100_000)
    run, _ = archive.expire()
    assert archive.offsets(0) == [188, 282, 664, 808]
    assert {one.topic_id_partition.partition for one in run.unknowns} == {0, 1}
    assert {item.planned.reason for item in run.items} == {DeletionReason.SIZE}


def test_by_size_with_local_bytes_counted_once(archive: Archive) -> None:
    """The active segment of 16,855 bytes is not remote: with it one segment more goes than without."""
    with archive.open() as app:
        (total,) = [s.size_bytes for s in app.sizes.partition_sizes() if s.topic_id_partition.partition == 0]
    archive.set(retention_bytes=total - 31_758 + 16_855)
    run, _ = archive.expire()
    assert [i.planned.start_offset for i in run.items if i.planned.segment_id.topic_id_partition.partition == 0] == [0]
    archive.set(retention_bytes=total - 31_758 + 16_855 + 1)
    assert archive.expire()[0].items == []


def test_a_truncation_by_decision_goes_with_the_next_run(archive: Archive) -> None:
    with archive.open() as app:
        (partition,) = [p for p in app.adapters.stores.metadata.partitions() if p.partition == 0]
        planned = app.expiration.plan_truncation(partition, 300)
        assert (planned.segments, planned.log_start_before) == (3, 0)
        app.expiration.delete_records(planned, author="me@host")
        (refused,) = app.reading.fetch_records([PartitionFetch(partition, 299, 1_000)])
        assert isinstance(refused.error, OffsetOutOfRangeError)
        assert "below the log start, 300" in str(refused.error)
    run, _ = archive.expire()
    assert [(i.planned.start_offset, i.planned.reason) for i in run.items] == [
        (base, DeletionReason.LOG_START) for base in (0, 96, 188)
    ]
    assert {item.outcome for item in run.items} == {DeletionOutcome.DELETED}
    assert archive.offsets(0) == [282, 664, 808]
    archive.require_served()
