"""Checks of what is seeded, partition by partition.

Before it leaves the platform: against what brokers and the leader's disk say; against what the metadata topic knows of
the topic already, and what was decided at the fence. After the switch: the brokers know what was seeded, and nothing
went.
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

_QUALITY_OR_RECHECK: Final = frozenset({HandoverStep.QUALITY_CHECK, HandoverStep.RECHECK})
_MOST_OFFSETS: Final = 2**31 - 1
_MOST_NAMED: Final = 3


def _seeded(evidence: HandoverEvidence) -> Iterator[tuple[HandoverPartition, tuple[SeededSegment, ...]]]:
    """Partitions with something seeded, its segments by offset."""
    for partition in evidence.partitions:
        if partition.seed:
            yield partition, partition.seed


def _begins_at_log_start(evidence: HandoverEvidence) -> Iterator[Remark]:
    """A partition of which nothing is remote loses nothing; behind the fence nobody could copy it any more."""
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
                "at the switch the broker would raise its log start and delete what lies below: copy from the log"
                " start on",
                partition.partition,
            )


def _no_gap(evidence: HandoverEvidence) -> Iterator[Remark]:
    for one, seed in _seeded(evidence):
        for before, after in pairwise(seed):
            if after.metadata.start_offset > before.metadata.end_offset + 1:
                yield Remark(
                    f"offsets {before.metadata.end_offset + 1}..{after.metadata.start_offset - 1} are not remote",
                    "the broker's local retention would delete their only copy: a partition with a hole stays an"
                    " archive, or its log start is raised above the hole (kafka-delete-records)",
                    one.partition,
                )


def _reaches_active(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition in evidence.partitions:
        for first, reason in partition.replica.waiting if partition.replica is not None else ():
            yield Remark(
                f"the rolled segment at {first} is not remote: {reason or 'it was rolled since'}",
                "the broker copies it after the switch",
                partition.partition,
                CheckOutcome.NOTE,
            )


def _below_stable(evidence: HandoverEvidence) -> Iterator[Remark]:
    for one, _ in _seeded(evidence):
        if one.offsets is None or one.seed_end is None:
            continue
        stable = min(one.offsets.high_watermark, one.offsets.last_stable_offset)
        if one.seed_end >= stable:
            yield Remark(
                f"seeded up to {one.seed_end}, the high watermark is {one.offsets.high_watermark} and the last stable"
                f" offset {one.offsets.last_stable_offset}",
                "a leader change could cut these offsets off, or they never became stable: find out what was copied"
                " (./tiering verify --depth deep)",
                one.partition,
            )


def _flushed(evidence: HandoverEvidence) -> Iterator[Remark]:
    for one, _ in _seeded(evidence):
        if one.replica is None or one.offsets is None or one.seed_end is None:
            continue
        if one.seed_end >= one.replica.recovery_point and one.offsets.in_sync_replicas < 2:
            yield Remark(
                f"seeded up to {one.seed_end}, flushed to disk is what lies below {one.replica.recovery_point}",
                "brokers write the checkpoint once a minute: again then",
                one.partition,
                CheckOutcome.WAITING,
            )


def _epochs(evidence: HandoverEvidence) -> Iterator[Remark]:
    for one, seed in _seeded(evidence):
        if one.replica is None or one.offsets is None:
            continue
        history = one.replica.leader_epochs
        for segment in seed:
            known_from = max(segment.metadata.start_offset, one.offsets.earliest)
            wanted = history.range(known_from, segment.metadata.end_offset + 1)
            found = segment.metadata.segment_leader_epochs
            if known_from > segment.metadata.start_offset:
                found = found.truncated_from_start(known_from)
            if found != wanted:
                yield Remark(
                    f"segment {segment.metadata.start_offset} has leader epochs {list(map(tuple, found))}, the leader's"
                    f" checkpoint says {list(map(tuple, wanted))}",
                    "these records were replaced by another leader's, or copied from a follower: a consumer would not"
                    " find them. The partition cannot be handed over with this copy",
                    one.partition,
                )


def _passed_verification(evidence: HandoverEvidence) -> Iterator[Remark]:
    for one, seed in _seeded(evidence):
        refused = [segment for segment in seed if segment.verdict is not Verdict.PASSED]
        for segment in refused[:_MOST_NAMED]:
            broken = "; ".join(segment.broken) or f"its verdict is {segment.verdict}"
            yield Remark(
                f"segment {segment.metadata.start_offset} ({segment.metadata.remote_log_segment_id.id}): {broken}",
                "a failed one: ./tiering copy --topic TOPIC copies it anew; --resume verifies what has no verdict",
                one.partition,
            )
        if len(refused) > _MOST_NAMED:
            yield Remark(f"and {len(refused) - _MOST_NAMED} segments more", partition=one.partition)


def _fits(evidence: HandoverEvidence) -> Iterator[Remark]:
    for one, seed in _seeded(evidence):
        for segment in seed:
            span = segment.metadata.end_offset - segment.metadata.start_offset
            if span > _MOST_OFFSETS:
                yield Remark(
                    f"segment {segment.metadata.start_offset} spans {span} offsets, indexes hold {_MOST_OFFSETS}",
                    "copy the broker's own segments, not merged ones",
                    one.partition,
                )


def _timestamps(evidence: HandoverEvidence) -> Iterator[Remark]:
    if evidence.limit("retention.ms", evidence.old_configs) == UNLIMITED:
        return
    for one, seed in _seeded(evidence):
        for segment in seed:
            if segment.metadata.max_timestamp_ms <= 0:
                yield Remark(
                    f"segment {segment.metadata.start_offset} has the largest timestamp"
                    f" {segment.metadata.max_timestamp_ms}",
                    "the broker's expiration would delete it as soon as retention.ms is back: set retention.ms=-1, or"
                    " let it expire first",
                    one.partition,
                )


def _within_retention(evidence: HandoverEvidence) -> Iterator[Remark]:
    retention_ms = evidence.limit("retention.ms", evidence.old_configs)
    if retention_ms == UNLIMITED:
        return
    for one, seed in _seeded(evidence):
        past = [s.metadata for s in seed if 0 < s.metadata.max_timestamp_ms < evidence.now_ms - retention_ms]
        if past:
            yield Remark(
                f"{len(past)} segments, offsets {past[0].start_offset}..{past[-1].end_offset}, are past retention.ms"
                f" {retention_ms}",
                "the broker deletes them when retention.ms is back, as it would have without a handover",
                one.partition,
                CheckOutcome.NOTE,
            )


def _restarts(evidence: HandoverEvidence) -> Iterator[Remark]:
    limit = evidence.limit("retention.bytes", evidence.old_configs)
    if limit == UNLIMITED:
        return
    for one, seed in _seeded(evidence):
        remote_bytes = sum(segment.metadata.segment_size_bytes for segment in seed)
        target = evidence.local_target_bytes
        local_bytes = remote_bytes if target < 0 else min(remote_bytes, target)
        if remote_bytes + local_bytes > limit:
            yield Remark(
                f"{remote_bytes} bytes remote and up to {local_bytes} of them local as well exceed retention.bytes"
                f" {limit}",
                "brokers before 4.3.2 count both in the moments after a start, and delete what exceeds: hand over with"
                " a small --local-retention-bytes, and restart no broker before it is through (docs/handover.md)",
                one.partition,
                CheckOutcome.NOTE,
            )


def _custom_metadata(evidence: HandoverEvidence) -> Iterator[Remark]:
    wanted = evidence.store.wants_custom_metadata
    for one, seed in _seeded(evidence):
        for segment in seed:
            if (segment.metadata.custom_metadata is not None) is not wanted:
                has = "no" if wanted else f"{len(segment.metadata.custom_metadata or b'')} bytes of"
                yield Remark(
                    f"segment {segment.metadata.start_offset} has {has} custom metadata,"
                    f" the plugin of layout {evidence.store.layout} {'reads some' if wanted else 'writes none'}",
                    "copy it with the layout settings that the brokers' plugin has",
                    one.partition,
                )


SEED_CHECKS: Final = (
    NamedCheck(
        "seed-begins-at-log-start",
        "the log has nothing below the first seeded offset",
        _begins_at_log_start,
        _QUALITY_OR_RECHECK,
    ),
    NamedCheck("seed-has-no-gap", "every offset up to the last is remote", _no_gap, _QUALITY_OR_RECHECK),
    NamedCheck("seed-reaches-active-segment", "all rolled segments are remote", _reaches_active, _QUALITY_OR_RECHECK),
    NamedCheck(
        "seed-is-stable",
        "seeded segments end below high watermark and last stable offset",
        _below_stable,
        _QUALITY_OR_RECHECK,
    ),
    NamedCheck(
        "seed-is-flushed",
        "seeded segments end below the recovery point, or are replicated",
        _flushed,
        _QUALITY_OR_RECHECK,
    ),
    NamedCheck(
        "epochs-are-the-leaders", "leader epochs are those of the leader's checkpoint", _epochs, _QUALITY_OR_RECHECK
    ),
    NamedCheck(
        "seed-passed-the-gate", "every segment was read back and passed", _passed_verification, _QUALITY_OR_RECHECK
    ),
    NamedCheck("segments-fit", "sizes and offsets fit Kafka's 32 bits", _fits, _QUALITY_OR_RECHECK),
    NamedCheck(
        "timestamps-are-real", "no segment would expire because it lacks a timestamp", _timestamps, _QUALITY_OR_RECHECK
    ),
    NamedCheck(
        "seed-is-within-retention",
        "no segment expires when retention is restored",
        _within_retention,
        _QUALITY_OR_RECHECK,
    ),
    NamedCheck(
        "restarts-are-harmless", "local and remote copies are within retention.bytes", _restarts, _QUALITY_OR_RECHECK
    ),
    NamedCheck(
        "custom-metadata-is-the-plugins",
        "custom metadata is what the storage manager itself writes",
        _custom_metadata,
        _QUALITY_OR_RECHECK,
    ),
)


_LAST: Final = frozenset({HandoverStep.RECHECK})
_ALWAYS: Final = frozenset({HandoverStep.PRECONDITIONS, HandoverStep.QUALITY_CHECK, HandoverStep.RECHECK})


def _published_once(evidence: HandoverEvidence) -> Iterator[Remark]:
    published = evidence.metadata_topic.published if evidence.metadata_topic is not None else ()
    for one in published:
        if not one.is_ours:
            yield Remark(
                f"__remote_log_metadata has segment {one.segment_id}, offsets {one.start_offset}..{one.end_offset},"
                " that this platform did not write",
                "a broker, or another tool, tiers this topic: what it began would be mixed with ours",
                one.partition,
            )
    ends: dict[int, int] = {}
    for one in evidence.metadata_topic.removed if evidence.metadata_topic is not None else ():
        ends[one.partition] = max(one.end_offset, ends.get(one.partition, -1))
    for number, end in sorted(ends.items()):
        yield Remark(
            f"offsets up to {end} were tiered by somebody else, and deleted again",
            "brokers remember them: they would take local segments up to there for tiered, and delete them. Such a"
            " partition stays an archive",
            number,
        )
    for partition in evidence.partitions:
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


def _as_frozen(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition in evidence.partitions:
        frozen = evidence.frozen.get(partition.partition)
        if partition.offsets is None:
            continue
        if frozen is None:
            yield Remark(
                "nothing was decided about it: its leader did not answer then, or the partition is new",
                "it is decided about now",
                partition.partition,
                CheckOutcome.WAITING,
            )
            continue
        if partition.offsets.earliest != frozen.log_start_offset:
            yield Remark(
                f"the broker's log start moved from {frozen.log_start_offset} to {partition.offsets.earliest}",
                "somebody deleted records (kafka-delete-records): --resume looks at everything again",
                partition.partition,
                CheckOutcome.WAITING,
            )
        if (partition.offsets.leader, partition.offsets.leader_epoch) != (frozen.leader, frozen.leader_epoch):
            yield Remark(
                f"leader {frozen.leader} in epoch {frozen.leader_epoch} became {partition.offsets.leader} in"
                f" {partition.offsets.leader_epoch}",
                "the new leader's log is looked at in its place",
                partition.partition,
                CheckOutcome.WAITING,
            )
        end = partition.seed_end if partition.seed_end is not None else frozen.start_offset - 1
        if end != frozen.end_offset:
            yield Remark(
                f"seeded up to {end}, decided was {frozen.end_offset}",
                "somebody copied or deleted meanwhile: --undo, then begin again",
                partition.partition,
            )


def _one_history(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition in evidence.partitions:
        if partition.histories:
            yield Remark(
                partition.histories,
                "brokers would be given records of two histories: decide (./tiering skip --follow-source-from), then"
                " wait until the broker's log start has passed what was archived of the other one",
                partition.partition,
            )


HISTORY_CHECKS: Final = (
    NamedCheck("history-is-one", "no segment of another history reaches into the log", _one_history, _ALWAYS),
    NamedCheck("nothing-is-published-twice", "no other segment of these offsets is known", _published_once, _ALWAYS),
    NamedCheck("nothing-changed-since", "log start, leader and epochs are those of the fence", _as_frozen, _LAST),
)


_WATCH: Final = frozenset({HandoverStep.WATCH})
_LIMITING: Final = _WATCH | {HandoverStep.RETENTION}
"""A limited retention comes next."""
_AFTER: Final = _WATCH | {HandoverStep.LOCAL_RETENTION}


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
                " they are, look for 'due to' in the broker's log, and see docs/runbook.md. Once somebody has,"
                " --resume goes on from the log start of now",
                partition.partition,
            )


def _covered(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition in evidence.partitions:
        frozen = evidence.frozen.get(partition.partition)
        if frozen is None or frozen.end_offset < frozen.start_offset:
            continue
        if partition.offsets is None:
            yield Remark(
                partition.problem or "its leader gives no offsets", "", partition.partition, CheckOutcome.WAITING
            )
        elif frozen.end_offset >= partition.offsets.earliest:
            found = partition.offsets.latest_tiered
            # An unclean election may leave a leader whose log ends below what is remote.
            if found is None or found < min(frozen.end_offset, partition.offsets.high_watermark - 1):
                yield Remark(
                    f"latest tiered is {'none' if found is None else found}, seeded up to {frozen.end_offset}",
                    "brokers replay __remote_log_metadata first; if it lasts, look for RemoteLogMetadata in their logs",
                    partition.partition,
                    CheckOutcome.WAITING,
                )


def _known_to_brokers(evidence: HandoverEvidence) -> Iterator[Remark]:
    """Of what was switched on before we published it: brokers know how far they are once something is tiered."""
    for partition in evidence.partitions:
        if partition.partition in evidence.frozen or partition.replica is None or partition.offsets is None:
            continue
        if partition.replica.active_base > partition.offsets.earliest and partition.offsets.latest_tiered is None:
            yield Remark("nothing is tiered yet", "the brokers upload it", partition.partition, CheckOutcome.WAITING)


def _enabled(evidence: HandoverEvidence) -> Iterator[Remark]:
    if not evidence.is_true("remote.storage.enable"):
        yield Remark(
            "remote.storage.enable is false again",
            "somebody took the switch back: see in docs/handover.md what that deletes. --undo puts the configs back;"
            " --resume after it begins again with what is published",
        )


def _no_second_copy(evidence: HandoverEvidence) -> Iterator[Remark]:
    for known in evidence.metadata_topic.published if evidence.metadata_topic is not None else ():
        frozen = evidence.frozen.get(known.partition)
        if frozen is not None and not known.is_ours and known.start_offset <= frozen.end_offset:
            yield Remark(
                f"a broker uploaded offsets {known.start_offset}..{known.end_offset} again as {known.segment_id}",
                "both copies are whole; one is superfluous. Tell us: it should not happen",
                known.partition,
                CheckOutcome.NOTE,
            )


WATCH_CHECKS: Final = (
    NamedCheck("switch-is-on", "remote.storage.enable is true", _enabled, _LIMITING),
    NamedCheck("earliest-is-unchanged", "the log start is what it was before the switch", _earliest, _AFTER),
    NamedCheck(
        "latest-tiered-covers-seed", "the leader's latest tiered offset covers the seeded segments", _covered, _LIMITING
    ),
    NamedCheck(
        "brokers-know-their-copies", "brokers that upload segments themselves have begun", _known_to_brokers, _LIMITING
    ),
    NamedCheck("nothing-is-uploaded-again", "no broker copied a seeded offset", _no_second_copy, _WATCH),
)
