"""Adoption: what goes on with what is known becomes a segment, everything else stays what it is, and says why."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from include.tiering.database.schema import events
from include.tiering.errors import RemoteStorageUnavailableError
from include.tiering.model.histories import OffsetRange, SeenBy, SeenDivergence
from include.tiering.model.ownership import Fence, LeaseRole, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata, Verdict
from include.tiering.recovery.adopt import Adoption, AdoptionPlan, AdoptionReport, AdoptionStep, plan_adoption
from include.tiering.recovery.sql_recovery import SqlMetadataRecovery
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage
from include.tiering.runs.contract import SegmentOutcome
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.doubles.segments import CLUSTER_ID, FINISHED, STARTED, delete, lease_of, update_of, uuid
from tests.doubles.storage_decorators import StorageDecorator, UnreadCopy
from tests.doubles.stored_log import StoredLog, new_database


class Killed(BaseException):
    """Passes every handler of the library, as a SIGKILL does."""


class Deployment:
    """A database that knows segment 0 of `orders-0`, and a store with whatever a test puts there."""

    def __init__(self, stored: StoredLog, engine: Engine) -> None:
        self.stored = stored
        self.engine = engine
        self.storage: RemoteStorage = stored.storage
        self.metadata = SqlRemoteLogMetadata(engine, CLUSTER_ID)
        self.registry = SqlTopicRegistry(engine, CLUSTER_ID)
        self.work = SqlWorkStore(engine, CLUSTER_ID)
        self.runs = 0
        self.known = stored.copy(0)
        self.finish(self.known)

    def fence(self) -> Fence:
        """Of a lease that has run out by now."""
        self.runs += 1
        return lease_of(self.engine, self.known.topic_id_partition, f"copy-{self.runs}", lease_ms=0).fence

    def finish(self, one: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        fence = self.fence()
        self.metadata.add_segment(one, fence=fence)
        return self.metadata.update_segment(update_of(one, FINISHED), expected=STARTED, fence=fence)

    def plan(self, *ids: RemoteLogSegmentMetadata) -> AdoptionPlan:
        wanted = [one.remote_log_segment_id.id for one in ids] or None
        return plan_adoption(self.storage, self.metadata, self.registry, wanted)

    def adopt(
        self,
        plan: AdoptionPlan,
        run_id: str = "adopt-1",
        observe: Callable[[AdoptionStep], None] = lambda step: None,
        lease_ms: int = 60_000,
    ) -> AdoptionReport:
        adoption = SqlMetadataRecovery(self.engine, CLUSTER_ID)
        task = Adoption(self.storage, self.metadata, adoption, self.work, observe, "me", lease_ms)
        return task.run(plan, run_id)

    def starts(self) -> list[int]:
        rows = self.metadata.list_segments(self.known.topic_id_partition)
        assert all(row.metadata.is_finished for row in rows)
        return [row.metadata.start_offset for row in rows]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with new_database() as engine:
        yield Deployment(StoredLog.at(tmp_path), engine)


def why(plan_or_report: AdoptionPlan | AdoptionReport) -> list[tuple[int | None, str, str]]:
    return [(one.start_offset, one.error, one.message) for one in plan_or_report.refused]


def test_what_a_database_that_was_set_back_has_forgotten_is_taken_in(deployment: Deployment) -> None:
    forgotten = [deployment.stored.copy(number) for number in (1, 2, 3)]
    plan = deployment.plan()
    assert ([one.metadata for one in plan.partitions[0].segments], plan.refused) == (forgotten, ())
    assert deployment.starts() == [0]
    report = deployment.adopt(plan)
    assert [one.metadata for one in report.adopted] == forgotten
    assert deployment.starts() == [0, 25, 50, 75]
    row = deployment.metadata.segment(forgotten[0].remote_log_segment_id)
    assert row is not None
    assert (row.verdict, row.metadata) == (Verdict.NONE, replace(forgotten[0], state=FINISHED))
    with deployment.engine.connect() as connection:
        authors = connection.execute(select(events.c.author).where(events.c.kind == "adoption")).scalars().all()
    assert authors == ["me"] * 3
    assert {item.outcome for item in deployment.work.items("adopt-1")} == {SegmentOutcome.COPIED}
    assert deployment.work.holder(deployment.known.topic_id_partition, LeaseRole.COPY) is None
    assert deployment.plan() == AdoptionPlan((), ())


def test_only_what_is_named_is_taken(deployment: Deployment) -> None:
    first, second, third = (deployment.stored.copy(number) for number in (1, 2, 3))
    assert [(start, error) for start, error, _ in why(deployment.plan(second))] == [(50, "StateConflictError")]
    assert why(deployment.adopt(deployment.plan(first, third)))[0][0] == 75
    assert deployment.starts() == [0, 25]


def test_another_topic_begins_where_its_copies_do(deployment: Deployment) -> None:
    deployment.stored.copy(7, topic="payments", partition=3)
    plan = deployment.plan()
    deployment.adopt(plan)
    partition = plan.partitions[0].topic_id_partition
    assert [row.metadata.start_offset for row in deployment.metadata.list_segments(partition)] == [175]
    assert deployment.registry.owner(partition.topic_id) is TopicOwner.NONE


def test_what_does_not_go_on_is_refused_with_the_reason(deployment: Deployment) -> None:
    overlapping = deployment.stored.copy(1, start_offset=20, seed="overlapping")
    behind_a_gap = deployment.stored.copy(4)
    broken = deployment.stored.copy(2)
    deployment.stored.object_path(broken, "log").write_bytes(b"short")
    tombstone = deployment.finish(deployment.stored.copy(1))
    delete(deployment.metadata, tombstone, deployment.fence())
    plan = deployment.plan()
    assert plan.partitions == ()
    assert {start: error for start, error, _ in why(plan)} == {
        overlapping.start_offset: "StateConflictError",
        behind_a_gap.start_offset: "StateConflictError",
        broken.start_offset: "RemoteChecksumError",
        25: "StateConflictError",
    }
    said = {start: message for start, _, message in why(plan)}
    assert "it does not begin after the last offset that was copied" in said[20]
    assert "no decision skips them" in said[100]
    assert said[25] == "the segment was deleted, and its id must not be used again"
    assert deployment.adopt(plan).refused == plan.refused
    assert deployment.work.items("adopt-1") == []


def test_what_is_known_and_what_is_nowhere_is_said_of_those_that_were_named(deployment: Deployment) -> None:
    assert deployment.plan() == AdoptionPlan((), ())
    nowhere = plan_adoption(deployment.storage, deployment.metadata, deployment.registry, [uuid(77)])
    assert [(one.segment_id, one.topic_id_partition, one.error) for one in nowhere.refused] == [
        (uuid(77), None, "UnknownSegmentError")
    ]
    assert why(deployment.plan(deployment.known)) == [
        (0, "UnknownSegmentError", "nothing to adopt: the metadata have it as COPY_SEGMENT_FINISHED")
    ]


@pytest.mark.parametrize("owner", [TopicOwner.BROKER, TopicOwner.HANDING_OVER])
def test_what_another_owner_stored_is_not_ours(deployment: Deployment, owner: TopicOwner) -> None:
    deployment.stored.copy(1)
    partition = deployment.known.topic_id_partition
    deployment.registry.set_owner(partition.topic_id, partition.topic, owner, expected=TopicOwner.NONE, author="me")
    assert [error for _, error, _ in why(deployment.plan())] == ["StateConflictError"]


def test_another_name_of_a_known_topic_is_refused(deployment: Deployment) -> None:
    deployment.stored.copy(1, topic="impostor", topic_id_of="orders")
    ((_, error, message),) = why(deployment.plan())
    assert (error, "is known as orders, its key says impostor" in message) == ("StateConflictError", True)


def test_a_copy_that_goes_on_meanwhile_is_not_overtaken(deployment: Deployment) -> None:
    deployment.stored.copy(1)
    plan = deployment.plan()
    deployment.finish(deployment.stored.copy(1, seed="new"))
    assert "was copied further meanwhile" in why(deployment.adopt(plan))[0][2]
    assert deployment.starts() == [0, 25]


def test_objects_that_go_away_meanwhile_end_their_partition(deployment: Deployment) -> None:
    first, second, _ = (deployment.stored.copy(number) for number in (1, 2, 3))
    plan = deployment.plan()
    deployment.stored.object_path(second, "indexes").unlink()
    report = deployment.adopt(plan)
    assert [one.metadata for one in report.adopted] == [first]
    assert [start for start, _, _ in why(report)] == [50, 75]
    assert "the copy before it was not adopted" in why(report)[1][2]


def test_a_stopped_partition_takes_none(deployment: Deployment) -> None:
    deployment.stored.copy(1)
    plan = deployment.plan()
    deployment.metadata.record_verdict(deployment.known.remote_log_segment_id, Verdict.FAILED, detail="Q101")
    assert "is stopped" in why(deployment.adopt(plan))[0][2]


@pytest.mark.parametrize("how", ["leased", "paused"])
def test_a_partition_that_somebody_works_on_is_left_to_them(deployment: Deployment, how: str) -> None:
    deployment.stored.copy(1)
    plan = deployment.plan()
    if how == "leased":
        lease_of(deployment.engine, deployment.known.topic_id_partition, "a copy")
    else:
        deployment.work.pause("orders", author="me")
    report = deployment.adopt(plan)
    assert (report.adopted, "leased by another run" in why(report)[0][2]) == ((), True)
    assert deployment.starts() == [0]


@pytest.mark.parametrize("step", AdoptionStep, ids=str)
def test_killed_at_any_step_it_leaves_no_half_segment(deployment: Deployment, step: AdoptionStep) -> None:
    for number in (1, 2):
        deployment.stored.copy(number)
    kept = deployment.stored.objects()

    def kill(now: AdoptionStep) -> None:
        if now is step:
            raise Killed

    with pytest.raises(Killed):
        deployment.adopt(deployment.plan(), observe=kill, lease_ms=0)
    assert deployment.starts() == ([0, 25] if step is AdoptionStep.ADOPTED else [0])
    deployment.adopt(deployment.plan(), "adopt-2")
    assert deployment.starts() == [0, 25, 50]
    assert deployment.stored.objects() == kept


def test_a_store_that_stops_to_answer_keeps_what_was_adopted(deployment: Deployment) -> None:
    for number in (1, 2):
        deployment.stored.copy(number)
    plan = deployment.plan()

    class Away(StorageDecorator):
        asked = 0

        def before(self, operation: str, detail: str) -> None:
            self.asked += operation == "fetch_manifest"
            if self.asked == 2:
                raise RemoteStorageUnavailableError("503")

    deployment.storage = Away(deployment.stored.storage)
    with pytest.raises(RemoteStorageUnavailableError):
        deployment.adopt(plan)
    assert deployment.starts() == [0, 25]
    assert deployment.work.holder(deployment.known.topic_id_partition, LeaseRole.COPY) is None


def test_nothing_is_adopted_behind_a_first_copy_that_was_only_begun(tmp_path: Path) -> None:
    """A backup that was made while it was under way: behind what is adopted nobody would copy its offsets again."""
    with new_database() as engine:
        stored, metadata = StoredLog.at(tmp_path), SqlRemoteLogMetadata(engine, CLUSTER_ID)
        begun, _ = stored.copy(0), stored.copy(1)
        metadata.add_segment(begun, fence=lease_of(engine, begun.topic_id_partition).fence)
        (manifest,) = [one for one in stored.storage.stat_log_segment(begun) if one.kind is ObjectKind.MANIFEST]
        (tmp_path / manifest.key).unlink()
        plan = plan_adoption(stored.storage, metadata, SqlTopicRegistry(engine, CLUSTER_ID), None)
        assert plan.partitions == ()
        _, (_, error, message) = why(plan)
        assert error == "StateConflictError"
        assert "offsets before it are missing" in message


def test_nothing_is_adopted_behind_a_first_copy_that_cannot_be_read(tmp_path: Path) -> None:
    """It may be whole. Behind what is adopted it could never be adopted itself."""
    with new_database() as engine:
        stored, metadata = StoredLog.at(tmp_path), SqlRemoteLogMetadata(engine, CLUSTER_ID)
        first, _, registry = stored.copy(0), stored.copy(1), SqlTopicRegistry(engine, CLUSTER_ID)
        plan = plan_adoption(UnreadCopy(stored.storage, "fetch_manifest", first), metadata, registry, None)
        assert plan.partitions == ()
        assert [error for _, error, _ in why(plan)] == ["RemoteAccessDeniedError", "StateConflictError"]
        assert plan_adoption(stored.storage, metadata, registry, None).segments == 2


def test_a_whole_copy_that_was_only_begun_is_adopted(deployment: Deployment) -> None:
    """Where its partition is gone from the source no copy run comes to it any more."""
    begun = deployment.stored.copy(1)
    deployment.metadata.add_segment(begun, fence=deployment.fence())
    deployment.stored.copy(2)
    report = deployment.adopt(deployment.plan())
    assert (len(report.adopted), report.refused) == (2, ())
    assert deployment.starts() == [0, 25, 50]
    assert deployment.metadata.segment(begun.remote_log_segment_id).verdict is Verdict.NONE


def test_while_a_divergence_waits_for_a_decision_nothing_is_adopted(deployment: Deployment) -> None:
    """Which history it would go on with is not known."""
    deployment.stored.copy(1)
    where = deployment.known.topic_id_partition
    registry = deployment.registry
    registry.set_owner(where.topic_id, where.topic, TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test")
    seen = SeenDivergence(OffsetRange(10, 24), (0,), (6,), SeenBy.PLAN)
    assert deployment.metadata.record_divergence(where, seen, history=0) is not None
    plan = deployment.plan()
    assert plan.partitions == ()
    assert "its partition waits for a decision: offsets 10..24" in plan.refused[0].message
