"""Copy, verify and decide what is handed over, have the plan approved, fence the topic off and repeat the checks.

**Copy**: segments are copied from the broker's log start on, in rounds, until no rolled segment is left that the
platform has to copy.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    round       a plan was stored and copied             what a batch of copies leaves       the next round
    checked     no rolled segment is left to copy        everything copied, step `copy`      the next try finds nothing
                                                                                             to do

Producers continue, so each round copies the segments that were rolled during the round before it; rounds get shorter if
copying is faster than producing. The step waits for segments that were just rolled and are not flushed yet. Segments
above the high watermark or the last stable offset are left to the broker, which cannot copy them earlier either.

**Quality check and approval**: the segments are read back and checked, then a person is asked to approve.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    verified    every segment has a verdict, of a deep   verdicts                            the next try reads those
                verification if handovers require it                                         that did not pass
    decided     the offsets of each partition are        the stored offsets                  the next try replaces them
                stored
    proposed    the plan's hash is stored                a plan that waits for an approval   the next try: the same plan
                                                                                             has the same hash

**Fence**: once this step is done, no batch copies or expires the topic, so the segments to be handed over are final.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    owner       the owner is `handing-over`              a topic without copies              the next try, or an undo
    drained     this handover had every copy and expire  leases that expire                  the next try
                lease once, so older tokens are refused
    cleared     unfinished copies without an object in   the same                            the next try
                the store are discarded
    decided     offsets, log start, leader and epoch     the stored values                   the next try replaces them
                are stored

A batch that copies the topic checks the owner before its next FINISHED, discards its attempt and releases its lease;
the lease of a batch that died expires. Segments that were copied after the plan was decided are verified and handed
over too; the step `recheck` stops the handover if one of them failed. If the present plan, with segments up to the
approved end offsets, is not the approved one, the segments are checked and a person has to approve again.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Final

from include.tiering.handover.checks import HandoverEvidence, HandoverPartition, SeededSegment
from include.tiering.handover.contract import Handover, RetentionOverride, SeededPartition
from include.tiering.handover.ports import DONE, CopyRound, HandoverRun, StepEnd, StepResult
from include.tiering.handover.rules import HandoverStep
from include.tiering.handover.run_checks import evaluate_checks, evidence_of
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.ownership import LeaseRole, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition, Verdict
from include.tiering.units import format_bytes

_LEFT_TO_THE_BROKER: Final = frozenset(
    {str(IneligibleReason.ABOVE_HIGH_WATERMARK), str(IneligibleReason.ABOVE_LAST_STABLE_OFFSET)}
)
_NOT_READ: Final = "its log is not read from there on"
_SOON: Final = frozenset({str(IneligibleReason.NOT_FLUSHED), _NOT_READ})
_MOST_NAMED: Final = 3
_NEXT_ROUND_SECONDS: Final = 5.0
"""Brokers write their recovery points only once a minute by default, so shorter pauses would hardly find anything new.
"""


def copy_until_active(run: HandoverRun) -> StepResult:
    """Copy in rounds until no rolled segment is left to copy. If the topic was fenced off before, copy nothing."""
    handover = run.handover
    if run.ports.registry.owner(handover.topic_id) is TopicOwner.HANDING_OVER:
        return DONE
    limits, clock = run.ports.limits, run.ports.clock
    rounds, copied_at, last_message = 0, clock.monotonic(), ""
    before: Sequence[HandoverPartition] | None = None
    while rounds < limits.max_rounds:
        run.renew()
        done = run.ports.actions.copy_round(handover.topic, run.ports.new_run_id())
        after = evidence_of(run).partitions
        unread = _unread(before, after)
        left = [*_left(after), *unread]
        message = f"{done.copied_segments} segments copied, {len(left)} partitions still have rolled segments to copy"
        if message != last_message:
            run.on_message(last_message := message)
        if not left and not (done.copied_segments and _have_rolled(after)):
            return DONE
        reads_on, before = bool(unread) and (before is None or _found(after) > _found(before)), after
        if done.copied_segments or reads_on:
            rounds, copied_at = rounds + 1, clock.monotonic()
            continue
        stuck = _stuck(left, done, _expired(run, left))
        if stuck.end is StepEnd.STOP or done.failed or clock.monotonic() - copied_at >= limits.watch_seconds:
            return stuck
        clock.sleep(_NEXT_ROUND_SECONDS)
    return StepResult(StepEnd.WAIT, f"after {rounds} rounds producers still roll segments as fast as they are copied")


def _left(partitions: Sequence[HandoverPartition]) -> list[tuple[int, int, str | None]]:
    """Return (partition, first offset, reason) for each partition whose first uncopied segment must be copied here.

    `reason` says why the segment cannot be copied now; None if it can.
    """
    return [
        (partition.partition, first, reason)
        for partition in partitions
        if partition.replica is not None
        for first, reason in partition.replica.waiting[:1]
        if reason not in _LEFT_TO_THE_BROKER
    ]


def _unread(
    before: Sequence[HandoverPartition] | None, after: Sequence[HandoverPartition]
) -> list[tuple[int, int, str | None]]:
    """Return, in the form of `_left`, the partitions whose log the round did not read to its end before the round.

    That end is known from the round before, so the first round is never the last one. A round reads as much as the
    setting leaders.find_bytes allows, of all partitions together. A partition is left out if its first segment to copy
    is above the high watermark or the last stable offset: what follows is left to the broker, read or not.
    """
    ends = {one.partition: one.offsets.high_watermark for one in before or () if one.offsets}
    return [
        (partition.partition, partition.replica.found_to, _NOT_READ)
        for partition in after
        if partition.replica is not None
        and partition.replica.found_to is not None
        and partition.replica.found_to < ends.get(partition.partition, math.inf)
        and not any(reason in _LEFT_TO_THE_BROKER for _, reason in partition.replica.waiting[:1])
    ]


def _have_rolled(partitions: Sequence[HandoverPartition]) -> bool:
    """Return whether a partition grew, while a round copied, by so many bytes that a segment may have rolled."""
    return any(partition.replica is not None and partition.replica.may_have_rolled for partition in partitions)


def _found(partitions: Sequence[HandoverPartition]) -> int:
    """Return the sum over all partitions of the offset up to which the leader's log was read."""
    return sum(partition.replica.found_to or 0 for partition in partitions if partition.replica is not None)


