"""Ingestion: what is stored, measured and reported."""

from collections.abc import Collection, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Engine

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.errors import MetadataTopicUnavailableError, StateConflictError
from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import segment_record, update_record
from include.tiering.kafka.metadata_topic.contract import OffsetBounds
from include.tiering.metadata_sync.ingest import IngestedPartition, Ingester, IngestReport, IngestStep
from include.tiering.metadata_sync.metrics import publish_ingest
from include.tiering.metadata_sync.report import present_ingest, question
from include.tiering.metadata_sync.service import IngestionService
from include.tiering.metadata_sync.sql_ingestion import SqlMetadataIngestion
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, Uuid
from include.tiering.segments.ingestion_contract import (
    BrokerSize,
    IngestPage,
    IngestPosition,
    MetadataTopicIdentity,
    RecordOutcome,
)
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles.databases import empty
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.partial import Partial
from tests.doubles.recorded_metrics import RecordedMetrics
from tests.doubles.segments import CLUSTER_ID, FINISHED, STARTED, partition_of, segment_of, update_of

# Reading the metadata topic: pages, what stops a partition, what passes, what is told.

PARTITION, OTHER = partition_of("orders", 0), partition_of("orders", 1)
A, B = segment_of(PARTITION, 1, 0, 99), segment_of(PARTITION, 2, 100, 199)
C = segment_of(OTHER, 3, 0, 99)


@pytest.fixture(scope="module")
def migrated() -> Iterator[Engine]:
    engine = open_engine("sqlite://")
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def ingestion(migrated: Engine) -> SqlMetadataIngestion:
    empty(migrated)
    return SqlMetadataIngestion(migrated, CLUSTER_ID)


@pytest.fixture
def metadata(migrated: Engine) -> SqlRemoteLogMetadata:
    return SqlRemoteLogMetadata(migrated, CLUSTER_ID)


@pytest.fixture
def topic() -> MemoryMetadataTopic:
    return MemoryMetadataTopic(2)


def append(
    topic: MemoryMetadataTopic, *told: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate, to: int = 0
) -> None:
    for one in told:
        record = segment_record(one) if isinstance(one, RemoteLogSegmentMetadata) else update_record(one)
        topic.append(to, encode(record))


def known(metadata: SqlRemoteLogMetadata) -> set[object]:
    rows = [row for partition in metadata.partitions() for row in metadata.list_segments(partition)]
    return {row.metadata.remote_log_segment_id for row in rows}


class WithoutLeaders(MemoryMetadataTopic):
    """Some partitions have no leader, so that not even their offsets are known."""

    leaderless: Collection[int] = ()
    waits: int = 0

    def offsets(self, partition: int, *, wait: bool = True) -> OffsetBounds:
        if wait and partition in self.leaderless:
            self.waits += 1
        if partition in self.leaderless:
            raise MetadataTopicUnavailableError("it has no leader just now")
        return super().offsets(partition)


def test_a_partition_whose_offsets_are_not_known_stops_none(
    ingestion: SqlMetadataIngestion, metadata: SqlRemoteLogMetadata
) -> None:
    topic = WithoutLeaders(2)
    append(topic, A)
    append(topic, C, to=1)
    topic.leaderless = {0}
    report = Ingester(topic, ingestion).run()
    assert [(one.metadata_partition, one.records, one.failed) for one in report.partitions] == [
        (0, 0, "it has no leader just now"),
        (1, 1, None),
    ]
    assert known(metadata) == {C.remote_log_segment_id}
    topic.leaderless = ()
    assert Ingester(topic, ingestion).run().failed == ()
    append(topic, B)
    topic.leaderless = {0}
    report = Ingester(topic, ingestion).run()
    assert [(one.next_offset, one.failed) for one in report.partitions] == [(1, "it has no leader just now"), (1, None)]
    topic.leaderless, topic.waits = {0, 1}, 0
    with pytest.raises(MetadataTopicUnavailableError):
        Ingester(topic, ingestion).run()
    assert topic.waits == 1, "only the first partition without a leader is waited for"


def test_a_second_reading_begins_only_with_all_partitions(ingestion: SqlMetadataIngestion) -> None:
    topic = WithoutLeaders(2)
    append(topic, A)
    Ingester(topic, ingestion).run()
    before = ingestion.positions()
    topic.leaderless = {1}
    with pytest.raises(MetadataTopicUnavailableError):
        Ingester(topic, ingestion).read_again()
    assert ingestion.positions() == before


