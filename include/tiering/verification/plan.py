"""The plan of a verification run: which segments, why, how deep, the estimated cost, and the outcome of each.

`plan_verification` makes a plan from rows, and does no I/O itself. A sample names reasons; a FINISHED segment is chosen
for the first reason of `VerificationReason` that applies. If there is a limit of bytes, the most urgent segments are
planned, within a reason those with the oldest verdict; the others wait for the next run. The plan estimates the cost
before the run starts: bytes, requests, and the time at the fetch quota.

`VerificationStore` stores the plan. A plan only says what to read and reserves nothing: a segment that is deleted
before it is verified becomes GONE, and two runs may verify the same segment, which only costs bytes.

**Rolling sample.** `RollingSample` takes a share of all segments in each period, and over time all of them. Each
segment has a fixed place on a circle of 2^64 places, derived from its id. Periods are numbered; each is an arc of the
share's length that begins where the previous arc ended:

    period 0 |---- 0.3 ----|
    period 1               |---- 0.3 ----|
    period 2                             |---- 0.3 ----|
    period 3 ---- 0.2 ---|                             |0.1-     it continues at the beginning

So, while share and period length stay the same, each segment is in the sample of at least one of any ceil(1 / share)
consecutive periods, whichever other segments are added or deleted. A period takes about this share of the bytes,
because places are spread evenly and do not depend on sizes.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final, Protocol, Self

from include.tiering.kafka.log_dirs.contract import matches
from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.reasons import Reason
from include.tiering.model.segments import (
    Depth,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Verdict,
)
from include.tiering.quotas.contract import QuotasInForce, Scope, fetch_scopes
from include.tiering.remote_storage.contract import ReadingCosts
from include.tiering.segments.contract import QualityResult, SegmentRow
from include.tiering.units import GIB
from include.tiering.verification.measures import RANGES_OF_LOG, bytes_to_read, bytes_to_read_back

PLAIN_OBJECTS: Final = ReadingCosts()

KEPT_PLANS_MS: Final = 30 * 24 * 60 * 60 * 1000
"""Age in milliseconds. Older plans are deleted when a new plan is stored."""


class VerificationReason(Reason):
    """Why a segment was chosen; the most urgent first."""

    NEVER = "never-verified", "never verified"
    FAILED = "failed-before", "failed before"
    EXPIRED = "expired", "verdict expired"
    EXPIRING = "expiring", "verdict about to expire"
    OLD = "older-than-asked", "verdict older than requested"
    SHARE = "rolling-sample", "rolling sample"
    ASKED = "asked", "requested"


class VerificationOutcome(StrEnum):
    """The outcome of one planned segment.

    PLANNED: there is none yet. GONE: the segment was no longer FINISHED when it was to be read or recorded. MISSING: a
    batch found it missing in the store, which is no verdict yet: the limits of the whole plan decide it afterwards.
    LOCKED: a batch could not decrypt it, because a private key is missing; it keeps its verdict, and the next plan that
    finds it due reads it again.
    """

    PLANNED = "planned"
    PASSED = "passed"
    FAILED = "failed"
    GONE = "gone"
    MISSING = "missing"
    LOCKED = "locked"


@dataclass(frozen=True, slots=True)
class PlanShare:
    """Part `number` (from 0) of `of` parts of a plan, which batches read at the same time.

    A part has consecutive segments in the order of the plan, so that it touches few partitions. All parts have about
    the same number of segments. They follow from the plan, which never changes: a retry has the same part.
    """

    number: int
    of: int

    def bounds(self, segments: int) -> tuple[int, int]:
        """Return the part's range of positions, begin inclusive and end exclusive, in a plan of `segments` segments."""
        return segments * self.number // self.of, segments * (self.number + 1) // self.of


SEGMENTS_OF_A_BATCH: Final = 16
"""A plan has one batch for this number of segments; for fewer small ones, a Spark job would not be worth its start."""

BYTES_OF_A_BATCH: Final = GIB
"""A plan has one batch for this number of bytes to read, if that makes more batches, but no more than segments."""


