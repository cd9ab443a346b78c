"""One batch of an expiration run against a real file store and a real SQLite database."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Timer
from time import sleep

import pytest
from sqlalchemy import Engine

from include.tiering.configs.pools import EXPIRATION_POOL
from include.tiering.configs.sql_configs import SqlPoolMirror
from include.tiering.errors import (
    ApprovalRequiredError,
    ForeignStoreError,
    RemoteStorageUnavailableError,
    RunWithdrawnError,
    StateConflictError,
)
from include.tiering.expiration.checks import PlanCheck, StillPlanned
from include.tiering.expiration.delete_segments import DeleteBatch, DeleteResult, DeleteStep, SegmentDeleter
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Verdict
from include.tiering.quotas.contract import UNITS_PER_REQUEST, UnlimitedBytes
from include.tiering.remote_storage.contract import DeleteFailure, ObjectKind
from include.tiering.remote_storage.location import open_storage
from include.tiering.runs.batch import BEAT_SECONDS, BatchEnd
from include.tiering.runs.deletion_run import DeletionOutcome, PlannedExpiration
from tests.doubles.databases import migrated_database
from tests.doubles.deployment import LEASE_MS, Crash, Deployment, crash
from tests.doubles.quotas import SameLimiter
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    expire_lease_of,
    lease_of,
    partition_of,
    planned_deletion,
    segment_of,
    update_of,
)
from tests.doubles.storage_decorators import RecordingStorage
from tests.doubles.stored_log import some_segment

ORDERS, PAYMENTS = partition_of("orders"), partition_of("payments")


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
    on_take: Callable[[], object] = lambda: None

    def take(self, wanted_bytes: int) -> int:
        self.on_take()
        self.units += wanted_bytes
        return wanted_bytes


class World(Deployment):
    """One deployment that deletes."""

    def __init__(self, engine: Engine, storage: FailingDeletes, remote: Path) -> None:
        super().__init__(engine)
        self.storage = storage
        self.remote = remote
        self.limiter = CountingUnits()
        self.segments_per_group = 333
        self.number = 0
        self.check: PlanCheck = StillPlanned
        self.claim: Callable[[], object] = lambda: None

    def copied(
        self, partition: TopicIdPartition, count: int = 3, *, state: RemoteLogSegmentState = FINISHED
    ) -> list[RemoteLogSegmentMetadata]:
        """Segments of ten offsets with their objects, under the platform's ownership."""
        self.own(partition)
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
        self.release(fence)
        return segments

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
            self.deletions.record_limit_check(run_id, needs_approval=False, detail="", author="test")

    def batch(self, run_id: str = "run", *, max_seconds: float = 600.0, pool: str | None = None) -> DeleteResult:
        deleter = SegmentDeleter(
            self.storage,
            self.metadata,
            self.registry,
            self.deletions,
            self.work,
            self.clock,
            self.reached,
            self.claim,
        )
        return DeleteBatch(
            deleter,
            SameLimiter(self.limiter),
            self.loop(run_id, f"{run_id}/0", pool=pool, max_seconds=max_seconds),
            self.check,
            lambda: None,
            run_id=run_id,
            batch_id=f"{run_id}/0",
            lease_ms=LEASE_MS,
            segments_per_group=self.segments_per_group,
        ).run()

    def states(self, *segments: RemoteLogSegmentMetadata) -> list[RemoteLogSegmentState]:
        return [self.metadata.segment(one.remote_log_segment_id).metadata.state for one in segments]

    def outcomes(self, run_id: str = "run") -> list[DeletionOutcome]:
        return [item.outcome for item in self.deletions.items(run_id)]

    def objects(self) -> int:
        return sum(1 for _ in self.storage.list_objects())


