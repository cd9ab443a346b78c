"""The outbox of the metadata topic: written before it is sent, one writer, at most one record pending."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from include.tiering.errors import LeaseLostError, PublicationRefusedError
from include.tiering.metadata_sync.publication_contract import Intent, PublicationStore
from include.tiering.metadata_sync.sql_publication import SqlPublicationStore
from include.tiering.model.ownership import Fence, LeaseRole, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.runs.contract import WorkStore
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.doubles.databases import SHARED, AdjustableNow, each_database
from tests.doubles.segments import CLUSTER_ID

_PARTITION = TopicIdPartition(Uuid(bytes(range(16))), 0, "orders")
_STARTED, _FINISHED, _DELETE_STARTED, _DELETE_FINISHED = RemoteLogSegmentState
_LEASE_MS = 60_000


def _intent(number: int, state: RemoteLogSegmentState = _STARTED) -> Intent:
    value = f"{number} {state.name}".encode()
    return Intent(Uuid(bytes([number] * 16)), state, 100 * number, 100 * number + 99, value)


database_kind = each_database(SHARED)


@pytest.fixture
def registry(engine: Engine) -> SqlTopicRegistry:
    return SqlTopicRegistry(engine, CLUSTER_ID)


@pytest.fixture
def store(engine: Engine, now: AdjustableNow, registry: SqlTopicRegistry) -> PublicationStore:
    registry.set_owner(_PARTITION.topic_id, "orders", TopicOwner.HANDING_OVER, expected=TopicOwner.NONE, author="test")
    return SqlPublicationStore(engine, CLUSTER_ID, now_ms=now)


@pytest.fixture
def fence(store: PublicationStore) -> Fence:
    lease = store.claim(_PARTITION, run_id="run", batch_id="one", lease_ms=_LEASE_MS)
    assert lease is not None
    store.begin(lease.fence, metadata_partition=13, partition_count=50, next_offset=0)
    return lease.fence


def _publish(store: PublicationStore, fence: Fence, *intents: Intent) -> None:
    journal = store.journal(fence.topic_id_partition)
    assert journal is not None
    for number, intent in enumerate(intents, start=len(journal.records)):
        store.intend(fence, number, intent)
        store.advance(fence, number + 1, found=number)


def test_a_partition_has_one_publisher_at_a_time(store: PublicationStore, work: WorkStore, now: AdjustableNow) -> None:
    first = store.claim(_PARTITION, run_id="run", batch_id="one", lease_ms=_LEASE_MS)
    assert first is not None
    assert first.fence.role is LeaseRole.PUBLISH
    assert store.claim(_PARTITION, run_id="run", batch_id="two", lease_ms=_LEASE_MS) is None
    holder = work.holder(_PARTITION, LeaseRole.PUBLISH)
    assert holder is not None
    assert holder.batch_id == "one"
    now.advance(_LEASE_MS)
    second = store.claim(_PARTITION, run_id="run", batch_id="two", lease_ms=_LEASE_MS)
    assert second is not None
    for change in (
        lambda: store.begin(first.fence, metadata_partition=1, partition_count=3, next_offset=0),
        lambda: store.intend(first.fence, 0, _intent(1)),
        lambda: store.advance(first.fence, 5),
        lambda: store.forget_pending(first.fence),
    ):
        with pytest.raises(LeaseLostError):
            change()
    assert store.journal(_PARTITION) is None
    work.release(second)
    assert store.claim(_PARTITION, run_id="run", batch_id="three", lease_ms=_LEASE_MS) is not None


def test_a_journal_is_begun_once(store: PublicationStore, fence: Fence) -> None:
    again = store.begin(fence, metadata_partition=7, partition_count=9, next_offset=12)
    assert (again.metadata_partition, again.partition_count, again.next_offset) == (13, 50, 0)
    assert again == store.journal(_PARTITION)
    assert again.pending is None


def test_a_record_is_pending_until_it_was_read_back(store: PublicationStore, fence: Fence, now: AdjustableNow) -> None:
    written = store.intend(fence, 0, _intent(1))
    assert (written.sequence, written.intended_at_ms, written.offset) == (0, now.now_ms, None)
    assert store.now_ms() == now.now_ms
    journal = store.journal(_PARTITION)
    assert journal is not None
    assert journal.pending == written
    store.advance(fence, 4)
    store.advance(fence, 8, found=6)
    store.advance(fence, 8, found=6)
    journal = store.journal(_PARTITION)
    assert journal is not None
    assert journal.pending is None
    assert journal.next_offset == 8
    assert journal.records == (replace(written, offset=6),)


def test_how_far_was_read_never_falls(store: PublicationStore, fence: Fence) -> None:
    store.advance(fence, 9)
    store.advance(fence, 3)
    journal = store.journal(_PARTITION)
    assert journal is not None
    assert journal.next_offset == 9


def test_what_is_written_down_again_may_be_under_way_again(
    store: PublicationStore, fence: Fence, now: AdjustableNow
) -> None:
    first = store.intend(fence, 0, _intent(1))
    now.advance(5)
    again = store.intend(fence, 0, _intent(1))
    assert again == replace(first, intended_at_ms=first.intended_at_ms + 5)
    journal = store.journal(_PARTITION)
    assert journal is not None
    assert journal.pending == again
    store.advance(fence, 1, found=0)
    now.advance(5)
    assert store.intend(fence, 0, _intent(1)) == replace(again, offset=0)


def test_nothing_is_written_down_behind_a_pending_record(store: PublicationStore, fence: Fence) -> None:
    store.intend(fence, 0, _intent(1))
    with pytest.raises(PublicationRefusedError, match="record 0 was not read back yet"):
        store.intend(fence, 1, _intent(1, _FINISHED))
    with pytest.raises(PublicationRefusedError, match="the next record is number 1, not 0"):
        store.intend(fence, 0, _intent(2))
    store.forget_pending(fence)
    store.forget_pending(fence)
    assert store.intend(fence, 0, _intent(2)).intent == _intent(2)


def test_what_was_read_back_is_not_forgotten(store: PublicationStore, fence: Fence) -> None:
    _publish(store, fence, _intent(1))
    store.forget_pending(fence)
    journal = store.journal(_PARTITION)
    assert journal is not None
    assert len(journal.records) == 1


def test_numbers_have_no_gaps(store: PublicationStore, fence: Fence) -> None:
    with pytest.raises(PublicationRefusedError, match="the next record is number 0, not 1"):
        store.intend(fence, 1, _intent(1))


@pytest.mark.parametrize(("next_offset", "found"), [(5, 5), (5, 9), (5, -1)])
def test_a_record_is_found_below_what_was_read(
    store: PublicationStore, fence: Fence, next_offset: int, found: int
) -> None:
    store.intend(fence, 0, _intent(1))
    with pytest.raises(PublicationRefusedError):
        store.advance(fence, next_offset, found=found)


def test_nothing_is_found_that_was_not_pending(store: PublicationStore, fence: Fence) -> None:
    with pytest.raises(PublicationRefusedError, match="no pending record"):
        store.advance(fence, 5, found=1)
    _publish(store, fence, _intent(1))
    with pytest.raises(PublicationRefusedError, match="no pending record"):
        store.advance(fence, 9, found=7)


def test_only_a_topic_that_is_being_handed_over_is_published(
    store: PublicationStore, fence: Fence, registry: SqlTopicRegistry
) -> None:
    _publish(store, fence, _intent(1), _intent(1, _FINISHED))

    def owned_by(owner: TopicOwner) -> None:
        found = registry.owner(_PARTITION.topic_id)
        registry.set_owner(_PARTITION.topic_id, "orders", owner, expected=found, author="test")

    for owner in (TopicOwner.PLATFORM, TopicOwner.BROKER, TopicOwner.NONE):
        owned_by(owner)
        refused = (_intent(2), _intent(2, _FINISHED), _intent(1, _DELETE_STARTED))
        for intent in refused[:2] if owner is TopicOwner.PLATFORM else refused:
            with pytest.raises(PublicationRefusedError, match=f"owner is {owner}, not handing-over"):
                store.intend(fence, 2, intent)
    owned_by(TopicOwner.HANDING_OVER)
    _publish(store, fence, _intent(1, _DELETE_STARTED))
    owned_by(TopicOwner.PLATFORM)
    store.intend(fence, 3, _intent(1, _DELETE_FINISHED))


def test_a_segment_is_held_until_its_deletion_was_read_back(store: PublicationStore, fence: Fence) -> None:
    first, second = _intent(1).segment_id, _intent(2).segment_id
    assert store.held_segments(_PARTITION) == frozenset()
    store.intend(fence, 0, _intent(1))
    assert store.held_segments(_PARTITION) == {first}, "a record that may have arrived"
    store.advance(fence, 1, found=0)
    _publish(store, fence, _intent(1, _FINISHED), _intent(2), _intent(2, _FINISHED))
    store.intend(fence, 4, _intent(1, _DELETE_STARTED))
    assert store.held_segments(_PARTITION) == {first, second}
    store.advance(fence, 5, found=4)
    assert store.held_segments(_PARTITION) == {second}
    _publish(store, fence, _intent(1, _DELETE_FINISHED), _intent(1))
    assert store.held_segments(_PARTITION) == {first, second}, "it was published again"
    assert store.held_segments(replace(_PARTITION, partition=1)) == frozenset()


def test_nothing_is_written_down_before_a_journal_is_begun(store: PublicationStore) -> None:
    lease = store.claim(_PARTITION, run_id="run", batch_id="one", lease_ms=_LEASE_MS)
    assert lease is not None
    for change in (lambda: store.intend(lease.fence, 0, _intent(1)), lambda: store.advance(lease.fence, 1)):
        with pytest.raises(PublicationRefusedError, match="no publication was begun"):
            change()


def test_totals_count_what_is_in_the_topic_and_not_deleted_there(store: PublicationStore, fence: Fence) -> None:
    assert [(one.live_segments, one.end_offset) for one in store.totals()] == [(0, None)]
    for number in (1, 2, 3):
        _publish(store, fence, _intent(number), _intent(number, _FINISHED))
    _publish(store, fence, _intent(1, _DELETE_STARTED), _intent(1, _DELETE_FINISHED), _intent(4))
    (total,) = store.totals()
    assert (total.topic_id_partition, total.live_segments, total.end_offset) == (_PARTITION, 2, 399)
    store.intend(fence, 9, _intent(4, _FINISHED))
    assert store.totals() == (total,)


def test_journals_of_two_partitions_are_apart(store: PublicationStore, fence: Fence) -> None:
    other = replace(_PARTITION, partition=1)
    lease = store.claim(other, run_id="run", batch_id="one", lease_ms=_LEASE_MS)
    assert lease is not None
    store.begin(lease.fence, metadata_partition=41, partition_count=50, next_offset=3)
    _publish(store, fence, _intent(1))
    journal = store.journal(other)
    assert journal is not None
    assert (journal.records, journal.next_offset) == ((), 3)
    assert [one.topic_id_partition for one in store.totals()] == [_PARTITION, other]


def test_a_journal_that_was_deleted_meanwhile_is_not_begun(
    store: PublicationStore, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process removed it, with its topic, before it was read back."""
    monkeypatch.setattr(SqlPublicationStore, "_journal", lambda *_: None)
    with pytest.raises(PublicationRefusedError, match="the journal was deleted while the publication was begun"):
        store.begin(fence, metadata_partition=13, partition_count=50, next_offset=0)
