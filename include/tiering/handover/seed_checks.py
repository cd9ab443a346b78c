"""Checks of the seeded segments, partition by partition.

Before the publication they compare the segments with the brokers, with the leader's disk, with what the metadata topic
has about the topic already, and with what the step `fence` decided. After the switch they check that remote storage is
still on, and that the brokers know the seeded segments, deleted nothing and uploaded nothing a second time.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from include.tiering.handover.checks import (
    UNLIMITED,
    CheckOutcome,
    HandoverEvidence,
    HandoverPartition,
    NamedCheck,
    Remark,
    SeededSegment,
)
from include.tiering.handover.rules import HandoverStep
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Verdict

_SEED_STEPS: Final = frozenset({HandoverStep.QUALITY_CHECK, HandoverStep.RECHECK})
_MOST_OFFSETS: Final = 2**31 - 1
_MOST_NAMED: Final = 3


def _seeded(evidence: HandoverEvidence) -> Iterator[tuple[HandoverPartition, tuple[SeededSegment, ...]]]:
    """Yield the partitions that have seeded segments, each with its seeded segments in the order of offsets."""
    for partition in evidence.partitions:
        if partition.seed:
            yield partition, partition.seed


def _begins_at_log_start(evidence: HandoverEvidence) -> Iterator[Remark]:
    """Check that the seeded segments start at the log start or below it.

    A partition without seeded segments loses nothing at the switch. If the topic is fenced off, such a partition is
    only a note, as the platform cannot copy any more.
    """
    is_fenced = evidence.owner is TopicOwner.HANDING_OVER
    for partition in evidence.partitions:
        if partition.offsets is None or partition.replica is None:
            continue
        start = partition.offsets.earliest
        if not partition.seed and start < partition.replica.active_base:
            yield Remark(
                f"nothing is seeded; the broker's log starts at {start}, its active segment at"
                f" {partition.replica.active_base}",
                "the broker copies it after the switch" if is_fenced else "./tiering copy --topic TOPIC, then --resume",
                partition.partition,
                CheckOutcome.NOTE if is_fenced else CheckOutcome.REFUSED,
            )
        elif partition.seed and partition.seed[0].metadata.start_offset > start:
            yield Remark(
                f"the first seeded offset is {partition.seed[0].metadata.start_offset},"
                f" the broker's log starts at {start}",
                "at the switch the broker would raise its log start to the first seeded offset and delete all records"
                " below it: copy from the log start on",
                partition.partition,
            )


def _no_gap(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition, seed in _seeded(evidence):
        for before, after in pairwise(seed):
            if after.metadata.start_offset > before.metadata.end_offset + 1:
                yield Remark(
                    f"offsets {before.metadata.end_offset + 1}..{after.metadata.start_offset - 1} are not remote",
                    "the broker's local retention would delete their only copy. A partition with a gap cannot be handed"
                    " over, unless its log start is raised above the gap (kafka-delete-records)",
                    partition.partition,
                )


def _reaches_active(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition in evidence.partitions:
        for first, reason in partition.replica.waiting if partition.replica is not None else ():
            yield Remark(
                f"the rolled segment at {first} is not remote: {reason or 'it was rolled after the last copy'}",
                "the broker copies it after the switch",
                partition.partition,
                CheckOutcome.NOTE,
            )
        if partition.replica is not None and partition.replica.may_have_rolled:
            yield Remark(
                f"{partition.replica.active_bytes} bytes from offset {partition.replica.active_base} on are not remote",
                "the broker copies them after the switch",
                partition.partition,
                CheckOutcome.NOTE,
            )
    if any(partition.seed and partition.replica and partition.replica.is_fetched for partition in evidence.partitions):
        yield Remark(
            "segments were read from the leaders, whose own segments end elsewhere",
            "after the switch the broker uploads the segment once more in which the seed of a partition ends: at most"
            " segment.bytes of a partition are remote twice, and count twice in its retention.bytes until they expire",
            outcome=CheckOutcome.NOTE,
        )


def _below_stable(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition, _ in _seeded(evidence):
        if partition.offsets is None or partition.seed_end is None:
            continue
        stable = min(partition.offsets.high_watermark, partition.offsets.last_stable_offset)
        if partition.seed_end >= stable:
            yield Remark(
                f"seeded up to {partition.seed_end}, the high watermark is {partition.offsets.high_watermark} and the"
                f" last stable offset {partition.offsets.last_stable_offset}",
                "a leader change could truncate these offsets, or their transaction has not ended: check the copied"
                " segments (./tiering verify --depth deep)",
                partition.partition,
            )


def _flushed(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition, _ in _seeded(evidence):
        if partition.replica is None or partition.offsets is None or partition.seed_end is None:
            continue
        if partition.offsets.in_sync_replicas >= 2:
            continue
        if partition.seed_end >= partition.replica.recovery_point:
            yield Remark(
                f"seeded up to {partition.seed_end}, only offsets below {partition.replica.recovery_point} are flushed"
                " to disk",
                "leaders.settle_ms after they were found, segments count as flushed: repeat the check after that time"
                if partition.replica.is_fetched
                else "by default brokers write this recovery point once a minute: repeat the check after that time",
                partition.partition,
                CheckOutcome.WAITING,
            )
        elif partition.replica.is_fetched:
            yield Remark(
                f"broker {partition.replica.broker_id} alone has the records up to {partition.seed_end}, and what is on"
                " its disk is not known over the network; they were found leaders.settle_ms ago",
                "if its host lost power before they were written, the log would end below what is remote: wait until a"
                " second replica is in sync, if there is one",
                partition.partition,
                CheckOutcome.NOTE,
            )


def _epochs(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition, seed in _seeded(evidence):
        if partition.replica is None or partition.offsets is None:
            continue
        history = partition.replica.leader_epochs
        for segment in seed:
            known_from = max(segment.metadata.start_offset, partition.offsets.earliest)
            wanted = history.range(known_from, segment.metadata.end_offset + 1)
            found = segment.metadata.segment_leader_epochs
            if known_from > segment.metadata.start_offset:
                found = found.truncated_from_start(known_from)
            if found != wanted:
                yield Remark(
                    f"segment {segment.metadata.start_offset} has leader epochs {list(map(tuple, found))}, the leader"
                    f" says {list(map(tuple, wanted))}",
                    "these records were replaced by records of another leader, or were copied from a follower: a"
                    " consumer would not find them. The partition cannot be handed over with this copy",
                    partition.partition,
                )


def _passed_verification(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition, seed in _seeded(evidence):
        refused = [segment for segment in seed if segment.verdict is not Verdict.PASSED]
        for segment in refused[:_MOST_NAMED]:
            broken = "; ".join(segment.broken) or f"its verdict is {segment.verdict}"
            yield Remark(
                f"segment {segment.metadata.start_offset} ({segment.metadata.remote_log_segment_id.id}): {broken}",
                "./tiering copy --topic TOPIC copies a failed segment again; --resume verifies segments without a"
                " verdict",
                partition.partition,
            )
        if len(refused) > _MOST_NAMED:
            yield Remark(f"and {len(refused) - _MOST_NAMED} more segments", partition=partition.partition)


def _fits(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition, seed in _seeded(evidence):
        for segment in seed:
            span = segment.metadata.end_offset - segment.metadata.start_offset
            if span > _MOST_OFFSETS:
                yield Remark(
                    f"segment {segment.metadata.start_offset} spans offsets up to {span} after its first one, indexes"
                    f" have at most {_MOST_OFFSETS}",
                    "copy the broker's own segments, not merged ones",
                    partition.partition,
                )


def _timestamps(evidence: HandoverEvidence) -> Iterator[Remark]:
    if evidence.limit("retention.ms", evidence.old_configs) == UNLIMITED:
        return
    for partition, seed in _seeded(evidence):
        for segment in seed:
            if segment.metadata.max_timestamp_ms <= 0:
                yield Remark(
                    f"segment {segment.metadata.start_offset} has the largest timestamp"
                    f" {segment.metadata.max_timestamp_ms}",
                    "the broker would delete the segment as soon as retention.ms is restored: set retention.ms=-1, or"
                    " let the segment expire first",
                    partition.partition,
                )


def _within_retention(evidence: HandoverEvidence) -> Iterator[Remark]:
    retention_ms = evidence.limit("retention.ms", evidence.old_configs)
    if retention_ms == UNLIMITED:
        return
    for partition, seed in _seeded(evidence):
        past = [s.metadata for s in seed if 0 < s.metadata.max_timestamp_ms < evidence.now_ms - retention_ms]
        if past:
            yield Remark(
                f"{len(past)} segments, offsets {past[0].start_offset}..{past[-1].end_offset}, are past retention.ms"
                f" {retention_ms}",
                "the broker deletes them when retention.ms is restored; without a handover it would delete them, too",
                partition.partition,
                CheckOutcome.NOTE,
            )


def _custom_metadata(evidence: HandoverEvidence) -> Iterator[Remark]:
    wanted = evidence.store.wants_custom_metadata
    for partition, seed in _seeded(evidence):
        for segment in seed:
            if (segment.metadata.custom_metadata is not None) is not wanted:
                has = "no" if wanted else f"{len(segment.metadata.custom_metadata or b'')} bytes of"
                yield Remark(
                    f"segment {segment.metadata.start_offset} has {has} custom metadata,"
                    f" the plugin of layout {evidence.store.layout} {'reads some' if wanted else 'writes none'}",
                    "copy the segment with the layout settings that the brokers' plugin has",
                    partition.partition,
                )


SEED_CHECKS: Final = (
    NamedCheck(
        "seed-begins-at-log-start",
        "the log has nothing below the first seeded offset",
        _begins_at_log_start,
        _SEED_STEPS,
    ),
    NamedCheck("seed-has-no-gap", "no offset between seeded segments is missing", _no_gap, _SEED_STEPS),
    NamedCheck("seed-reaches-active-segment", "rolled segments are remote, or in a note", _reaches_active, _SEED_STEPS),
    NamedCheck(
        "seed-is-stable",
        "seeded segments end below the high watermark and the last stable offset",
        _below_stable,
        _SEED_STEPS,
    ),
    NamedCheck(
        "seed-is-flushed",
        "at least two replicas are in sync, or seeded segments end below the recovery point, or were found a while ago",
        _flushed,
        _SEED_STEPS,
    ),
    NamedCheck("epochs-are-the-leaders", "segments have the epochs that the leader has", _epochs, _SEED_STEPS),
    NamedCheck("seed-passed-the-gate", "every segment was read back and passed", _passed_verification, _SEED_STEPS),
    NamedCheck("segments-fit", "offsets within a segment fit Kafka's 32 bits", _fits, _SEED_STEPS),
    NamedCheck("timestamps-are-real", "no segment would expire because it lacks a timestamp", _timestamps, _SEED_STEPS),
    NamedCheck(
        "seed-is-within-retention",
        "no segment is past the old retention.ms, or a note says so",
        _within_retention,
        _SEED_STEPS,
    ),
    NamedCheck(
        "custom-metadata-is-the-plugins",
        "segments have custom metadata exactly if the brokers' plugin expects it",
        _custom_metadata,
        _SEED_STEPS,
    ),
)


_LAST: Final = frozenset({HandoverStep.RECHECK})
_ALWAYS: Final = frozenset({HandoverStep.PRECONDITIONS, HandoverStep.QUALITY_CHECK, HandoverStep.RECHECK})


def _published_once(evidence: HandoverEvidence) -> Iterator[Remark]:
    published = evidence.metadata_topic.published if evidence.metadata_topic is not None else ()
    for known in published:
        if not known.is_ours:
            yield Remark(
                f"__remote_log_metadata has segment {known.segment_id}, offsets"
                f" {known.start_offset}..{known.end_offset}, that this platform did not write",
                "a broker, or another tool, tiers this topic: its segments would be mixed with the platform's",
                known.partition,
            )
    ends: dict[int, int] = {}
    for gone in evidence.metadata_topic.removed if evidence.metadata_topic is not None else ():
        ends[gone.partition] = max(gone.end_offset, ends.get(gone.partition, -1))
    for number, end in sorted(ends.items()):
        yield Remark(
            f"offsets up to {end} were tiered by a broker or another tool, and deleted again",
            "brokers keep the highest offset that they read: they would treat local segments up to this offset as"
            " tiered, and delete them. Such a partition cannot be handed over",
            number,
        )
    for partition in evidence.partitions:
        seeded_ids = {segment.metadata.remote_log_segment_id.id for segment in partition.seed}
        replaced = {
            known.start_offset: known
            for known in published
            if known.is_ours and known.partition == partition.partition and known.segment_id not in seeded_ids
        }
        for segment in partition.seed:
            before = replaced.get(segment.metadata.start_offset)
            if before is not None:
                yield Remark(
                    f"offset {before.start_offset} was published in segment {before.segment_id}, the seeded segment is"
                    f" {segment.metadata.remote_log_segment_id.id}",
                    "a second segment for published offsets would hide the first one permanently",
                    partition.partition,
                )


def _as_frozen(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition in evidence.partitions:
        frozen = evidence.frozen.get(partition.partition)
        if partition.offsets is None:
            continue
        if frozen is None:
            yield Remark(
                "no offsets were decided for it: its leader did not answer at that time, or the partition is new",
                "the step fence decides them now",
                partition.partition,
                CheckOutcome.WAITING,
            )
            continue
        if partition.offsets.earliest != frozen.log_start_offset:
            yield Remark(
                f"the broker's log start moved from {frozen.log_start_offset} to {partition.offsets.earliest}",
                "records were deleted (kafka-delete-records): the checks are repeated from the step fence on",
                partition.partition,
                CheckOutcome.WAITING,
            )
        if (partition.offsets.leader, partition.offsets.leader_epoch) != (frozen.leader, frozen.leader_epoch):
            yield Remark(
                f"leader {frozen.leader} in epoch {frozen.leader_epoch} was replaced by {partition.offsets.leader} in"
                f" {partition.offsets.leader_epoch}",
                "the checks are repeated with the log of the new leader",
                partition.partition,
                CheckOutcome.WAITING,
            )
        end = partition.seed_end if partition.seed_end is not None else frozen.start_offset - 1
        if end != frozen.end_offset:
            yield Remark(
                f"seeded up to {end}, but {frozen.end_offset} was decided",
                "segments were copied or deleted after the decision: ./tiering handover TOPIC --undo, then begin again"
                " (or --resume, if the undo ends as parked)",
                partition.partition,
            )


def _one_history(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition in evidence.partitions:
        if partition.histories:
            yield Remark(
                partition.histories,
                "brokers would receive records of two histories: decide (./tiering skip --follow-source-from), then"
                " wait until the broker's log start is above the archived offsets of the other history",
                partition.partition,
            )


HISTORY_CHECKS: Final = (
    NamedCheck("history-is-one", "archived offsets in the broker's log have that log's history", _one_history, _ALWAYS),
    NamedCheck("nothing-is-published-twice", "only the platform published, each offset once", _published_once, _ALWAYS),
    NamedCheck("nothing-changed-since", "offsets, leaders and epochs are those of the fence", _as_frozen, _LAST),
)


_WATCH: Final = frozenset({HandoverStep.WATCH})
_LIMITING: Final = _WATCH | {HandoverStep.RETENTION}
"""The steps after the switch whose checks are evaluated before total retention is restored."""


def _earliest(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition in evidence.partitions:
        frozen = evidence.frozen.get(partition.partition)
        if (
            frozen is not None
            and partition.offsets is not None
            and partition.offsets.earliest > frozen.log_start_offset
        ):
            yield Remark(
                f"the broker's log start rose from {frozen.log_start_offset} to {partition.offsets.earliest}",
                "RECORDS ARE GONE FOR CONSUMERS, though their objects may still be in the store. Leave the overrides as"
                " they are, search the broker's log for 'due to', and see docs/runbook.md. After that, --resume accepts"
                " the present log start",
                partition.partition,
            )


def _covered(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition in evidence.partitions:
        frozen = evidence.frozen.get(partition.partition)
        if frozen is None or frozen.end_offset < frozen.start_offset:
            continue
        if partition.offsets is None:
            yield Remark(
                partition.problem or "its leader reports no offsets", "", partition.partition, CheckOutcome.WAITING
            )
        elif frozen.end_offset >= partition.offsets.earliest:
            found = partition.offsets.latest_tiered
            # After an unclean election the leader's log may end below the highest remote offset.
            if found is None or found < min(frozen.end_offset, partition.offsets.high_watermark - 1):
                yield Remark(
                    f"latest tiered is {'none' if found is None else found}, seeded up to {frozen.end_offset}",
                    "brokers read __remote_log_metadata first; if this lasts, search their logs for RemoteLogMetadata",
                    partition.partition,
                    CheckOutcome.WAITING,
                )


def _known_to_brokers(evidence: HandoverEvidence) -> Iterator[Remark]:
    """Check that brokers tiered something of each partition that has rolled segments and no decided offsets.

    Such partitions are new, or were switched on by hand before their publication: their brokers upload them. Where
    brokers delay their copies (Kafka 4.4), that may take as long as local retention, so it is only a note: what is not
    remote is not counted twice.
    """
    lags = ("remote.copy.lag.ms", "remote.copy.lag.bytes")
    delays = ", ".join(f"{key}={evidence.configs[key]}" for key in lags if evidence.configs.get(key, "0") != "0")
    for partition in evidence.partitions:
        if partition.partition in evidence.frozen or partition.replica is None or partition.offsets is None:
            continue
        if partition.replica.active_base > partition.offsets.earliest and partition.offsets.latest_tiered is None:
            yield Remark(
                f"nothing is tiered yet{f', as wished by {delays}' if delays else ''}",
                "" if delays else "wait until the brokers upload",
                partition.partition,
                CheckOutcome.NOTE if delays else CheckOutcome.WAITING,
            )


def _enabled(evidence: HandoverEvidence) -> Iterator[Remark]:
    if not evidence.is_true("remote.storage.enable"):
        yield Remark(
            "remote.storage.enable is false again",
            "it was set to false from outside: docs/handover.md says what that deletes. --undo restores the configs;"
            " --resume after the undo begins again with the published segments",
        )


def _no_second_copy(evidence: HandoverEvidence) -> Iterator[Remark]:
    fetched = {one.partition for one in evidence.partitions if one.replica is not None and one.replica.is_fetched}
    for known in evidence.metadata_topic.published if evidence.metadata_topic is not None else ():
        frozen = evidence.frozen.get(known.partition)
        if frozen is not None and not known.is_ours and known.start_offset <= frozen.end_offset:
            is_expected = known.partition in fetched and known.end_offset > frozen.end_offset
            yield Remark(
                f"a broker uploaded offsets {known.start_offset}..{known.end_offset} again as {known.segment_id}",
                "the seed ends inside of this segment of the broker: both copies are complete"
                if is_expected
                else "both copies are complete, and one is superfluous. This is a bug of the platform: report it",
                known.partition,
                CheckOutcome.NOTE,
            )


WATCH_CHECKS: Final = (
    NamedCheck("switch-is-on", "remote.storage.enable is true", _enabled, _LIMITING),
    NamedCheck("earliest-is-unchanged", "the log start is not above the stored one", _earliest, _WATCH),
    NamedCheck(
        "latest-tiered-covers-seed", "the leader's latest tiered offset covers the seeded segments", _covered, _LIMITING
    ),
    NamedCheck(
        "brokers-know-their-copies", "brokers that upload by themselves have begun", _known_to_brokers, _LIMITING
    ),
    NamedCheck("nothing-is-uploaded-again", "no seeded offset is uploaded, or a note says so", _no_second_copy, _WATCH),
)
