"""Decisions about one partition that let copying continue: skip offsets, or follow the source's history.

**Skip** offsets: copying continues without them. A plan made for the decision names what may be skipped. There are
three kinds. Nothing else can be skipped, such as a segment that waits or a damaged source:

- a *hole*: either offsets that the source lost before they were copied, as the log start of the replica that a copy
  reads proves; or offsets that are missing between copied segments, as the metadata proves: no copy goes back to them
- *compacted segments*: whole segments of which a log cleaner removed offsets before they were copied; the records that
  the cleaner left are not copied either
- *failed segments* that no new copy replaces: they stay as they are, are not served, and no longer stop the partition

    step       a crash right after it leaves                      cleaned up by
    found      nothing                                            -
    recorded   the hole's decision and its event, together;       -
               the decisions about the first failed segments,     the same call again: it finds the others
               each complete

The person may take long between the two steps. If some of the offsets were copied meanwhile, the metadata refuse the
decision about the hole; if a hole grew meanwhile, the next plan names the part that it grew by. If a failed segment
passed or was superseded meanwhile, the decision about it is refused as well.

A database that was restored from a backup also lacks offsets that the store has: once they are skipped, their copies
can no longer be adopted. So a hole above the copied segments ends before the first copy in the store that the metadata
lack, and if such a copy has its first offset, nothing can be skipped before the copy is adopted.

**Follow the source's history**, after it has diverged from the archive's. The offset is not a choice: it is the lowest
offset from which the source's history can be followed without another gap (`follow_offset`), and a plan made for the
decision names it. The person has to repeat the offset, as proof that the plan was read.

    step       a crash right after it leaves                      cleaned up by
    found      nothing                                            -
    recorded   the divergence, open, if no run had recorded it    the same call again decides about it
    decided    the decision and its event, together               -

Nothing is deleted. Remote segments of the replaced history that reach that offset stay under their leader epochs. They
no longer expire by time or size, only once the log start has passed them or their topic is deleted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.copying.documents import FollowDocument, RangeDocument, SkipDocument, SkippedOffsetsDocument
from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.copying.report import loss_document, needs_a_person
from include.tiering.errors import CorruptFileError, SettingError, StateConflictError
from include.tiering.kafka.log_dirs.contract import Replica, ScanReport
from include.tiering.model.histories import Divergence, OffsetRange, SeenDivergence, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition
from include.tiering.presentation import Presentation, Table, count, labels
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.failed_copies import FailedCopies, Loss
from include.tiering.segments.stored_copies import ForgottenCopy, before_forgotten
from include.tiering.units import format_utc

COMPACTED_AWAY: Final = "compacted away before it was copied"
"""Prefix of the reason of a decision that skips compacted segments."""


@dataclass(frozen=True, slots=True)
class Skip:
    """The offsets of a partition that may be skipped now: failed segments, or else a hole.

    Attributes:
        hole: None if there is none.
        lost: failed segments that no new copy replaces.
        is_compacted: whether the hole consists of compacted segments; the source still has their remains.
        is_within: whether the hole lies between copied segments; no copy goes back to it.
        waits: why the partition waits, if it does.
        elsewhere: brokers whose replica, which no copy reads, still has part of the hole, not below its log start.
        stored: the copy in the store before which the hole ends, because the metadata lack the copy; None if it ends
            at the source's log start.
        decisions: all decisions recorded for the partition, by offset.
        is_shown: whether the scan found the topic id; if not, it found the name with another topic id.
    """

    topic_id_partition: TopicIdPartition
    hole: OffsetRange | None
    waits: HeldBackPartition | None = None
    elsewhere: tuple[int, ...] = ()
    decisions: tuple[SkippedOffsets, ...] = ()
    lost: tuple[Loss, ...] = ()
    is_within: bool = False
    is_compacted: bool = False
    is_shown: bool = True
    stored: ForgottenCopy | None = None

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The offsets that would be missing, ascending."""
        return tuple(loss.offsets for loss in self.lost) if self.hole is None else (self.hole,)

    @property
    def offsets(self) -> int:
        return sum(part.size for part in self.ranges)


