"""Copy from the broker's log start on, round after round, until only the active segments are left.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    round       a plan was stored and copied             what `copy_batch` leaves            the next round
    looked      nothing rolled is left that can be       everything copied, step `copy`      the next try finds nothing
                copied                                                                       to do

Producers go on, so a round meets what was rolled while the one before it copied; rounds get shorter as long as copying
is faster. What has just been rolled and is not flushed yet is waited for. What lies above the last stable offset is
left to the broker, which cannot copy it before either.
"""

from collections.abc import Sequence
from typing import Final

from include.tiering.handover.checks.handover_facts import PartitionFacts
from include.tiering.handover.ports import DONE, CopyRound, HandoverRun, StepEnd, StepResult
from include.tiering.handover.preconditions import facts_of
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import TopicOwner

_LEFT_TO_THE_BROKER: Final = frozenset(
    {str(IneligibleReason.ABOVE_HIGH_WATERMARK), str(IneligibleReason.ABOVE_LAST_STABLE_OFFSET)}
)
_SOON: Final = frozenset({str(IneligibleReason.NOT_FLUSHED)})
_MOST_NAMED: Final = 3
_LOOK_AGAIN_SECONDS: Final = 5.0
"""Brokers write their recovery points down once a minute."""


def copy_until_active(run: HandoverRun) -> StepResult:
    """Copy rounds until a look finds nothing more; nothing is copied behind the fence."""
    handover = run.handover
    if run.ports.registry.owner(handover.topic_id) is TopicOwner.HANDING_OVER:
        return DONE
    limits, clock = run.ports.limits, run.ports.clock
    rounds, copied_at, said = 0, clock.monotonic(), ""
    while rounds < limits.max_rounds:
        run.renew()
        done = run.ports.verbs.copy_round(handover.topic, run.ports.new_run_id())
        left = _left(facts_of(run).partitions)
        words = f"{done.copied_segments} segments copied, {len(left)} rolled ones are left"
        if words != said:
            run.told(said := words)
        if not left:
            return DONE
        if done.copied_segments:
            rounds, copied_at = rounds + 1, clock.monotonic()
            continue
        stuck = _stuck(left, done, _expired(run, left))
        if stuck.end is StepEnd.STOP or done.failed or clock.monotonic() - copied_at >= limits.watch_seconds:
            return stuck
        clock.sleep(_LOOK_AGAIN_SECONDS)
    return StepResult(StepEnd.WAIT, f"after {rounds} rounds producers still roll faster than copied")


def _left(partitions: Sequence[PartitionFacts]) -> list[tuple[int, int, str | None]]:
    """(partition, first offset, reason) of rolled segments that are ours to copy."""
    return [
        (one.partition, first, reason)
        for one in partitions
        if one.replica is not None
        for first, reason in one.replica.waiting[:1]
        if reason not in _LEFT_TO_THE_BROKER
    ]


def _expired(run: HandoverRun, left: Sequence[tuple[int, int, str | None]]) -> list[str]:
    """What was remote and is not any more, while the broker has it still: nothing is copied a second time."""
    handover, found = run.handover, []
    for number, first, reason in left:
        partition = TopicIdPartition(handover.topic_id, number, handover.topic)
        highest = run.ports.metadata.highest_copied_offset(partition)
        if reason is None and highest is not None and first <= highest:
            found.append(
                f"partition {number}, offset {first}: it was copied up to offset {highest} and has expired here, the"
                " broker has it still: raise its log start (kafka-delete-records)"
            )
    return found


def _stuck(left: Sequence[tuple[int, int, str | None]], done: CopyRound, expired: Sequence[str]) -> StepResult:
    """Nothing went on, and something is left: the rule that holds it says whether waiting helps."""
    named = [f"partition {partition}, offset {first}: {reason or 'not copied'}" for partition, first, reason in left]
    sentences = [*done.failed, *done.held_back, *expired, *named][:_MOST_NAMED]
    is_for_a_person = bool(expired) and not (done.failed or done.held_back)
    waits = (
        done.worth_retrying and not is_for_a_person and all(reason is None or reason in _SOON for _, _, reason in left)
    )
    return StepResult(StepEnd.WAIT if waits else StepEnd.STOP, "; ".join(sentences))
