"""Which remote log segments of a partition expire, in which order, and where the log starts afterwards. Pure.

The rules are those of Kafka's expiration task, in the newest version, with the differences named here:

1. *Unfinished deletes* first, at any offset (KAFKA-17428). A segment that failed verification and that a new copy
   replaced is among them as *superseded*: its objects are kept for `superseded_hold_ms` as evidence, then it expires.
2. *Abandoned copies* next: segments in COPY_SEGMENT_STARTED of a partition without a live copy lease, if the last event
   of the copy is `abandoned_copy_expiry_ms` old or older. A broker has no such rule. `copying.finish_abandoned` lists
   all rules for such copies.
3. A scan: leader epochs ascending, the segments of each by start offset, each segment once (KAFKA-15479). It ends, with
   all of its conditions, at an unfinished copy while the partition has a live copy lease
   (`RetentionInput.under_live_work`), and at a segment that the brokers' metadata topic has
   (`RetentionInput.published`). After the first segment within the lineage that meets no condition, only *log start*
   still applies: a broker ends its scan there, but a short segment that begins inside a longer one may be wholly below
   the log start although the longer one is not. Segments of a history that a decision replaced
   (`RetentionInput.left`) count as outside the lineage. To a segment outside the lineage only *log start* applies; if
   it stays, *time* and *size* still apply to the segments after it.
   Conditions for each segment, in order:
   a. *log start*: wholly below it, and of no later epoch than that of the log start;
   b. *time*: within the lineage, and largest timestamp < now - retention.ms (strictly: KAFKA-20091). If
      now - retention.ms is negative, no segment meets it (KAFKA-17995);
   c. *size*: within the lineage, FINISHED, and without this segment and those that it covers the total is still at or
      above retention.bytes. A segment covers the segments that end at or below its end. A broker subtracts only the
      segment itself: if copies overlap after a leader change, raising the log start past the covering segment deletes
      the covered segments as well, and less than retention.bytes remains.
4. *Unreferenced leader epochs*: all epochs of the segment are before that of the log start, and all offsets below it.
5. Time and size raise the log start to the end + 1 of the highest FINISHED segment that they delete (KAFKA-16890). Then
   steps 3 and 4 repeat until they find nothing more, as the next runs of a broker would do.

The total is local-only bytes plus FINISHED segments within the lineage that are not wholly below the log start, each
once. Unfinished copies (COPY_SEGMENT_STARTED) never count (KAFKA-17062), so size is no reason to delete them either. If
such a copy within the lineage stays, because it is not abandoned yet and meets neither *log start* nor *time*, then
*time* and *size* do not apply to the segments after it, as in a broker.

**A part of the log is enough.** Usually nothing but the oldest segments expires, and most segments of the log need not
be read for that (`RetentionInput.rest`). The decision about a part is the decision about the whole if, in each scan, a
segment of the part ended the conditions *time* and *size* before any segment of the rest would have been visited.
That is so if both hold:

- the first leader epoch under which this segment is listed is no later than any epoch of the rest, and the segment
  begins below the rest;
- the log start is not above the offset at which the rest may begin, so that *log start* and *unreferenced leader
  epochs* apply to no segment of the rest. Then no expired segment covers one of the rest either, since that would raise
  the log start above the end of the covered segment for the next scan.

Otherwise `RetentionOutcome.is_conclusive` is False, and the caller reads a larger part.

The log start and the leader epochs are the ARCHIVE'S: the decided log start and the epochs merged over time, not what a
broker still has. A raised log start or a truncated epoch cache of a broker is no input and no reason.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from include.tiering.model.histories import Lineage, with_records
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.retention import DeletionDecision, DeletionReason, Measured, RetentionInput, RetentionOutcome
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from include.tiering.segments.selected_segments import EpochExtent

_TOMBSTONE: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_RAISING: Final = (DeletionReason.TIME, DeletionReason.SIZE, DeletionReason.TOPIC_DELETED)


def decide_deletions(given: RetentionInput) -> RetentionOutcome:
    """Decide which segments expire now. Deciding again at the same time, after they are deleted, names none.

    If the deletion of the topic is due, every segment expires, unfinished deletes first, then by start offset. Only
    segments under live work, published ones (see `RetentionInput`), and superseded ones that are still held stay.

    Raises:
        ValueError: not all segments are given, although the topic's deletion is due or no leader epoch is known.
    """
    if given.rest is not None and (given.topic_deletion_due or not given.lineage.entries):
        raise ValueError(f"{given.topic_id_partition}: every segment matters, and some were not read")
    existing = [segment for segment in sorted(given.segments, key=_listing_order) if segment.state is not _TOMBSTONE]
    held = [segment for segment in existing if _is_held(given, segment)]
    segments = [segment for segment in existing if segment not in held]
    idle = [segment for segment in segments if not _is_bound(given, segment)]
    decisions = [*_unfinished_deletes(given, idle)]
    if not given.topic_deletion_due:
        decisions += _abandoned_copies(given, idle)
    remaining = [segment for segment in _without(segments, decisions) if not _is_being_deleted(segment)]
    log_start_offset = given.log_start_offset
    if given.topic_deletion_due:
        found = [_because_of_the_topic(segment) for segment in _without(idle, decisions)]
        return RetentionOutcome((*decisions, *found), _raised(log_start_offset, found), held=tuple(held))
    is_conclusive = is_changed = True
    while is_conclusive and is_changed:
        scan = _Scan(given, remaining, log_start_offset)
        found = scan.decisions()
        is_conclusive, is_changed = scan.is_conclusive, bool(found)
        decisions += found
        log_start_offset = _raised(log_start_offset, found)
        remaining = _without(remaining, found)
    unknowns = tuple(_unknowns(given, remaining))
    return RetentionOutcome(tuple(decisions), log_start_offset, unknowns, tuple(held), is_conclusive)


def is_one_lineage(history: LeaderEpochs, extents: Iterable[EpochExtent]) -> bool:
    """Return whether no segment is outside the history: all records of each epoch lie where the history has the epoch.

    Then, for any log start, every segment that ends at or above it is within the lineage that begins there.
    """
    entries = with_records(history).entries
    begins = {entry.epoch: entry.start_offset for entry in entries}
    ends = {entry.epoch: after.start_offset for entry, after in pairwise(entries)}
    return all(
        extent.epoch in begins
        and extent.lowest >= begins[extent.epoch]
        and (extent.epoch not in ends or extent.highest < ends[extent.epoch])
        for extent in extents
    )


class _Scan:
    """One scan as in a broker, over FINISHED segments and unfinished copies."""

    def __init__(
        self, given: RetentionInput, segments: Sequence[RemoteLogSegmentMetadata], log_start_offset: int
    ) -> None:
        self._given = given
        self._segments = segments
        self._log_start_offset = log_start_offset
        self._lineage = Lineage.of(
            given.lineage, log_start_offset=log_start_offset, log_end_offset=given.log_end_offset
        )
        self._cut_off_ms = _cut_off_ms(given)
        self._counted: list[RemoteLogSegmentMetadata] = []
        self._excess_bytes = self._excess()
        self.is_conclusive = given.rest is None

    def decisions(self) -> list[DeletionDecision]:
        """Return what this scan deletes, and set `is_conclusive`."""
        found = []
        is_kept = False
        for epoch, segment in self._visited():
            is_worked_on, was_kept = self._is_worked_on(segment), is_kept
            if not is_worked_on:
                decision = self._by_log_start(segment) if is_kept else self._decision(segment)
                if decision is not None:
                    found.append(decision)
                    continue
                is_kept = is_kept or self._holds(segment)
            if not was_kept and (is_worked_on or is_kept):
                self.is_conclusive = self.is_conclusive or self._is_before_rest(epoch, segment)
            if is_worked_on:
                break
        return [*found, *self._unreferenced()]

    def _is_before_rest(self, epoch: int, segment: RemoteLogSegmentMetadata) -> bool:
        """Return whether the segment, listed under this epoch, is visited before any segment that was not read."""
        rest = self._given.rest
        if rest is None:
            return True
        is_below = segment.start_offset <= rest.after_offset and self._log_start_offset <= rest.after_offset + 1
        return is_below and epoch <= rest.lowest_epoch

    def _visited(self) -> Iterator[tuple[int, RemoteLogSegmentMetadata]]:
        """Yield segments epoch by epoch, each once, under the first of its epochs that is in the lineage."""
        listed: dict[int, list[RemoteLogSegmentMetadata]] = {entry.epoch: [] for entry in self._lineage.leader_epochs}
        for segment in self._segments:
            epoch = next((epoch for epoch, _ in segment.segment_leader_epochs if epoch in listed), None)
            if epoch is not None:
                listed[epoch].append(segment)
        for epoch, segments in listed.items():
            for segment in segments:
                yield epoch, segment

    def _decision(self, segment: RemoteLogSegmentMetadata) -> DeletionDecision | None:
        decision = self._by_log_start(segment)
        if decision is not None or not self._holds(segment):
            return decision
        return self._by_time(segment) or self._by_size(segment)

    def _by_log_start(self, segment: RemoteLogSegmentMetadata) -> DeletionDecision | None:
        if not self._is_below_log_start(segment):
            return None
        numbers = {"end_offset": segment.end_offset, "log_start_offset": self._log_start_offset}
        return _decision(segment, DeletionReason.LOG_START, **numbers)

    def _by_time(self, segment: RemoteLogSegmentMetadata) -> DeletionDecision | None:
        if self._cut_off_ms is None or _timestamp_ms(segment) >= self._cut_off_ms:
            return None
        if segment.is_finished:
            self._pass(segment)
        return _decision(segment, DeletionReason.TIME, timestamp_ms=_timestamp_ms(segment), cut_off_ms=self._cut_off_ms)

    def _by_size(self, segment: RemoteLogSegmentMetadata) -> DeletionDecision | None:
        excess_bytes = self._excess_bytes
        if not segment.is_finished or excess_bytes == 0 or _bytes_of(self._passed_with(segment)) > excess_bytes:
            return None
        self._pass(segment)
        return _decision(segment, DeletionReason.SIZE, excess_bytes=excess_bytes, size_bytes=segment.segment_size_bytes)

    def _passed_with(self, segment: RemoteLogSegmentMetadata) -> list[RemoteLogSegmentMetadata]:
        """Return the segments of the total that end at or below the end of this one, itself included."""
        return [counted for counted in self._counted if counted.end_offset <= segment.end_offset]

    def _pass(self, segment: RemoteLogSegmentMetadata) -> None:
        passed = self._passed_with(segment)
        self._counted = [counted for counted in self._counted if counted not in passed]
        self._excess_bytes = max(0, self._excess_bytes - _bytes_of(passed))

    def _unreferenced(self) -> Iterator[DeletionDecision]:
        """Yield segments whose epochs are all before that of the log start.

        Unlike a broker, this rule also requires that the segment is below the log start.
        """
        first_epoch = self._lineage.first_epoch
        for segment in self._segments:
            if first_epoch is None or _last_epoch(segment) >= first_epoch:
                continue
            if self._is_passed(segment) and not self._is_worked_on(segment):
                yield _decision(
                    segment,
                    DeletionReason.UNREFERENCED_LEADER_EPOCH,
                    last_epoch=_last_epoch(segment),
                    first_epoch=first_epoch,
                    log_start_offset=self._log_start_offset,
                )

    def _is_below_log_start(self, segment: RemoteLogSegmentMetadata) -> bool:
        first_epoch = self._lineage.first_epoch
        return first_epoch is not None and _last_epoch(segment) <= first_epoch and self._is_passed(segment)

    def _holds(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Return whether the segment is within the lineage and of no history that a decision replaced."""
        return segment.remote_log_segment_id not in self._given.left and self._lineage.holds(segment)

    def _is_worked_on(self, segment: RemoteLogSegmentMetadata) -> bool:
        return _is_bound(self._given, segment)

    def _is_passed(self, segment: RemoteLogSegmentMetadata) -> bool:
        return segment.end_offset < self._log_start_offset

    def _excess(self) -> int:
        """Return the bytes above the limit.

        Segments are compared with the lineage only if FINISHED bytes, of any lineage, and local bytes exceed the limit.
        """
        limit, rest = self._given.retention_bytes, self._given.rest
        finished = [segment for segment in self._segments if segment.is_finished]
        other_bytes = (self._given.local_only_bytes or 0) + (0 if rest is None else rest.size_bytes)
        if limit is None or other_bytes + _bytes_of(finished) <= limit:
            return 0
        self._counted = [each for each in finished if self._holds(each) and not self._is_below_log_start(each)]
        return max(0, other_bytes + _bytes_of(self._counted) - limit)


