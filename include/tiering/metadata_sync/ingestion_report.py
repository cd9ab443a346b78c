"""What was read of the brokers' metadata topic, how far it is, and what brokers know by it."""

from collections.abc import Sequence
from typing import Final

from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC, OffsetBounds
from include.tiering.metadata_sync.ingest_report import IngestedPartition, IngestReport
from include.tiering.presentation import Document, Presentation, Table, count, labels
from include.tiering.segments.ingestion_contract import (
    BrokerSize,
    IngestPosition,
    MetadataTopicIdentity,
    RecordOutcome,
)
from include.tiering.units import format_bytes

_PARTITION_COLUMNS: Final = ("metadata partition>", "records>", "read up to>", "end>", "lag>", "dropped>", "state")
_SIZE_COLUMNS: Final = ("partition", "RemoteLogSizeBytes>", "with every state>", "segments>")


def present_ingest(report: IngestReport, sizes: Sequence[BrokerSize] | None = None) -> Presentation:
    """`sizes`: None where they were not asked for. Not `ok`: a finding, or a partition that goes no further."""
    return Presentation(
        lambda: _document(report, sizes),
        lambda: _tables(report, sizes or ()),
        _summary(report),
        ok=not report.findings and not report.failed,
    )


def question(
    known: MetadataTopicIdentity | None, positions: Sequence[IngestPosition], bounds: dict[int, OffsetBounds]
) -> str:
    """What a person is to agree to before everything is read again."""
    records = sum(bound.end - bound.begin for bound in bounds.values())
    gone = sum(1 for one in positions if bounds.get(one.metadata_partition, OffsetBounds(0, 0)).begin > 0)
    sentences = [f"Read all {count(records, 'record')} of {METADATA_TOPIC} again, as brokers do when they start?"]
    if known is not None:
        sentences.append(
            "Until that is done, nothing of a broker's topic is expired, verified or audited; segments of brokers that"
            " the topic tells of no more are removed from the metadata."
        )
    if gone:
        sentences.append(f"The beginning of {count(gone, 'partition')} was removed from the topic.")
    return " ".join(sentences)


def _summary(report: IngestReport) -> str:
    read = f"{count(report.records, 'record')} of {count(len(report.partitions), 'partition')} read"
    told = [read, f"{report.lag_records:,} to go" if report.lag_records else "all there is"]
    told += [f"{count(len(report.stopped), 'partition')} stopped"] if report.stopped else []
    told += [f"{len(report.failed)} to be tried again"] if report.failed else []
    told += [count(len(report.findings), "finding")] if report.findings else []
    return ", ".join(told)


def _document(report: IngestReport, sizes: Sequence[BrokerSize] | None) -> Document:
    document: Document = {
        "topic_id": str(report.topic.topic_id),
        "partitions": [_partition(one) for one in report.partitions],
        "records": report.records,
        "lag_records": report.lag_records,
        "findings": list(report.findings),
        "changes": list(report.changes),
    }
    if sizes is not None:
        document["remote_log_sizes"] = [
            {
                **labels(one.topic_id_partition),
                "bytes": one.size_bytes,
                "all_states_bytes": one.all_states_bytes,
                "segments": one.segments,
            }
            for one in sizes
        ]
    return document


def _partition(one: IngestedPartition) -> Document:
    return {
        "metadata_partition": one.metadata_partition,
        "from_offset": one.from_offset,
        "next_offset": one.next_offset,
        "end_offset": one.end_offset,
        "lag_records": one.lag_records,
        "records": one.records,
        "offsets_without_record": one.holes,
        "outcomes": {outcome.value: records for outcome, records in sorted(one.outcomes.items())},
        "stopped": one.stopped,
        "failed": one.failed,
    }


def _tables(report: IngestReport, sizes: Sequence[BrokerSize]) -> tuple[Table, ...]:
    """Partitions that are as they were are left out."""
    moved = [one for one in report.partitions if one.records or one.lag_records or one.stopped or one.failed]
    tables = (
        Table(METADATA_TOPIC, _PARTITION_COLUMNS, tuple(map(_row, moved))),
        Table("what follows", ("change",), tuple((change,) for change in report.changes)),
        Table("findings", ("finding",), tuple((finding,) for finding in report.findings)),
        Table("as brokers count", _SIZE_COLUMNS, tuple(map(_size_row, sizes))),
    )
    return tuple(table for table in tables if table.rows)


def _row(one: IngestedPartition) -> tuple[str, ...]:
    dropped = sum(records for outcome, records in one.outcomes.items() if outcome is not RecordOutcome.APPLIED)
    state = "stopped" if one.stopped is not None else one.failed or "read"
    numbers = (one.metadata_partition, one.records, one.next_offset, one.end_offset, one.lag_records, dropped)
    return (*map(str, numbers), state)


def _size_row(one: BrokerSize) -> tuple[str, ...]:
    partition, sizes = str(one.topic_id_partition), (one.size_bytes, one.all_states_bytes)
    return (partition, *map(format_bytes, sizes), str(one.segments))
