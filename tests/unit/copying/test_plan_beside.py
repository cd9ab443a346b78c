"""Plans about partitions that others copy, that are out of sight or whose history changed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.copying.next_segments import compacted_away, next_segments, with_compacted
from include.tiering.copying.plan import HeldBack, errors_about, partitions_out_of_sight
from include.tiering.copying.run_scope import RunScope
from include.tiering.errors import BrokersUnavailableError, OffsetOutOfRangeError, SourceVanishedError
from include.tiering.kafka.cluster.cluster_metadata import AdminClusterMetadata, UnknownClusterMetadata
from include.tiering.kafka.cluster.contract import ClusterMetadata
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import (
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    ScanError,
    ScanReport,
)
from include.tiering.model.histories import (
    Divergence,
    Followed,
    OffsetRange,
    SeenBy,
    SeenDivergence,
    SkippedOffsets,
    same_before,
)
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition, Uuid, Verdict
from include.tiering.reading.fetch import PartitionFetch, RecordReader
from include.tiering.segments.contract import PartitionRetentionState, SegmentRow
from include.tiering.segments.failed_copies import FailedCopy
from tests.doubles.log_dirs import BrokerLogDir
from tests.doubles.model_brokers import ModelBrokers
from tests.doubles.segments import FINISHED, partition_of, segment_of
from tests.doubles.tiered_topic import config_record, partition_record, topic_record
from tests.unit.copying.test_plan_copy import replica, segment

# What is next to be copied, where some of it was compacted: from values alone.

COMPACTED = IneligibleReason.COMPACTED_SEGMENT
ACTIVE = segment(400, 410, reason=IneligibleReason.ACTIVE)


class Known:
    """Stands for the metadata of one partition."""

    def __init__(self, copied: int | None = None, *skipped: tuple[int, int]) -> None:
        self.copied = copied
        self.skipped = [SkippedOffsets(OffsetRange(*one), "why", "me", 0) for one in skipped]

    def highest_copied_offset(self, _partition: object) -> int | None:
        return self.copied

    def skipped_offsets(self, _partition: object) -> Sequence[SkippedOffsets]:
        return self.skipped


def source(*reasons: IneligibleReason | None, log_start: int = 0) -> Replica:
    segments = [segment(100 * at, 100 * at + 99, reason=reason) for at, reason in enumerate(reasons)]
    return replace(replica("a", *segments, ACTIVE, log_start=log_start), was_compacted=True)


def bases(segments: Sequence[LogSegment]) -> list[int]:
    return [one.base_offset for one in segments]


@pytest.mark.parametrize(
    ("copied", "skipped", "expected"),
    [
        (None, [], [0, 100, 200]),
        (None, [(0, 99)], [100, 200]),
        (None, [(0, 199)], [200]),
        (None, [(0, 98)], [0, 100, 200]),
        (49, [(50, 99)], [100, 200]),
        (49, [(51, 99)], [0, 100, 200]),
        (49, [(50, 299)], [200]),
    ],
)
def test_only_whole_compacted_segments_are_left_out_by_decision(
    copied: int | None, skipped: list[tuple[int, int]], expected: list[int]
) -> None:
    known: Any = Known(copied, *skipped)
    assert bases(next_segments(source(COMPACTED, COMPACTED, None), copied, known)) == expected


def test_a_segment_that_is_whole_is_copied_whatever_was_decided() -> None:
    known: Any = Known(None, (0, 299))
    assert bases(next_segments(source(None, COMPACTED, None), None, known)) == [0, 100, 200]


def test_what_lies_below_the_log_start_is_not_asked_about() -> None:
    known: Any = Known(None, (50, 99))
    assert bases(next_segments(source(COMPACTED, None, log_start=50), None, known)) == [100]


@pytest.mark.parametrize(
    ("reasons", "copied", "offsets"),
    [
        ([COMPACTED, COMPACTED, None], None, (0, 199)),
        ([COMPACTED, None, COMPACTED], None, (0, 99)),
        ([COMPACTED, IneligibleReason.CORRUPT], 49, (50, 99)),
    ],
)
def test_all_that_lie_behind_each_other_are_one_decision(
    reasons: list[IneligibleReason | None], copied: int | None, offsets: tuple[int, int]
) -> None:
    made = source(*reasons)
    known: Any = Known(copied)
    held = compacted_away(made, next_segments(made, copied, known), copied, known, is_next=True)
    assert held is not None
    assert (held.reason, held.next_offset, held.hole) == (HeldBack.COMPACTED, offsets[0], offsets)
    behind = compacted_away(made, next_segments(made, copied, known), copied, known, is_next=False)
    assert behind is not None
    assert behind.hole is None
    assert compacted_away(made, made.segments[2:], copied, known, is_next=True) is None or reasons[2] is COMPACTED


@pytest.mark.parametrize(
    ("copied", "skipped", "offsets"),
    [
        (None, [(0, 39)], (40, 199)),
        (19, [(20, 39)], (40, 199)),
        (None, [(0, 39), (60, 79)], (40, 199)),
        (None, [(150, 199)], (0, 199)),
    ],
)
def test_what_is_decided_of_the_first_segment_already_is_not_asked_about_again(
    copied: int | None, skipped: list[tuple[int, int]], offsets: tuple[int, int]
) -> None:
    """The replica that led then rolled its segments elsewhere: a decision has to begin behind that one."""
    made, known = source(COMPACTED, COMPACTED, None), Known(copied, *skipped)
    metadata: Any = known
    held = compacted_away(made, next_segments(made, copied, metadata), copied, metadata, is_next=True)
    assert held is not None
    assert (held.next_offset, held.hole) == (offsets[0], offsets)


def looked(
    made: Replica, known: Any, *compacted: int, failed: Sequence[FailedCopy] = ()
) -> tuple[list[int], list[IneligibleReason | None]]:
    """What was looked into, and the reasons afterwards."""
    asked: list[int] = []

    def find_compacted(_replica_id: ReplicaId, segments: Sequence[LogSegment]) -> list[LogSegment]:
        asked.extend(bases(segments))
        return [one for one in segments if one.base_offset in compacted]

    copies = {made.topic_id_partition: failed}
    (found,) = with_compacted(ScanReport("c", (made,), ()), known, find_compacted, copies).replicas
    return asked, [one.reason for one in found.segments[:-1]]


def test_what_comes_next_is_looked_into_and_only_where_the_topic_was_compacted() -> None:
    made = source(None, None, None)
    assert looked(made, Known(99), 100) == ([100, 200], [None, COMPACTED, None])
    assert looked(replace(made, was_compacted=False), Known(99), 100) == ([], [None, None, None])
    assert looked(replace(made, chosen=False), Known(99), 100) == ([], [None, None, None])
    assert looked(made, Known(299)) == ([], [None, None, None])


def test_what_waits_for_another_reason_is_not_looked_into() -> None:
    above = IneligibleReason.ABOVE_HIGH_WATERMARK
    assert looked(source(None, COMPACTED, above), Known(), 0, 100) == ([0, 100], [COMPACTED, COMPACTED, above])
    assert looked(source(above, None), Known(), 0) == ([], [above, None])


@pytest.mark.parametrize(("end", "asked"), [(99, [0]), (98, [])])
def test_the_source_of_what_failed_is_looked_into_too(end: int, asked: list[int]) -> None:
    """Else it would be planned to be copied again for ever, and never could be."""
    made = source(None, None, None)
    copies = [FailedCopy(segment_of(made.topic_id_partition, 1, 0, end, {0: 0}, state=FINISHED), "Q102")]
    reasons = [COMPACTED if asked else None, None, None]
    assert looked(made, Known(299), 0, failed=copies) == (asked, reasons)
    assert looked(replace(made, was_compacted=False), Known(299), 0, failed=copies) == ([], [None, None, None])
    below = IneligibleReason.BELOW_LOG_START
    assert looked(source(below, None, None), Known(299), 0, failed=copies) == ([], [below, None, None])


def test_a_replica_that_went_away_is_left_as_it_was_seen() -> None:
    def gone(_replica_id: ReplicaId, _segments: Sequence[LogSegment]) -> list[LogSegment]:
        raise SourceVanishedError("/broker-1/a-0", "no such directory")

    known: Any = Known()
    report = ScanReport("c", (source(None),), ())
    assert with_compacted(report, known, gone) == report


# Which partitions of the cluster no readable directory leads, asked of brokers and of a metadata log.

CONFIGS = {
    "orders": {},
    "orders-eu": {"cleanup.policy": "delete"},
    "table": {"cleanup.policy": "compact"},
    "theirs": {"remote.storage.enable": "true"},
    "__consumer_offsets": {},
}
NOTHING_FOUND = ScanReport("c", (), ())


class Owned:
    """A registry in which every topic has the same owner."""

    def __init__(self, owner: TopicOwner = TopicOwner.PLATFORM) -> None:
        self._owner = owner

    def owner(self, _topic_id: Uuid) -> TopicOwner:
        return self._owner


def by_brokers(_directory: Path) -> ClusterMetadata:
    brokers = ModelBrokers()
    for name, configs in CONFIGS.items():
        brokers.create_topic(name, configs=configs)
    return AdminClusterMetadata(brokers, UnknownClusterMetadata())


def by_metadata_log(directory: Path) -> ClusterMetadata:
    log_dir = BrokerLogDir(directory / "broker-1")
    for number, (name, configs) in enumerate(CONFIGS.items()):
        topic_id = Uuid(bytes([number + 1]) * 16)
        log_dir.append_metadata(topic_record(name, topic_id), partition_record(topic_id))
        log_dir.append_metadata(*(config_record(name, key, value) for key, value in configs.items()))
    return MetadataLog([log_dir.path])


@pytest.mark.parametrize("metadata_log_of", [by_brokers, by_metadata_log])
@pytest.mark.parametrize(
    ("topics", "found"),
    [
        (("*",), ["orders-0", "orders-eu-0"]),
        (("orders",), ["orders-0"]),
        (("orders-*", "no-such-topic"), ["orders-eu-0"]),
        (("no-such-topic",), []),
        ((), []),
    ],
)
def test_what_the_cluster_has_of_the_topics_that_are_asked_for(
    tmp_path: Path, metadata_log_of: Any, topics: tuple[str, ...], found: list[str]
) -> None:
    registry: Any = Owned()
    cluster_metadata = metadata_log_of(tmp_path)
    cluster_metadata.refresh()
    missing = partitions_out_of_sight(NOTHING_FOUND, RunScope(topics), cluster_metadata, registry)
    assert [str(one) for one in missing] == found
    assert set(missing.values()) <= {"broker 1 leads it; no log directory in log_dirs holds it"}


@pytest.mark.parametrize(
    ("owner", "found"), [(TopicOwner.NONE, 1), (TopicOwner.HANDING_OVER, 0), (TopicOwner.BROKER, 0)]
)
def test_what_others_copy_is_not_missed(tmp_path: Path, owner: TopicOwner, found: int) -> None:
    registry: Any = Owned(owner)
    assert len(partitions_out_of_sight(NOTHING_FOUND, RunScope(("orders",)), by_brokers(tmp_path), registry)) == found


def test_a_topic_that_this_user_may_not_ask_about_hides_no_other() -> None:
    brokers = ModelBrokers()
    brokers.create_topic("orders")
    brokers.create_topic("secret")
    brokers.forbidden_topics.add("secret")
    registry: Any = Owned()
    cluster_metadata = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    missing = partitions_out_of_sight(NOTHING_FOUND, RunScope(("orders", "secret")), cluster_metadata, registry)
    assert [str(one) for one in missing] == ["orders-0"]


def test_brokers_that_do_not_answer_are_not_taken_for_brokers_without_topics() -> None:
    brokers = ModelBrokers()
    brokers.create_topic("orders")
    cluster_metadata = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    cluster_metadata.refresh()
    brokers.fail("topic_names", BrokersUnavailableError("no broker answers"))
    registry: Any = Owned()
    with pytest.raises(BrokersUnavailableError):
        partitions_out_of_sight(NOTHING_FOUND, RunScope(("*",)), cluster_metadata, registry)


def test_errors_of_its_own_directories_come_first_and_those_of_others_never() -> None:
    orders = TopicIdPartition(Uuid(b"1" * 16), 0, "orders")
    of_all = ScanError("/broker-3", None, "SourceUnreadableError", "permission denied")
    own = ScanError("/broker-1/orders-0/0.log", 0, "CorruptFileError", "damaged", "orders-0")
    others = [
        ScanError("/broker-1/orders-1/0.log", 0, "CorruptFileError", "damaged", "orders-1"),
        ScanError("/broker-1/evil", None, "HostileNameError", "no broker writes a file of this name", ""),
    ]
    assert errors_about(orders, [of_all, *others, own]) == [own, of_all]
    assert errors_about(orders, others) == []


# Which segment answers for an offset where the history that answers has no served copy of it.

PARTITION = partition_of("orders", 3)


def row(
    number: int,
    offsets: tuple[int, int],
    epochs: dict[int, int],
    history: int = 0,
    verdict: Verdict = Verdict.PASSED,
) -> SegmentRow:
    return SegmentRow(segment_of(PARTITION, number, *offsets, epochs, state=FINISHED), verdict, None, history=history)


def divergence(number: int, differs: int, followed: int | None) -> Divergence:
    seen = SeenDivergence(OffsetRange(differs, 299), (0,), (6,), SeenBy.PLAN)
    decided = None if followed is None else Followed(followed, "why", "me", 0)
    return Divergence(number, seen, 0, decided)


class Histories:
    """Metadata that knows these rows alone."""

    def __init__(
        self, rows: Sequence[SegmentRow], divergences: Sequence[Divergence], skipped: Sequence[OffsetRange] = ()
    ) -> None:
        self._rows, self._divergences = rows, divergences
        self._skipped = [SkippedOffsets(one, "why", "me", 0) for one in skipped]

    def retention_state(self, _: Any) -> PartitionRetentionState:
        return PartitionRetentionState()

    def divergences(self, _: Any) -> Sequence[Divergence]:
        return self._divergences

    def skipped_offsets(self, _: Any) -> Sequence[SkippedOffsets]:
        return self._skipped

    def partition_sizes(self, _: Any) -> Sequence[Any]:
        return [SimpleNamespace(leader_epochs=[SimpleNamespace(leader_epoch=epoch) for epoch in (0, 6)])]

    def list_segments(self, _: Any, epoch: int | None = None) -> Sequence[SegmentRow]:
        return [one for one in self._rows if epoch is None or epoch in dict(one.metadata.segment_leader_epochs)]

    def segment(self, segment_id: Any) -> SegmentRow | None:
        return next((one for one in self._rows if one.metadata.remote_log_segment_id == segment_id), None)


def found(metadata: Any, offset: int) -> Any:
    """The start of the segment that answers, or why none does."""
    reader: Any = RecordReader(metadata, None, None, None)  # type: ignore[arg-type]
    try:
        return reader.find(PartitionFetch(PARTITION, offset, 1_000)).start_offset
    except OffsetOutOfRangeError as error:
        return str(error)


OLD, FAILED_OLD = row(1, (30, 39), {0: 30}), row(1, (30, 39), {0: 30}, verdict=Verdict.FAILED)
WHOLE = row(2, (28, 59), {0: 28, 6: 35}, history=1)
AT_35, AT_38 = divergence(1, 35, 35), divergence(1, 35, 38)


def test_its_own_copy_answers_as_long_as_it_is_served():
    assert found(Histories([OLD, WHOLE], [AT_35]), 32) == 30


@pytest.mark.parametrize("rows", [[FAILED_OLD, WHOLE], [WHOLE]])
def test_else_a_later_one_that_was_copied_whole(rows: Sequence[SegmentRow]):
    assert [found(Histories(rows, [AT_35]), offset) for offset in (30, 34, 35)] == [28, 28, 28]


def test_not_one_that_is_not_served():
    unserved = row(2, (28, 59), {0: 28, 6: 35}, history=1, verdict=Verdict.NONE)
    assert "(30..39) is not served: its verdict is failed" in found(Histories([FAILED_OLD, unserved], [AT_35]), 32)
    assert "no segment in remote storage holds offset 32" in found(Histories([unserved], [AT_35]), 32)


@pytest.mark.parametrize("offset", [35, 37])
def test_not_with_the_records_of_the_source_below_where_it_is_followed(offset: int):
    assert "its verdict is failed" in found(Histories([FAILED_OLD, WHOLE], [AT_38]), offset)
    assert "no segment in remote storage" in found(Histories([WHOLE], [AT_38]), offset)
    assert found(Histories([FAILED_OLD, WHOLE], [AT_38]), 38) == 28


def test_not_under_another_leader_epoch_than_the_copy_that_failed():
    """What was seen to differ begins behind what somebody skipped before: nothing was compared there."""
    late = [divergence(1, 40, 38)]
    assert "its verdict is failed" in found(Histories([FAILED_OLD, WHOLE], late), 36)
    assert "36..39 were skipped" in found(Histories([WHOLE], late, [OffsetRange(36, 39)]), 36)


def test_a_history_before_answers_for_nothing():
    """After a second decision the newest one begins below the other one."""
    twice = [AT_35, divergence(2, 20, 20)]
    assert "no segment in remote storage holds offset 32" in found(Histories([OLD, WHOLE], twice), 32)


def test_the_lowest_offset_that_differs_between_two_histories_counts():
    known = [divergence(1, 35, 40), divergence(2, 20, 50), divergence(3, 10, None), divergence(4, 60, 60)]
    assert [same_before(0, later, known) for later in (0, 1, 2, 3, 4)] == [0, 35, 20, 20, 20]
    assert [same_before(2, later, known) for later in (1, 2, 3, 4)] == [0, 0, 0, 60]
