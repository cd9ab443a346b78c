"""Which segments a run verifies, and what that will cost. Pure: rows in, a plan out.

A sample names reasons; a FINISHED segment is taken for the first of `VerificationReason` that holds. With a limit the
most urgent come first, within a reason those whose verdict is oldest, and the others wait for the next run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.kafka.log_dirs.contract import matches
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_metadata import Depth, Verdict
from include.tiering.quotas.contract import QuotasInForce
from include.tiering.segments.contract import SegmentRow
from include.tiering.verification.turn import Turn, place_of
from include.tiering.verification.verification_contract import PlannedVerification, VerificationReason
from include.tiering.verification.verification_cost import CostOfReading, ReadCost, bytes_to_read

ABOUT_TO_EXPIRE: Final = 0.9
"""A verdict is due from this part of its age on, so that it is renewed before it expires."""

_URGENCY: Final = {reason: number for number, reason in enumerate(VerificationReason)}


@dataclass(frozen=True, slots=True)
class Sample:
    """Segments that are taken: those for which any of the members holds.

    Attributes:
        due: never verified, failed before, or a verdict that has expired or is about to.
        failed: failed before.
        older_than_ms: a verdict of this age or older, or none.
        turn: those whose turn it is.
        everything: all.
        topics: names or patterns; `partitions`: numbers. Of these alone, without any of all.
    """

    due: bool = False
    failed: bool = False
    older_than_ms: int | None = None
    turn: Turn | None = None
    everything: bool = False
    topics: tuple[str, ...] = ()
    partitions: frozenset[int] = frozenset()

    def is_about(self, partition: TopicIdPartition) -> bool:
        is_topic = not self.topics or matches(partition.topic, self.topics)
        return is_topic and (not self.partitions or partition.partition in self.partitions)


@dataclass(frozen=True, slots=True)
class VerificationPlan:
    """Segments by partition and start offset, and what reading them costs.

    `segments` FINISHED ones with `size_bytes` were looked at. `left_out` were chosen and are beyond the limit.
    """

    run_id: str
    depth: Depth
    planned: tuple[PlannedVerification, ...]
    cost: ReadCost
    segments: int
    size_bytes: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class _Chosen:
    row: SegmentRow
    reason: VerificationReason
    depth: Depth

    @property
    def planned_bytes(self) -> int:
        return bytes_to_read(self.row.metadata, self.depth)

    @property
    def urgency(self) -> tuple[int, int, int]:
        """The lowest is verified first. Among equals the place decides, so that no topic is always the last."""
        segment_id = self.row.metadata.remote_log_segment_id
        return _URGENCY[self.reason], self.row.verdict_at_ms or 0, place_of(segment_id)


def plan_verification(
    rows: Iterable[SegmentRow],
    sample: Sample,
    *,
    run_id: str,
    depth: Depth,
    quotas: QuotasInForce,
    now_ms: int,
    max_age_ms: int,
    limit_bytes: int | None = None,
    needs_deep: Callable[[SegmentRow], bool] = lambda _: False,
) -> VerificationPlan:
    """Choose among `rows`, which come by partition; those that are not FINISHED are passed over.

    `now_ms` is the database's, `limit_bytes` the most that is read; the first segment is always taken. `needs_deep` is
    asked of chosen segments that failed: one that a deep look convicted is read deep whatever `depth` says, since
    nothing else can acquit it.
    """
    chosen: list[_Chosen] = []
    segments = size_bytes = 0
    for row in rows:
        if not row.metadata.is_finished:
            continue
        segments += 1
        size_bytes += row.metadata.segment_size_bytes
        reason = reason_of(row, sample, now_ms=now_ms, max_age_ms=max_age_ms)
        if reason is not None:
            convicted = row.verdict is Verdict.FAILED and needs_deep(row)
            chosen.append(_Chosen(row, reason, Depth.DEEP if convicted else depth))
    taken = list(_within(limit_bytes, chosen))
    cost = CostOfReading()
    for one in taken:
        cost.add(one.row.metadata, one.depth)
    return VerificationPlan(
        run_id,
        depth,
        tuple(_planned(one) for one in _in_order(taken)),
        cost.total(quotas),
        segments,
        size_bytes,
        left_out=len(chosen) - len(taken),
    )


def reason_of(row: SegmentRow, sample: Sample, *, now_ms: int, max_age_ms: int) -> VerificationReason | None:
    """The first reason that holds, or None."""
    age_ms = None if row.verdict_at_ms is None else now_ms - row.verdict_at_ms
    is_expiring = row.verdict is Verdict.PASSED and age_ms is not None and age_ms >= max_age_ms * ABOUT_TO_EXPIRE
    is_old = sample.older_than_ms is not None and (age_ms is None or age_ms >= sample.older_than_ms)
    has_turn = sample.turn is not None and sample.turn.holds(row.metadata.remote_log_segment_id)
    holds = {
        VerificationReason.NEVER: sample.due and row.verdict is Verdict.NONE,
        VerificationReason.FAILED: (sample.due or sample.failed) and row.verdict is Verdict.FAILED,
        VerificationReason.EXPIRED: sample.due and row.verdict is Verdict.EXPIRED,
        VerificationReason.EXPIRING: sample.due and is_expiring,
        VerificationReason.OLD: is_old,
        VerificationReason.SHARE: has_turn,
        VerificationReason.ASKED: sample.everything,
    }
    return next((reason for reason, does in holds.items() if does), None)


def _within(limit_bytes: int | None, chosen: Sequence[_Chosen]) -> Iterator[_Chosen]:
    if limit_bytes is None:
        yield from chosen
        return
    left_bytes = limit_bytes
    for number, one in enumerate(sorted(chosen, key=lambda each: each.urgency)):
        left_bytes -= one.planned_bytes
        if number and left_bytes < 0:
            return
        yield one


def _in_order(chosen: Iterable[_Chosen]) -> list[_Chosen]:
    def place(one: _Chosen) -> tuple[str, str, int, int]:
        partition = one.row.metadata.topic_id_partition
        return partition.topic, str(partition.topic_id), partition.partition, one.row.metadata.start_offset

    return sorted(chosen, key=place)


def _planned(one: _Chosen) -> PlannedVerification:
    segment = one.row.metadata
    return PlannedVerification(
        segment.remote_log_segment_id, segment.start_offset, one.depth, one.reason, one.planned_bytes
    )
