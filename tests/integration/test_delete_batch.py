"""One batch of an expiration run against a real file store and a real SQLite database."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from include.tiering.clock import SystemClock
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.errors import ApprovalRequiredError, RemoteStorageUnavailableError
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.model.verdict import Verdict
from include.tiering.quota.contract import UnlimitedBytes
from include.tiering.quota.scopes import UNITS_PER_REQUEST
from include.tiering.remote_metadata.sql import SqlRemoteLogMetadata
from include.tiering.remote_metadata.sql_topics import SqlTopicRegistry
from include.tiering.remote_storage.contract import DeleteFailure
from include.tiering.remote_storage.location import open_storage
from include.tiering.tasks.batch_heartbeat import BatchHeartbeat
from include.tiering.tasks.batch_room import BatchEnd, BatchRoom
from include.tiering.tasks.delete_batch import DeleteBatch, DeleteResult
from include.tiering.tasks.delete_segments import DeleteStep, SegmentDeleter
from include.tiering.tasks.send_gate import SendGate
from include.tiering.work.contract import BatchProgress, PartitionLease
from include.tiering.work.deletion_contract import DeletionOutcome, PlannedExpiration
from include.tiering.work.sql import SqlWorkStore
from include.tiering.work.sql_deletions import SqlDeletionStore
from tests.doubles.expirations import planned_deletion
from tests.doubles.quotas import SameLimiter
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    lease_of,
    partition_of,
    segment_of,
    update_of,
)
from tests.doubles.storage_decorators import RecordingStorage
from tests.doubles.storage_segments import some_segment

ORDERS, PAYMENTS = partition_of("orders"), partition_of("payments")


class Crash(BaseException):
    """Ends the process as far as the code under test can tell."""


def crash() -> None:
    raise Crash


class FailingDeletes(RecordingStorage):
    """Refuses the keys of some segments, or whole requests."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.refused: dict[object, bool] = {}
        self.errors: list[Exception] = []

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[DeleteFailure, ...]:
        if self.errors:
            raise self.errors.pop(0)
        kept = [one for one in segments if one.remote_log_segment_id in self.refused]
        failures = super().delete_log_segments([one for one in segments if one not in kept])
        refused = [
            DeleteFailure(one.remote_log_segment_id, "a key", "refused", self.refused[one.remote_log_segment_id])
            for one in kept
        ]
        return (*failures, *refused)


@dataclass
class CountingUnits(UnlimitedBytes):
    units: int = 0
    go_on: Callable[[], None] = lambda: None
    on_take: Callable[[], None] = lambda: None

    def take(self, wanted_bytes: int) -> int:
        self.on_take()
        self.units += wanted_bytes
        return wanted_bytes