def test_it_goes_on_where_it_was(ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic) -> None:
    append(topic, A, update_of(A, FINISHED))
    ingester = Ingester(topic, ingestion)
    assert [one.records for one in ingester.run().partitions] == [2, 0]
    append(topic, B)
    report = ingester.run()
    assert [(one.from_offset, one.next_offset, one.records) for one in report.partitions] == [(2, 3, 1), (0, 0, 0)]


def test_what_comes_while_it_reads_is_left_for_the_next_run(
    ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic
) -> None:
    append(topic, A)

    def one_more(step: IngestStep, _number: int) -> None:
        if step is IngestStep.BOUNDS_STORED:
            append(topic, B)

    report = Ingester(topic, ingestion, observe=one_more).run()
    assert (report.records, report.lag_records) == (1, 0)
    assert Ingester(topic, ingestion).run().records == 1


def test_a_record_that_stops_brokers_stops_its_partition_alone(
    ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic, metadata: SqlRemoteLogMetadata
) -> None:
    append(topic, A)
    topic.append(0, b"\x01\x63\x00")
    append(topic, B)
    append(topic, C, to=1)
    for _ in range(2):
        report = Ingester(topic, ingestion).run()
        (stopped,) = report.stopped
        assert (stopped.metadata_partition, stopped.next_offset, stopped.lag_records) == (0, 1, 2)
        assert "unknown api key 99" in (stopped.stopped or "")
        assert "every broker that reads this record stops" in (stopped.stopped or "")
        assert "kafka-delete-records" in (stopped.stopped or "")
    assert known(metadata) == {A.remote_log_segment_id, C.remote_log_segment_id}
    assert ingestion.positions()[0].stopped == stopped.stopped


def test_a_record_that_stops_brokers_by_what_they_know_stops_its_partition(
    ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic
) -> None:
    append(topic, A, update_of(A, STARTED), B)
    report = Ingester(topic, ingestion).run()
    assert report.partitions[0].next_offset == 1
    assert report.partitions[0].records == 1
    assert "no update makes a segment COPY_SEGMENT_STARTED" in (report.partitions[0].stopped or "")


def test_once_the_record_is_deleted_it_goes_on_only_after_a_decision(
    ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic, metadata: SqlRemoteLogMetadata
) -> None:
    append(topic, A)
    topic.append(0, b"broken")
    append(topic, B)
    ingester = Ingester(topic, ingestion)
    ingester.run()
    topic.forget_before(0, 2)
    assert "offsets 1..1 were not read" in (ingester.run().stopped[0].stopped or "")
    ingester.read_again()
    assert ingester.run().stopped == ()
    assert known(metadata) == {B.remote_log_segment_id}, "as a broker knows that starts now"
    assert all(position.is_complete for position in ingestion.positions())


def test_a_partition_without_a_leader_stops_none(
    ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic, metadata: SqlRemoteLogMetadata
) -> None:
    append(topic, A)
    append(topic, C, to=1)
    reads = iter([True, False])

    def away(call: str) -> None:
        if call == "read" and next(reads, False):
            raise MetadataTopicUnavailableError("no leader")

    topic.fault = away
    report = Ingester(topic, ingestion).run()
    assert [one.failed for one in report.partitions] == ["no leader", None]
    assert known(metadata) == {C.remote_log_segment_id}
    assert Ingester(topic, ingestion).run().failed == ()
    assert known(metadata) == {A.remote_log_segment_id, C.remote_log_segment_id}


def test_nothing_is_taken_over_before_everything_was_read(
    ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic
) -> None:
    append(topic, A)
    append(topic, C, to=1)
    reads = iter([False, True])

    def away(call: str) -> None:
        if call == "read" and next(reads, False):
            raise MetadataTopicUnavailableError("no leader")

    topic.fault = away
    assert Ingester(topic, ingestion).run().changes == ()
    assert len(Ingester(topic, ingestion).run().changes) == 1


