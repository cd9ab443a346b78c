"""From here on nobody copies or expires the topic, and what is handed over does not change any more.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    owner       the topic is `handing-over`              nobody's topic                      the next try, or an undo
    drained     every lease was ours once, so every      leases that expire                  the next try
                older token is refused
    cleared     no attempt is left that never was        the same                            the next try
                FINISHED
    decided     offsets, log start, leader and epoch     all of it                           the next try replaces it
                are stored

A batch that works on the topic sees the owner before its next FINISHED, abandons its attempt and gives its lease back;
one that died has a lease that ends. What was copied since the approval is handed over too, if it passed the gate: the
approved segments must be the first of them, or a person is asked again.
"""

from include.tiering.handover.gate import plan_hash, seed_of, verified
from include.tiering.handover.handover import HandoverStep
from include.tiering.handover.ports import DONE, HandoverRun, StepEnd, StepResult
from include.tiering.handover.preconditions import facts_of, judged
from include.tiering.model.ownership import LeaseRole, TopicOwner

_ROLES = (LeaseRole.COPY, LeaseRole.EXPIRE)


def fence_off(run: HandoverRun) -> StepResult:
    """Take the topic from everybody, then decide what is handed over.

    Raises:
        StateConflictError: the topic has another owner than the platform or this hand-over.
    """
    ports, handover = run.ports, run.handover
    owner = ports.registry.owner(handover.topic_id)
    ports.registry.set_owner(
        handover.topic_id,
        handover.topic,
        TopicOwner.HANDING_OVER,
        # Nobody's, where nothing was ever rolled.
        expected=TopicOwner.NONE if owner is TopicOwner.NONE else TopicOwner.PLATFORM,
        author=run.drive.driver,
    )
    busy = _drain(run)
    if busy is not None:
        return busy
    facts = verified(run)
    guards = ports.handovers.guards(handover.handover_id)
    if plan_hash(handover, facts.partitions, run.seed, guards) != handover.plan_hash:
        detail = "what was approved is not what is there now: it is looked at and asked again"
        return StepResult(StepEnd.DONE, detail, HandoverStep.GATE)
    ports.handovers.save_seed(run.drive, seed_of(facts))
    for one in run.seed:
        offsets = "nothing" if one.is_empty else f"offsets {one.start_offset}..{one.end_offset}"
        run.told(f"{one.topic_id_partition}: {offsets}")
    return DONE


def _drain(run: HandoverRun) -> StepResult | None:
    """Hold the leases of every partition once; None if none is held by anybody else."""
    ports = run.ports
    for one in run.seed:
        partition = one.topic_id_partition
        for role in _ROLES:
            run.renew()
            lease = ports.handovers.claim(run.drive, partition, role, lease_ms=ports.limits.lease_ms)
            if lease is None:
                holder = ports.work.holder(partition, role)
                who = "a batch" if holder is None else f"batch {holder.batch_id}"
                return StepResult(StepEnd.WAIT, f"{partition}: {who} has the lease to {role} still")
            if role is LeaseRole.COPY:
                ports.verbs.abandon_leftovers(lease.fence)
            ports.work.release(lease)
    return None


def recheck(run: HandoverRun) -> StepResult:
    """Everything again, as it is now: the last look before anything leaves the platform."""
    facts = facts_of(run)
    result = judged(run, HandoverStep.RECHECK, facts)
    if result.end is StepEnd.WAIT and result.detail.startswith("nothing-changed-since"):
        return StepResult(StepEnd.DONE, result.detail, HandoverStep.FENCE)
    return result
