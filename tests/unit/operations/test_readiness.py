"""Readiness of a deployment and of partitions."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.copying.plan_replacements import plan_replacements
from include.tiering.copying.run_scope import RunScope
from include.tiering.errors import (
    ClusterMetadataError,
    ForeignStoreError,
    RemoteStorageError,
    RemoteStorageFullError,
    RemoteStorageUnavailableError,
    RemoteStoreMissingError,
    SettingError,
    SourceUnreadableError,
    StorePlaceUnknownError,
    TieringError,
)
from include.tiering.kafka.cluster.contract import PartitionMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import (
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    ScanError,
    ScanReport,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.operations.checks import Check, run_checks
from include.tiering.operations.readiness import (
    NotReady,
    PartitionReadiness,
    Readiness,
    partition_readiness,
)
from include.tiering.runs.contract import PlannedPartition, PlannedSegment
from include.tiering.segments.failed_copies import FailedCopy
from include.tiering.segments.topics import TopicDeletion
from tests.doubles.segments import segment_of, whole_replica

# Checks before a run: what stops it, what it can wait for, what it does without.


def fails(error: TieringError) -> Callable[[], str]:
    def probe() -> str:
        raise error

    return probe


@pytest.mark.parametrize(
    ("error", "waitable"),
    [
        (RemoteStorageError("denied"), True),
        (RemoteStorageFullError("full"), True),
        (RemoteStorageUnavailableError("busy"), True),
        (SourceUnreadableError("/d", "gone"), True),
        (ForeignStoreError("theirs"), False),
        (StorePlaceUnknownError("run migrate"), True),
        (RemoteStoreMissingError("no bucket"), False),
        (SettingError("wrong"), False),
    ],
)
def test_what_fails_stops_a_run_that_waits_if_that_can_help(error: TieringError, waitable: bool) -> None:
    readiness = Readiness(run_checks({"first": lambda: "fine", "second": fails(error)}))
    assert readiness.checks == (Check("first", True, True, "fine"), Check("second", False, waitable, str(error)))
    assert (readiness.ready, readiness.waitable) == (False, waitable)
    assert (readiness.missing, readiness.remarks) == ((f"second: {error}",), ())


def test_what_a_run_does_without_is_said_with_what_it_means() -> None:
    probes = {"disk": fails(SourceUnreadableError("/d", "gone"))}
    readiness = Readiness(run_checks(probes, does_without={"disk": "its bytes count as 0", "other": ""}))
    assert (readiness.ready, readiness.missing) == (True, ())
    assert readiness.remarks == ("disk: /d: gone; this run continues: its bytes count as 0",)


def test_nothing_is_remarked_of_what_is_there() -> None:
    readiness = Readiness(run_checks({"disk": lambda: "3 readable"}, does_without={"disk": "its bytes count as 0"}))
    assert (readiness.ready, readiness.remarks) == (True, ())


def test_a_wrong_setting_is_not_done_without() -> None:
    readiness = Readiness(run_checks({"disk": fails(SettingError("another cluster"))}, does_without={"disk": ""}))
    assert (readiness.ready, readiness.waitable, readiness.remarks) == (False, False, ())


# Which partitions may be worked on, from values alone.

EPOCHS = LeaderEpochs.of([(0, 0)])
ERROR = ScanError("/gone", None, "SourceUnreadableError", "permission denied")


def partition(number: int = 0, topic: str = "orders") -> TopicIdPartition:
    return TopicIdPartition(Uuid(topic.encode().ljust(16, b"\1")), number, topic)


def replica(
    number: int = 0,
    *,
    topic: str = "orders",
    reason: IneligibleReason | None = None,
    chosen: bool = True,
    broker_id: int = 1,
    owner_is_broker: bool = False,
) -> Replica:
    segment = LogSegment(0, 9, 100, 0, EPOCHS, False, reason)
    return whole_replica(
        ReplicaId(partition(number, topic), broker_id, "dir"),
        (segment,),
        10,
        leader_epochs=EPOCHS,
        leader_epoch=0,
        chosen=chosen,
        owner_is_broker=owner_is_broker,
    )


class Known:
    """Stands for metadata, registry and cluster metadata."""

    def __init__(self) -> None:
        self.complete = True
        self.remote: list[TopicIdPartition] = []
        self.stopped: dict[TopicIdPartition, str] = {}
        self.owners: dict[Uuid, TopicOwner] = {}
        self.topics: Mapping[Uuid, TopicMetadata] = {}
        self.removed: set[Uuid] = set()
        self.fails: Exception | None = None

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self.complete

    def partitions(self) -> list[TopicIdPartition]:
        return self.remote

    def stopped_reason(self, partition: TopicIdPartition) -> str | None:
        return self.stopped.get(partition)

    def owner(self, topic_id: Uuid) -> TopicOwner:
        return self.owners.get(topic_id, TopicOwner.NONE)

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        if self.fails is not None:
            raise self.fails
        return self.topics.get(topic_id)

    def topic_names(self) -> list[str]:
        if self.fails is not None:
            raise self.fails
        return [topic.topic for topic in self.topics.values()]

    def topic_named(self, name: str) -> TopicMetadata | None:
        if self.fails is not None:
            raise self.fails
        return next((topic for topic in self.topics.values() if topic.topic == name), None)

    def is_removed(self, topic_id: Uuid) -> bool:
        return topic_id in self.removed


@pytest.fixture
def known() -> Known:
    return Known()


def readiness_of(
    known: Known,
    *replicas: Replica,
    errors: tuple[ScanError, ...] = (),
    topics: Collection[str] = ("*",),
    paused: Collection[str] = (),
    **more: Any,
) -> dict[str, PartitionReadiness]:
    parts: Any = known
    found = partition_readiness(
        ScanReport("c", replicas, errors),
        scope=RunScope(tuple(topics)),
        metadata=parts,
        registry=parts,
        cluster_metadata=parts,
        paused=paused,
        **more,
    )
    return {str(one.topic_id_partition): one for one in found}


def test_a_partition_with_nothing_against_it_is_ready(known: Known) -> None:
    one = readiness_of(known, replica())["orders-0"]
    assert (one.ready, str(one)) == (True, "orders-0: ready")


@pytest.mark.parametrize("reason", [IneligibleReason.ACTIVE, IneligibleReason.ABOVE_HIGH_WATERMARK])
def test_segments_that_wait_are_the_plans_business(known: Known, reason: IneligibleReason) -> None:
    assert readiness_of(known, replica(reason=reason))["orders-0"].ready


@pytest.mark.parametrize("reason", [IneligibleReason.TOPIC_UNKNOWN, IneligibleReason.TOPIC_CONTRADICTED])
def test_metadata_that_are_missing_or_contradict(known: Known, reason: IneligibleReason) -> None:
    one = readiness_of(known, replica(reason=reason))["orders-0"]
    assert (one.reason, one.detail) == (NotReady.CLUSTER_METADATA, reason.message)


def test_what_is_left_of_a_deleted_topic_waits_for_nothing(known: Known) -> None:
    one = readiness_of(known, replica(reason=IneligibleReason.TOPIC_REMOVED))["orders-0"]
    assert (one.reason, one.detail) == (NotReady.DELETED, "nothing of it is remote")
    assert (one.ready, one.waits) == (False, False)


SEEN = TopicDeletion("orders", 1_767_225_600_000, "RemoveTopicRecord")


@pytest.mark.parametrize("how", ["removed", "recorded", "taken", "recorded, and nothing can be asked"])
def test_a_topic_is_deleted_by_a_positive_answer_alone(known: Known, how: str) -> None:
    known.remote = [partition()]
    assert readiness_of(known)["orders-0"].reason is NotReady.NO_LEADER_REPLICA
    deletions = {partition().topic_id: SEEN} if "recorded" in how else {}
    if how == "removed":
        known.removed = {partition().topic_id}
    if how == "taken":
        newer = Uuid(b"newer-topic-id-0")
        known.topics = {newer: TopicMetadata("orders", newer)}
    if "nothing" in how:
        known.fails = ClusterMetadataError("gone")
    one = readiness_of(known, deletions=deletions)["orders-0"]
    seen = "seen 2026-01-01 00:00:00 UTC; " if deletions else ""
    assert (one.reason, one.detail) == (NotReady.DELETED, seen + "its archive stays")
    one = readiness_of(known, deletions=deletions, expire_after_days=7)["orders-0"]
    assert one.detail == seen + "its archive stays for 7 days, then it is deleted after an approval"


def test_a_topic_that_is_there_is_not_deleted_whatever_was_recorded(known: Known) -> None:
    known.topics = {partition().topic_id: TopicMetadata("orders", partition().topic_id)}
    assert readiness_of(known, replica(), deletions={partition().topic_id: SEEN})["orders-0"].ready


def test_two_directories_with_one_partition(known: Known) -> None:
    twice = replica(reason=IneligibleReason.AMBIGUOUS_REPLICA, chosen=False)
    assert readiness_of(known, twice, twice)["orders-0"].reason is NotReady.CLUSTER_METADATA


def test_a_contradiction_beside_the_chosen_replica_does_not_matter(known: Known) -> None:
    twin = replica(reason=IneligibleReason.AMBIGUOUS_REPLICA, chosen=False, broker_id=2)
    assert readiness_of(known, replica(), twin)["orders-0"].ready


def test_only_followers_are_found(known: Known) -> None:
    follower = replica(reason=IneligibleReason.NOT_LEADER, chosen=False, broker_id=7)
    one = readiness_of(known, follower)["orders-0"]
    assert (one.reason, one.detail) == (
        NotReady.NO_LEADER_REPLICA,
        "only followers of it are found, on broker 7",
    )
    assert readiness_of(known, follower, errors=(ERROR,))["orders-0"].detail == "/gone: permission denied"


def test_partitions_are_known_by_their_remote_segments_and_by_the_cluster_metadata(known: Known) -> None:
    known.remote = [partition(1), partition(0, "audit"), partition(0, "unasked")]
    partition_metadata = {2: PartitionMetadata(2, 1, 0, (1,), (1,))}
    known.topics = {partition().topic_id: TopicMetadata("orders", partition().topic_id, {}, partition_metadata)}
    found = readiness_of(known, replica(), errors=(ERROR, ERROR), topics=("orders", "audit"))
    assert list(found) == ["audit-0", "orders-0", "orders-1", "orders-2"]
    missing = [name for name, one in found.items() if one.reason is NotReady.NO_LEADER_REPLICA]
    assert missing == ["audit-0", "orders-1", "orders-2"]
    assert found["orders-1"].detail == "/gone: permission denied and 1 more"


def test_metadata_that_cannot_be_read_add_nothing(known: Known) -> None:
    known.fails = ClusterMetadataError("gone")
    assert list(readiness_of(known, replica())) == ["orders-0"]


@pytest.mark.parametrize("reason", [IneligibleReason.COMPACTED, IneligibleReason.INTERNAL_TOPIC])
def test_topics_that_are_never_tiered_wait_for_nothing(known: Known, reason: IneligibleReason) -> None:
    assert readiness_of(known, replica(reason=reason)) == {}


def test_another_owner(known: Known) -> None:
    known.owners[partition().topic_id] = TopicOwner.HANDING_OVER
    assert readiness_of(known, replica())["orders-0"].detail == "owner: handing-over"
    known.owners.clear()
    one = readiness_of(known, replica(reason=IneligibleReason.BROKER_TIERED, owner_is_broker=True))["orders-0"]
    assert (one.reason, one.detail) == (NotReady.NOT_OURS, "owner: broker")


def test_a_stop_concerns_one_partition(known: Known) -> None:
    known.stopped[partition(0)] = "segment 0..9 failed Q102"
    found = readiness_of(known, replica(0), replica(1))
    assert (found["orders-0"].reason, found["orders-0"].detail) == (NotReady.STOPPED, "segment 0..9 failed Q102")
    assert found["orders-1"].ready


@pytest.mark.parametrize(("end_offset", "ready"), [(9, True), (8, False)])
def test_what_a_run_would_copy_anew_stops_nothing(known: Known, end_offset: int, ready: bool) -> None:
    known.stopped[partition()] = "segment 0..9 failed Q102"
    segment = segment_of(partition(), 1, 0, end_offset, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    again = plan_replacements(replica(), [FailedCopy(segment, "Q102")], max_attempts=1)
    planned = PlannedPartition(replica().replica_id, 0.0, again.segments)
    held_back = () if again.held_back is None else (again.held_back,)
    plan = CopyPlan("", (planned,) if again.segments else (), held_back, ())
    one = readiness_of(known, replica(), plan=plan)["orders-0"]
    assert (one.ready, one.reason) == (ready, None if ready else NotReady.STOPPED)


@pytest.mark.parametrize("reason", HeldBack)
def test_what_the_plan_holds_back_until_a_person_decides_is_not_ready(known: Known, reason: HeldBack) -> None:
    held_back = HeldBackPartition(partition(), 7, reason, "why")
    one = readiness_of(known, replica(), plan=CopyPlan("", (), (held_back,), ()))["orders-0"]
    assert (one.reason is NotReady.UNDECIDED) is held_back.needs_a_person
    assert one.ready is not held_back.needs_a_person
    assert one.ready or one.detail == f"from offset 7: {reason}: why"
    copied_first = PlannedPartition(replica().replica_id, 0.0, (PlannedSegment(0, 6, 1),))
    assert readiness_of(known, replica(), plan=CopyPlan("", (copied_first,), (held_back,), ()))["orders-0"].ready


@pytest.mark.parametrize(("paused", "way_out"), [("*", "./tiering resume"), ("a", "./tiering resume --topic a")])
def test_a_pause(known: Known, paused: str, way_out: str) -> None:
    found = readiness_of(known, replica(topic="a"), replica(topic="b"), paused=[paused])
    assert (found["a-0"].reason, found["a-0"].detail) == (NotReady.PAUSED, way_out)
    assert found["b-0"].ready is (paused == "a")


def test_metadata_comes_first(known: Known) -> None:
    known.complete = False
    known.stopped[partition()] = "x"
    assert readiness_of(known, replica())["orders-0"].reason is NotReady.METADATA


def test_what_a_person_must_decide_is_not_waited_for() -> None:
    assert {reason for reason in NotReady if not reason.retriable} == {
        NotReady.NOT_OURS,
        NotReady.STOPPED,
        NotReady.UNDECIDED,
        NotReady.DELETED,
    }


def test_the_same_name_under_another_id_is_another_partition(known: Known) -> None:
    other = replace(replica(), replica_id=ReplicaId(TopicIdPartition(Uuid(b"2" * 16), 0, "orders"), 1, "dir"))
    parts: Any = known
    found = partition_readiness(
        ScanReport("c", (replica(), other), ()),
        scope=RunScope(("*",)),
        metadata=parts,
        registry=parts,
        cluster_metadata=parts,
        paused=(),
    )
    assert len(found) == 2


def test_work_that_reads_no_log_needs_no_replica_and_no_running_copy(known: Known) -> None:
    known.remote = [partition(0), partition(1, "audit"), partition(0, "theirs"), partition(0, "quiet")]
    known.stopped[partition(0)] = "a segment failed"
    known.owners[partition(0, "theirs").topic_id] = TopicOwner.BROKER
    parts: Any = known
    found = partition_readiness(
        None, scope=RunScope(("*",)), metadata=parts, registry=parts, cluster_metadata=parts, paused=("quiet",)
    )
    assert [(one.topic_id_partition.topic, one.reason) for one in found] == [
        ("audit", None),
        ("orders", None),
        ("quiet", NotReady.PAUSED),
        ("theirs", NotReady.NOT_OURS),
    ]
    known.complete = False
    found = partition_readiness(
        None, scope=RunScope(("orders",)), metadata=parts, registry=parts, cluster_metadata=parts, paused=()
    )
    assert [one.reason for one in found] == [NotReady.METADATA]
