"""Checks against what went before: what the metadata topic knows of the topic, and what was decided at the fence."""

from collections.abc import Iterator
from typing import Final

from include.tiering.handover.checks.handover_check import CheckOutcome, NamedCheck, Remark
from include.tiering.handover.checks.handover_facts import HandoverFacts
from include.tiering.handover.handover import HandoverStep

_LAST: Final = frozenset({HandoverStep.RECHECK})
_ALWAYS: Final = frozenset({HandoverStep.PRECONDITIONS, HandoverStep.GATE, HandoverStep.RECHECK})


def _published_once(facts: HandoverFacts) -> Iterator[Remark]:
    published = facts.metadata_topic.published if facts.metadata_topic is not None else ()
    for one in published:
        if not one.is_ours:
            yield Remark(
                f"__remote_log_metadata has segment {one.segment_id}, offsets {one.start_offset}..{one.end_offset},"
                " that this platform did not write",
                "a broker, or another tool, tiers this topic: what it began would be mixed with ours",
                one.partition,
            )
    ends: dict[int, int] = {}
    for one in facts.metadata_topic.removed if facts.metadata_topic is not None else ():
        ends[one.partition] = max(one.end_offset, ends.get(one.partition, -1))
    for number, end in sorted(ends.items()):
        yield Remark(
            f"offsets up to {end} were tiered by somebody else, and deleted again",
            "brokers remember them: they would take local segments up to there for tiered, and delete them. Such a"
            " partition stays an archive",
            number,
        )
    for partition in facts.partitions:
        seeded_ids = {segment.metadata.remote_log_segment_id.id for segment in partition.seed}
        replaced = {
            one.start_offset: one
            for one in published
            if one.is_ours and one.partition == partition.partition and one.segment_id not in seeded_ids
        }
        for segment in partition.seed:
            known = replaced.get(segment.metadata.start_offset)
            if known is not None:
                yield Remark(
                    f"offset {known.start_offset} was published as {known.segment_id}, seeded is"
                    f" {segment.metadata.remote_log_segment_id.id}",
                    "a second segment for published offsets would hide the first one for ever",
                    partition.partition,
                )


def _as_frozen(facts: HandoverFacts) -> Iterator[Remark]:
    for one in facts.partitions:
        frozen = facts.frozen.get(one.partition)
        if one.offsets is None:
            continue
        if frozen is None:
            yield Remark(
                "nothing was decided about it: its leader did not answer then, or the partition is new",
                "it is decided about now",
                one.partition,
                CheckOutcome.WAITING,
            )
            continue
        if one.offsets.earliest != frozen.log_start_offset:
            yield Remark(
                f"the broker's log start moved from {frozen.log_start_offset} to {one.offsets.earliest}",
                "somebody deleted records (kafka-delete-records): --resume looks at everything again",
                one.partition,
                CheckOutcome.WAITING,
            )
        if (one.offsets.leader, one.offsets.leader_epoch) != (frozen.leader, frozen.leader_epoch):
            yield Remark(
                f"leader {frozen.leader} in epoch {frozen.leader_epoch} became {one.offsets.leader} in"
                f" {one.offsets.leader_epoch}",
                "the new leader's log is looked at in its place",
                one.partition,
                CheckOutcome.WAITING,
            )
        end = one.seed_end if one.seed_end is not None else frozen.start_offset - 1
        if end != frozen.end_offset:
            yield Remark(
                f"seeded up to {end}, decided was {frozen.end_offset}",
                "somebody copied or deleted meanwhile: --undo, then begin again",
                one.partition,
            )


def _one_history(facts: HandoverFacts) -> Iterator[Remark]:
    for one in facts.partitions:
        if one.histories:
            yield Remark(
                one.histories,
                "brokers would be given records of two histories: decide (./tiering skip --follow-source-from), then"
                " wait until the broker's log start has passed what was archived of the other one",
                one.partition,
            )


HISTORY_CHECKS: Final = (
    NamedCheck("history-is-one", "nothing of another history reaches into the log", _one_history, _ALWAYS),
    NamedCheck("nothing-is-published-twice", "no other segment of these offsets is known", _published_once, _ALWAYS),
    NamedCheck("nothing-changed-since", "log start, leader and epochs are as when it was decided", _as_frozen, _LAST),
)
