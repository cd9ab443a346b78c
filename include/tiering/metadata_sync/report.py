"""The reports of ingestion and publication.

The report of ingestion shows how far the brokers' metadata topic was read, and the sizes as brokers count them. The
report of publication shows how many records were, or would be, published about each partition.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC, OffsetBounds
from include.tiering.presentation import PartitionLabels, Presentation, Table, count, labels
from include.tiering.segments.ingestion_contract import BrokerSize, IngestPosition, MetadataTopicIdentity, RecordOutcome
from include.tiering.units import format_bytes

if TYPE_CHECKING:
    from include.tiering.metadata_sync.ingest import IngestedPartition, IngestReport
    from include.tiering.metadata_sync.plan_publication import PublicationPlan
    from include.tiering.metadata_sync.service import PublishedPartition

_PARTITION_COLUMNS: Final = ("metadata partition>", "records>", "read up to>", "end>", "lag>", "dropped>", "state")
_SIZE_COLUMNS: Final = ("partition", "RemoteLogSizeBytes>", "in all states>", "segments>")


class IngestedPartitionDocument(TypedDict):
    """One partition of the metadata topic. `end_offset` is exclusive; `outcomes` counts records by their effect.

    `stopped` says why reading stopped, if a person has to act; `failed`, if the next run may succeed.
    """

    metadata_partition: int
    from_offset: int
    next_offset: int
    end_offset: int
    lag_records: int
    records: int
    offsets_without_record: int
    outcomes: dict[str, int]
    stopped: str | None
    failed: str | None


class BrokerSizeDocument(PartitionLabels):
    """The remote log size as brokers count it (`bytes`); `all_states_bytes` has segments of all states."""

    bytes: int
    all_states_bytes: int
    segments: int


class IngestDocument(TypedDict):
    """What was read from the brokers' metadata topic; `remote_log_sizes` only with `--sizes`."""

    topic_id: str
    partitions: list[IngestedPartitionDocument]
    records: int
    lag_records: int
    findings: list[str]
    changes: list[str]
    remote_log_sizes: NotRequired[list[BrokerSizeDocument]]


class WithheldDocument(TypedDict):
    """The offset from which on nothing is published, and why."""

    offset: int
    reason: str


class PublishedPartitionDocument(PartitionLabels):
    """One partition: records sent, and the plan; numbers of the plan are 0 or null if an error prevented it.

    `remembered_end_offset` is the highest end that was ever published as finished, or will be by this plan: brokers
    then treat all offsets up to it as tiered, also after a deletion.
    """

    log_start_offset: int
    records: int
    planned_records: int
    published_before: int
    end_offset: int | None
    remembered_end_offset: int | None
    withheld: WithheldDocument | None
    refused: str | None
    error: str | None
    message: str | None


class PublicationDocument(TypedDict):
    """What was sent to the brokers' metadata topic, or would be."""

    dry_run: bool
    partitions: list[PublishedPartitionDocument]


def present_ingest(report: "IngestReport", sizes: Sequence[BrokerSize] | None = None) -> Presentation:
    """Present an ingestion. `sizes` is None if they were not requested. `ok` is False with a finding or a failure."""
    return Presentation(
        lambda: _ingest_document(report, sizes),
        lambda: _tables(report, sizes or ()),
        _ingest_summary(report),
        ok=not report.findings and not report.failed,
    )


def question(
    known: MetadataTopicIdentity | None, positions: Sequence[IngestPosition], bounds: dict[int, OffsetBounds]
) -> str:
    """Return the question before the whole topic is read again."""
    records = sum(bound.end - bound.begin for bound in bounds.values())
    gone = sum(1 for position in positions if bounds.get(position.metadata_partition, OffsetBounds(0, 0)).begin > 0)
    sentences = [f"Read all {count(records, 'record')} of {METADATA_TOPIC} again, as brokers do when they start?"]
    if known is not None:
        sentences.append(
            "Until that is done, topics that brokers tier are not counted, verified or audited. Segments of brokers"
            f" without a record in {METADATA_TOPIC} are removed from the metadata."
        )
    if gone:
        sentences.append(f"The beginning of {count(gone, 'partition')} was removed from the topic.")
    return " ".join(sentences)


def _ingest_summary(report: "IngestReport") -> str:
    read = f"{count(report.records, 'record')} of {count(len(report.partitions), 'partition')} read"
    parts = [read, f"{report.lag_records:,} not read yet" if report.lag_records else "up to the end"]
    parts += [f"{count(len(report.stopped), 'partition')} stopped"] if report.stopped else []
    parts += [f"{len(report.failed)} to be tried again"] if report.failed else []
    parts += [count(len(report.findings), "finding")] if report.findings else []
    return ", ".join(parts)


def _ingest_document(report: "IngestReport", sizes: Sequence[BrokerSize] | None) -> IngestDocument:
    document: IngestDocument = {
        "topic_id": str(report.topic.topic_id),
        "partitions": [_partition(partition) for partition in report.partitions],
        "records": report.records,
        "lag_records": report.lag_records,
        "findings": list(report.findings),
        "changes": list(report.changes),
    }
    if sizes is not None:
        document["remote_log_sizes"] = [
            {
                **labels(size.topic_id_partition),
                "bytes": size.size_bytes,
                "all_states_bytes": size.all_states_bytes,
                "segments": size.segments,
            }
            for size in sizes
        ]
    return document