def test_holes_are_passed_and_one_at_the_end_is_said(
    ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic
) -> None:
    append(topic, A)
    topic.leave_hole(0)
    append(topic, B)
    report = Ingester(topic, ingestion).run()
    assert (report.partitions[0].holes, report.partitions[0].ends_in_a_hole, report.findings) == (1, False, ())
    topic.leave_hole(0)
    report = Ingester(topic, ingestion).run()
    assert (report.partitions[0].next_offset, report.partitions[0].holes) == (4, 1)
    assert "a broker that starts now is not ready" in report.findings[0]


def test_two_that_read_at_once_lose_and_double_nothing(
    ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic, metadata: SqlRemoteLogMetadata
) -> None:
    append(topic, A, update_of(A, FINISHED), B)

    def overtaken(step: IngestStep, _number: int) -> None:
        if step is IngestStep.READ and ingestion.positions()[0].next_offset == 0:
            Ingester(topic, ingestion, page_records=2).run()

    report = Ingester(topic, ingestion, observe=overtaken).run()
    assert "was read up to 3, not 0" in (report.partitions[0].failed or "")
    assert known(metadata) == {A.remote_log_segment_id, B.remote_log_segment_id}
    assert ingestion.outcomes() == {0: {RecordOutcome.APPLIED: 3}}


def test_records_that_go_away_while_it_reads_are_missed_by_the_next_look(
    ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic
) -> None:
    append(topic, A, B)

    def removed(step: IngestStep, _number: int) -> None:
        if step is IngestStep.BOUNDS_STORED:
            topic.forget_before(0, 1)

    report = Ingester(topic, ingestion, observe=removed).run()
    assert "holds 1..2, not 0..2" in (report.partitions[0].failed or "")
    assert "offsets 0..0 were not read" in (Ingester(topic, ingestion).run().stopped[0].stopped or "")


def test_a_topic_that_changes_while_it_is_looked_at_is_looked_at_again(
    ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic
) -> None:
    def grown(call: str) -> None:
        if call == "offsets":
            topic.partitions = 3

    topic.fault = grown
    with pytest.raises(MetadataTopicUnavailableError, match="was replaced while"):
        Ingester(topic, ingestion).run()
    assert ingestion.positions() == []


def test_a_stale_page_is_refused(ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic) -> None:
    append(topic, A)
    Ingester(topic, ingestion).run()
    with pytest.raises(StateConflictError):
        ingestion.apply(IngestPage(0, 0, 1, ((0, A),)))


# How far the brokers' metadata topic was read, as gauges: partitions and outcomes without anything too.


def test_each_partition_and_each_outcome_has_its_number() -> None:
    recorder = RecordedMetrics()

    def shown(name: str, **labels: str) -> float | None:
        return recorder.get_sample_value(f"tiering_ingest_{name}", labels)

    positions = [
        IngestPosition(0, next_offset=40, end_offset=45, bounds_read_at_ms=1_700_000_000_250),
        IngestPosition(
            1, next_offset=9, end_offset=9, bounds_read_at_ms=1_600_000_000_000, stopped="a record is missing"
        ),
    ]
    outcomes = {
        0: {RecordOutcome.APPLIED: 30, RecordOutcome.UNUSABLE: 2},
        1: {RecordOutcome.APPLIED: 9},
    }
    publish_ingest(recorder, positions, outcomes)
    assert [shown("lag_records", metadata_partition=number) for number in "01"] == [5, 0]
    assert [shown("stopped", metadata_partition=number) for number in "01"] == [0, 1]
    assert shown("looked_timestamp_seconds") == 1_700_000_000.25
    assert [shown("records", outcome=outcome) for outcome in RecordOutcome] == [39, 0, 0, 2]


def test_before_the_first_look_the_time_is_0() -> None:
    recorder = RecordedMetrics()
    publish_ingest(recorder, [], {})
    assert recorder.get_sample_value("tiering_ingest_looked_timestamp_seconds") == 0
    assert recorder.get_sample_value("tiering_ingest_records", {"outcome": "applied"}) == 0


