"""A deep scan of real brokers' log directories against what Kafka's own tools say of them, segment by segment.

Which segments are eligible is decided a second time here, from the admin API's answers and the checkpoints as the
oracle read them, in the plainest possible way.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ScanReport
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from tests.doubles.broker_data import DataSet, broker_data, expected

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Copy:
    """One copy of log directories: where they lie, and where the oracle speaks of them."""

    data_set: DataSet
    snapshot: str
    brokers: tuple[str, ...] = ()
    directory: str = ""
    facts: str = "facts"

    def __str__(self) -> str:
        return "-".join([self.data_set, self.snapshot, *self.brokers])

    def paths(self) -> list[Path]:
        root = broker_data(self.data_set)
        if self.brokers:
            return [root / self.snapshot / broker for broker in self.brokers]
        return [root / (self.directory or self.snapshot)]

    def oracle(self) -> dict[tuple[int, str], dict[str, Any]]:
        """By (broker id, directory name)."""
        snapshot = expected(self.data_set)["snapshots"][self.snapshot]
        if self.brokers:
            by_broker = {int(broker[-1]): snapshot[broker]["partitions"] for broker in self.brokers}
        else:
            (broker_id,) = expected(self.data_set)["facts"]["brokers"]
            by_broker = {broker_id: snapshot["partitions"]}
        return {(broker, name): found for broker, all_of in by_broker.items() for name, found in all_of.items()}

    def topics(self) -> dict[str, Any]:
        return dict(expected(self.data_set)[self.facts]["topics"])

    def recovery_points(self, broker_id: int) -> dict[str, int]:
        """By directory name. The oracle has no checkpoints of the crash set: there the file is read as plain text."""
        name = "recovery-point-offset-checkpoint"
        snapshot = expected(self.data_set)["snapshots"][self.snapshot]
        checkpoints = (snapshot[f"broker-{broker_id}"] if self.brokers else snapshot).get("checkpoints")
        if checkpoints is not None:
            return dict(checkpoints[name])
        lines = [line.split() for line in (self.paths()[0] / name).read_text().splitlines()[2:]]
        return {f"{topic}-{partition}": int(offset) for topic, partition, offset in lines}

    def scan(self, *, deep: bool) -> ScanReport:
        source = LogDirSource([LogDirLocation(None, path) for path in self.paths()], MetadataLog(self.paths()))
        return source.scan(deep=deep)


COPIES = [
    *(
        Copy("public", snapshot, brokers)
        for snapshot in ("running", "stopped")
        for brokers in (("broker-1",), ("broker-2",), ("broker-1", "broker-2"))
    ),
    Copy("tiered", "running", directory="data-running"),
    Copy("tiered", "stopped", directory="data-stopped"),
    Copy("crash", "running"),
    Copy("crash", "killed"),
    Copy("crash", "recovered-stopped", facts="facts_after_recovery"),
]


@pytest.fixture(params=COPIES, ids=str)
def copy(request: pytest.FixtureRequest) -> Copy:
    found: Copy = request.param
    return found


@pytest.mark.parametrize("deep", [False, True], ids=["cheap", "deep"])
def test_every_segment_is_as_kafka_says(copy: Copy, deep: bool) -> None:
    report = copy.scan(deep=deep)
    assert report.errors == ()
    assert report.cluster_id == expected(copy.data_set)["facts"]["cluster_id"]
    oracle = copy.oracle()
    assert {_key(replica) for replica in report.replicas} == set(oracle)
    for replica in report.replicas:
        wanted = oracle[_key(replica)]
        assert [list(entry) for entry in replica.leader_epochs] == wanted["leader_epochs"]
        assert str(replica.topic_id_partition.topic_id) in wanted["partition_metadata"]
        assert [_as_found(segment) for segment in replica.segments] == [
            _as_wanted(segment, deep=deep) for segment in wanted["segments"]
        ], str(replica.replica_id)


def test_epochs_of_a_segment_are_those_of_its_batches(copy: Copy) -> None:
    """The history of a segment names every epoch that its batches carry, the first from its base offset on.

    Below a raised log start the history is cut, and compaction takes away batches but no history.
    """
    oracle = copy.oracle()
    for replica in copy.scan(deep=True).replicas:
        topic = copy.topics()[replica.topic_id_partition.topic]
        for segment, wanted in zip(replica.segments, oracle[_key(replica)]["segments"], strict=True):
            in_batches = {int(epoch) for epoch in wanted["leader_epoch_batches"]}
            in_history = {epoch for epoch, _ in segment.leader_epochs}
            if segment.base_offset < replica.leader_epochs.entries[0].start_offset:
                assert in_history <= in_batches | {replica.leader_epochs.entries[0].epoch}
            elif "compact" not in topic["configs"]["cleanup.policy"]:
                assert in_history == in_batches, f"{replica.replica_id} {segment.base_offset}"


def test_bounds_are_what_the_admin_api_said(copy: Copy) -> None:
    """All copies were made with high watermark checkpoints that had caught up."""
    for replica in copy.scan(deep=False).replicas:
        partition = replica.topic_id_partition
        offsets = copy.topics()[partition.topic]["partitions"][str(partition.partition)]["offsets"]
        assert replica.log_start_offset == offsets["earliest"]["offset"]
        assert replica.high_watermark == offsets["latest"]["offset"]
        assert replica.last_stable_offset == offsets["latest_read_committed"]["offset"]


def test_recovery_points_are_those_of_the_checkpoint(copy: Copy) -> None:
    for replica in copy.scan(deep=False).replicas:
        assert (
            replica.recovery_point
            == copy.recovery_points(replica.replica_id.broker_id)[str(replica.topic_id_partition)]
        )


def test_exactly_the_segments_that_the_metadata_allow_are_eligible(copy: Copy) -> None:
    report = copy.scan(deep=False)
    for replica in report.replicas:
        topic = copy.topics()[replica.topic_id_partition.topic]
        for segment in replica.segments:
            allowed = replica.chosen and _is_allowed(replica, segment, topic)
            assert segment.eligible == allowed, f"{replica.replica_id} {segment.base_offset}: {segment.reason}"
            assert (segment.reason is None) == segment.eligible


def test_the_leaders_replica_is_chosen(copy: Copy) -> None:
    """While the cluster runs that is the one the admin API names; a stopped one is chosen where it can be known."""
    report = copy.scan(deep=False)
    brokers = {broker for broker, _ in copy.oracle()}
    partitions = {replica.topic_id_partition for replica in report.replicas}
    for partition in partitions:
        chosen = [r for r in report.replicas if r.topic_id_partition == partition and r.chosen]
        facts = copy.topics()[partition.topic]["partitions"][str(partition.partition)]
        if copy.snapshot in ("running", "killed"):
            assert [r.replica_id.broker_id for r in chosen] == [b for b in [facts["leader"]] if b in brokers]
        elif brokers >= set(facts["replicas"]):
            assert len(chosen) == 1
            assert chosen[0].log_end_offset == facts["offsets"]["latest"]["offset"]


def test_the_preallocated_active_segment_ends_where_recovery_cut_it() -> None:
    before, after = Copy("crash", "killed").scan(deep=False), Copy("crash", "recovered-stopped").scan(deep=False)
    ends = [
        (replica.segments[-1].size_bytes, replica.log_end_offset)
        for report in (before, after)
        for replica in report.replicas
        if str(replica.topic_id_partition) == "prealloc-0"
    ]
    assert ends == [(32844, 450), (32844, 450)]


def test_topics_that_their_broker_tiers_are_left_to_it() -> None:
    report = Copy("tiered", "stopped", directory="data-stopped").scan(deep=False)
    reasons = {
        replica.topic_id_partition.topic: {segment.reason for segment in replica.segments}
        for replica in report.replicas
        if replica.topic_id_partition.topic.startswith("tier")
    }
    assert set(reasons) == {"tier-a", "tier-cut", "tier.tx", "tier_exp"}
    assert all(found == {IneligibleReason.BROKER_TIERED} for found in reasons.values())


def _key(replica: Replica) -> tuple[int, str]:
    return replica.replica_id.broker_id, str(replica.topic_id_partition)


def _as_found(segment: LogSegment) -> dict[str, Any]:
    return {
        "base_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "size_bytes": segment.size_bytes,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "active": segment.active,
        "batches": segment.batch_count,
    }


def _as_wanted(segment: dict[str, Any], *, deep: bool) -> dict[str, Any]:
    return {
        "base_offset": segment["base_offset"],
        "end_offset": segment["last_offset"] if segment["active"] else segment["end_offset"],
        "size_bytes": segment["valid_bytes"],
        "max_timestamp_ms": segment["max_timestamp"],
        "active": segment["active"],
        "batches": segment["batches"] if deep else None,
    }


def _is_allowed(replica: Replica, segment: LogSegment, topic: dict[str, Any]) -> bool:
    offsets = topic["partitions"][str(replica.topic_id_partition.partition)]["offsets"]
    return (
        not segment.active
        and not topic["internal"]
        and not replica.topic_id_partition.topic.startswith("__")
        and "compact" not in topic["configs"]["cleanup.policy"]
        and topic["configs"]["remote.storage.enable"] == "false"
        and offsets["earliest"]["offset"] <= segment.end_offset
        and segment.end_offset < offsets["latest"]["offset"]
        and segment.end_offset < offsets["latest_read_committed"]["offset"]
        and segment.end_offset < replica.recovery_point
    )
