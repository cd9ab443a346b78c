"""What is to be handed over is read back and judged, then put before a person.

step        done when it is reached                  a crash right after it leaves       cleaned up by
verified    every segment has a verdict; if it is    verdicts                            the next try reads those
            asked for, by a look at every byte                                           that have not passed so
decided     offsets by partition are stored          what was decided                    the next try replaces it
proposed    the plan's hash is stored                a question                          the next try: the same plan
                                                                                         has the same hash
"""

import hashlib
import json
from collections.abc import Sequence

from include.tiering.handover.checks.handover_facts import HandoverFacts, PartitionFacts, SeededSegment
from include.tiering.handover.handover import HandoverStep
from include.tiering.handover.handover_contract import GuardValue, Handover, SeededPartition
from include.tiering.handover.ports import DONE, HandoverRun, StepEnd, StepResult
from include.tiering.handover.preconditions import facts_of, judged
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.segment_metadata import Verdict
from include.tiering.units import format_bytes


def pass_gate(run: HandoverRun) -> StepResult:
    """Verify what has not passed as deeply as is asked for, then look at everything that is to be handed over."""
    facts = verified(run)
    result = judged(run, HandoverStep.GATE, facts)
    if result.end is StepEnd.DONE:
        run.ports.handovers.save_seed(run.drive, seed_of(facts))
    return result


def verified(run: HandoverRun) -> HandoverFacts:
    """Facts in which every segment of the seed has a verdict of now. Raises RemoteStorageUnavailableError."""
    facts = facts_of(run)
    deep = run.ports.limits.verify_deep
    wanted: dict[TopicIdPartition, frozenset[RemoteLogSegmentId]] = {}
    size_bytes = 0
    for one in facts.partitions:
        unread = [segment.metadata for segment in one.seed if _is_to_be_read(segment, deep=deep)]
        if unread:
            partition = TopicIdPartition(facts.topic_id, one.partition, facts.topic)
            wanted[partition] = frozenset(metadata.remote_log_segment_id for metadata in unread)
            size_bytes += sum(metadata.segment_size_bytes for metadata in unread)
    if not wanted:
        return facts
    if deep:
        run.told(f"{sum(map(len, wanted.values()))} segments are read back whole, {format_bytes(size_bytes)}")
    run.ports.verbs.verify(wanted)
    return facts_of(run)


def _is_to_be_read(segment: SeededSegment, *, deep: bool) -> bool:
    return segment.verdict is not Verdict.PASSED or (deep and not segment.passed_deep)


def seed_of(facts: HandoverFacts) -> list[SeededPartition]:
    """What is handed over as things are; partitions whose leader does not answer are left out."""
    seed = []
    for one in facts.partitions:
        if one.offsets is None:
            continue
        start = one.seed[0].metadata.start_offset if one.seed else one.offsets.earliest
        end = one.seed_end if one.seed_end is not None else start - 1
        partition = TopicIdPartition(facts.topic_id, one.partition, facts.topic)
        offsets = one.offsets
        seed.append(SeededPartition(partition, start, end, offsets.earliest, offsets.leader, offsets.leader_epoch))
    return seed


def ask_approval(run: HandoverRun) -> StepResult:
    """Put exactly this plan before a person; it goes on once somebody agreed to it."""
    handover = run.handover
    plan = plan_hash(handover, facts_of(run).partitions, run.seed, run.ports.handovers.guards(handover.handover_id))
    if run.ports.handovers.propose(run.drive, plan).approval is not None:
        return DONE
    return StepResult(StepEnd.WAIT, f"plan {plan} waits for an approval")


def plan_hash(
    handover: Handover,
    partitions: Sequence[PartitionFacts],
    seed: Sequence[SeededPartition],
    guards: Sequence[GuardValue],
) -> str:
    """SHA-256 of what is handed over: the segments by id and offsets up to the decided ends, the configs that change
    and what they become at the end."""
    ends = {one.topic_id_partition.partition: one.end_offset for one in seed}
    segments = [
        [
            one.partition,
            str(each.metadata.remote_log_segment_id.id),
            each.metadata.start_offset,
            each.metadata.end_offset,
        ]
        for one in partitions
        for each in one.seed
        if each.metadata.end_offset <= ends.get(one.partition, -1)
    ]
    configs = [[guard.key, guard.old_value, guard.set_value] for guard in guards]
    wanted = [handover.wanted.local_retention_ms, handover.wanted.local_retention_bytes]
    content = [str(handover.topic_id), segments, configs, wanted]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
