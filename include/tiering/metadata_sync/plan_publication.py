"""Decide, from a partition's journal and segments, which records about it are sent next; build their bytes. No I/O.

At every moment remote storage could be enabled on the brokers with the records that the topic has: segments from the
broker's log start on, ascending, without a gap, each STARTED and then FINISHED before the next one is STARTED. So:

- the first published segment begins at or below the broker's log start: at the switch a broker raises its log start to
  the start of the first segment that it finds, and deletes what is below;
- ends ascend strictly: if a later record finished a segment with the same start and a lower end, the brokers' cache
  would list the earlier one under no epoch, and no expiration would ever find it;
- the list ends before a gap, and before a segment whose verdict is not PASSED; later segments wait.

Segments that the platform is deleting or does not have any more are deleted in the topic, lowest first, before anything
is added, and so are segments that failed before they were FINISHED in the topic. No other segment is withdrawn:
brokers keep the highest offset that was FINISHED under each epoch, even if it is deleted later, and would treat local
segments up to that offset as tiered. If the platform archives the topic again (`plan_withdrawal`), nothing is added,
and segments wholly below the broker's log start are withdrawn as well: no local segment has their offsets any more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from include.tiering.errors import FormatError
from include.tiering.formats.remote_log_metadata import decode, encode
from include.tiering.formats.remote_log_metadata_records import (
    RemoteLogRecord,
    SegmentRecord,
    SegmentUpdateRecord,
    metadata_of,
    segment_record,
    update_record,
)
from include.tiering.kafka.metadata_topic.record_check import ExpectedRecord, require_valid_record
from include.tiering.metadata_sync.publication_contract import Intent, Journal
from include.tiering.model.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.segments.contract import SegmentRow

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_DELETE_FINISHED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class Announced:
    """A segment as the topic has it. `state` is its present state; `metadata.state` is COPY_SEGMENT_STARTED always."""

    metadata: RemoteLogSegmentMetadata
    state: RemoteLogSegmentState


@dataclass(frozen=True, slots=True)
class PublicationStep:
    """One record to send: it sets `segment` to `state`."""

    segment: RemoteLogSegmentMetadata
    state: RemoteLogSegmentState


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why nothing is published from `offset` on."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class PublicationPlan:
    """What is to be sent about one partition. Offsets are inclusive.

    Attributes:
        steps: in the order of sending; empty if `refused`.
        live: segments in the topic before these steps, ascending.
        end_offset: the highest end of the segments that are FINISHED in the topic after these steps; None without any.
        highest_recorded_end_offset: the highest end for which the journal (a pending record included) or these steps
            have a FINISHED record; None without any. Brokers treat everything up to this offset as tiered, even if it
            was deleted.
        withheld: where and why the list ends before the last FINISHED segment; None if it does not.
        refused: why nothing may be sent at all; None if it may.
    """

    topic_id_partition: TopicIdPartition
    steps: tuple[PublicationStep, ...]
    live: tuple[Announced, ...]
    end_offset: int | None
    highest_recorded_end_offset: int | None
    withheld: Withheld | None = None
    refused: str | None = None


def announced_segments(journal: Journal) -> dict[Uuid, Announced]:
    """Return the segments in the topic, by the records that were read back, in the order of their STARTED records.

    Segments whose deletion is finished in the topic are left out.
    """
    known: dict[Uuid, Announced] = {}
    for record in journal.records:
        intent = record.intent
        if record.offset is None:
            continue
        if intent.state is _DELETE_FINISHED:
            known.pop(intent.segment_id, None)
        else:
            known[intent.segment_id] = Announced(_after(known.get(intent.segment_id), intent.value), intent.state)
    return known


def plan_publication(
    partition: TopicIdPartition, journal: Journal | None, rows: Mapping[Uuid, SegmentRow], *, log_start_offset: int
) -> PublicationPlan:
    """Return what to send so that the topic agrees with `rows`.

    Args:
        partition: the partition.
        journal: the partition's journal; None if its publication never began.
        rows: segments of the partition that the platform began and that are not tombstones, by id: all that the
            journal has a record about, and all FINISHED ones that end at or above `log_start_offset`.
        log_start_offset: the broker's log start offset (inclusive).
    """
    known = {} if journal is None else announced_segments(journal)
    kept = {id_: announced for id_, announced in known.items() if not _is_to_go(announced, rows.get(id_))}
    deletions = [
        step for id_, announced in _ascending(known) if id_ not in kept for step in _deletion(announced, rows.get(id_))
    ]
    begun = next((announced for announced in kept.values() if announced.state is _STARTED), None)
    row = None if begun is None else rows[_id_of(begun.metadata)]
    withheld = None if row is None else _why_not(row)
    finishing = [PublicationStep(row.metadata, _FINISHED)] if row is not None and withheld is None else []
    live = [announced.metadata for _, announced in _ascending(kept)]
    added: list[RemoteLogSegmentMetadata] = []
    if withheld is None:
        fresh = [row for id_, row in rows.items() if id_ not in kept]
        added, withheld = _additions(live, fresh, log_start_offset)
    steps = [*deletions, *finishing, *(step for segment in added for step in _addition(segment))]
    refused = _of_several_histories(rows.values(), log_start_offset) or _why_nothing(live, added, log_start_offset)
    return _plan(partition, journal, known, () if refused else steps, withheld, refused)


def plan_withdrawal(
    partition: TopicIdPartition, journal: Journal, rows: Mapping[Uuid, SegmentRow], *, log_start_offset: int
) -> PublicationPlan:
    """Return which deletions to send about a partition that the platform archives again.

    A published segment is deleted in the topic if the platform deletes it or does not have it any more. It is also
    deleted in the topic if it is wholly below the broker's log start, because brokers do not need it any more; then its
    objects and its row stay, and it is an ordinary segment of the archive from then on. A segment that reaches the log
    start stays published: without it, brokers would delete the only copy that they have of its offsets after a later
    switch. That also applies to a failed segment that a new copy replaced, as the new copy is not published.

    Args:
        partition: the partition.
        journal: the partition's journal.
        rows: segments of the partition that the platform began and that are not tombstones, by id: at least all that
            the journal has a record about.
        log_start_offset: the broker's log start offset (inclusive).
    """
    known = announced_segments(journal)
    steps = [
        step
        for id_, announced in _ascending(known)
        if announced.metadata.end_offset < log_start_offset
        or (_is_to_go(announced, rows.get(id_)) and not _is_replaced(announced, rows.get(id_)))
        for step in _deletion(announced, rows.get(id_))
    ]
    return _plan(partition, journal, known, steps, None)


def _plan(
    partition: TopicIdPartition,
    journal: Journal | None,
    known: Mapping[Uuid, Announced],
    steps: Sequence[PublicationStep],
    withheld: Withheld | None,
    refused: str | None = None,
) -> PublicationPlan:
    after = {id_: (announced.metadata.end_offset, announced.state) for id_, announced in known.items()}
    after |= {_id_of(step.segment): (step.segment.end_offset, step.state) for step in steps}
    ever = (
        [record.intent.end_offset for record in journal.records if record.intent.state is _FINISHED] if journal else []
    )
    ever += [step.segment.end_offset for step in steps if step.state is _FINISHED]
    return PublicationPlan(
        partition,
        tuple(steps),
        tuple(announced for _, announced in _ascending(known)),
        max((end for end, state in after.values() if state is _FINISHED), default=None),
        max(ever, default=None),
        withheld,
        refused,
    )


def _of_several_histories(rows: Iterable[SegmentRow], log_start_offset: int) -> str | None:
    """Return why nothing may be published if segments of several histories reach into the broker's log; otherwise None.

    Brokers choose segments by epoch and end. So if segments of a replaced history were published, brokers would not
    find all segments of the next history.
    """
    reaching = [row for row in rows if row.metadata.is_finished and row.metadata.end_offset >= log_start_offset]
    newest = max((row.history for row in reaching), default=0)
    older = [row.metadata for row in reaching if row.history != newest]
    if not older:
        return None
    offsets = f"{older[0].start_offset}..{max(segment.end_offset for segment in older)}"
    return (
        f"segments of two histories reach into the broker's log: offsets {offsets} were archived before it was decided"
        " to follow the source's history; once the broker's log start has passed them, the others may be published"
    )


def _why_nothing(
    live: Sequence[RemoteLogSegmentMetadata], added: Sequence[RemoteLogSegmentMetadata], log_start_offset: int
) -> str | None:
    """Return which offsets brokers would lose if remote storage were enabled with these segments; None if none."""
    first = next(iter((*live, *added)), None)
    if first is not None and first.start_offset > log_start_offset:
        return (
            f"the first segment begins at {first.start_offset}, above the broker's log start {log_start_offset}:"
            " with remote storage on, the broker would delete the offsets between them"
        )
    end_offset = log_start_offset - 1
    for segment in live:
        if segment.start_offset > end_offset + 1:
            return (
                f"published offsets {end_offset + 1}..{segment.start_offset - 1} are not remote any more:"
                " with remote storage on, the broker would delete their only copy"
            )
        end_offset = max(end_offset, segment.end_offset)
    return None


def _is_to_go(announced: Announced, row: SegmentRow | None) -> bool:
    """Return whether a segment has to be deleted in the topic.

    That is so if its deletion has begun in the topic or in the platform, if the platform does not have it any more, or
    if it failed before it was FINISHED in the topic.
    """
    if row is None or announced.state >= _DELETE_STARTED or row.metadata.state >= _DELETE_STARTED:
        return True
    return announced.state is _STARTED and row.verdict is Verdict.FAILED


def _is_replaced(announced: Announced, row: SegmentRow | None) -> bool:
    """Return whether the topic has the segment as FINISHED, and the platform keeps it although a new copy replaced it.

    Expiration deletes the objects of such a segment only after its deletion was published.
    """
    return announced.state is _FINISHED and row is not None and row.superseded_by is not None


def _deletion(announced: Announced, row: SegmentRow | None) -> Iterator[PublicationStep]:
    """Yield the steps that delete a segment; while the platform is deleting its objects, without DELETE_FINISHED.

    A failed segment that was not FINISHED in the topic is deleted at once although the platform keeps it, because
    brokers never read it.
    """
    if announced.state < _DELETE_STARTED:
        yield PublicationStep(announced.metadata, _DELETE_STARTED)
    if row is None or row.metadata.state is not _DELETE_STARTED:
        yield PublicationStep(announced.metadata, _DELETE_FINISHED)


def _addition(segment: RemoteLogSegmentMetadata) -> Iterator[PublicationStep]:
    yield PublicationStep(segment, _STARTED)
    yield PublicationStep(segment, _FINISHED)


def _additions(
    live: Sequence[RemoteLogSegmentMetadata], fresh: Sequence[SegmentRow], log_start_offset: int
) -> tuple[list[RemoteLogSegmentMetadata], Withheld | None]:
    """Return the segments that continue `live` (or, without any, reach the log start), and why later ones wait."""
    end_offset = max([log_start_offset - 1, *(segment.end_offset for segment in live)])
    finished = [row for row in fresh if row.metadata.state is _FINISHED]
    added: list[RemoteLogSegmentMetadata] = []
    for row in sorted(finished, key=lambda row: (row.metadata.start_offset, -row.metadata.end_offset)):
        segment = row.metadata
        if segment.end_offset <= end_offset:
            continue
        if (live or added) and segment.start_offset > end_offset + 1:
            return added, Withheld(end_offset + 1, f"no segment has the offsets up to {segment.start_offset - 1}")
        withheld = _why_not(row)
        if withheld is not None:
            return added, withheld
        added.append(segment)
        end_offset = segment.end_offset
    return added, None


def _why_not(row: SegmentRow) -> Withheld | None:
    if row.verdict is Verdict.PASSED:
        return None
    segment = row.metadata
    return Withheld(segment.start_offset, f"{segment.remote_log_segment_id} has the verdict {row.verdict}, not passed")


def _ascending(known: Mapping[Uuid, Announced]) -> list[tuple[Uuid, Announced]]:
    return sorted(known.items(), key=lambda item: (item[1].metadata.start_offset, item[1].metadata.end_offset))


def _id_of(segment: RemoteLogSegmentMetadata) -> Uuid:
    return segment.remote_log_segment_id.id


def _after(announced: Announced | None, value: bytes) -> RemoteLogSegmentMetadata:
    """Return the metadata after a record. Raise FormatError if the first record of a segment is not STARTED."""
    record = decode(value)
    if isinstance(record, SegmentRecord):
        return metadata_of(record)
    if announced is None or not isinstance(record, SegmentUpdateRecord):
        raise FormatError("a journal has a record about a segment before its COPY_SEGMENT_STARTED")
    return replace(announced.metadata, custom_metadata=record.custom_metadata)


def intent_for(step: PublicationStep, journal: Journal, *, broker_id: int, event_timestamp_ms: int) -> Intent:
    """Return the record of a step. Custom metadata are a result of the copy, so STARTED has none.

    Raises:
        PublicationRefusedError: an independent decoder reads something other than the intended record from the bytes.
    """
    segment = replace(step.segment, broker_id=broker_id, event_timestamp_ms=event_timestamp_ms)
    if step.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        segment = replace(segment, custom_metadata=None, state=step.state)
    value = encode(_record(segment, step.state))
    require_valid_record(
        value, ExpectedRecord(segment, step.state, journal.metadata_partition, journal.partition_count)
    )
    id_ = segment.remote_log_segment_id.id
    return Intent(id_, step.state, segment.start_offset, segment.end_offset, value)


def _record(segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> RemoteLogRecord:
    if state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        return segment_record(segment)
    return update_record(
        RemoteLogSegmentMetadataUpdate(
            segment.remote_log_segment_id,
            state,
            segment.event_timestamp_ms,
            segment.broker_id,
            segment.custom_metadata,
        )
    )
