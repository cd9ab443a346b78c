"""A rebuild: what it makes, what it leaves, and that it may die anywhere."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from include.tiering.database.schema import (
    partitions,
    segment_epochs,
    segments,
    size_counters,
    skipped_offsets,
    topics,
)
from include.tiering.database.store_identity import is_being_rebuilt
from include.tiering.errors import (
    ForeignStoreError,
    RemoteAccessDeniedError,
    RemoteStorageError,
    RemoteStorageUnavailableError,
    StateConflictError,
)
from include.tiering.model.histories import OffsetRange
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.recovered_log import Obstacle
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.recovery.rebuild import Rebuild, RebuildReport, RebuildStep, plan_rebuild
from include.tiering.recovery.sql_recovery import SqlMetadataRecovery
from include.tiering.remote_storage.contract import RemoteStorage, StoredObject
from include.tiering.remote_storage.location import open_storage
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles.generations import always
from tests.doubles.manual_clock import ManualClock
from tests.doubles.segments import CLUSTER_ID, uuid
from tests.doubles.storage_decorators import StorageDecorator, UnreadCopy
from tests.doubles.stored_log import MARKER, StoredLog, new_database, rows_of

TABLES = (topics, partitions, segments, segment_epochs, size_counters, skipped_offsets)
NEW = StoreMarker(CLUSTER_ID, str(uuid(5)), 2)


def next_of(found: StoreMarker, store_id: int) -> StoreMarker:
    return StoreMarker(found.cluster_id, str(uuid(store_id)), found.generation + 1)


class Killed(BaseException):
    """Passes every handler of the library, as a SIGKILL does."""


@pytest.fixture
def stored(tmp_path: Path) -> StoredLog:
    """Three partitions, one of them with a hole and a later leader epoch."""
    stored = StoredLog.at(tmp_path / "store")
    for number in (0, 1, 2):
        stored.copy(number)
    for number in (4, 5, 8):
        stored.copy(number, partition=1, epochs={number: 25 * number})
    stored.copy(0, topic="payments", partition=7)
    return stored


@pytest.fixture
def engine() -> Iterator[Engine]:
    with new_database() as engine:
        yield engine


def rebuild(
    storage: RemoteStorage,
    engine: Engine,
    *,
    store_id: int = 5,
    observe: Callable[[RebuildStep], None] = lambda step: None,
    stop: Callable[[], bool] = lambda: False,
    dry_run: bool = False,
    counted: list[int] | None = None,
) -> RebuildReport:
    recovery = SqlMetadataRecovery(engine, CLUSTER_ID, now_ms=lambda _: 1_700_000_000_000)
    plan = plan_rebuild(storage, recovery.begun, None)
    task = Rebuild(storage, None if dry_run else recovery, ManualClock(), observe, "me")
    counts = counted if counted is not None else []
    return task.run(plan, next_of(plan.found, store_id), on_examined=counts.append, stop=stop)


def test_a_layout_without_manifests_is_refused_by_name(tmp_path: Path, engine: Engine) -> None:
    storage = open_storage(tmp_path.as_uri(), layout="local_tiered_storage")
    storage.create_marker(MARKER)
    with pytest.raises(StateConflictError, match="writes no manifests"):
        rebuild(storage, engine)
    assert storage.read_marker() == MARKER


def test_every_complete_copy_becomes_a_segment(stored: StoredLog, engine: Engine) -> None:
    counted: list[int] = []
    report = rebuild(stored.storage, engine, counted=counted)
    metadata = SqlRemoteLogMetadata(engine, CLUSTER_ID)
    assert [(str(one.topic_id_partition), one.segments, one.offsets, one.holes) for one in report.partitions] == [
        ("orders-0", 3, (0, 74), ()),
        ("orders-1", 3, (100, 224), (OffsetRange(150, 199),)),
        ("payments-7", 1, (0, 24), ()),
    ]
    assert (report.found, report.marker, stored.storage.read_marker()) == (MARKER, NEW, NEW)
    assert (sum(counted), report.segments, report.interrupted) == (7, 7, False)
    orders_1 = report.partitions[1].topic_id_partition
    assert [one.offsets for one in metadata.skipped_offsets(orders_1)] == [OffsetRange(150, 199)]
    # The copies carry a history that begins with epoch 0.
    history = LeaderEpochs.of([(0, 0), (4, 100), (5, 125), (8, 200)])
    assert metadata.retention_state(orders_1).leader_epochs == history
    assert not is_being_rebuilt(engine)


def test_the_old_database_is_turned_away_and_the_new_one_is_not(stored: StoredLog, engine: Engine) -> None:
    rebuild(stored.storage, engine)
    kept = stored.objects()
    segment = stored.copy(3)
    with pytest.raises(ForeignStoreError):
        stored.storage.guarded(always(MARKER), ManualClock()).delete_log_segments([segment])
    stored.storage.guarded(always(NEW), ManualClock()).delete_log_segments([segment])
    assert stored.objects() == kept


def test_a_dry_run_says_the_same_and_changes_nothing(stored: StoredLog, engine: Engine) -> None:
    before = stored.objects()
    dry = rebuild(stored.storage, engine, dry_run=True)
    assert (stored.objects(), dry.marker) == (before, None)
    assert not any(rows_of(engine, *TABLES).values())
    assert rebuild(stored.storage, engine).partitions == dry.partitions


STEPS = [(step, 1) for step in RebuildStep] + [(RebuildStep.PARTITION_ADDED, 2), (RebuildStep.PARTITION_ADDED, 3)]


@pytest.mark.parametrize(("step", "times"), STEPS, ids=lambda value: str(value))
def test_killed_at_any_step_it_is_run_again_and_ends_the_same(
    stored: StoredLog, engine: Engine, step: RebuildStep, times: int
) -> None:
    reached: list[RebuildStep] = []

    def kill(now: RebuildStep) -> None:
        reached.append(now)
        if reached.count(step) == times and now is step:
            raise Killed

    with pytest.raises(Killed):
        rebuild(stored.storage, engine, observe=kill)
    assert stored.storage.read_marker() == (MARKER if step is RebuildStep.BEGUN else NEW)
    assert is_being_rebuilt(engine) is (step is not RebuildStep.FINISHED)
    if step is RebuildStep.FINISHED:
        with pytest.raises(StateConflictError, match="segments 7"):
            rebuild(stored.storage, engine, store_id=6)
    else:
        added = reached.count(RebuildStep.PARTITION_ADDED)
        counted: list[int] = []
        report = rebuild(stored.storage, engine, store_id=6, counted=counted)
        assert [one.before for one in report.partitions] == [True] * added + [False] * (3 - added)
        assert ([one.segments for one in report.partitions], sum(counted), report.marker) == ([3, 3, 1], 7, NEW)
    with new_database() as another:
        rebuild(StoredLog(stored.root, stored.storage).storage, another, store_id=7)
        # Rows are numbered as they come, and come in the same order.
        assert rows_of(engine, *TABLES) == rows_of(another, *TABLES)


def test_interrupted_it_ends_after_a_partition_and_goes_on(stored: StoredLog, engine: Engine) -> None:
    report = rebuild(stored.storage, engine, stop=lambda: True)
    assert (report.interrupted, [str(one.topic_id_partition) for one in report.partitions]) == (True, ["orders-0"])
    assert is_being_rebuilt(engine)
    assert not rebuild(stored.storage, engine).interrupted
    assert not is_being_rebuilt(engine)


def test_a_store_that_stops_to_answer_is_gone_on_with(stored: StoredLog, engine: Engine) -> None:
    class Away(StorageDecorator):
        def before(self, operation: str, detail: str) -> None:
            if operation == "list_segment_objects" and detail == "payments-7":
                raise RemoteStorageUnavailableError("503")

    with pytest.raises(RemoteStorageUnavailableError):
        rebuild(Away(stored.storage), engine)
    assert is_being_rebuilt(engine)
    assert rebuild(stored.storage, engine).segments == 7


def test_one_bad_copy_keeps_no_other(stored: StoredLog, engine: Engine) -> None:
    bad = stored.copy(3)
    stored.object_path(bad, "rsm-manifest").write_bytes(b"{}")
    begun = stored.copy(4, start_offset=100)
    stored.object_path(begun, "rsm-manifest").unlink()
    report = rebuild(stored.storage, engine)
    orders_0 = report.partitions[0]
    assert [(one.attempt.segment_id, one.error) for one in orders_0.faulty] == [
        (bad.remote_log_segment_id, "FormatError"),
        (begun.remote_log_segment_id, "RemoteResourceNotFoundError"),
    ]
    assert (orders_0.segments, orders_0.not_taken, report.segments) == (3, 2, 7)


def test_a_partition_without_a_complete_copy_is_named_and_not_made_up(tmp_path: Path, engine: Engine) -> None:
    stored = StoredLog.at(tmp_path)
    stored.object_path(stored.copy(0), "log").unlink()
    report = rebuild(stored.storage, engine)
    assert [(one.segments, one.not_taken, one.offsets) for one in report.partitions] == [(0, 1, None)]
    assert not any(rows_of(engine, *TABLES).values())
    assert not is_being_rebuilt(engine)


def test_a_copy_that_took_the_place_of_another_is_the_one_that_counts(stored: StoredLog, engine: Engine) -> None:
    successor = stored.copy(1, seed="new", began_ms=2_000_000_000_000)
    report = rebuild(stored.storage, engine)
    orders_0 = report.partitions[0]
    assert [(one.segment.start_offset, one.obstacle, one.beside) for one in orders_0.left_out] == [
        (25, Obstacle.SAME_OFFSETS, successor)
    ]
    rows = SqlRemoteLogMetadata(engine, CLUSTER_ID).list_segments(orders_0.topic_id_partition)
    assert [row.metadata.remote_log_segment_id for row in rows][1] == successor.remote_log_segment_id


@pytest.mark.parametrize("epoch", [7, 2**31 - 1])
def test_one_odd_manifest_takes_no_other_copy_with_it(tmp_path: Path, engine: Engine, epoch: int) -> None:
    """It says a later leader epoch than the history that its copy carries: no other history is made of that."""
    stored = StoredLog.at(tmp_path)
    sound = [stored.copy(0), stored.copy(2), stored.copy(3)]
    odd = stored.copy(1, epochs={epoch: 25}, carried={0: 0})
    report = rebuild(stored.storage, engine)
    (orders_0,) = report.partitions
    assert [(one.segment, one.obstacle) for one in orders_0.left_out] == [(odd, Obstacle.ODD_EPOCHS)]
    assert (orders_0.decided, orders_0.holes) == ((), (OffsetRange(25, 49),))
    rows = SqlRemoteLogMetadata(engine, CLUSTER_ID).list_segments(orders_0.topic_id_partition)
    assert [row.metadata.start_offset for row in rows] == [one.start_offset for one in sound]


def test_a_partition_of_which_every_copy_contradicts_the_others_is_named(tmp_path: Path, engine: Engine) -> None:
    stored = StoredLog.at(tmp_path)
    odd = [stored.copy(0, epochs={5: 0}, carried={0: 0}), stored.copy(1, epochs={3: 25}, carried={0: 0})]
    report = rebuild(stored.storage, engine)
    (orders_0,) = report.partitions
    assert [(one.segment, one.obstacle) for one in orders_0.left_out] == [(copy, Obstacle.ODD_EPOCHS) for copy in odd]
    assert (orders_0.segments, orders_0.not_taken) == (0, 2)


def test_a_topic_id_has_one_name(stored: StoredLog, engine: Engine) -> None:
    """The name of most of its objects: a topic is never renamed."""
    stored.copy(9, topic="impostor", partition=0, topic_id_of="orders")
    report = rebuild(stored.storage, engine)
    assert {one.name: one.objects for one in report.other_names} == {"impostor": 3}
    assert {one.topic_id_partition.topic for one in report.partitions} == {"orders", "payments"}


class TestWhoseStoreItIs:
    def plan(self, storage: RemoteStorage, cluster_id: str | None = None) -> Any:
        return plan_rebuild(storage, lambda found: None, cluster_id)

    def test_one_without_a_marker_is_nobodys(self, tmp_path: Path, stored: StoredLog) -> None:
        (stored.root / "_tiering-store.json").unlink()
        with pytest.raises(ForeignStoreError, match="adopt"):
            self.plan(stored.storage)

    def test_one_of_another_cluster_is_refused(self, stored: StoredLog) -> None:
        with pytest.raises(ForeignStoreError, match="log_dirs to cluster another"):
            self.plan(stored.storage, "another")
        assert self.plan(stored.storage, CLUSTER_ID).attempts == 7

    def test_one_that_somebody_else_took_meanwhile_is_left_alone(self, stored: StoredLog, engine: Engine) -> None:
        def taken(step: RebuildStep) -> None:
            if step is RebuildStep.BEGUN:
                with new_database() as other:
                    rebuild(stored.storage, other, store_id=9)

        with pytest.raises(ForeignStoreError, match=str(uuid(9))):
            rebuild(stored.storage, engine, observe=taken)
        assert not any(rows_of(engine, *TABLES).values())
        with pytest.raises(ForeignStoreError, match=str(uuid(9))):
            rebuild(stored.storage, engine)
        assert stored.storage.read_marker() == StoreMarker(CLUSTER_ID, str(uuid(9)), 2)

    def test_a_rebuild_that_was_given_up_is_followed_by_another(self, stored: StoredLog, engine: Engine) -> None:
        with new_database() as dropped:
            rebuild(stored.storage, dropped, stop=lambda: True)
        report = rebuild(stored.storage, engine, store_id=6)
        assert (report.found, report.marker) == (NEW, StoreMarker(CLUSTER_ID, str(uuid(6)), 3))


@pytest.mark.parametrize("number", [0, 1, 3], ids=["first", "between", "last"])
def test_offsets_of_a_copy_that_cannot_be_read_are_not_given_up(stored: StoredLog, engine: Engine, number: int) -> None:
    copies = [stored.copy(each, topic="kept") for each in range(4)]
    unread = UnreadCopy(stored.storage, "fetch_manifest", copies[number])
    dry = rebuild(unread, engine, dry_run=True)
    assert [one.error for partition in dry.partitions for one in partition.faulty] == ["RemoteAccessDeniedError"]
    with pytest.raises(RemoteStorageError, match=rf"kept-0: 1 copies may be complete.*at offset {25 * number}: "):
        rebuild(unread, engine)
    assert is_being_rebuilt(engine)
    assert rebuild(stored.storage, engine).segments == 11
    metadata = SqlRemoteLogMetadata(engine, CLUSTER_ID)
    assert metadata.list_segments(copies[0].topic_id_partition)[number].metadata.start_offset == 25 * number
    assert not metadata.skipped_offsets(copies[0].topic_id_partition)


def test_offsets_of_a_copy_that_a_later_release_wrote_are_not_given_up(
    stored: StoredLog, engine: Engine, tmp_path: Path
) -> None:
    copies = [stored.copy(each, topic="kept") for each in range(3)]
    (path,) = tmp_path.rglob(f"*{copies[1].remote_log_segment_id.id}.rsm-manifest")
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"version":"1"', b'"version":"2"'))
    with pytest.raises(RemoteStorageError, match=r"kept-0: 1 copies may be complete.*its version is 2"):
        rebuild(stored.storage, engine)
    path.write_bytes(content)
    rebuild(stored.storage, engine)
    assert not SqlRemoteLogMetadata(engine, CLUSTER_ID).skipped_offsets(copies[0].topic_id_partition)


class Hides(StorageDecorator):
    """Lists a copy, and does not find it; or answers with something else than its manifest."""

    def __init__(self, inner: RemoteStorage, copy: RemoteLogSegmentMetadata, manifest: bytes | None) -> None:
        super().__init__(inner)
        self._copy = copy.remote_log_segment_id
        self._manifest = manifest

    def stat_log_segment(self, metadata: RemoteLogSegmentMetadata) -> tuple[StoredObject, ...]:
        return () if metadata.remote_log_segment_id == self._copy else super().stat_log_segment(metadata)

    def fetch_manifest(self, metadata: RemoteLogSegmentMetadata) -> bytes | None:
        if self._manifest is not None and metadata.remote_log_segment_id == self._copy:
            return self._manifest
        return super().fetch_manifest(metadata)


@pytest.mark.parametrize(
    ("manifest", "why"), [(None, "it has no .*log.* object"), (b"<html>", "6 bytes came, and [0-9]+ are listed")]
)
def test_offsets_of_a_copy_that_is_listed_and_then_not_found_are_not_given_up(
    stored: StoredLog, engine: Engine, manifest: bytes | None, why: str
) -> None:
    copies = [stored.copy(each, topic="kept") for each in range(3)]
    with pytest.raises(RemoteStorageError, match=rf"kept-0: 1 copies may be complete.*{why}"):
        rebuild(Hides(stored.storage, copies[1], manifest), engine)
    rebuild(stored.storage, engine)
    assert not SqlRemoteLogMetadata(engine, CLUSTER_ID).skipped_offsets(copies[0].topic_id_partition)


def test_a_listing_without_the_marker_is_not_believed(stored: StoredLog, engine: Engine) -> None:
    class Empty(StorageDecorator):
        def list_objects(self) -> Iterator[tuple[str, int]]:
            return iter(())

    with pytest.raises(ForeignStoreError, match=r"the listing of the store has no _tiering-store\.json"):
        rebuild(Empty(stored.storage), engine)
    assert not any(rows_of(engine, *TABLES).values())
    assert stored.storage.read_marker() == MARKER


def test_an_odd_manifest_whose_leader_epoch_index_cannot_be_read_takes_no_other_copy_with_it(
    tmp_path: Path, engine: Engine
) -> None:
    stored = StoredLog.at(tmp_path)
    for number in (0, 2, 3):
        stored.copy(number)
    odd = stored.copy(1, epochs={7: 25}, carried={0: 0})
    with pytest.raises(RemoteAccessDeniedError, match="InvalidObjectState"):
        rebuild(UnreadCopy(stored.storage, "fetch_index", odd), engine)
    (orders_0,) = rebuild(stored.storage, engine).partitions
    assert (orders_0.segments, orders_0.decided) == (3, ())