def _unfinished_deletes(
    given: RetentionInput, segments: Sequence[RemoteLogSegmentMetadata]
) -> Iterator[DeletionDecision]:
    for segment in segments:
        if not _is_being_deleted(segment):
            continue
        superseded_at_ms = given.superseded_at_ms.get(segment.remote_log_segment_id)
        if superseded_at_ms is None:
            since_ms = segment.event_timestamp_ms
            yield _decision(segment, DeletionReason.UNFINISHED_DELETE, event_timestamp_ms=since_ms)
        else:
            age_ms = given.now_ms - superseded_at_ms
            yield _decision(segment, DeletionReason.SUPERSEDED, age_ms=age_ms, hold_ms=given.superseded_hold_ms)


def _is_bound(given: RetentionInput, segment: RemoteLogSegmentMetadata) -> bool:
    """Return whether the segment is under live work, or published: see `RetentionInput`."""
    segment_id = segment.remote_log_segment_id
    return segment_id in given.under_live_work or segment_id in given.published


def _is_held(given: RetentionInput, segment: RemoteLogSegmentMetadata) -> bool:
    superseded_at_ms = given.superseded_at_ms.get(segment.remote_log_segment_id)
    if superseded_at_ms is None or not _is_being_deleted(segment):
        return False
    return given.now_ms - superseded_at_ms < given.superseded_hold_ms


