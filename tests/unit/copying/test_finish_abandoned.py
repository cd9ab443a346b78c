"""What becomes of copies that were never finished: a source in memory, a real file store, a real SQLite database."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from include.tiering.clock import SystemClock
from include.tiering.copying.copy_segment import CopyStep, SegmentCopier
from include.tiering.copying.finish_abandoned import AbandonedCopies, abandoned_copies_of
from include.tiering.copying.plan import HeldBack
from include.tiering.errors import (
    ForeignStoreError,
    RemoteAccessDeniedError,
    RemoteStorageUnavailableError,
    SegmentKeyError,
    TieringError,
    UnprovedReplacementError,
)
from include.tiering.expiration.checks import ReplacementCheck
from include.tiering.kafka.log_dirs.contract import IneligibleReason, ReplicaId
from include.tiering.model.histories import OffsetRange
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, Verdict
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage, StoredObject
from include.tiering.runs.contract import SegmentOutcome
from include.tiering.segments.contract import SegmentRow
from include.tiering.segments.stored_copies import WholeCopy
from tests.doubles.deployment import Crash, World, crash
from tests.doubles.quotas import SameLimiter
from tests.doubles.storage_decorators import StorageDecorator

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
SENT_WHOLE = [CopyStep.SENT, CopyStep.VERIFIED, CopyStep.RECHECKED]


@pytest.fixture
def orders(world: World) -> ReplicaId:
    return world.source.add("orders")


def left_at(world: World, orders: ReplicaId, step: CopyStep, base_offset: int = 10) -> SegmentRow:
    """A worker dies at this step of the segment; what it leaves."""
    world.plan()
    world.at[step, base_offset] = crash
    with pytest.raises(Crash):
        world.batch()
    (row,) = abandoned_copies_of(world.metadata, orders.topic_id_partition)
    return row


def ids(world: World, orders: ReplicaId) -> dict[int, RemoteLogSegmentId]:
    """FINISHED ones by start offset."""
    rows = world.metadata.list_segments(orders.topic_id_partition)
    return {row.metadata.start_offset: row.metadata.remote_log_segment_id for row in rows if row.metadata.is_finished}


def copied_and_failed(world: World, orders: ReplicaId) -> RemoteLogSegmentId:
    """All is copied, and the second segment fails its verification."""
    world.plan("first")
    world.batch("first", "first/0")
    failed = ids(world, orders)[10]
    world.metadata.record_verdict(failed, Verdict.FAILED, detail="Q102: other bytes")
    return failed


def broker_deletes_up_to(world: World, orders: ReplicaId, offset: int) -> None:
    kept = tuple(one for one in world.source.replicas[orders].segments if one.end_offset > offset)
    world.source.change(orders, segments=kept, log_start_offset=offset + 1)


def refuse() -> None:
    raise ForeignStoreError("another database has used the store since")


class Unread(StorageDecorator):
    """Does not give the manifest of one segment."""

    def __init__(self, inner: RemoteStorage, segment: RemoteLogSegmentMetadata, error: TieringError) -> None:
        super().__init__(inner)
        self._segment = segment
        self._error = error

    def fetch_manifest(self, metadata: RemoteLogSegmentMetadata) -> bytes | None:
        if metadata.remote_log_segment_id == self._segment.remote_log_segment_id:
            raise self._error
        return super().fetch_manifest(metadata)


def lose_the_manifest(world: World, segment_id: RemoteLogSegmentId) -> tuple[Path, bytes]:
    row = world.metadata.segment(segment_id)
    (manifest,) = [one for one in world.storage.stat_log_segment(row.metadata) if one.kind is ObjectKind.MANIFEST]
    path = world.store / manifest.key
    content = path.read_bytes()
    path.unlink()
    return path, content


class ForeignStore(StorageDecorator):
    """Another one, by its marker."""

    def check_marker(self) -> None:
        raise ForeignStoreError("its marker is another one")


class Elsewhere(ForeignStore):
    """And it has none of the objects."""

    def stat_log_segment(self, _: RemoteLogSegmentMetadata) -> tuple[StoredObject, ...]:
        return ()


@pytest.mark.parametrize("step", SENT_WHOLE, ids=str)
def test_a_whole_copy_is_finished_not_sent_again(world, orders, step):
    left = left_at(world, orders, step).metadata
    result = world.batch()
    assert (result.failed, [one.start_offset for one in result.copied]) == ((), [20])
    assert ids(world, orders)[10] == left.remote_log_segment_id
    assert world.objects() == 9
    assert (10, SegmentOutcome.SKIPPED) in world.outcomes()


@pytest.mark.parametrize("step", SENT_WHOLE, ids=str)
def test_a_whole_copy_is_finished_when_the_broker_has_deleted_its_segment(world, orders, step):
    left = left_at(world, orders, step).metadata
    broker_deletes_up_to(world, orders, 19)
    assert world.batch().failed == ()
    assert ids(world, orders)[10] == left.remote_log_segment_id
    assert world.offsets(orders) == [(0, 9), (10, 19), (20, 29)]


@pytest.mark.parametrize("step", [CopyStep.CHECKED, CopyStep.STARTED, CopyStep.SENT, CopyStep.VERIFIED], ids=str)
def test_a_worker_leaves_its_own_copy_when_the_broker_deletes_the_segment_meanwhile(world, orders, step):
    world.plan()
    world.at[step, 10] = lambda: broker_deletes_up_to(world, orders, 19)
    (failure,) = world.batch().failed
    assert failure.item.error == "SourceVanishedError"
    (left,) = abandoned_copies_of(world.metadata, orders.topic_id_partition)
    world.plan("next")
    assert world.batch("next", "next/0").failed == ()
    assert ids(world, orders)[10] == left.metadata.remote_log_segment_id


def test_a_whole_copy_of_another_history_stays_when_its_source_is_gone(world, orders):
    """The source was elected anew and has deleted both: what was learned of its epochs before says so."""
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    known = LeaderEpochs.of([(0, 0), (5, 15)])
    world.metadata.merge_leader_epochs(orders.topic_id_partition, known, 0)
    broker_deletes_up_to(world, orders, 19)
    world.batch()
    assert [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [left]
    assert world.offsets(orders) == [(0, 9)]


def test_a_whole_replacement_is_finished_when_no_source_can_replace_the_failed_one_any_more(world, orders):
    failed = copied_and_failed(world, orders)
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    broker_deletes_up_to(world, orders, 19)
    world.plan("next")
    assert world.batch("next", "next/0").failed == ()
    assert ids(world, orders)[10] == left.remote_log_segment_id
    assert world.metadata.segment(failed).superseded_by == left.remote_log_segment_id.id


@pytest.mark.parametrize(
    "reason", [None, IneligibleReason.ACTIVE, IneligibleReason.CORRUPT, IneligibleReason.COMPACTED_SEGMENT], ids=str
)
def test_a_whole_replacement_is_finished_where_the_source_has_its_offsets_in_another_segment(world, orders, reason):
    """Another broker leads by now, whose segments begin and end elsewhere: nothing there can replace the failed one."""
    failed = copied_and_failed(world, orders)
    left = left_at(world, orders, CopyStep.SENT).metadata
    first, second, third = world.source.replicas[orders].segments[:3]
    longer = replace(second, end_offset=third.end_offset, size_bytes=second.size_bytes + third.size_bytes)
    longer = replace(longer, active=reason is IneligibleReason.ACTIVE, reason=reason)
    world.source.change(orders, segments=(first, longer))
    world.plan("next")
    assert world.batch("next", "next/0").failed == ()
    assert ids(world, orders)[10] == left.remote_log_segment_id
    assert world.metadata.segment(failed).superseded_by == left.remote_log_segment_id.id


@pytest.mark.parametrize("reason", [IneligibleReason.CORRUPT, IneligibleReason.COMPACTED_SEGMENT], ids=str)
def test_a_whole_replacement_is_finished_where_the_source_has_spoilt_the_segment(world, orders, reason):
    copied_and_failed(world, orders)
    left = left_at(world, orders, CopyStep.SENT).metadata
    first, second, third = world.source.replicas[orders].segments[:3]
    world.source.change(orders, segments=(first, replace(second, reason=reason), third))
    world.plan("next")
    assert world.batch("next", "next/0").failed == ()
    assert ids(world, orders)[10] == left.remote_log_segment_id


def test_a_whole_replacement_is_finished_where_the_log_start_lies_inside_the_segment(world, orders):
    """The source's leader epochs begin at its log start then, so it has no segment that can replace the failed one."""
    copied_and_failed(world, orders)
    left = left_at(world, orders, CopyStep.SENT).metadata
    first, second, third = world.source.replicas[orders].segments[:3]
    (epoch, _), *_ = second.leader_epochs
    cut = replace(second, leader_epochs=LeaderEpochs.of([(epoch, 15)]))
    world.source.change(orders, segments=(first, cut, third))
    world.plan("next")
    assert world.batch("next", "next/0").failed == ()
    assert ids(world, orders)[10] == left.remote_log_segment_id