def plan_skip(
    report: ScanReport,
    plan: CopyPlan,
    metadata: RemoteLogMetadata,
    topic: str,
    number: int,
    topic_id: str | None,
    forgotten_copies: Callable[[TopicIdPartition], Sequence[ForgottenCopy]],
) -> Skip:
    """Return what may be skipped of the named partition, from a scan and the plan made from it. Changes nothing.

    Nothing may be skipped of a topic whose name another topic has now: only its decisions are returned. The store is
    asked for `forgotten_copies` only about a hole above the copied segments.

    Raises:
        StateConflictError: the store has, or may have, a copy with the first of these offsets.
        RemoteStorageUnavailableError: the store does not answer.
        SettingError: no replica that a copy may read is found, or several topics of this name have one and `topic_id`
            is None, or `topic_id` names none of them and nothing of it is archived.
        CorruptFileError: a hole above all copied segments reaches or passes the replica's log start, so the source
            should have some of these offsets.
    """
    archived = _archived_before(report, metadata, topic, number, topic_id)
    if archived is not None:
        return Skip(archived, None, decisions=tuple(metadata.skipped_offsets(archived)), is_shown=False)
    replica = named_replica(report, topic, number, topic_id)
    partition = replica.topic_id_partition
    waits = next((held for held in plan.held_back if held.topic_id_partition == partition), None)
    decisions = tuple(metadata.skipped_offsets(partition))
    if waits is None or waits.hole is None:
        return Skip(partition, None, waits, decisions=decisions, lost=() if waits is None else waits.lost)
    hole, highest = waits.hole, metadata.highest_copied_offset(partition)
    if waits.reason is HeldBack.COMPACTED:
        hole, stored = before_forgotten(partition, hole, forgotten_copies(partition))
        return Skip(partition, hole, waits, decisions=decisions, is_compacted=True, stored=stored)
    is_within = highest is not None and hole.last <= highest
    if not is_within and replica.log_start_offset <= hole.last:
        raise CorruptFileError(
            str(replica.replica_id),
            f"offsets {hole} are missing, not deleted: its log starts at {replica.log_start_offset}: ./tiering scan",
        )
    hole, stored = (hole, None) if is_within else before_forgotten(partition, hole, forgotten_copies(partition))
    elsewhere = _elsewhere(report.replicas, replica, hole)
    return Skip(partition, hole, waits, elsewhere, decisions, is_within=is_within, stored=stored)


def skip_offsets(
    planned: Skip, *, metadata: RemoteLogMetadata, failed_copies: FailedCopies, reason: str, author: str
) -> Skip:
    """Record the decision, with an event. If there is nothing to skip, record nothing.

    Raises:
        SettingError: no reason is given.
        StateConflictError: meanwhile other offsets have become the next to copy, some of the hole was copied, or a
            segment is not failed any more or belongs to a replaced history; or the platform does not own the topic.
    """
    if not reason.strip():
        raise SettingError("--reason is empty: say why these offsets may be missing from the archive")
    if planned.lost:
        given_up = [
            decision
            for loss in planned.lost
            for decision in failed_copies.give_up(loss.segment_id, reason=reason.strip(), author=author)
        ]
        return replace(planned, waits=None, decisions=(*planned.decisions, *given_up))
    if planned.hole is None:
        return planned
    why = f"{COMPACTED_AWAY}: {reason.strip()}" if planned.is_compacted else reason.strip()
    decision = metadata.skip_offsets(
        planned.topic_id_partition, planned.hole, reason=why, author=author, may_be_first=planned.is_compacted
    )
    return replace(planned, waits=None, decisions=(*planned.decisions, decision))