def _partition(ingested_partition: "IngestedPartition") -> IngestedPartitionDocument:
    return {
        "metadata_partition": ingested_partition.metadata_partition,
        "from_offset": ingested_partition.from_offset,
        "next_offset": ingested_partition.next_offset,
        "end_offset": ingested_partition.end_offset,
        "lag_records": ingested_partition.lag_records,
        "records": ingested_partition.records,
        "offsets_without_record": ingested_partition.holes,
        "outcomes": {outcome.value: records for outcome, records in sorted(ingested_partition.outcomes.items())},
        "stopped": ingested_partition.stopped,
        "failed": ingested_partition.failed,
    }


def _tables(report: "IngestReport", sizes: Sequence[BrokerSize]) -> tuple[Table, ...]:
    """Return the tables that have rows.

    Partitions that had no new record, have no lag, and neither stopped nor failed, are left out.
    """
    moved = [
        partition
        for partition in report.partitions
        if partition.records or partition.lag_records or partition.stopped or partition.failed
    ]
    tables = (
        Table(METADATA_TOPIC, _PARTITION_COLUMNS, tuple(map(_ingest_row, moved))),
        Table("changes of topics and segments", ("change",), tuple((change,) for change in report.changes)),
        Table("findings", ("finding",), tuple((finding,) for finding in report.findings)),
        Table("as brokers count", _SIZE_COLUMNS, tuple(map(_size_row, sizes))),
    )
    return tuple(table for table in tables if table.rows)


def _ingest_row(ingested_partition: "IngestedPartition") -> tuple[str, ...]:
    dropped = sum(
        records for outcome, records in ingested_partition.outcomes.items() if outcome is not RecordOutcome.APPLIED
    )
    state = "stopped" if ingested_partition.stopped is not None else ingested_partition.failed or "read"
    numbers = (
        ingested_partition.metadata_partition,
        ingested_partition.records,
        ingested_partition.next_offset,
        ingested_partition.end_offset,
        ingested_partition.lag_records,
        dropped,
    )
    return (*map(str, numbers), state)


def _size_row(broker_size: BrokerSize) -> tuple[str, ...]:
    partition, sizes = str(broker_size.topic_id_partition), (broker_size.size_bytes, broker_size.all_states_bytes)
    return (partition, *map(format_bytes, sizes), str(broker_size.segments))


_PUBLICATION_COLUMNS: Final = ("partition", "log start>", "published before>", "records>", "up to offset>", "state")


def present_publication(partitions: Sequence["PublishedPartition"], *, dry_run: bool) -> Presentation:
    """Present a publication. `ok` is False if a partition was refused, failed, or stops before its last segment."""
    return Presentation(
        lambda: PublicationDocument(dry_run=dry_run, partitions=list(map(_publication_document, partitions))),
        lambda: (
            Table(
                "publication",
                _PUBLICATION_COLUMNS,
                tuple(_publication_row(partition, dry_run=dry_run) for partition in partitions),
            ),
        ),
        _publication_summary(partitions, dry_run=dry_run),
        ok=not any(_trouble(partition) for partition in partitions),
    )


def _publication_document(published_partition: "PublishedPartition") -> PublishedPartitionDocument:
    plan = published_partition.plan
    return {
        **labels(published_partition.topic_id_partition),
        "log_start_offset": published_partition.log_start_offset,
        "records": published_partition.records,
        "planned_records": 0 if plan is None else len(plan.steps),
        "published_before": 0 if plan is None else len(plan.live),
        "end_offset": None if plan is None else plan.end_offset,
        "remembered_end_offset": None if plan is None else plan.highest_recorded_end_offset,
        "withheld": _withheld(plan),
        "refused": None if plan is None else plan.refused,
        "error": published_partition.error,
        "message": published_partition.message,
    }


def _withheld(plan: "PublicationPlan | None") -> WithheldDocument | None:
    if plan is None or plan.withheld is None:
        return None
    return {"offset": plan.withheld.offset, "reason": plan.withheld.reason}


def _trouble(published_partition: "PublishedPartition") -> str:
    """Return the problem of a partition; empty without one."""
    if published_partition.error is not None:
        return f"{published_partition.error}: {published_partition.message}"
    if published_partition.plan is None:
        return ""
    if published_partition.plan.refused is not None:
        return f"refused: {published_partition.plan.refused}"
    withheld = published_partition.plan.withheld
    return "" if withheld is None else f"waits at offset {withheld.offset}: {withheld.reason}"


def _publication_row(published_partition: "PublishedPartition", *, dry_run: bool) -> tuple[str, ...]:
    plan = published_partition.plan
    end = None if plan is None else plan.end_offset
    records = len(plan.steps) if dry_run and plan is not None else published_partition.records
    return (
        str(published_partition.topic_id_partition),
        str(published_partition.log_start_offset),
        "" if plan is None else str(len(plan.live)),
        str(records),
        "" if end is None else str(end),
        _trouble(published_partition) or ("would be sent" if dry_run else "read back"),
    )


def _publication_summary(partitions: Sequence["PublishedPartition"], *, dry_run: bool) -> str:
    records = sum(
        len(partition.plan.steps) if dry_run and partition.plan is not None else partition.records
        for partition in partitions
    )
    amount = f"{count(records, 'record')} of {count(len(partitions), 'partition')}"
    troubles = sum(1 for partition in partitions if _trouble(partition))
    what = f"{amount} would be sent" if dry_run else f"{amount} sent and read back"
    return f"{what}, {count(troubles, 'partition')} with problems" if troubles else what
