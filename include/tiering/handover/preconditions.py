"""The first step: may this topic be handed over at all? Changes nothing.

step        done when it is reached                  a crash right after it leaves       cleaned up by
gathered    everybody was asked                      nothing                             -
checked     the controller would take the configs    nothing                             -
            that the topic has at the end
recorded    what the checks said is stored           the answers                         the next try replaces them
"""

from collections.abc import Sequence

from include.tiering.handover.checks.handover_check import CheckOutcome, CheckResult, results_of, worst
from include.tiering.handover.checks.handover_facts import HandoverFacts
from include.tiering.handover.checks.handover_pitfalls import CHECKS
from include.tiering.handover.gather import gather
from include.tiering.handover.guards import LOCAL_BYTES, LOCAL_MS
from include.tiering.handover.handover import HandoverStep
from include.tiering.handover.ports import DONE, REMOTE_STORAGE, HandoverRun, StepEnd, StepResult


def check_preconditions(run: HandoverRun) -> StepResult:
    """Ask everybody, and refuse with names and numbers.

    Raises:
        BrokersRefusedError: brokers do not take remote storage with these values of local and total retention, which
            they compare from the switch on only. Else it would be the last step that is refused.
    """
    result = judged(run, HandoverStep.PRECONDITIONS, facts_of(run))
    if result.end is StepEnd.DONE:
        run.ports.brokers.alter_topic_configs(run.handover.topic, _configs_at_the_end(run), dry_run=True)
    return result


def _configs_at_the_end(run: HandoverRun) -> dict[str, str | None]:
    """What the topic had, with what was asked for. None: unset."""
    handover = run.handover
    guards = run.ports.handovers.guards(handover.handover_id)
    at_the_end = {guard.key: guard.old_value for guard in guards if not guard.restored}
    wanted = handover.wanted
    for key, value in ((LOCAL_MS, wanted.local_retention_ms), (LOCAL_BYTES, wanted.local_retention_bytes)):
        if value is not None:
            at_the_end[key] = str(value)
    return at_the_end | {REMOTE_STORAGE: "true"}


def facts_of(run: HandoverRun) -> HandoverFacts:
    """Of this hand-over, as everything is now."""
    handover = run.handover
    return gather(run.ports, handover.topic, handover.topic_id, handover)


def judged(run: HandoverRun, step: HandoverStep, facts: HandoverFacts) -> StepResult:
    """Make the checks of a step, keep what they said, and tell what follows from it."""
    results = results_of(CHECKS, step, facts)
    run.record(step, results)
    return concluded(results)


def concluded(results: Sequence[CheckResult]) -> StepResult:
    """Refused: STOP. Something that may pass by itself: WAIT."""
    outcome = worst(results)
    if outcome is CheckOutcome.REFUSED:
        return StepResult(StepEnd.STOP, _sentence(results, outcome))
    if outcome is CheckOutcome.WAITING:
        return StepResult(StepEnd.WAIT, _sentence(results, outcome))
    return DONE


def _sentence(results: Sequence[CheckResult], outcome: CheckOutcome) -> str:
    matching = [one for one in results if one.outcome is outcome]
    first = matching[0]
    where = "" if first.partition is None else f" (partition {first.partition})"
    more = f", and {len(matching) - 1} more" if len(matching) > 1 else ""
    return f"{first.name}{where}: {first.numbers}{more}"