def _expired(run: HandoverRun, left: Sequence[tuple[int, int, str | None]]) -> list[str]:
    """Return sentences about segments that expired here while the broker has them; they are not copied again."""
    handover, found = run.handover, []
    for number, first, reason in left:
        partition = TopicIdPartition(handover.topic_id, number, handover.topic)
        highest = run.ports.metadata.highest_copied_offset(partition)
        if reason is None and highest is not None and first <= highest:
            found.append(
                f"partition {number}, offset {first}: segments up to offset {highest} were copied and have expired"
                " here, but the broker still has this one: raise the broker's log start (kafka-delete-records)"
            )
    return found


def _stuck(left: Sequence[tuple[int, int, str | None]], done: CopyRound, expired: Sequence[str]) -> StepResult:
    """Return WAIT or STOP (a person has to act) after a round that copied nothing although segments are left."""
    named = [f"partition {partition}, offset {first}: {reason or 'not copied'}" for partition, first, reason in left]
    sentences = [*done.failed, *done.held_back, *expired, *named][:_MOST_NAMED]
    is_for_a_person = bool(expired) and not (done.failed or done.held_back)
    waits = (
        done.worth_retrying and not is_for_a_person and all(reason is None or reason in _SOON for _, _, reason in left)
    )
    return StepResult(StepEnd.WAIT if waits else StepEnd.STOP, "; ".join(sentences))


def check_quality(run: HandoverRun) -> StepResult:
    """Verify the segments that have not passed at the required depth, then evaluate the checks of the step `gate`.

    If no check refuses or waits, store the offsets that are to be handed over.
    """
    evidence = verified(run)
    result = evaluate_checks(run, HandoverStep.QUALITY_CHECK, evidence)
    if result.end is StepEnd.DONE:
        run.ports.handovers.save_seed(run.drive, seed_of(evidence))
    return result


def verified(run: HandoverRun) -> HandoverEvidence:
    """Verify segments without a sufficient verdict, then return the evidence."""
    evidence = evidence_of(run)
    deep = run.ports.limits.verify_deep
    wanted: dict[TopicIdPartition, frozenset[RemoteLogSegmentId]] = {}
    size_bytes = 0
    for seeded in evidence.partitions:
        unread = [segment.metadata for segment in seeded.seed if _is_to_be_read(segment, deep=deep)]
        if unread:
            partition = TopicIdPartition(evidence.topic_id, seeded.partition, evidence.topic)
            wanted[partition] = frozenset(metadata.remote_log_segment_id for metadata in unread)
            size_bytes += sum(metadata.segment_size_bytes for metadata in unread)
    if not wanted:
        return evidence
    if deep:
        run.on_message(f"every byte of {sum(map(len, wanted.values()))} segments is read, {format_bytes(size_bytes)}")
    run.ports.actions.verify(wanted)
    return evidence_of(run)


def _is_to_be_read(segment: SeededSegment, *, deep: bool) -> bool:
    return segment.verdict is not Verdict.PASSED or (deep and not segment.passed_deep)


