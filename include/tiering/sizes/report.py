"""The reports of sizes.

The size report has the remote log size of each partition and leader epoch, lags, duplicate bytes and costs. The log dir
report has the format of `kafka-log-dirs.sh --describe`, with the remote tier added.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from operator import attrgetter
from typing import Any

from include.tiering.kafka.log_dirs.contract import error_document, error_tables
from include.tiering.model.segments import TopicIdPartition, Uuid, VerdictTotal
from include.tiering.model.sizes import CostEstimate, PartitionLag, PartitionSize
from include.tiering.presentation import Presentation, Table, TopicNames, count, labels
from include.tiering.sizes.compare import LogDirDescription, ReplicaSize, TierComparison
from include.tiering.sizes.documents import (
    CostDocument,
    DescribedLogDirDocument,
    DescribedReplicaDocument,
    LagDocument,
    LogDirsDocument,
    SizesDocument,
    VerdictDocument,
)
from include.tiering.units import Quantity, format_bytes, format_duration


@dataclass(frozen=True, slots=True)
class SizeReport:
    """Sizes, lags and costs.

    Attributes:
        sizes: of FINISHED segments, by partition.
        delete_lags: segments that wait for their deletion, by partition.
        tiers: None if the log dirs were not scanned.
        cost: None without prices.
        verdicts: totals of FINISHED segments by verdict; only segments with the verdict PASSED count as safe. Empty if
            the report is about some topics only.
        unread: partitions that brokers tier, and that are not in `sizes` because not all records in the brokers'
            metadata topic were read; each with the reason.
        stored: `PartitionStates.stored_bytes` of each partition in `sizes`; a partition that is left out has only
            FINISHED segments.
    """

    sizes: Sequence[PartitionSize]
    delete_lags: Sequence[PartitionLag] = ()
    tiers: TierComparison | None = None
    cost: CostEstimate | None = None
    verdicts: Sequence[VerdictTotal] = ()
    unread: Mapping[TopicIdPartition, str] = field(default_factory=dict)
    stored: Mapping[TopicIdPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicSize:
    """Sums over the partitions of one topic; the attributes mean what they mean in `PartitionSize`."""

    topic: str
    topic_id: Uuid
    partitions: int
    segments: int
    size_bytes: int
    stored_bytes: int


def topic_sizes(report: SizeReport) -> tuple[TopicSize, ...]:
    """Return the sums by topic, the largest first. Topics of the same name with different ids are apart."""
    sizes: dict[tuple[str, Uuid], list[PartitionSize]] = {}
    for size in report.sizes:
        partition = size.topic_id_partition
        sizes.setdefault((partition.topic, partition.topic_id), []).append(size)
    summed = (
        TopicSize(
            topic,
            topic_id,
            len(partitions),
            sum(size.segments for size in partitions),
            sum(size.size_bytes for size in partitions),
            sum(report.stored.get(size.topic_id_partition, size.size_bytes) for size in partitions),
        )
        for (topic, topic_id), partitions in sizes.items()
    )
    return tuple(sorted(summed, key=lambda size: (-size.size_bytes, size.topic, str(size.topic_id))))


def present_sizes(report: SizeReport, *, by_topic: bool = False) -> Presentation:
    """Present sizes. A segment that spans leader epochs counts once in its partition, and whole in each epoch.

    With `by_topic` the first table has a row for each topic, and the document also has the sums by topic.
    """
    total_bytes = sum(size.size_bytes for size in report.sizes)
    segments = sum(size.segments for size in report.sizes)
    words = [count(len(report.sizes), "partition"), count(segments, "segment"), format_bytes(total_bytes)]
    if report.verdicts:
        words.append(f"{format_bytes(_safe_bytes(report))} of it safe")
    if report.tiers is not None:
        words.append(f"{format_bytes(sum(lag.size_bytes for lag in report.tiers.copy_lags))} wait for a copy")
        if report.tiers.out_of_sight:
            words.append(f"{count(len(report.tiers.out_of_sight), 'partition')} with unknown copy lag")
    if report.cost is not None and report.cost.storage_per_month is not None:
        words.append(f"about {_money(report.cost.storage_per_month)} {report.cost.currency} a month")
    if report.unread:
        words.append(f"without {count(len(report.unread), 'partition')} that brokers tier")
    return Presentation(
        lambda: _document(report, by_topic=by_topic), lambda: _tables(report, by_topic=by_topic), ", ".join(words)
    )


def _document(report: SizeReport, *, by_topic: bool) -> SizesDocument:
    document: SizesDocument = {
        "partitions": [
            {
                **labels(size.topic_id_partition),
                "bytes": size.size_bytes,
                "stored_bytes": report.stored.get(size.topic_id_partition, size.size_bytes),
                "segments": size.segments,
                "leader_epochs": [
                    {"epoch": epoch.leader_epoch, "bytes": epoch.size_bytes, "segments": epoch.segments}
                    for epoch in size.leader_epochs
                ],
            }
            for size in report.sizes
        ],
        "delete_lag": _lag_documents(report.delete_lags),
        "cost": None if report.cost is None else _cost_document(report.cost),
    }
    if by_topic:
        document["topics"] = [
            {
                "topic": size.topic,
                "topic_id": str(size.topic_id),
                "partitions": size.partitions,
                "segments": size.segments,
                "bytes": size.size_bytes,
                "stored_bytes": size.stored_bytes,
            }
            for size in topic_sizes(report)
        ]
    if report.unread:
        document["unread"] = [{**labels(partition), "reason": why} for partition, why in report.unread.items()]
    if report.verdicts:
        document["safe_bytes"] = _safe_bytes(report)
        document["verdicts"] = [_verdict_document(total) for total in report.verdicts]
    if report.tiers is not None:
        document["copy_lag"] = _lag_documents(report.tiers.copy_lags)
        document["duplicates"] = [
            {**labels(duplicate.topic_id_partition), "local_bytes": duplicate.size_bytes}
            for duplicate in report.tiers.duplicates
        ]
        document["out_of_sight"] = [
            {**labels(partition), "detail": where} for partition, where in report.tiers.out_of_sight.items()
        ]
        document["errors"] = [error_document(error) for error in report.tiers.errors]
    return document


def _safe_bytes(report: SizeReport) -> int:
    return sum(total.size_bytes for total in report.verdicts if total.verdict.is_safe)


def _verdict_document(total: VerdictTotal) -> VerdictDocument:
    return {"verdict": str(total.verdict), "segments": total.segments, "bytes": total.size_bytes}


def _lag_documents(lags: Iterable[PartitionLag]) -> list[LagDocument]:
    return [
        {
            **labels(lag.topic_id_partition),
            "bytes": lag.size_bytes,
            "segments": lag.segments,
            "seconds": round(lag.seconds, 3),
        }
        for lag in lags
    ]


def _cost_document(cost: CostEstimate) -> CostDocument:
    """Return the amounts as text, because they are exact decimals."""
    return {
        "currency": cost.currency,
        "storage_per_month": _money_or_none(cost.storage_per_month),
        "writing": _money_or_none(cost.writing),
        "reading": _money_or_none(cost.reading),
        "deleting": _money_or_none(cost.deleting),
    }


def _money_or_none(amount: Decimal | None) -> str | None:
    return None if amount is None else _money(amount)


def _names(report: SizeReport) -> TopicNames:
    tiers = report.tiers or TierComparison()
    return TopicNames(
        (
            *(size.topic_id_partition for size in report.sizes),
            *(delete_lag.topic_id_partition for delete_lag in (*report.delete_lags, *tiers.copy_lags)),
            *(duplicate.topic_id_partition for duplicate in tiers.duplicates),
            *tiers.out_of_sight,
            *report.unread,
        )
    )


def _sizes_table(report: SizeReport, names: TopicNames, *, by_topic: bool) -> Table:
    if by_topic:
        sums = tuple(
            (
                names.topic(size.topic, size.topic_id),
                str(size.partitions),
                str(size.segments),
                format_bytes(size.size_bytes),
            )
            for size in topic_sizes(report)
        )
        return Table("remote log size", ("topic", "partitions>", "segments>", "bytes>"), sums)
    rows = tuple(
        (
            names.partition(size.topic_id_partition),
            str(size.segments),
            format_bytes(size.size_bytes),
            _by_epoch(size),
        )
        for size in report.sizes
    )
    return Table("remote log size", ("partition", "segments>", "bytes>", "by leader epoch"), rows)


def _by_epoch(size: PartitionSize) -> Quantity:
    """Return the sizes by leader epoch, in exact bytes for programs."""
    sizes = [(epoch.leader_epoch, format_bytes(epoch.size_bytes)) for epoch in size.leader_epochs]
    return Quantity(
        ", ".join(f"{epoch}: {size_bytes}" for epoch, size_bytes in sizes),
        ", ".join(f"{epoch}: {size_bytes.number}" for epoch, size_bytes in sizes),
    )


def _tables(report: SizeReport, *, by_topic: bool) -> tuple[Table, ...]:
    names = _names(report)
    sizes = _sizes_table(report, names, by_topic=by_topic)
    more = tuple(
        (names.partition(size.topic_id_partition), format_bytes(stored), format_bytes(stored - size.size_bytes))
        for size in report.sizes
        if (stored := report.stored.get(size.topic_id_partition, size.size_bytes)) != size.size_bytes
    )
    paid = (Table("stored and paid for", ("partition", "bytes>", "of it not served>"), more),) if more else ()
    deletes = (*paid, *_verdict_table(report.verdicts), *_lag_table("waits to be deleted", report.delete_lags, names))
    unread = tuple((names.partition(partition), why) for partition, why in report.unread.items())
    if unread:
        deletes = (Table("left out: brokers' records not read", ("partition", "why"), unread), *deletes)
    if report.tiers is None:
        return (sizes, *deletes)
    copies = _lag_table("waits to be copied", report.tiers.copy_lags, names)
    unseen = tuple((names.partition(partition), where) for partition, where in report.tiers.out_of_sight.items())
    if unseen:
        copies += (Table("copy lag unknown: leader's replica not readable", ("partition", "where"), unseen),)
    both = tuple(
        (names.partition(duplicate.topic_id_partition), format_bytes(duplicate.size_bytes))
        for duplicate in report.tiers.duplicates
        if duplicate.size_bytes
    )
    duplicates = (Table("both local and remote", ("partition", "bytes>"), both),) if both else ()
    return (sizes, *copies, *deletes, *duplicates, *error_tables(report.tiers.errors))


def _verdict_table(verdicts: Sequence[VerdictTotal]) -> tuple[Table, ...]:
    """Return a table of verdicts; no table if all segments have passed."""
    rows = tuple(
        (
            str(total.verdict),
            str(total.segments),
            format_bytes(total.size_bytes),
            "" if total.oldest_age_ms is None else format_duration(total.oldest_age_ms / 1000),
        )
        for total in verdicts
        if total.segments
    )
    if all(total.verdict.is_safe for total in verdicts if total.segments):
        return ()
    return (Table("verdicts", ("verdict", "segments>", "bytes>", "oldest>"), rows),)


def _lag_table(title: str, lags: Sequence[PartitionLag], names: TopicNames) -> tuple[Table, ...]:
    """Return a table of the partitions with waiting segments; no table without such partitions."""
    rows = tuple(
        (
            names.partition(lag.topic_id_partition),
            str(lag.segments),
            format_bytes(lag.size_bytes),
            format_duration(lag.seconds),
        )
        for lag in lags
        if lag.segments
    )
    return (Table(title, ("partition", "segments>", "bytes>", "waiting>"), rows),) if rows else ()


def _money(amount: Decimal) -> str:
    """Format with two decimals; amounts above 0 and below 1 have six."""
    return f"{amount:.2f}" if amount >= 1 or not amount else f"{amount:.6f}"


_VERSION = 1


def present_log_dirs(described: Sequence[LogDirDescription], remote: Sequence[PartitionSize]) -> Presentation:
    """Present the log dirs; not ok if a log dir cannot be read."""
    failed = sum(log_dir.log_dir.error is not None for log_dir in described)
    local_bytes = sum(replica.size_bytes for log_dir in described for replica in log_dir.replicas)
    remote_bytes = sum(size.size_bytes for size in remote)
    summary = (
        f"{count(len(described), 'log dir')}, {format_bytes(local_bytes)} local, {format_bytes(remote_bytes)} remote"
        + (f"; {failed} cannot be read" if failed else "")
    )
    return Presentation(
        lambda: _log_dirs_document(described, remote),
        lambda: (_log_dirs_table(described, remote),),
        summary,
        ok=not failed,
    )


def _log_dirs_document(described: Sequence[LogDirDescription], remote: Sequence[PartitionSize]) -> LogDirsDocument:
    by_broker = sorted(described, key=attrgetter("log_dir.broker_id"))
    return {
        "version": _VERSION,
        "brokers": [
            {"broker": broker_id, "logDirs": [_log_dir(log_dir) for log_dir in log_dirs]}
            for broker_id, log_dirs in groupby(by_broker, key=attrgetter("log_dir.broker_id"))
        ],
        "remote": [
            {
                "partition": str(size.topic_id_partition),
                "topicId": str(size.topic_id_partition.topic_id),
                "size": size.size_bytes,
                "segments": size.segments,
            }
            for size in remote
        ],
    }


def _log_dir(described: LogDirDescription) -> DescribedLogDirDocument:
    return {
        "logDir": described.log_dir.path,
        "error": described.log_dir.error,
        "partitions": [_partition(replica) for replica in described.replicas],
    }


def _partition(replica: ReplicaSize) -> DescribedReplicaDocument:
    return {
        "partition": str(replica.topic_id_partition),
        "size": replica.size_bytes,
        "offsetLag": replica.offset_lag,
        "isFuture": replica.is_future,
        "topicId": str(replica.topic_id_partition.topic_id),
        "remoteSize": replica.remote.size_bytes if replica.remote else 0,
        "remoteSegments": replica.remote.segments if replica.remote else 0,
    }


def _log_dirs_table(described: Sequence[LogDirDescription], remote: Sequence[PartitionSize]) -> Table:
    names = TopicNames(size.topic_id_partition for size in remote)
    for replica in (replica for log_dir in described for replica in log_dir.replicas):
        names.add(replica.topic_id_partition.topic, replica.topic_id_partition.topic_id)
    rows: list[tuple[str, ...]] = []
    listed = set()
    for log_dir in described:
        where = f"{log_dir.log_dir.broker_id}:{log_dir.log_dir.path}"
        if log_dir.log_dir.error is not None:
            rows.append((where, log_dir.log_dir.error, "", "", ""))
        for replica in log_dir.replicas:
            listed.add(replica.topic_id_partition)
            tier = replica.remote
            rows.append(
                (
                    where,
                    names.partition(replica.topic_id_partition),
                    format_bytes(replica.size_bytes),
                    str(replica.offset_lag),
                    format_bytes(tier.size_bytes) if tier else "",
                )
            )
    rows += [
        ("only remote", names.partition(size.topic_id_partition), "", "", format_bytes(size.size_bytes))
        for size in remote
        if size.topic_id_partition not in listed
    ]
    return Table("log dirs", ("broker:dir", "partition", "bytes>", "offset lag>", "remote>"), tuple(rows))


def breaks_critical_rule(difference: Mapping[str, Any]) -> bool:
    """Return whether a difference in the summary of a size run breaks a critical rule. Others are warnings."""
    return any(rule.get("severity", "critical") == "critical" for rule in difference["rules"])