def _abandoned_copies(
    given: RetentionInput, segments: Sequence[RemoteLogSegmentMetadata]
) -> Iterator[DeletionDecision]:
    expiry_ms = given.abandoned_copy_expiry_ms
    for segment in segments:
        age_ms = given.now_ms - segment.event_timestamp_ms
        if segment.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED and age_ms >= expiry_ms:
            yield _decision(segment, DeletionReason.ABANDONED_COPY, age_ms=age_ms, expiry_ms=expiry_ms)


def _because_of_the_topic(segment: RemoteLogSegmentMetadata) -> DeletionDecision:
    return _decision(segment, DeletionReason.TOPIC_DELETED, size_bytes=segment.segment_size_bytes)


def _raised(log_start_offset: int, decisions: Sequence[DeletionDecision]) -> int:
    """Return the new log start: end + 1 of the highest FINISHED segment that expires by time, size or topic deletion.

    Unfinished copies, which no reader could fetch, do not raise it.
    """
    ends = [
        decision.segment.end_offset + 1
        for decision in decisions
        if decision.reason in _RAISING and decision.segment.is_finished
    ]
    return max([log_start_offset, *ends])


def _unknowns(given: RetentionInput, kept: Sequence[RemoteLogSegmentMetadata]) -> Iterator[str]:
    finished = [segment for segment in kept if segment.is_finished]
    if given.retention_bytes is not None and given.local_only_bytes is None:
        yield "local-only bytes are unknown: they count as 0"
    if not given.lineage.entries and finished:
        yield f"no leader epoch is known: whatever their age and size, segments stay: {len(finished)}"
    if given.retention_ms is None:
        return
    rest = given.rest
    undated = (0 if rest is None else rest.undated) + sum(segment.max_timestamp_ms < 0 for segment in finished)
    if undated:
        yield f"segments without a timestamp, whose age counts from the last event of their copy: {undated}"
    latest_ms = max((segment.max_timestamp_ms for segment in finished), default=-1)
    ahead_ms = max(latest_ms, -1 if rest is None else rest.latest_timestamp_ms) - given.now_ms
    if ahead_ms > 0:
        yield f"timestamps lie up to {ahead_ms} ms in the future: retention.ms keeps these segments and all later ones"