def seed_of(evidence: HandoverEvidence) -> list[SeededPartition]:
    """Return the offsets that would be handed over now, without partitions whose leader does not report offsets."""
    seed = []
    for found in evidence.partitions:
        if found.offsets is None:
            continue
        offsets = found.offsets
        start = found.seed[0].metadata.start_offset if found.seed else offsets.earliest
        end = found.seed_end if found.seed_end is not None else start - 1
        partition = TopicIdPartition(evidence.topic_id, found.partition, evidence.topic)
        seed.append(SeededPartition(partition, start, end, offsets.earliest, offsets.leader, offsets.leader_epoch))
    return seed


def ask_approval(run: HandoverRun) -> StepResult:
    """Store the hash of the present plan; the step is done once a person has approved exactly this plan."""
    handover = run.handover
    plan = plan_hash(
        handover, evidence_of(run).partitions, run.seed, run.ports.handovers.overrides(handover.handover_id)
    )
    if run.ports.handovers.propose(run.drive, plan).approval is not None:
        return DONE
    return StepResult(StepEnd.WAIT, f"plan {plan} waits for an approval")


def plan_hash(
    handover: Handover,
    partitions: Sequence[HandoverPartition],
    seed: Sequence[SeededPartition],
    overrides: Sequence[RetentionOverride],
) -> str:
    """Return the SHA-256 of a plan.

    It covers the topic's id, the ids and offsets of the segments up to the decided ends (inclusive), the overridden
    configs with their old and set values, and the requested local retention.
    """
    ends = {seeded.topic_id_partition.partition: seeded.end_offset for seeded in seed}
    segments = [
        [
            partition.partition,
            str(each.metadata.remote_log_segment_id.id),
            each.metadata.start_offset,
            each.metadata.end_offset,
        ]
        for partition in partitions
        for each in partition.seed
        if each.metadata.end_offset <= ends.get(partition.partition, -1)
    ]
    configs = [[override.key, override.old_value, override.set_value] for override in overrides]
    wanted = [handover.wanted.local_retention_ms, handover.wanted.local_retention_bytes]
    content = [str(handover.topic_id), segments, configs, wanted]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


_ROLES = (LeaseRole.COPY, LeaseRole.EXPIRE)


def fence_off(run: HandoverRun) -> StepResult:
    """Stop all copies and deletions of the topic, then decide what is handed over.

    Raises:
        StateConflictError: the topic's owner is neither NONE nor PLATFORM nor HANDING_OVER.
    """
    ports, handover = run.ports, run.handover
    owner = ports.registry.owner(handover.topic_id)
    ports.registry.set_owner(
        handover.topic_id,
        handover.topic,
        TopicOwner.HANDING_OVER,
        # A topic in which the platform never found a segment to copy has no owner.
        expected=TopicOwner.NONE if owner is TopicOwner.NONE else TopicOwner.PLATFORM,
        author=run.drive.driver,
    )
    busy = _drain(run)
    if busy is not None:
        return busy
    evidence = verified(run)
    overrides = ports.handovers.overrides(handover.handover_id)
    if plan_hash(handover, evidence.partitions, run.seed, overrides) != handover.plan_hash:
        detail = "the present plan is not the approved one: the present segments are checked and proposed"
        return StepResult(StepEnd.DONE, detail, HandoverStep.QUALITY_CHECK)
    ports.handovers.save_seed(run.drive, seed_of(evidence))
    for seeded in run.seed:
        offsets = "nothing" if seeded.is_empty else f"offsets {seeded.start_offset}..{seeded.end_offset}"
        run.on_message(f"{seeded.topic_id_partition}: {offsets}")
    return DONE


def _drain(run: HandoverRun) -> StepResult | None:
    """Take the leases to copy and to expire of every decided partition once, so that older tokens are refused.

    Returns:
        None after all leases were taken; WAIT while a batch has one of them.
    """
    ports = run.ports
    for seeded in run.seed:
        partition = seeded.topic_id_partition
        for role in _ROLES:
            run.renew()
            lease = ports.handovers.claim(run.drive, partition, role, lease_ms=ports.limits.lease_ms)
            if lease is None:
                holder = ports.work.holder(partition, role)
                who = "a batch" if holder is None else f"batch {holder.batch_id}"
                return StepResult(StepEnd.WAIT, f"{partition}: {who} still has the lease to {role}")
            if role is LeaseRole.COPY:
                ports.actions.abandon_empty_copies(lease.fence)
            ports.work.release(lease)
    return None


def recheck(run: HandoverRun) -> StepResult:
    """Evaluate the checks with present values for the last time before the publication.

    If no check refuses, and the first one that waits is `nothing-changed-since` (the log start or leader of a partition
    changed since the step `fence`, or no offsets were decided for it), `fence` is repeated.
    """
    evidence = evidence_of(run)
    result = evaluate_checks(run, HandoverStep.RECHECK, evidence)
    if result.end is StepEnd.WAIT and result.detail.startswith("nothing-changed-since"):
        return StepResult(StepEnd.DONE, result.detail, HandoverStep.FENCE)
    return result