def _archived_before(
    report: ScanReport, metadata: RemoteLogMetadata, topic: str, number: int, topic_id: str | None
) -> TopicIdPartition | None:
    """Return the archived partition that is named, if the scan found this name for topics with other ids only."""
    named = [replica.topic_id_partition for replica in report.replicas if replica.topic_id_partition.topic == topic]
    if topic_id is None or not named or any(str(partition.topic_id) == topic_id for partition in named):
        return None
    wanted = (topic, number, topic_id)
    return next((one for one in metadata.partitions() if (one.topic, one.partition, str(one.topic_id)) == wanted), None)


def named_replica(report: ScanReport, topic: str, number: int, topic_id: str | None) -> Replica:
    named = [
        replica
        for replica in report.replicas
        if replica.chosen
        and replica.topic_id_partition.topic == topic
        and replica.topic_id_partition.partition == number
    ]
    meant = [partition for partition in named if topic_id in (None, str(partition.topic_id_partition.topic_id))]
    if len(meant) == 1:
        return meant[0]
    if not named:
        raise SettingError(
            f"{topic}-{number}: the replica that a copy reads is in no log directory and at no leader that can be read,"
            f" so nothing proves what is gone; ./tiering doctor {topic} says more"
        )
    ids = ", ".join(str(partition.topic_id_partition.topic_id) for partition in named)
    raise SettingError(f"{topic}-{number}: topics of this name have the ids {ids}: choose one with --topic-id")


def _elsewhere(replicas: Sequence[Replica], read: Replica, hole: OffsetRange) -> tuple[int, ...]:
    others = (
        replica for replica in replicas if replica.topic_id_partition == read.topic_id_partition and replica is not read
    )
    return tuple(
        replica.replica_id.broker_id
        for replica in others
        if any(
            s.base_offset <= hole.last and s.end_offset >= max(hole.first, replica.log_start_offset)
            for s in replica.segments
        )
    )


@dataclass(frozen=True, slots=True)
class FollowSource:
    """A decision to follow the source's history from `from_offset` (inclusive) on.

    `seen` is the recorded divergence; if none is recorded, it is the divergence that this plan found.
    `source_epochs` are the source's leader epochs below its high watermark. `decided` is None until the decision is
    recorded.
    """

    topic_id_partition: TopicIdPartition
    from_offset: int
    waits: HeldBackPartition
    seen: SeenDivergence
    source_epochs: LeaderEpochs
    decided: Divergence | None = None

    @property
    def kept(self) -> OffsetRange | None:
        """The remote offsets from `from_offset` on, which readers then get only if they name a leader epoch."""
        first, last = max(self.from_offset, self.seen.offsets.first), self.seen.offsets.last
        return OffsetRange(first, last) if first <= last else None

    @property
    def missing(self) -> OffsetRange | None:
        """The offsets of the source's history that will never be in the archive."""
        first = self.seen.offsets.first
        return OffsetRange(first, self.from_offset - 1) if first < self.from_offset else None


def plan_follow(
    report: ScanReport, plan: CopyPlan, topic: str, number: int, from_offset: int, topic_id: str | None
) -> FollowSource:
    """Return what the decision would change, from a scan and the plan made from it. Changes nothing.

    Raises:
        SettingError: as `plan_skip`.
        StateConflictError: no divergence waits for a decision, the source lags, or only another offset can be followed.
    """
    replica = named_replica(report, topic, number, topic_id)
    partition = replica.topic_id_partition
    held_back = [held for held in plan.held_back if held.topic_id_partition == partition]
    found = [
        (held, divergence.seen)
        for held in held_back
        for divergence in (held.undecided, held.divergence)
        if divergence is not None
    ]
    if not found:
        raise StateConflictError(f"{partition}: no divergence of histories waits for a decision")
    waits, seen = found[0]
    if waits.follow_from is None:
        raise StateConflictError(f"{partition}: {waits.detail}")
    if waits.follow_from != from_offset:
        raise StateConflictError(
            f"{partition}: the source can be followed from offset {waits.follow_from} on, not from {from_offset}"
        )
    return FollowSource(partition, from_offset, waits, seen, replica.leader_epochs.range(-1, replica.high_watermark))