@dataclass
class World:
    """One deployment. `at` holds what happens once when a step is reached."""

    storage: FailingDeletes
    metadata: SqlRemoteLogMetadata
    registry: SqlTopicRegistry
    work: SqlWorkStore
    deletions: SqlDeletionStore
    engine: object
    limiter: CountingUnits = field(default_factory=CountingUnits)
    at: dict[DeleteStep, Callable[[], None]] = field(default_factory=dict)
    segments_per_group: int = 333
    number: int = 0

    def copied(
        self, partition: TopicIdPartition, count: int = 3, *, state: RemoteLogSegmentState = FINISHED
    ) -> list[RemoteLogSegmentMetadata]:
        """Segments of ten offsets with their objects, under the platform's ownership."""
        self.registry.set_owner(
            partition.topic_id,
            partition.topic,
            TopicOwner.PLATFORM,
            expected=self.registry.owner(partition.topic_id),
            author="test",
        )
        fence = lease_of(self.engine, partition, f"copy-{self.number}").fence
        segments = []
        for _ in range(count):
            _, data = some_segment(1_000)
            start, self.number = 10 * self.number, self.number + 1
            segment = segment_of(partition, self.number, start, start + 9, size_bytes=data.log.size_bytes)
            self.metadata.add_segment(segment, fence=fence)
            self.storage.copy_log_segment(segment, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
            if state is FINISHED:
                segment = self.metadata.update_segment(update_of(segment, FINISHED), expected=STARTED, fence=fence)
            segments.append(segment)
        self.give_back(fence)
        return segments

    def give_back(self, fence) -> None:
        self.work.release(PartitionLease(run_id="", batch_id="", fence=fence, expires_at_ms=0))

    def plan(self, *groups: Sequence[RemoteLogSegmentMetadata], run_id: str = "run", released: bool = True) -> None:
        expirations = [
            PlannedExpiration(
                group[0].topic_id_partition,
                0,
                max(one.end_offset for one in group) + 1,
                tuple(planned_deletion(one, DeletionReason.TIME) for one in group),
            )
            for group in groups
        ]
        self.deletions.save_plan(run_id, expirations)
        if released:
            self.deletions.record_brake(run_id, needs_approval=False, detail="", author="test")

    def batch(self, run_id: str = "run", *, max_seconds: float = 600.0) -> DeleteResult:
        clock = SystemClock()
        gate = SendGate(clock)
        identity = BatchProgress(run_id, f"{run_id}/0", None, "host", 1, "", 0, 0, 0.0, False)
        heartbeat = BatchHeartbeat(
            self.work, gate, clock, identity=identity, lease_ms=600_000, parent_alive=lambda: True
        )
        room = BatchRoom(self.work, gate, clock, batch_id=f"{run_id}/0", pool=None, max_seconds=max_seconds)
        deleter = SegmentDeleter(
            self.storage, self.metadata, self.registry, self.deletions, self.work, clock, self._reached
        )
        return DeleteBatch(
            deleter,
            self.work,
            SameLimiter(self.limiter),
            gate,
            heartbeat,
            room,
            run_id=run_id,
            batch_id=f"{run_id}/0",
            lease_ms=600_000,
            segments_per_group=self.segments_per_group,
        ).run()

    def states(self, *segments: RemoteLogSegmentMetadata) -> list[RemoteLogSegmentState]:
        return [self.metadata.segment(one.remote_log_segment_id).metadata.state for one in segments]

    def outcomes(self, run_id: str = "run") -> list[DeletionOutcome]:
        return [item.outcome for item in self.deletions.items(run_id)]

    def objects(self) -> int:
        return sum(1 for _ in self.storage.list_objects())

    def _reached(self, step: DeleteStep, partition: object, offset: int) -> None:
        self.at.pop(step, lambda: None)()


def supersede(world: World, old: RemoteLogSegmentMetadata) -> None:
    """As a copy does that runs beside: here without objects."""
    world.metadata.record_verdict(old.remote_log_segment_id, Verdict.FAILED)
    fence = lease_of(world.engine, ORDERS, "copy-again").fence
    again = segment_of(ORDERS, 900, old.start_offset, old.end_offset)
    world.metadata.add_segment(again, fence=fence)
    old_id = old.remote_log_segment_id
    world.metadata.update_segment(update_of(again, FINISHED), expected=STARTED, fence=fence, supersedes=old_id)
    world.give_back(fence)


def run_once(action: Callable[[], None]) -> Callable[[], None]:
    actions = [action]
    return lambda: actions.pop()() if actions else None


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    engine = open_engine(f"sqlite:///{tmp_path}/metadata.sqlite")
    upgrade(engine)
    (tmp_path / "remote").mkdir()
    yield World(
        FailingDeletes(open_storage(f"file://{tmp_path}/remote")),
        SqlRemoteLogMetadata(engine, CLUSTER_ID),
        SqlTopicRegistry(engine, CLUSTER_ID),
        SqlWorkStore(engine, CLUSTER_ID),
        SqlDeletionStore(engine, CLUSTER_ID),
        engine,
    )
    engine.dispose()


DELETED, FAILED, PLANNED, SKIPPED = (
    DeletionOutcome.DELETED,
    DeletionOutcome.FAILED,
    DeletionOutcome.PLANNED,
    DeletionOutcome.SKIPPED,
)


class TestWhatGoes:
    def test_the_planned_segments_and_no_other(self, world):
        orders, payments = world.copied(ORDERS, 4), world.copied(PAYMENTS, 2)
        world.plan(orders[:3], payments[:1])
        result = world.batch()
        assert (len(result.deleted), result.failed, result.ended) == (4, (), BatchEnd.NO_WORK)
        assert world.states(*orders, *payments) == [DELETE_FINISHED] * 3 + [FINISHED, DELETE_FINISHED, FINISHED]
        assert world.objects() == 2 * 3
        assert world.outcomes() == [DELETED] * 4
        assert world.metadata.partition_truth(ORDERS).log_start_offset == orders[2].end_offset + 1

    def test_one_request_and_one_share_of_the_rate_for_each_group(self, world):
        world.segments_per_group = 2
        world.plan(world.copied(ORDERS, 5))
        world.batch()
        assert world.storage.operations().count("delete_log_segments") == 3
        assert world.limiter.units == 3 * UNITS_PER_REQUEST

    def test_the_log_start_comes_first(self, world):
        segments = world.copied(ORDERS)
        world.plan(segments)
        world.at[DeleteStep.LOG_START] = lambda: seen.append(world.states(*segments))
        seen: list[list[RemoteLogSegmentState]] = []
        world.batch()
        assert seen == [[FINISHED] * 3]

    def test_nothing_without_a_release(self, world):
        world.plan(world.copied(ORDERS), released=False)
        with pytest.raises(ApprovalRequiredError, match=world.deletions.run("run").plan_hash):
            world.batch()
        world.deletions.record_brake("run", needs_approval=True, detail="too much", author="test")
        with pytest.raises(ApprovalRequiredError):
            world.batch()
        world.deletions.approve("run", world.deletions.run("run").plan_hash, author="me@host")
        assert len(world.batch().deleted) == 3

    def test_nothing_of_a_topic_that_is_not_ours_any_more(self, world):
        segments = world.copied(ORDERS)
        world.plan(segments)
        hand_over = {"expected": TopicOwner.PLATFORM, "author": "test"}
        world.registry.set_owner(ORDERS.topic_id, "orders", TopicOwner.HANDING_OVER, **hand_over)
        assert world.batch().deleted == ()
        assert world.outcomes() == [SKIPPED] * 3
        assert world.states(*segments) == [FINISHED] * 3
        assert world.metadata.partition_truth(ORDERS).log_start_offset == 0

    def test_a_hand_over_while_it_waits_for_the_rate_stops_it(self, world):
        """Found by simulation, seed 30311: the owner was asked before the wait alone."""
        segments = world.copied(ORDERS)
        world.plan(segments)
        hand_over = {"expected": TopicOwner.PLATFORM, "author": "test"}
        world.limiter.on_take = lambda: world.registry.set_owner(
            ORDERS.topic_id, "orders", TopicOwner.HANDING_OVER, **hand_over
        )
        assert world.batch().deleted == ()
        assert world.states(*segments) == [FINISHED] * 3

    def test_a_hand_over_stops_before_the_next_group(self, world):
        world.segments_per_group = 1
        segments = world.copied(ORDERS)
        world.plan(segments)
        hand_over = {"expected": TopicOwner.PLATFORM, "author": "test"}
        world.at[DeleteStep.RECORDED] = lambda: world.registry.set_owner(
            ORDERS.topic_id, "orders", TopicOwner.HANDING_OVER, **hand_over
        )
        world.batch()
        assert world.outcomes() == [DELETED, SKIPPED, SKIPPED]

    def test_an_abandoned_copy_that_somebody_finished_stays(self, world):
        (copy,) = world.copied(ORDERS, 1, state=STARTED)
        world.plan([copy])
        fence = lease_of(world.engine, ORDERS, "copy-again").fence
        world.metadata.update_segment(update_of(copy, FINISHED), expected=STARTED, fence=fence)
        world.batch()
        assert (world.states(copy), world.outcomes()) == ([FINISHED], [SKIPPED])

    def test_an_abandoned_copy_is_left_to_whoever_copies_there(self, world):
        (copy,) = world.copied(ORDERS, 1, state=STARTED)
        world.plan([copy])
        lease = lease_of(world.engine, ORDERS, "copy-again")
        world.batch()
        assert (world.states(copy), world.outcomes()) == ([STARTED], [SKIPPED])
        world.work.release(lease)
        world.plan([copy], run_id="next")
        world.batch("next")
        assert (world.states(copy), world.objects()) == ([DELETE_FINISHED], 0)

    @pytest.mark.parametrize("step", [None, DeleteStep.LOG_START], ids=["before the batch", "after its first look"])
    def test_what_a_new_copy_superseded_since_is_held(self, world, step):
        old, other = world.copied(ORDERS, 2)
        world.plan([old, other])
        meanwhile = partial(supersede, world, old)
        if step is None:
            meanwhile()
        else:
            world.limiter.on_take = run_once(meanwhile)
        world.batch()
        assert world.states(old, other) == [DELETE_STARTED, DELETE_FINISHED]
        assert world.outcomes() == [SKIPPED, DELETED]
        assert world.objects() == 3

    def test_what_was_superseded_goes_once_its_hold_is_over(self, world):
        (old,) = world.copied(ORDERS, 1)
        supersede(world, old)
        due = world.metadata.segment(old.remote_log_segment_id).metadata
        planned = PlannedExpiration(ORDERS, 0, 0, (planned_deletion(due, DeletionReason.SUPERSEDED),))
        world.deletions.save_plan("run", [planned])
        world.deletions.record_brake("run", needs_approval=False, detail="", author="test")
        world.batch()
        assert (world.states(old), world.outcomes(), world.objects()) == ([DELETE_FINISHED], [DELETED], 0)

    def test_time_that_is_over_leaves_the_rest_planned(self, world):
        world.plan(world.copied(ORDERS))
        result = world.batch(max_seconds=0.0)
        assert (result.deleted, result.ended) == ((), BatchEnd.TIME_OVER)
        assert world.outcomes() == [PLANNED] * 3

    def test_a_pause_holds_it(self, world):
        segments = world.copied(ORDERS)
        world.plan(segments)
        world.work.pause(None, author="test")
        result = world.batch(max_seconds=0.6)
        assert (result.deleted, result.ended) == ((), BatchEnd.TIME_OVER)
        world.work.resume(None, author="test")
        assert len(world.batch().deleted) == 3


class TestErrors:
    def test_a_refused_key_keeps_its_row_and_no_other(self, world):
        segments = world.copied(ORDERS)
        world.storage.refused = {segments[1].remote_log_segment_id: False}
        world.plan(segments)
        result = world.batch()
        assert world.states(*segments) == [DELETE_FINISHED, DELETE_STARTED, DELETE_FINISHED]
        assert world.outcomes() == [DELETED, FAILED, DELETED]
        assert world.objects() == 3
        assert not result.worth_retrying
        world.storage.refused = {}
        world.plan([replace(segments[1], state=DELETE_STARTED)], run_id="next")
        world.batch("next")
        assert (world.states(segments[1]), world.objects()) == ([DELETE_FINISHED], 0)

    def test_a_key_that_may_go_later_is_tried_again_by_the_same_run(self, world):
        segments = world.copied(ORDERS)
        world.storage.refused = {segments[1].remote_log_segment_id: True}
        world.plan(segments)
        assert world.batch().worth_retrying
        assert world.outcomes() == [DELETED, PLANNED, DELETED]
        world.storage.refused = {}
        assert len(world.batch().deleted) == 1
        assert world.objects() == 0

    def test_a_store_that_is_away_leaves_the_group_begun(self, world):
        segments = world.copied(ORDERS)
        world.storage.errors = [RemoteStorageUnavailableError("503")]
        world.plan(segments)
        result = world.batch()
        assert result.worth_retrying
        assert world.states(*segments) == [DELETE_STARTED] * 3
        assert len(world.batch().deleted) == 3
        assert world.objects() == 0


@pytest.mark.parametrize(
    ("step", "left"),
    [
        (DeleteStep.LOG_START, [FINISHED] * 4),
        (DeleteStep.DELETE_STARTED, [DELETE_STARTED] * 2 + [FINISHED] * 2),
        (DeleteStep.OBJECTS_DELETED, [DELETE_STARTED] * 2 + [FINISHED] * 2),
        (DeleteStep.DELETE_FINISHED, [DELETE_FINISHED] * 2 + [FINISHED] * 2),
        (DeleteStep.RECORDED, [DELETE_FINISHED] * 2 + [FINISHED] * 2),
    ],
    ids=str,
)
def test_a_crash_at_a_step_is_resumed(world, step, left):
    world.segments_per_group = 2
    segments = world.copied(ORDERS, 4)
    world.plan(segments)
    world.at[step] = crash
    with pytest.raises(Crash):
        world.batch()
    assert world.states(*segments) == left
    assert world.metadata.partition_truth(ORDERS).log_start_offset == segments[-1].end_offset + 1
    result = world.batch()
    assert len(result.deleted) == (2 if step is DeleteStep.RECORDED else 4)
    assert world.states(*segments) == [DELETE_FINISHED] * 4
    assert world.outcomes() == [DELETED] * 4
    assert world.objects() == 0


def test_what_was_begun_goes_first(world):
    world.segments_per_group = 1
    segments = world.copied(ORDERS, 3)
    world.plan(segments)
    fence = world.deletions.claim("run", "earlier", lease_ms=600_000).fence
    world.metadata.advance_deletion(segments[2:], DELETE_STARTED, event_timestamp_ms=0, fence=fence)
    world.give_back(fence)
    world.at[DeleteStep.RECORDED] = crash
    with pytest.raises(Crash):
        world.batch()
    assert world.states(*segments) == [FINISHED, FINISHED, DELETE_FINISHED]