def _cut_off_ms(given: RetentionInput) -> int | None:
    """Return the timestamp below which records are past retention; None without a limit or if it would be negative."""
    if given.retention_ms is None or given.retention_ms > given.now_ms:
        return None
    return given.now_ms - given.retention_ms


def _timestamp_ms(segment: RemoteLogSegmentMetadata) -> int:
    """Return the largest record timestamp; if no record has one, the time of the segment's last event."""
    return segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else segment.event_timestamp_ms


def _listing_order(segment: RemoteLogSegmentMetadata) -> tuple[int, bool, int]:
    """Return the sort key of `RemoteLogMetadata.list_segments`: FINISHED segments first among equal start offsets."""
    return segment.start_offset, not segment.is_finished, -segment.end_offset if segment.is_finished else 0


def _without(
    segments: Sequence[RemoteLogSegmentMetadata], decisions: Sequence[DeletionDecision]
) -> list[RemoteLogSegmentMetadata]:
    named = {decision.segment.remote_log_segment_id for decision in decisions}
    return [segment for segment in segments if segment.remote_log_segment_id not in named]


def _decision(segment: RemoteLogSegmentMetadata, reason: DeletionReason, **numbers: int) -> DeletionDecision:
    return DeletionDecision(segment, reason, tuple(Measured(name, value) for name, value in numbers.items()))


def _bytes_of(segments: Sequence[RemoteLogSegmentMetadata]) -> int:
    return sum(segment.segment_size_bytes for segment in segments)


def _last_epoch(segment: RemoteLogSegmentMetadata) -> int:
    return segment.segment_leader_epochs.entries[-1].epoch


def _is_being_deleted(segment: RemoteLogSegmentMetadata) -> bool:
    return segment.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED
