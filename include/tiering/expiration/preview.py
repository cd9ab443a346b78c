"""What another retention of a topic would delete, and when: the expiration's own decision, before anything is set.

`previewed` has `ExpirationPlanner` plan the same partitions several times: under the present retention and under the
one that is asked about, for now and for later times. Nothing is stored, claimed or deleted, and no log directory is
read: bytes that are only on brokers count as 0, so less is shown to expire by size than may expire, and the preview
says so. Later times assume that nothing more is copied meanwhile.

The plans share what they read (`_Remembered`), so they are about one state, and the statements of a preview follow the
number of its partitions and what would expire, not the size of the archive.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Any, Final, TypedDict, cast

from include.tiering.configs.config_store import RETENTION_BYTES, RETENTION_MS, ConfigEntity, EntityType, TopicRetention
from include.tiering.configs.rules import checked_changes
from include.tiering.errors import SettingError
from include.tiering.expiration.documents import UnknownDocument, WaitingDocument
from include.tiering.expiration.plan import ExpirationPlan, ExpirationPlanner, Unknown, WaitingPartition
from include.tiering.model.reasons import reason_members
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.model.sizes import PriceTable, estimate_cost
from include.tiering.presentation import PartitionLabels, Presentation, Table, TopicNames, count, labels
from include.tiering.runs.contract import WorkStore
from include.tiering.runs.deletion_limits import DeletionLimits
from include.tiering.runs.deletion_run import PlannedExpiration
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.units import format_bytes, format_duration

_DAY_MS: Final = 24 * 60 * 60 * 1000
HORIZONS_MS: Final = (0, 7 * _DAY_MS, 30 * _DAY_MS)
"""How many milliseconds from now a preview looks."""
MOST_NUMBERS: Final = 1_000
_PREVIEW: Final = "preview"


@dataclass(frozen=True, slots=True)
class Amount:
    """What would be deleted: segments and their bytes."""

    segments: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Horizon:
    """What would be gone `in_ms` milliseconds from now, under the present retention and under the one asked about."""

    in_ms: int
    present: Amount
    asked: Amount


@dataclass(frozen=True, slots=True)
class PreviewedPartition:
    """What the next run would delete of a partition under the retention asked about.

    `remote_bytes` are the FINISHED bytes of the partition now. The log starts are None if nothing would be deleted.
    """

    topic_id_partition: TopicIdPartition
    remote_bytes: int
    amount: Amount
    log_start_before: int | None = None
    log_start_offset: int | None = None


@dataclass(frozen=True, slots=True)
class RetentionPreview:
    """What another retention of a topic would delete. Both retentions are those of each partition.

    Attributes:
        topic: its name.
        as_of_ms: the time of the decisions, by the database's clock.
        present: the retention that is set now.
        asked: the retention that is asked about.
        partitions: the partitions that were decided about, by topic id and number.
        more_partitions: how many partitions of the topic were left out, whether they were asked about or not.
        stored_bytes: what is stored of each topic of this name, in any state, by its id.
        horizons: the sums over these partitions, the next run first.
        limits: up to which the next run may delete without an approval.
        unknowns: values that are not known, so that less is deleted.
        waiting: partitions that the next run would leave as they are, or delete less of, and why.
    """

    topic: str
    as_of_ms: int
    present: TopicRetention
    asked: TopicRetention
    partitions: tuple[PreviewedPartition, ...]
    more_partitions: int
    stored_bytes: Mapping[Uuid, int]
    horizons: tuple[Horizon, ...]
    limits: DeletionLimits
    unknowns: tuple[Unknown, ...] = ()
    waiting: tuple[WaitingPartition, ...] = ()

    @property
    def share(self) -> float:
        """Which part of the FINISHED bytes of these partitions the next run would delete, 0 to 1."""
        remote_bytes = sum(each.remote_bytes for each in self.partitions)
        return self.horizons[0].asked.size_bytes / remote_bytes if remote_bytes else 0.0

    @property
    def needs_approval(self) -> bool | None:
        """Whether the next run would wait for an approval because of these deletions; None if partitions were left out.

        What other topics lose, and what was deleted within 24 hours, counts in addition: it may need one even so.
        """
        size_bytes, share = self._counted
        return None if self.more_partitions else size_bytes > self.limits.min_bytes and share > self.limits.max_share

    @property
    def _counted(self) -> tuple[int, float]:
        """The deleted bytes and their share as the deletion limits count them: of a topic id, and of all stored bytes.

        Of several topic ids with this name, those of the one that needs an approval most.
        """
        deleted: Counter[Uuid] = Counter()
        for each in self.partitions:
            deleted[each.topic_id_partition.topic_id] += each.amount.size_bytes
        shares = ((size, size / max(1, size, self.stored_bytes.get(of, 0))) for of, size in deleted.items())
        return max(shares, key=lambda found: (found[0] > self.limits.min_bytes, found[1]), default=(0, 0.0))

    @property
    def approval_sentence(self) -> str:
        """Say whether the next run would wait for an approval, with the numbers."""
        (size_bytes, share), limits = self._counted, self.limits
        allowed = f"{limits.max_share:.1%} of a topic, or {format_bytes(limits.min_bytes)}, within 24 hours"
        if self.needs_approval is None:
            return f"Without an approval a run may delete {allowed}; partitions are left out, so it is not known here."
        if not self.horizons[0].asked.segments:
            return "The next run deletes nothing of it, which needs no approval."
        amount = f"{format_bytes(size_bytes)} are {share:.1%} of it"
        if self.needs_approval:
            return f"The next run would wait for an approval: {amount}, and without one a run may delete {allowed}."
        return (
            f"The next run needs no approval for this alone: {amount}, and it may delete {allowed}. What was deleted"
            " within 24 hours, and other topics, count in addition."
        )


def retention_asked(topic: str, present: TopicRetention, changes: Mapping[str, str | None]) -> TopicRetention:
    """Return the present retention with these changes, which are texts as `./tiering configs` accepts them.

    Raises:
        SettingError: a name is neither retention.ms nor retention.bytes, or a value is invalid.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if not given.keys() <= {RETENTION_MS, RETENTION_BYTES}:
        raise SettingError(f"a preview is of {RETENTION_MS} and {RETENTION_BYTES}")
    checked = checked_changes(ConfigEntity(EntityType.TOPICS, topic), given)
    asked = TopicRetention.of({name: value for name, value in checked.items() if value is not None})
    return replace(
        present,
        **({"retention_ms": asked.retention_ms} if RETENTION_MS in given else {}),
        **({"retention_bytes": asked.retention_bytes} if RETENTION_BYTES in given else {}),
    )


def partition_numbers(text: str) -> frozenset[int]:
    """Return the numbers that a text such as `0,3,7-9` names; none for an empty text, which means all.

    Raises:
        SettingError: the text is no list of numbers and ranges, or names more than `MOST_NUMBERS` partitions.
    """
    numbers: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        ends = [first, last if dash else first]
        if not all(end.isascii() and end.isdecimal() and len(end) <= 9 for end in ends) or int(ends[0]) > int(ends[1]):
            raise SettingError("partitions are numbers and ranges, such as 0,3,7-9")
        if len(numbers) + int(ends[1]) - int(ends[0]) >= MOST_NUMBERS:
            raise SettingError(f"at most {MOST_NUMBERS} partitions can be named")
        numbers.update(range(int(ends[0]), int(ends[1]) + 1))
    return frozenset(numbers)


class _Remembered:
    """Passes calls on, and remembers the answers by their arguments, which have to be hashable."""

    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        kept = cache(found) if callable(found) else _Remembered(found)
        setattr(self, name, kept)
        return kept


def previewed(
    planner: ExpirationPlanner,
    topic: str,
    asked: TopicRetention,
    *,
    now_ms: int,
    partitions: Sequence[TopicIdPartition],
    more_partitions: int,
    stored_bytes: Mapping[Uuid, int],
    limits: DeletionLimits,
) -> RetentionPreview:
    """Return what the retention `asked` would delete of these partitions of a topic.

    Args:
        planner: plans with the present retentions.
        topic: the name of the topic.
        asked: the retention that is asked about.
        now_ms: the database's time.
        partitions: the partitions of the topic to decide about.
        more_partitions: how many partitions of the topic were left out.
        stored_bytes: what is stored of each topic of this name, in any state, by its id.
        limits: up to which a run may delete without an approval.
    """
    present = planner.retentions.get(topic, TopicRetention())
    reading = replace(
        planner,
        metadata=cast("RemoteLogMetadata", _Remembered(planner.metadata)),
        registry=cast("TopicRegistry", _Remembered(planner.registry)),
        work=cast("WorkStore", _Remembered(planner.work)),
        held=cache(planner.held),
    )

    def plan(retention: TopicRetention, in_ms: int) -> ExpirationPlan:
        deciding = replace(reading, retentions={**planner.retentions, topic: retention})
        return deciding.plan(_PREVIEW, partitions, None, now_ms=now_ms + in_ms)

    by_horizon = {in_ms: (plan(present, in_ms), plan(asked, in_ms)) for in_ms in HORIZONS_MS}
    _, now = by_horizon[0]
    expirations = {planned.topic_id_partition: planned for planned in now.expirations}
    return RetentionPreview(
        topic,
        now_ms,
        present,
        asked,
        tuple(
            _previewed(partition, expirations.get(partition), _finished_bytes(planner.metadata, partition))
            for partition in partitions
        ),
        more_partitions,
        stored_bytes,
        tuple(Horizon(in_ms, _amount(before), _amount(after)) for in_ms, (before, after) in by_horizon.items()),
        limits,
        now.unknowns,
        now.waiting,
    )


def _finished_bytes(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> int:
    return sum(size.size_bytes for size in metadata.partition_sizes(partition))


def _amount(plan: ExpirationPlan) -> Amount:
    return Amount(plan.segments, plan.size_bytes)


def _previewed(partition: TopicIdPartition, planned: PlannedExpiration | None, remote_bytes: int) -> PreviewedPartition:
    if planned is None:
        return PreviewedPartition(partition, remote_bytes, Amount())
    amount = Amount(len(planned.deletions), sum(deletion.size_bytes for deletion in planned.deletions))
    return PreviewedPartition(partition, remote_bytes, amount, planned.log_start_before, planned.log_start_offset)


class RetentionDocument(TypedDict):
    """A retention of each partition; null is no limit."""

    retention_ms: int | None
    retention_bytes: int | None


class HorizonDocument(TypedDict):
    """What would be gone `in_ms` milliseconds from now.

    `present_segments` and `present_bytes` are under the present retention, `segments` and `bytes` under the one asked
    about. `saved_per_month` is the price of storing the difference for a month, an exact decimal as text.
    """

    in_ms: int
    present_segments: int
    present_bytes: int
    segments: int
    bytes: int
    saved_per_month: str | None


class PreviewedPartitionDocument(PartitionLabels):
    """What the next run would delete of a partition that has `remote_bytes`; log starts are null if that is nothing."""

    remote_bytes: int
    segments: int
    bytes: int
    log_start_before: int | None
    log_start_offset: int | None


class RetentionPreviewDocument(TypedDict):
    """What another retention of a topic would delete; nothing was set or deleted.

    `gib_month` is the price of `saved_per_month`, storage alone, as an exact decimal. `share` is the part of the remote
    bytes of these partitions that the next run would delete. `needs_approval` says whether that run would wait for an
    approval because of it, null if partitions are left out; `approval` says it in words, with the limits.
    """

    topic: str
    as_of_ms: int
    currency: str | None
    gib_month: str | None
    share: float
    needs_approval: bool | None
    approval: str
    present: RetentionDocument
    asked: RetentionDocument
    horizons: list[HorizonDocument]
    partitions: list[PreviewedPartitionDocument]
    more_partitions: int
    unknowns: list[UnknownDocument]
    waiting: list[WaitingDocument]


def preview_document(preview: RetentionPreview, prices: PriceTable) -> RetentionPreviewDocument:
    """Return the JSON of a preview."""
    cost = estimate_cost(0, 0, prices)
    return {
        "topic": preview.topic,
        "as_of_ms": preview.as_of_ms,
        "currency": None if cost is None or cost.storage_per_month is None else cost.currency,
        "gib_month": None if prices.gib_month is None else f"{prices.gib_month:f}",
        "share": preview.share,
        "needs_approval": preview.needs_approval,
        "approval": preview.approval_sentence,
        "present": _retention(preview.present),
        "asked": _retention(preview.asked),
        "horizons": [_horizon(horizon, prices) for horizon in preview.horizons],
        "partitions": [
            {
                **labels(each.topic_id_partition),
                "remote_bytes": each.remote_bytes,
                "segments": each.amount.segments,
                "bytes": each.amount.size_bytes,
                "log_start_before": each.log_start_before,
                "log_start_offset": each.log_start_offset,
            }
            for each in preview.partitions
        ],
        "more_partitions": preview.more_partitions,
        "unknowns": [{**labels(each.topic_id_partition), "message": each.sentence} for each in preview.unknowns],
        "waiting": [
            {**labels(each.topic_id_partition), **reason_members(each.reason), "detail": each.detail}
            for each in preview.waiting
        ],
    }


def _retention(retention: TopicRetention) -> RetentionDocument:
    return {"retention_ms": retention.retention_ms, "retention_bytes": retention.retention_bytes}


def _horizon(horizon: Horizon, prices: PriceTable) -> HorizonDocument:
    saved = _saved(horizon, prices)
    return {
        "in_ms": horizon.in_ms,
        "present_segments": horizon.present.segments,
        "present_bytes": horizon.present.size_bytes,
        "segments": horizon.asked.segments,
        "bytes": horizon.asked.size_bytes,
        "saved_per_month": None if saved is None else str(saved),
    }


def _saved(horizon: Horizon, prices: PriceTable) -> Decimal | None:
    cost = estimate_cost(horizon.asked.size_bytes - horizon.present.size_bytes, 0, prices)
    return None if cost is None else cost.storage_per_month


def present_preview(preview: RetentionPreview, prices: PriceTable) -> Presentation:
    """Present a preview; it is always `ok`, because it asks nothing of a person."""
    now = preview.horizons[0].asked
    summary = (
        f"the next run would delete {count(now.segments, 'segment')} ({format_bytes(now.size_bytes)}) of"
        f" {preview.topic}; nothing was set or deleted"
    )
    if preview.asked.retention_bytes is not None:
        summary += "; what is only on brokers counts for retention.bytes, too, so that a run may delete more"
    summary += "; it would wait for an approval" if preview.needs_approval else ""
    if preview.more_partitions:
        summary += f"; {count(preview.more_partitions, 'partition')} left out"
    return Presentation(lambda: preview_document(preview, prices), lambda: _tables(preview, prices), summary)


def _tables(preview: RetentionPreview, prices: PriceTable) -> tuple[Table, ...]:
    names = TopicNames(each.topic_id_partition for each in preview.partitions)
    horizons = tuple(
        (
            "the next run" if not horizon.in_ms else f"in {format_duration(horizon.in_ms / 1000)}",
            format_bytes(horizon.present.size_bytes),
            str(horizon.asked.segments),
            format_bytes(horizon.asked.size_bytes),
            "" if (saved := _saved(horizon, prices)) is None else f"{saved:.2f} {prices.currency}",
        )
        for horizon in preview.horizons
    )
    partitions = tuple(
        (
            names.partition(each.topic_id_partition),
            format_bytes(each.remote_bytes),
            str(each.amount.segments),
            format_bytes(each.amount.size_bytes),
            "" if each.log_start_offset is None else f"{each.log_start_before} to {each.log_start_offset}",
        )
        for each in preview.partitions
        if each.amount.segments
    )
    notes = (
        *((names.partition(wait.topic_id_partition), f"{wait.reason}: {wait.detail}") for wait in preview.waiting),
        *((names.partition(unknown.topic_id_partition), unknown.sentence) for unknown in preview.unknowns),
    )
    tables = (
        Table("gone by then", ("when", "bytes at present>", "segments>", "bytes>", "saved a month>"), horizons),
        Table("of the next run", ("partition", "remote bytes>", "segments>", "bytes>", "log start offset"), partitions),
        Table("less is deleted", ("partition", "why"), notes),
    )
    return tuple(table for table in tables if table.rows)