@pytest.mark.parametrize("is_readable", [True, False], ids=["readable", "unreadable"])
def test_a_reading_counts_as_ended_only_if_the_topic_could_be_read(
    ingestion: SqlMetadataIngestion, metadata: SqlRemoteLogMetadata, topic: MemoryMetadataTopic, is_readable: bool
) -> None:
    class Replaced(MemoryMetadataTopic):
        def partition_count(self) -> int:
            raise MetadataTopicUnavailableError("it is away")

    class LogDirs(Partial):
        def require_cluster(self) -> None:
            pass

    recorder = RecordedMetrics()
    service = IngestionService(
        topic=lambda: topic if is_readable else Replaced(2),
        ingestion=ingestion,
        metadata=metadata,
        log_dirs=LogDirs(),
        recorder=recorder,
    )
    with nullcontext() if is_readable else pytest.raises(MetadataTopicUnavailableError):
        service.run()
    ended = recorder.get_sample_value("tiering_last_run_timestamp_seconds", {"kind": "ingest"})
    assert (ended is not None) is is_readable
    assert recorder.get_sample_value("tiering_ingest_records", {"outcome": "applied"}) == 0


# What a person reads of the brokers' metadata topic: the question before it is read again, and how far it is.

TOPIC = MetadataTopicIdentity(Uuid(bytes(15) + b"\x07"), 3)


def position(partition: int) -> IngestPosition:
    return IngestPosition(partition, next_offset=5, end_offset=5, bounds_read_at_ms=0)


@pytest.mark.parametrize(
    ("bounds", "records", "gone"),
    [
        ({}, "0 records", None),
        ({0: OffsetBounds(0, 1)}, "1 record", None),
        ({0: OffsetBounds(0, 1_000), 1: OffsetBounds(0, 234)}, "1,234 records", None),
        ({0: OffsetBounds(0, 10), 1: OffsetBounds(1, 9)}, "18 records", "1 partition"),
        ({0: OffsetBounds(7, 10), 1: OffsetBounds(9, 9), 2: OffsetBounds(0, 4)}, "7 records", "2 partitions"),
    ],
)
def test_the_question_says_how_much_is_read_and_of_how_many_partitions_the_beginning_is_gone(
    bounds: dict[int, OffsetBounds], records: str, gone: str | None
) -> None:
    asked = question(None, [position(number) for number in range(3)], bounds)
    assert asked.startswith(f"Read all {records} of __remote_log_metadata again, as brokers do when they start?")
    if gone is None:
        assert asked.endswith("start?")
    else:
        assert asked.endswith(f"start? The beginning of {gone} was removed from the topic.")


def test_a_partition_that_was_never_read_lost_no_beginning() -> None:
    assert "removed from the topic" not in question(None, [position(0)], {0: OffsetBounds(0, 2), 1: OffsetBounds(3, 4)})


@pytest.mark.parametrize("known", [None, TOPIC])
def test_the_question_says_what_waits_until_a_known_topic_is_read_again(known: MetadataTopicIdentity | None) -> None:
    asked = question(known, [position(0)], {0: OffsetBounds(0, 2)})
    assert ("topics that brokers tier are not counted, verified or audited" in asked) is (known is not None)


def read(partition: int, records: int, lag: int = 0, **rest: Any) -> IngestedPartition:
    outcomes = {RecordOutcome.APPLIED: records - 1, RecordOutcome.UNKNOWN_SEGMENT: 1} if records else {}
    next_offset = 100 + records
    given = {"stopped": None, "failed": None} | rest
    return IngestedPartition(partition, 100, next_offset, next_offset + lag, records, 0, False, outcomes, **given)


def test_the_summary_counts() -> None:
    report = IngestReport(TOPIC, (read(0, 1_200), read(1, 34, 2_000), read(2, 0)), (), ())
    assert present_ingest(report).summary == "1,234 records of 3 partitions read, 2,000 not read yet"
    assert present_ingest(IngestReport(TOPIC, (read(0, 1),), (), ())).summary == (
        "1 record of 1 partition read, up to the end"
    )


def test_the_table_leaves_out_what_did_not_move() -> None:
    report = IngestReport(TOPIC, (read(0, 5), read(1, 0), read(2, 0, 3)), (), ())
    sizes = [BrokerSize(partition_of("orders", 1), 2_048, 4_096, 7)]
    partitions, by_brokers = present_ingest(report, sizes).tables()
    assert partitions.rows == (
        ("0", "5", "105", "105", "0", "1", "read"),
        ("2", "0", "100", "103", "3", "0", "read"),
    )
    assert by_brokers.rows == (("orders-1", "2.0 KiB", "4.0 KiB", "7"),)