def test_parts_are_abandoned_only_by_the_database_that_owns_the_store(world, orders):
    """A copy of this one may have a live worker that is sending them."""
    left = left_at(world, orders, CopyStep.SENT).metadata
    lose_the_manifest(world, left.remote_log_segment_id)
    world.claim = refuse
    (failure,) = world.batch().failed
    assert failure.item.error == "ForeignStoreError"
    assert [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [left]
    assert world.objects() == 3 + 2


def test_parts_that_became_whole_while_the_store_was_claimed_are_not_abandoned(world, orders):
    left = left_at(world, orders, CopyStep.SENT).metadata
    manifest, content = lose_the_manifest(world, left.remote_log_segment_id)
    world.claim = lambda: manifest.write_bytes(content)
    assert world.batch().failed == ()
    assert ids(world, orders)[10] == left.remote_log_segment_id


def test_what_cannot_be_read_is_no_part(world, orders):
    """A key pair that was dropped from the settings. It is sent again, and stays beside the new copy."""
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    world.storage = Unread(world.storage, left, SegmentKeyError("no private key"))
    world.plan("next")
    assert world.batch("next", "next/0").failed == ()
    assert ids(world, orders)[10] != left.remote_log_segment_id
    assert world.objects() == 4 * 3


@pytest.mark.parametrize(
    "error",
    [
        SegmentKeyError("it is encrypted for key pair 'k1', of which the settings name no private key"),
        RemoteAccessDeniedError("the store answered InvalidObjectState (403)"),
        RemoteStorageUnavailableError("503"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_where_the_source_is_gone_as_well_offsets_of_a_copy_that_cannot_be_read_are_no_hole(world, orders, error):
    """A hole may be skipped by decision, and expiration then deletes the copy."""
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    payments = world.source.add("payments")
    broker_deletes_up_to(world, orders, 19)
    readable, world.storage = world.storage, Unread(world.storage, left, error)
    (held,) = world.planned("next").held_back
    assert (held.reason, held.hole, held.next_offset) == (HeldBack.COPY_IN_DOUBT, None, 10)
    assert str(left.remote_log_segment_id.id) in held.detail
    world.plan("next")
    assert world.batch("next", "next/0").failed == ()
    assert len(world.offsets(payments)) == 3
    world.storage = readable
    world.plan("again")
    assert world.batch("again", "again/0").failed == ()
    assert ids(world, orders)[10] == left.remote_log_segment_id


def test_offsets_of_a_copy_that_a_store_lacks_are_no_hole_where_it_lacks_what_passed_as_well(world, orders):
    left_at(world, orders, CopyStep.VERIFIED)
    first = world.metadata.list_segments(orders.topic_id_partition)[0]
    world.metadata.record_verdict(first.metadata.remote_log_segment_id, Verdict.PASSED)
    broker_deletes_up_to(world, orders, 19)
    elsewhere = world.store.with_name("elsewhere")
    elsewhere.mkdir()
    for path in list(world.store.iterdir()):
        path.rename(elsewhere / path.name)
    (held,) = world.planned("next").held_back
    assert (held.reason, held.hole) == (HeldBack.COPY_IN_DOUBT, None)
    for path in list(elsewhere.iterdir()):
        path.rename(world.store / path.name)
    assert world.planned("again").held_back == ()


def test_offsets_of_which_the_store_has_parts_alone_are_a_hole(world, orders):
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    lose_the_manifest(world, left.remote_log_segment_id)
    broker_deletes_up_to(world, orders, 19)
    (held,) = world.planned("next").held_back
    assert (held.reason, held.hole) == (HeldBack.HOLE, (10, 19))


def test_a_store_that_is_another_one_has_no_empty_copy(world, orders):
    """Its disk is not mounted, say: the deletion would be completed where the objects are."""
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    lease = world.work.claim("run", "run/0", lease_ms=1_000)
    storage = Elsewhere(world.storage)
    copier = SegmentCopier(world.source, storage, world.metadata, world.registry, SystemClock(), bytes, lambda *_: None)
    with pytest.raises(ForeignStoreError):
        AbandonedCopies(copier, WholeCopy(storage, SameLimiter(world.limiter)), lambda: None).abandon_empty(lease.fence)
    assert [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [left]


def test_where_brokers_go_on_all_stays_of_which_anything_is_stored(world, orders):
    left = left_at(world, orders, CopyStep.SENT).metadata
    lose_the_manifest(world, left.remote_log_segment_id)
    lease = world.work.claim("run", "run/0", lease_ms=1_000)
    copier = SegmentCopier(
        world.source, world.storage, world.metadata, world.registry, SystemClock(), bytes, lambda *_: None
    )
    whole = WholeCopy(world.storage, SameLimiter(world.limiter))
    AbandonedCopies(copier, whole, lambda: None).abandon_empty(lease.fence)
    assert world.objects() == 3 + 2


def test_a_whole_copy_of_the_first_segment_is_finished_when_the_broker_has_deleted_it(world, orders):
    left = left_at(world, orders, CopyStep.VERIFIED, 0).metadata
    broker_deletes_up_to(world, orders, 9)
    world.plan("next")
    assert world.batch("next", "next/0").failed == ()
    assert ids(world, orders)[0] == left.remote_log_segment_id
    assert world.offsets(orders) == [(0, 9), (10, 19), (20, 29)]


def test_the_same_bytes_in_another_replica_finish_it(world, orders):
    """After a change of the leader the fingerprint is another one."""
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    world.source.change(orders, leader_epoch=1)
    assert world.batch().failed == ()
    assert ids(world, orders)[10] == left.remote_log_segment_id


def test_a_whole_copy_of_other_bytes_stays_beside_the_new_one(world, orders):
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    world.source.generation = 2
    world.batch()
    world.plan("next")
    world.batch("next", "next/0")
    assert world.offsets(orders) == [(0, 9), (10, 19), (20, 29)]
    assert ids(world, orders)[10] != left.remote_log_segment_id
    assert [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [left]
    assert world.objects() == 4 * 3


def test_a_whole_copy_stays_where_the_source_had_other_bytes_before_it_lost_the_segment(world, orders):
    """An election replaces the records, and the topic is deleted between two looks of the same batch."""
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    lease = world.work.claim("run", "run/0", lease_ms=60_000)
    copier = SegmentCopier(
        world.source, world.storage, world.metadata, world.registry, SystemClock(), bytes, lambda *_: None
    )
    copies = AbandonedCopies(copier, WholeCopy(world.storage, SameLimiter(world.limiter)), lambda: None)
    world.source.generation = 2
    settle = partial(copies.settle, orders, world.work.remaining(lease), fence=lease.fence, limiter=world.limiter)
    assert settle() == {10}
    broker_deletes_up_to(world, orders, 19)
    assert settle() == {10}
    assert [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [left]


@pytest.mark.parametrize("epoch", [0, 1])
def test_only_the_history_of_a_whole_copy_may_have_lost_records_to_compaction(world, orders, epoch):
    """The plan names the copy, because no segment of the source can be copied in its place any more."""
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    first, second, third = world.source.replicas[orders].segments
    cleaned = replace(second, size_bytes=400, reason=IneligibleReason.COMPACTED_SEGMENT)
    cleaned = replace(cleaned, leader_epochs=LeaderEpochs.of([(epoch, 10)]))
    world.source.change(orders, segments=(first, cleaned, third), was_compacted=True)
    world.source.generation = 2
    world.plan("next")
    world.batch("next", "next/0")
    stays = [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)]
    assert stays == ([] if epoch == 0 else [left])
    assert (ids(world, orders).get(10) == left.remote_log_segment_id) == (epoch == 0)


def test_a_whole_copy_is_finished_where_compaction_merged_its_segment_with_the_next_one(world, orders):
    """The merged segment ends elsewhere, and has as many bytes as the copy."""
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    first, second, third = world.source.replicas[orders].segments
    merged = replace(second, end_offset=third.end_offset, reason=IneligibleReason.COMPACTED_SEGMENT)
    world.source.change(orders, segments=(first, merged), was_compacted=True)
    world.source.generation = 2
    world.plan("next")
    world.batch("next", "next/0")
    assert ids(world, orders)[10] == left.remote_log_segment_id


def test_a_whole_copy_stays_where_no_leader_epoch_covers_the_sources_segment(world, orders):
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    first, second, third = world.source.replicas[orders].segments
    unknown = replace(second, leader_epochs=LeaderEpochs(), reason=IneligibleReason.NO_LEADER_EPOCH)
    world.source.change(orders, segments=(first, unknown, third))
    world.batch()
    assert world.offsets(orders) == [(0, 9)]
    assert [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [left]


@pytest.mark.parametrize("history", [[(0, 0)], [(0, 0), (1, 15)]], ids=["the same history", "another history"])
def test_a_planned_copy_stays_where_a_leader_has_its_offsets_in_a_longer_segment(world, orders, history):
    """The plan named the segment of the leader before. All records of the copy are in the longer one, or others are."""
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    first, second, third = world.source.replicas[orders].segments
    epochs = LeaderEpochs.of(history)
    longer = replace(second, end_offset=25, size_bytes=1_600, leader_epochs=epochs.range(10, 26))
    after = replace(third, base_offset=26, size_bytes=400, leader_epochs=epochs.range(26, 30))
    world.source.change(orders, segments=(first, longer, after), leader_epochs=epochs)
    world.source.generation = 2
    world.batch()
    assert world.offsets(orders) == [(0, 9)]
    assert [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [left]
    world.plan("next")
    assert world.batch("next", "next/0").failed == ()
    assert world.offsets(orders) == [(0, 9), (10, 25), (26, 29)]


def test_a_whole_copy_stays_while_the_source_may_not_be_copied(world, orders):
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    first, second, third = world.source.replicas[orders].segments
    waits = replace(second, reason=IneligibleReason.ABOVE_LAST_STABLE_OFFSET)
    world.source.change(orders, segments=(first, waits, third))
    world.batch()
    assert world.offsets(orders) == [(0, 9)]
    assert [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [left]


def test_a_whole_copy_stays_where_the_source_has_its_offsets_in_other_segments(world, orders):
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    first, second, _ = world.source.replicas[orders].segments
    world.source.change(orders, segments=(first, replace(second, base_offset=5, end_offset=29)))
    world.plan("next")
    world.batch("next", "next/0")
    assert world.offsets(orders) == [(0, 9), (5, 29)]
    assert [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [left]


def test_parts_are_abandoned_while_the_source_has_the_segment(world, orders):
    left = left_at(world, orders, CopyStep.SENT).metadata
    lose_the_manifest(world, left.remote_log_segment_id)
    assert world.batch().failed == ()
    assert ids(world, orders)[10] != left.remote_log_segment_id
    assert world.objects() == 9


def test_parts_stay_when_the_broker_has_deleted_the_segment(world, orders):
    left = left_at(world, orders, CopyStep.SENT).metadata
    lose_the_manifest(world, left.remote_log_segment_id)
    broker_deletes_up_to(world, orders, 19)
    world.batch()
    assert [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [left]
    assert world.objects() == 3 + 2


def test_nothing_is_begun_with_abandoned_copies_in_a_store_that_is_not_ours(world, orders):
    """What is missing there may be somewhere else; a deletion that has begun never ends in a finished copy."""
    left = left_at(world, orders, CopyStep.VERIFIED).metadata
    world.storage = ForeignStore(world.storage)
    (failure,) = world.batch().failed
    assert failure.item.error == "ForeignStoreError"
    assert [row.metadata for row in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [left]


class TestExpirationOfAnAbandonedCopy:
    """It goes when nothing of it is there, or a passed copy has its offsets."""

    @pytest.fixture
    def check(self, world: World) -> ReplacementCheck:
        return ReplacementCheck(world.metadata, WholeCopy(world.storage, SameLimiter(world.limiter)))

    def test_it_stays_while_its_offsets_are_nowhere_else(self, world, orders, check):
        left = left_at(world, orders, CopyStep.VERIFIED).metadata
        with pytest.raises(UnprovedReplacementError, match=r"has offsets 10\.\.19"):
            check.require_covered(left)

    def test_it_goes_when_a_person_decided_to_do_without_its_offsets(self, world, orders, check):
        left = left_at(world, orders, CopyStep.VERIFIED).metadata
        broker_deletes_up_to(world, orders, 19)
        world.metadata.skip_offsets(orders.topic_id_partition, OffsetRange(10, 19), reason="gone", author="test")
        check.require_covered(left)

    def test_it_goes_when_it_is_below_the_log_start(self, world, orders, check):
        left = left_at(world, orders, CopyStep.VERIFIED).metadata
        lease = world.work.claim("run", "run/0", lease_ms=1_000)
        world.metadata.raise_log_start(
            orders.topic_id_partition, 20, reason="delete-records", author="test", fence=lease.fence
        )
        check.require_covered(left)

    def test_it_stays_when_nothing_is_there_of_what_was_finished_either(self, world, orders, check):
        """Another directory is under the store's path."""
        left = left_at(world, orders, CopyStep.VERIFIED).metadata
        for path in [one for one in world.store.iterdir() if one.is_dir()]:
            path.rename(world.store.parent / path.name)
        with pytest.raises(UnprovedReplacementError, match="is it the right store"):
            check.require_covered(left)

    def test_it_goes_when_there_is_nothing_of_it(self, world, orders, check):
        check.require_covered(left_at(world, orders, CopyStep.STARTED).metadata)

    def test_it_stays_until_the_new_copy_has_passed_and_while_that_is_whole(self, world, orders, check):
        left = left_at(world, orders, CopyStep.VERIFIED).metadata
        world.source.generation = 2
        world.batch()
        world.plan("next")
        world.batch("next", "next/0")
        new = ids(world, orders)[10]
        with pytest.raises(UnprovedReplacementError):
            check.require_covered(left)
        world.metadata.record_verdict(new, Verdict.PASSED)
        check.require_covered(left)
        lose_the_manifest(world, new)
        with pytest.raises(UnprovedReplacementError, match=f"{new.id} has no rsm-manifest"):
            check.require_covered(left)