def supersede(world: World, old: RemoteLogSegmentMetadata, number: int = 900) -> RemoteLogSegmentMetadata:
    """As a copy does that runs beside. The new copy is not verified yet."""
    world.metadata.record_verdict(old.remote_log_segment_id, Verdict.FAILED)
    fence = lease_of(world.engine, ORDERS, "copy-again").fence
    _, data = some_segment(1_000)
    again = segment_of(ORDERS, number, old.start_offset, old.end_offset, size_bytes=data.log.size_bytes)
    world.metadata.add_segment(again, fence=fence, log_crc32c=data.log_crc32c)
    world.storage.copy_log_segment(again, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    old_id = old.remote_log_segment_id
    again = world.metadata.update_segment(update_of(again, FINISHED), expected=STARTED, fence=fence, supersedes=old_id)
    world.release(fence)
    return again


def passes(world: World, segment: RemoteLogSegmentMetadata) -> None:
    world.metadata.record_verdict(segment.remote_log_segment_id, Verdict.PASSED)


def plan_superseded(world: World, old: RemoteLogSegmentMetadata, run_id: str = "run") -> None:
    due = world.metadata.segment(old.remote_log_segment_id).metadata
    planned = PlannedExpiration(ORDERS, 0, 0, (planned_deletion(due, DeletionReason.SUPERSEDED),))
    world.deletions.save_plan(run_id, [planned])
    world.deletions.record_limit_check(run_id, needs_approval=False, detail="", author="test")


def log_of(world: World, segment: RemoteLogSegmentMetadata) -> Path:
    (log,) = (one for one in world.storage.stat_log_segment(segment) if one.kind is ObjectKind.LOG)
    return world.remote / log.key


def flip_a_byte(world: World, segment: RemoteLogSegmentMetadata) -> None:
    content = bytearray(log_of(world, segment).read_bytes())
    content[-1] ^= 1
    log_of(world, segment).write_bytes(content)


def lose_the_indexes(world: World, segment: RemoteLogSegmentMetadata) -> None:
    (indexes,) = (one for one in world.storage.stat_log_segment(segment) if one.kind is ObjectKind.INDEXES)
    (world.remote / indexes.key).unlink()


def cut(world: World, segment: RemoteLogSegmentMetadata) -> None:
    log_of(world, segment).write_bytes(log_of(world, segment).read_bytes()[:-1])


def run_once(action: Callable[[], object]) -> Callable[[], object]:
    actions = [action]
    return lambda: actions.pop()() if actions else None


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    remote = tmp_path / "remote"
    remote.mkdir()
    with migrated_database(tmp_path) as engine:
        yield World(engine, FailingDeletes(open_storage(remote.as_uri())), remote)


DELETED, FAILED, PLANNED, SKIPPED = (
    DeletionOutcome.DELETED,
    DeletionOutcome.FAILED,
    DeletionOutcome.PLANNED,
    DeletionOutcome.SKIPPED,
)


class TestTheSizeOfItsPool:
    def test_a_batch_ends_after_its_group_when_the_pool_becomes_too_small_and_the_next_goes_on(self, world):
        """From 1 slot to 0, and back."""
        orders, payments = world.copied(ORDERS, 3), world.copied(PAYMENTS, 1)
        world.plan(orders, payments)
        world.segments_per_group = 2
        mirror = SqlPoolMirror(world.engine, CLUSTER_ID)
        mirror.record(EXPIRATION_POOL, 1, seen=None, author="test")
        shrink = run_once(lambda: mirror.record(EXPIRATION_POOL, 0, seen=1, author="test"))
        world.claim = shrink
        result = world.batch(pool=EXPIRATION_POOL)
        assert (len(result.deleted), result.ended) == (2, BatchEnd.SURPLUS)
        assert world.states(*orders, *payments) == [DELETE_FINISHED] * 2 + [FINISHED] * 2
        assert world.work.live_batches(EXPIRATION_POOL) == []
        assert (world.batch(pool=EXPIRATION_POOL).deleted, world.objects()) == ((), 2 * 3)
        mirror.record(EXPIRATION_POOL, 1, seen=0, author="test")
        result = world.batch(pool=EXPIRATION_POOL)
        assert (len(result.deleted), result.ended) == (2, BatchEnd.NO_WORK)


class TestWhatGoes:
    def test_the_planned_segments_and_no_other(self, world):
        orders, payments = world.copied(ORDERS, 4), world.copied(PAYMENTS, 2)
        world.plan(orders[:3], payments[:1])
        result = world.batch()
        assert (len(result.deleted), result.failed, result.ended) == (4, (), BatchEnd.NO_WORK)
        assert world.states(*orders, *payments) == [DELETE_FINISHED] * 3 + [FINISHED, DELETE_FINISHED, FINISHED]
        assert world.objects() == 2 * 3
        assert world.outcomes() == [DELETED] * 4
        assert world.metadata.retention_state(ORDERS).log_start_offset == orders[2].end_offset + 1

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

    def test_the_store_is_claimed_between_the_rows_and_the_objects_of_each_group(self, world):
        segments, seen = world.copied(ORDERS, 3), []
        world.plan(segments)
        world.segments_per_group = 2
        world.claim = lambda: seen.append((world.states(*segments), world.objects()))
        world.batch()
        assert seen == [([DELETE_STARTED] * 2 + [FINISHED], 9), ([DELETE_FINISHED] * 2 + [DELETE_STARTED], 3)]

    def test_a_store_that_cannot_be_claimed_loses_no_object(self, world):
        segments = world.copied(ORDERS, 2)
        world.plan(segments)

        def refuse() -> None:
            raise ForeignStoreError("another database has used the store")

        world.claim = refuse
        assert [one.item.error for one in world.batch().failed] == ["ForeignStoreError"] * 2
        assert world.states(*segments) == [DELETE_STARTED] * 2
        assert world.objects() == 6

    def test_nothing_without_a_release(self, world):
        world.plan(world.copied(ORDERS), released=False)
        with pytest.raises(ApprovalRequiredError, match=world.deletions.run("run").plan_hash):
            world.batch()
        world.deletions.record_limit_check("run", needs_approval=True, detail="too much", author="test")
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
        assert world.metadata.retention_state(ORDERS).log_start_offset == 0

    def test_a_withdrawal_stops_before_the_next_group(self, world):
        world.segments_per_group = 1
        segments = world.copied(ORDERS)
        world.plan(segments)
        world.at[DeleteStep.RECORDED] = lambda: world.deletions.withdraw("run", author="me@host")
        result = world.batch()
        assert (len(result.deleted), result.ended) == (1, BatchEnd.WITHDRAWN)
        assert world.states(*segments) == [DELETE_FINISHED, FINISHED, FINISHED]
        assert world.outcomes() == [DELETED, SKIPPED, SKIPPED]
        with pytest.raises(RunWithdrawnError):
            world.batch()

    def test_a_withdrawal_while_it_waits_for_the_rate_stops_it(self, world):
        segments = world.copied(ORDERS)
        world.plan(segments)
        world.limiter.on_take = lambda: world.deletions.withdraw("run", author="me@host")
        assert world.batch().ended is BatchEnd.WITHDRAWN
        assert world.states(*segments) == [FINISHED] * 3

    def test_a_withdrawal_ends_a_batch_that_waits_in_a_pause(self, world):
        segments = world.copied(ORDERS)
        world.plan(segments)
        world.segments_per_group = 1

        def pause_until_the_batch_sees_it() -> None:
            world.work.pause(None, author="test")
            sleep(2 * BEAT_SECONDS)
            Timer(0.6, world.deletions.withdraw, ["run"], {"author": "me"}).start()

        world.at[DeleteStep.RECORDED] = pause_until_the_batch_sees_it
        assert world.batch(max_seconds=30.0).ended is BatchEnd.WITHDRAWN
        assert world.states(*segments) == [DELETE_FINISHED, FINISHED, FINISHED]

    def test_a_group_in_flight_when_the_run_is_withdrawn_is_ended_by_the_next_run(self, world):
        segments = world.copied(ORDERS)
        world.plan(segments)
        world.at[DeleteStep.DELETE_STARTED] = lambda: world.deletions.withdraw("run", author="me@host")
        assert world.batch().ended is BatchEnd.WITHDRAWN
        assert world.states(*segments) == [DELETE_STARTED] * 3
        assert world.outcomes() == [FAILED] * 3
        world.plan([replace(one, state=DELETE_STARTED) for one in segments], run_id="next")
        world.batch("next")
        assert world.states(*segments) == [DELETE_FINISHED] * 3

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

    def test_what_stops_it_between_groups_gives_up_on_what_is_left_alone(self, world, monkeypatch):
        world.segments_per_group = 1
        world.plan(world.copied(ORDERS))
        world.at[DeleteStep.RECORDED] = lambda: monkeypatch.setattr(world.registry, "owner", refuse)

        def refuse(topic_id: object) -> TopicOwner:
            raise StateConflictError("the registry was set back")

        result = world.batch(max_seconds=30.0)
        assert (len(result.deleted), len(result.failed)) == (1, 2)
        assert {one.segment_id for one in result.deleted}.isdisjoint(
            one.item.planned.segment_id for one in result.failed
        )
        assert world.outcomes() == [DELETED, FAILED, FAILED]

    @pytest.mark.parametrize(
        ("error", "outcome"),
        [(StateConflictError("the registry was set back"), FAILED), (RemoteStorageUnavailableError("503"), PLANNED)],
        ids=["for the run", "for this batch"],
    )
    @pytest.mark.parametrize("point", ["reading", "throttling"])
    def test_a_partition_that_cannot_be_read_or_throttled_is_given_up(self, world, monkeypatch, point, error, outcome):
        """It is not claimed a second time by this batch, and each of its segments is reported as failed."""
        orders, payments = world.copied(ORDERS, 2), world.copied(PAYMENTS, 1)
        world.plan(orders, payments)
        owner, asked = world.registry.owner, []

        def refuse() -> None:
            asked.append(point)
            raise error

        def owner_of(topic_id: object) -> TopicOwner:
            if topic_id == ORDERS.topic_id:
                refuse()
            return owner(topic_id)

        if point == "reading":
            monkeypatch.setattr(world.registry, "owner", owner_of)
        else:
            world.limiter.on_take = run_once(refuse)
        result = world.batch(max_seconds=30.0)
        assert (len(asked), result.ended) == (1, BatchEnd.NO_WORK)
        assert [failure.item.planned.segment_id for failure in result.failed] == [
            one.remote_log_segment_id for one in orders
        ]
        assert {(failure.item.error, failure.retriable) for failure in result.failed} == {
            (type(error).__name__, error.retriable)
        }
        assert world.outcomes() == [outcome, outcome, DELETED]
        assert world.states(*orders, *payments) == [FINISHED, FINISHED, DELETE_FINISHED]

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
        meanwhile: Callable[[], object] = partial(supersede, world, old)
        if step is None:
            meanwhile()
        else:
            world.limiter.on_take = run_once(meanwhile)
        world.batch()
        assert world.states(old, other) == [DELETE_STARTED, DELETE_FINISHED]
        assert world.outcomes() == [SKIPPED, DELETED]
        assert world.objects() == 2 * 3

    def test_what_was_superseded_goes_once_its_hold_is_over(self, world):
        (old,) = world.copied(ORDERS, 1)
        passes(world, supersede(world, old))
        plan_superseded(world, old)
        world.batch()
        assert (world.states(old), world.outcomes(), world.objects()) == ([DELETE_FINISHED], [DELETED], 3)

    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (lambda world, new: log_of(world, new).unlink(), "has no log in the store"),
            (lose_the_indexes, "has no indexes in the store"),
            (cut, "has a log of 999 bytes"),
            (flip_a_byte, "with CRC-32C"),
            (lambda world, new: None, "has not passed verification: none"),
        ],
        ids=["log lost", "indexes lost", "log cut", "log changed", "not verified"],
    )
    def test_what_was_superseded_is_kept_until_the_copy_in_its_place_is_proved(self, world, damage, said):
        (old,) = world.copied(ORDERS, 1)
        new = supersede(world, old)
        if "verification" not in said:
            passes(world, new)
        damage(world, new)
        plan_superseded(world, old)
        result = world.batch()
        assert (world.states(old), world.outcomes(), result.deleted) == ([DELETE_STARTED], [SKIPPED], ())
        (item,) = result.held
        assert (item.error, said in item.message) == ("UnprovedReplacementError", True)
        assert len(world.storage.stat_log_segment(old)) == 3

    def test_a_copy_whose_verdict_expired_passed_once_and_holds_nothing(self, world):
        (old,) = world.copied(ORDERS, 1)
        new = supersede(world, old)
        passes(world, new)
        world.metadata.record_verdict(new.remote_log_segment_id, Verdict.EXPIRED)
        plan_superseded(world, old)
        assert (world.batch().held, world.states(old)) == ((), [DELETE_FINISHED])

    def test_of_a_chain_the_last_copy_counts(self, world):
        (old,) = world.copied(ORDERS, 1)
        second = supersede(world, old)
        third = supersede(world, second, 901)
        plan_superseded(world, old)
        assert len(world.batch().held) == 1
        passes(world, third)
        plan_superseded(world, old, "next")
        world.batch("next")
        assert world.states(old, second, third) == [DELETE_FINISHED, DELETE_STARTED, FINISHED]

    def test_once_retention_took_the_copy_in_its_place_nothing_holds_it(self, world):
        (old,) = world.copied(ORDERS, 1)
        new = supersede(world, old)
        world.plan([new], run_id="retention")
        world.batch("retention")
        plan_superseded(world, old)
        world.batch()
        assert (world.states(old, new), world.objects()) == ([DELETE_FINISHED] * 2, 0)

    def test_a_copy_that_went_otherwise_holds_it(self, world):
        """Its deletion raised no log start: nobody decided about these offsets."""
        (old,) = world.copied(ORDERS, 1)
        new = supersede(world, old)
        fence = expire_lease_of(world.engine, ORDERS, "other").fence
        world.metadata.advance_deletion(
            [world.metadata.segment(new.remote_log_segment_id).metadata],
            DELETE_STARTED,
            event_timestamp_ms=0,
            fence=fence,
        )
        world.release(fence)
        plan_superseded(world, old)
        assert "the log start has not passed its offsets" in world.batch().held[0].message

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
    assert world.metadata.retention_state(ORDERS).log_start_offset == segments[1].end_offset + 1
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
    world.release(fence)
    world.at[DeleteStep.RECORDED] = crash
    with pytest.raises(Crash):
        world.batch()
    assert world.states(*segments) == [FINISHED, FINISHED, DELETE_FINISHED]