def follow_source(planned: FollowSource, *, metadata: RemoteLogMetadata, reason: str, author: str) -> FollowSource:
    """Record the decision, with an event.

    Raises:
        SettingError: no reason is given.
        StateConflictError: another decision was recorded meanwhile, segments that were copied from the source's history
            begin at another offset, or the platform does not own the topic.
    """
    if not reason.strip():
        raise SettingError("--reason is empty: say why the archive is to follow the source's history")
    partition, divergence, undecided = planned.topic_id_partition, planned.waits.divergence, planned.waits.undecided
    if divergence is not None:
        undecided = metadata.record_divergence(partition, divergence.seen, history=divergence.history)
    if undecided is None:
        raise StateConflictError(f"{partition}: the divergence that was shown has changed: run the command again")
    decided = metadata.follow_source(
        partition,
        undecided.number,
        planned.from_offset,
        source_epochs=planned.source_epochs,
        reason=reason.strip(),
        author=author,
    )
    return replace(planned, decided=decided)


def present_skip(skip: Skip, refusal: str | None) -> Presentation:
    """Present a skip. It is not `ok` if it was refused, or if nothing can be skipped and a person has to act."""
    waits_for_more = not skip.ranges and skip.waits is not None and needs_a_person([skip.waits])
    return Presentation(
        lambda: _skip_document(skip, refusal),
        lambda: _skip_tables(skip),
        _skip_summary(skip, refusal),
        ok=refusal is None and not waits_for_more and skip.is_shown,
    )


def skip_question(skip: Skip) -> str:
    """Return the question that a person has to confirm."""
    return f"{_missing(skip)}. Continue without them?"


def _missing(skip: Skip) -> str:
    if not skip.ranges:
        return f"{skip.topic_id_partition}: there is nothing to skip"
    ranges = ", ".join(map(str, skip.ranges))
    text = f"{skip.topic_id_partition}: {count(skip.offsets, 'offset')}, {ranges}, will be missing from the archive"
    if skip.lost:
        kept = f"{count(len(skip.lost), 'segment')} that failed the quality gate, kept and not served"
        return f"{text}: {kept} ({'; '.join(loss.why for loss in skip.lost)})"
    text += " for ever"
    if skip.stored is not None:
        text += f"; the store may have what follows from {skip.stored.start_offset} on: ./tiering adopt"
    if skip.is_compacted:
        return f"{text}: compacted away before they were copied"
    return f"{text}; {_still_on(skip)}" if skip.elsewhere else text


def _still_on(skip: Skip) -> str:
    brokers = " and ".join(f"broker {broker}" for broker in skip.elsewhere)
    return f"some of them are still on {brokers}, but a copy reads only the leader's replica"


def _skip_summary(skip: Skip, refusal: str | None) -> str:
    if not skip.is_shown:
        where = f"{skip.topic_id_partition} ({skip.topic_id_partition.topic_id})"
        return f"{where}: nothing can be skipped: in the source another topic has this name"
    if not skip.ranges:
        waits = skip.waits
        why = "" if waits is None else f"; from offset {waits.next_offset} it waits: {waits.reason}: {waits.detail}"
        return f"{skip.topic_id_partition}: there is nothing to skip{why}"
    if refusal is not None:
        return f"nothing is skipped: {refusal}. {_missing(skip)}"
    return f"recorded: {_missing(skip)}; {_next_copy(skip)}"


def _next_copy(skip: Skip) -> str:
    if skip.hole is None:
        return "the next copy continues after them"
    if skip.stored is not None:
        return f"./tiering adopt --all then imports what the store has from {skip.stored.start_offset} on"
    if skip.is_within:
        return "./tiering verify then evaluates again the segments after them"
    return f"the next copy begins at {skip.hole.last + 1}"