def batches_for(segments: int, read_bytes: int, *, at_most: int) -> int:
    """Return the number of batches of a plan: at least 1, at most `at_most`, and at most one for each segment."""
    wanted = max(-(-segments // SEGMENTS_OF_A_BATCH), min(segments, -(-read_bytes // BYTES_OF_A_BATCH)))
    return max(1, min(at_most, wanted))


@dataclass(frozen=True, slots=True)
class PlannedVerification:
    """One segment to verify. `planned_bytes` estimates the bytes to read that are charged to the fetch quota."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    depth: Depth
    reason: VerificationReason
    planned_bytes: int


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """The outcome of one segment, never PLANNED, and the bytes that were read for it."""

    segment_id: RemoteLogSegmentId
    outcome: VerificationOutcome
    read_bytes: int


@dataclass(frozen=True, slots=True)
class VerificationTotal:
    """How many segments of a run have one outcome, and their planned and read bytes."""

    outcome: VerificationOutcome
    segments: int
    planned_bytes: int
    read_bytes: int


class VerificationStore(Protocol):
    """Verification runs of one cluster.

    Every method may raise `MetadataUnavailableError`.
    """

    def save_plan(self, run_id: str, planned: Sequence[PlannedVerification]) -> None:
        """Store a plan, and delete plans older than `KEPT_PLANS_MS` by the database's clock.

        Idempotent for the same run id and plan.

        Raises:
            StateConflictError: the run has another plan or is of another kind.
        """
        ...

    def pending(self, run_id: str, *, at_most: int, share: PlanShare | None = None) -> Sequence[PlannedVerification]:
        """Return the first `at_most` segments that are still PLANNED, ordered by topic, partition and start offset.

        With `share`, only segments of this part of the plan. Segments with an outcome count when the parts are divided.
        """
        ...

    def planned(self, run_id: str, outcome: VerificationOutcome) -> Sequence[PlannedVerification]:
        """Return all segments with this outcome, ordered by topic, partition and start offset."""
        ...

    def broken_rules(self, run_id: str) -> Sequence[tuple[int, QualityResult]]:
        """Return the rules that segments of the run with the outcome PASSED or FAILED break now.

        Rules that another run found broken are among them. Each result is paired with the segment's start offset. The
        order is by topic, partition, start offset and rule.
        """
        ...

    def record(self, run_id: str, results: Sequence[VerificationResult]) -> None:
        """Store the outcomes of planned segments, all or none. Idempotent. A later outcome replaces an earlier one.

        MISSING and LOCKED are ignored for segments that are no longer PLANNED: a batch that is late does not undo a
        decision.

        Raises:
            StateConflictError: a segment is not in the plan.
        """
        ...

    def note_confirmed_losses(self, found: str, *, author: str) -> None:
        """Record as an event that `author` confirmed missing segments as lost; `found` describes them."""
        ...

    def totals(self, run_id: str) -> Sequence[VerificationTotal]:
        """Return the totals of each outcome, in the order of `VerificationOutcome`."""
        ...


PLACES: Final = 2**64
_MOST_DENOMINATOR: Final = 10**9


@dataclass(frozen=True, slots=True)
class RollingSample:
    """The arc of one period: `length` places from the place `first` (inclusive) on."""

    first: int
    length: int

    @classmethod
    def of(cls, share: float, period: int) -> Self:
        """Return the sample of one period. Raises ValueError unless `share` is above 0 and at most 1."""
        if not 0 < share <= 1:
            raise ValueError(f"share {share} is not above 0 and at most 1")
        exact = Fraction(share).limit_denominator(_MOST_DENOMINATOR)
        begin, end = (int(number * exact * PLACES) for number in (period, period + 1))
        return cls(begin % PLACES, end - begin)

    def holds(self, segment_id: RemoteLogSegmentId) -> bool:
        """Return whether this segment is in the sample."""
        return (place_of(segment_id) - self.first) % PLACES < self.length


def place_of(segment_id: RemoteLogSegmentId) -> int:
    """Return the place of a segment on the circle, 0 to 2^64 - 1."""
    return int.from_bytes(hashlib.blake2b(segment_id.id.value, digest_size=8).digest())


@dataclass(frozen=True, slots=True)
class ReadCost:
    """Estimated bytes to read and requests to send.

    Attributes:
        read_bytes: bytes that are charged to the fetch quota.
        requests: one for the attributes of each object, one for each object other than the log, one for each range of
            the log, and one for each object that is read back.
        seconds: the time at the fetch quota; None without a quota.
        read_back_bytes: bytes of objects that are read to compute checksums that the store does not keep. They are not
            charged.
    """

    read_bytes: int
    requests: int
    seconds: float | None
    read_back_bytes: int = 0


class CostOfReading:
    """Adds up the estimated cost of reading segments from a store with these `costs`."""

    def __init__(self, costs: ReadingCosts = PLAIN_OBJECTS) -> None:
        self._costs = costs
        self._read_back_bytes = 0
        self._bytes_by_scope: Counter[Scope] = Counter()
        self._read_bytes = 0
        self._requests = 0

    def add(
        self, segment: RemoteLogSegmentMetadata, depth: Depth, origin: SegmentOrigin = SegmentOrigin.PLATFORM
    ) -> None:
        objects = self._costs.objects
        size_bytes = bytes_to_read(segment, depth, log_chunk_bytes=self._costs.log_chunk_bytes)
        self._read_bytes += size_bytes
        self._requests += objects + (objects - 1) + RANGES_OF_LOG[depth]
        # Brokers send no CRC-32C of a whole object, so a bucket keeps none for their segments.
        if depth is Depth.SHALLOW and not (self._costs.keeps_checksums and origin is SegmentOrigin.PLATFORM):
            self._read_back_bytes += bytes_to_read_back(segment)
            self._requests += objects
        for scope in fetch_scopes(segment.broker_id, segment.topic_id_partition.topic):
            self._bytes_by_scope[scope] += size_bytes

    def total(self, quotas: QuotasInForce) -> ReadCost:
        return ReadCost(
            self._read_bytes, self._requests, seconds_at(quotas, self._bytes_by_scope), self._read_back_bytes
        )


def seconds_at(quotas: QuotasInForce, bytes_by_scope: Mapping[Scope, int]) -> float | None:
    """Return the seconds of the slowest quota scope; None if no scope has a quota.

    Each byte is charged to all of its scopes at the same time.
    """
    rates = ((size_bytes, quotas.of(scope)) for scope, size_bytes in bytes_by_scope.items())
    return max((size_bytes / rate for size_bytes, rate in rates if rate is not None), default=None)


ABOUT_TO_EXPIRE: Final = 0.9
"""A passed verdict is due from this fraction of its maximum age on, so that it is renewed before it expires."""

_URGENCY: Final = {reason: number for number, reason in enumerate(VerificationReason)}


@dataclass(frozen=True, slots=True)
class VerificationSample:
    """Which segments to choose: those for which any of the first five attributes applies.

    Attributes:
        due: segments without a verdict, or whose verdict is FAILED, EXPIRED, or PASSED and about to expire.
        failed: segments whose verdict is FAILED.
        older_than_ms: segments without a verdict, or with a verdict of this age (inclusive) or older.
        rolling_sample: the segments in this sample.
        everything: all segments.
        topics: names or patterns that restrict the choice; empty: all topics.
        partitions: partition numbers that restrict the choice; empty: all partitions.
    """

    due: bool = False
    failed: bool = False
    older_than_ms: int | None = None
    rolling_sample: RollingSample | None = None
    everything: bool = False
    topics: tuple[str, ...] = ()
    partitions: frozenset[int] = frozenset()

    def is_about(self, partition: TopicIdPartition) -> bool:
        is_topic = not self.topics or matches(partition.topic, self.topics)
        return is_topic and (not self.partitions or partition.partition in self.partitions)


@dataclass(frozen=True, slots=True)
class VerificationPlan:
    """Segments, in the order of partition and start offset, and the estimated cost of reading them.

    `segments` and `size_bytes` count all FINISHED segments from which the plan was chosen. `left_out` is the number of
    segments that were chosen but exceed the limit.
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
    log_chunk_bytes: int

    @property
    def planned_bytes(self) -> int:
        return bytes_to_read(self.row.metadata, self.depth, log_chunk_bytes=self.log_chunk_bytes)

    @property
    def urgency(self) -> tuple[int, int, int]:
        """Sort key: the lowest is planned first. The place breaks ties, so that no topic is always the last."""
        segment_id = self.row.metadata.remote_log_segment_id
        return _URGENCY[self.reason], self.row.verdict_at_ms or 0, place_of(segment_id)


def plan_verification(
    rows: Iterable[SegmentRow],
    sample: VerificationSample,
    *,
    run_id: str,
    depth: Depth,
    quotas: QuotasInForce,
    now_ms: int,
    max_age_ms: int,
    limit_bytes: int | None = None,
    needs_deep: Callable[[SegmentRow], bool] = lambda _: False,
    costs: ReadingCosts = PLAIN_OBJECTS,
    among: tuple[int, int] | None = None,
) -> VerificationPlan:
    """Choose segments to verify and estimate the cost.

    Args:
        rows: segments in any order; those that are not FINISHED are ignored.
        sample: which segments to choose.
        run_id: the run that gets the plan.
        depth: how deep the run reads segments.
        quotas: the fetch quotas, for the estimate of the run's duration.
        now_ms: the time by the database's clock.
        max_age_ms: age above which PASSED verdicts expire.
        limit_bytes: the most estimated bytes; the most urgent segment is planned even above it. None: no limit.
        needs_deep: called for chosen segments that failed; returns whether only a deep verification can clear the
            segment. It is then read deep, whatever `depth` is.
        costs: what reads from the store cost, see `RemoteStorage.reading_costs`.
        among: the number and the bytes of the FINISHED segments from which `rows` were selected; None: `rows` are all.
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
            failed_deep = row.verdict is Verdict.FAILED and needs_deep(row)
            chosen.append(_Chosen(row, reason, Depth.DEEP if failed_deep else depth, costs.log_chunk_bytes))
    taken = list(_within(limit_bytes, chosen))
    cost = CostOfReading(costs)
    for verification in taken:
        cost.add(verification.row.metadata, verification.depth, verification.row.origin)
    return VerificationPlan(
        run_id,
        depth,
        tuple(_planned(verification) for verification in _in_order(taken)),
        cost.total(quotas),
        *((segments, size_bytes) if among is None else among),
        left_out=len(chosen) - len(taken),
    )


def verdicts_to_read(
    sample: VerificationSample, *, now_ms: int, max_age_ms: int
) -> Mapping[Verdict, int | None] | None:
    """Return the verdicts for which the sample may choose a segment; None if it chooses all segments.

    Segments of the rolling sample, which have any verdict, are not considered. The value of a verdict is the latest
    time (inclusive) at which it may have been given; None if its time does not matter.
    """
    if sample.everything:
        return None
    wanted: dict[Verdict, int | None] = {}
    if sample.older_than_ms is not None:
        wanted = dict.fromkeys(Verdict, now_ms - sample.older_than_ms)
    if sample.due:
        expiring_ms = now_ms - int(max_age_ms * ABOUT_TO_EXPIRE)
        wanted[Verdict.PASSED] = max(expiring_ms, wanted.get(Verdict.PASSED) or expiring_ms)
        wanted |= dict.fromkeys((Verdict.NONE, Verdict.EXPIRED, Verdict.FAILED))
    return wanted | ({Verdict.FAILED: None} if sample.failed else {})


def reason_of(
    row: SegmentRow, sample: VerificationSample, *, now_ms: int, max_age_ms: int
) -> VerificationReason | None:
    """Return the first reason for which the sample chooses this segment; None if it does not."""
    age_ms = None if row.verdict_at_ms is None else now_ms - row.verdict_at_ms
    is_expiring = row.verdict is Verdict.PASSED and age_ms is not None and age_ms >= max_age_ms * ABOUT_TO_EXPIRE
    is_old = sample.older_than_ms is not None and (age_ms is None or age_ms >= sample.older_than_ms)
    is_sampled = sample.rolling_sample is not None and sample.rolling_sample.holds(row.metadata.remote_log_segment_id)
    holds = {
        VerificationReason.NEVER: sample.due and row.verdict is Verdict.NONE,
        VerificationReason.FAILED: (sample.due or sample.failed) and row.verdict is Verdict.FAILED,
        VerificationReason.EXPIRED: sample.due and row.verdict is Verdict.EXPIRED,
        VerificationReason.EXPIRING: sample.due and is_expiring,
        VerificationReason.OLD: is_old,
        VerificationReason.SHARE: is_sampled,
        VerificationReason.ASKED: sample.everything,
    }
    return next((reason for reason, does in holds.items() if does), None)


def _within(limit_bytes: int | None, chosen: Sequence[_Chosen]) -> Iterator[_Chosen]:
    if limit_bytes is None:
        yield from chosen
        return
    left_bytes = limit_bytes
    for number, choice in enumerate(sorted(chosen, key=lambda each: each.urgency)):
        left_bytes -= choice.planned_bytes
        if number and left_bytes < 0:
            return
        yield choice


def _in_order(chosen: Iterable[_Chosen]) -> list[_Chosen]:
    def place(chosen: _Chosen) -> tuple[str, str, int, int]:
        partition = chosen.row.metadata.topic_id_partition
        return partition.topic, str(partition.topic_id), partition.partition, chosen.row.metadata.start_offset

    return sorted(chosen, key=place)


def _planned(chosen: _Chosen) -> PlannedVerification:
    segment = chosen.row.metadata
    return PlannedVerification(
        segment.remote_log_segment_id, segment.start_offset, chosen.depth, chosen.reason, chosen.planned_bytes
    )
