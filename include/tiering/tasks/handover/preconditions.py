"""The first step: may this topic be handed over at all? Changes nothing.

step        done when it is reached                  a crash right after it leaves       cleaned up by
gathered    everybody was asked                      nothing                             -
recorded    what the checks said is stored           the answers                         the next try replaces them
"""

from collections.abc import Sequence

from include.tiering.model.handover import HandoverStep
from include.tiering.model.handover_check import CheckOutcome, CheckResult, results_of, worst
from include.tiering.model.handover_facts import HandoverFacts
from include.tiering.model.handover_pitfalls import CHECKS
from include.tiering.tasks.handover.gather import gather
from include.tiering.tasks.handover.ports import DONE, HandoverRun, StepEnd, StepResult


def check_preconditions(run: HandoverRun) -> StepResult:
    """Ask everybody, and refuse with names and numbers."""
    return judged(run, HandoverStep.PRECONDITIONS, facts_of(run))


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