def _skip_document(skip: Skip, refusal: str | None) -> SkipDocument:
    waits = skip.waits
    return {
        **labels(skip.topic_id_partition),
        **_offsets(skip.ranges[0] if skip.ranges else None),
        "lost": [loss_document(loss) for loss in skip.lost],
        "elsewhere": list(skip.elsewhere),
        "waits": None if waits is None else f"{waits.reason}: {waits.detail}",
        "refusal": refusal,
        "recorded": [
            {
                **_offsets(decision.offsets),
                "reason": decision.reason,
                "author": decision.author,
                "recorded_at_ms": decision.recorded_at_ms,
            }
            for decision in skip.decisions
        ],
    }


def _offsets(offsets: OffsetRange | None) -> SkippedOffsetsDocument:
    if offsets is None:
        return {"first_offset": None, "last_offset": None, "offsets": 0}
    return {"first_offset": offsets.first, "last_offset": offsets.last, "offsets": offsets.size}


def _skip_tables(skip: Skip) -> tuple[Table, ...]:
    """Return a table of the recorded decisions, if there are any."""
    if not skip.decisions:
        return ()
    rows = tuple(
        (
            str(decision.offsets),
            str(decision.offsets.size),
            format_utc(decision.recorded_at_ms),
            decision.author,
            decision.reason,
        )
        for decision in skip.decisions
    )
    return (Table(f"{skip.topic_id_partition}, skipped", ("offsets", "how many>", "when", "by", "reason"), rows),)


_COPIED: Final = "the next copy continues there"


def present_follow(follow: FollowSource, refusal: str | None) -> Presentation:
    """Present a decision to follow the source. It is not `ok` if it was refused; then nothing is decided."""
    if refusal is not None:
        summary = f"nothing is decided: {refusal}. {_meaning(follow)}"
    else:
        next_action = "./tiering adopt imports what the store has from there on" if _is_stored(follow) else _COPIED
        summary = f"recorded: {_meaning(follow)}; {next_action}"
    return Presentation(lambda: _follow_document(follow, refusal), lambda: (), summary, ok=refusal is None)


def follow_question(follow: FollowSource) -> str:
    """Return the question that a person has to confirm."""
    return f"{_meaning(follow)}. Follow the source?"


def _meaning(follow: FollowSource) -> str:
    where = follow.topic_id_partition
    text = f"{where}: {follow.seen}; from offset {follow.from_offset} on the archive follows the source"
    if follow.kept is not None:
        text += f"; offsets {follow.kept} stay as they are, for readers that give a leader epoch"
    if follow.missing is not None:
        text += f"; {count(follow.missing.size, 'offset')} of the source's history, {follow.missing}, will be missing"
        text += " from the archive for ever"
    return text


def _is_stored(follow: FollowSource) -> bool:
    return follow.decided is not None and follow.decided.begins_in_store(follow.from_offset)


def _follow_document(follow: FollowSource, refusal: str | None) -> FollowDocument:
    decided = follow.decided
    return {
        **labels(follow.topic_id_partition),
        "from_offset": follow.from_offset,
        "diverges": {
            **_range_or_none(follow.seen.offsets),
            "archive_epochs": list(follow.seen.archive_epochs),
            "source_epochs": list(follow.seen.source_epochs),
            "seen_by": str(follow.seen.seen_by),
        },
        "kept": _range_or_none(follow.kept),
        "missing": _range_or_none(follow.missing),
        "refusal": refusal,
        "decided": None
        if decided is None or decided.followed is None
        else {
            "history": decided.number,
            "reason": decided.followed.reason,
            "author": decided.followed.author,
            "decided_at_ms": decided.followed.decided_at_ms,
        },
    }


def _range_or_none(offsets: OffsetRange | None) -> RangeDocument:
    return {} if offsets is None else {"first_offset": offsets.first, "last_offset": offsets.last}
