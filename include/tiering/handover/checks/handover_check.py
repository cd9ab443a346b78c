"""What a named check of a hand-over is, and what it says: of a topic, or of one of its partitions."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from include.tiering.handover.checks.handover_facts import HandoverFacts
from include.tiering.handover.handover import HandoverStep


class CheckOutcome(StrEnum):
    """REFUSED stops the hand-over; WAITING may pass by itself; NOTE is for a person and stops nothing."""

    PASSED = "passed"
    NOTE = "note"
    WAITING = "waiting"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one named check said of the topic, or of one of its partitions.

    `numbers`: what was found and what was expected. `what_to_do` is empty where nothing is to be done.
    """

    name: str
    partition: int | None
    outcome: CheckOutcome
    numbers: str = ""
    what_to_do: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """What a check found that is not as it promises; it becomes a result under the check's name."""

    numbers: str
    what_to_do: str = ""
    partition: int | None = None
    outcome: CheckOutcome = CheckOutcome.REFUSED


Look = Callable[[HandoverFacts], Iterator[Remark]]


@dataclass(frozen=True, slots=True)
class NamedCheck:
    """`promise`: what holds if it passes. `look` yields nothing then. `steps`: at which it is made."""

    name: str
    promise: str
    look: Look
    steps: frozenset[HandoverStep]


def results_of(checks: Iterable[NamedCheck], step: HandoverStep, facts: HandoverFacts) -> tuple[CheckResult, ...]:
    """Of all checks that are made at this step, in their order; one that has no remark passed."""
    return tuple(result for check in checks if step in check.steps for result in _results(check, facts))


def worst(results: Iterable[CheckResult]) -> CheckOutcome:
    """REFUSED before WAITING before NOTE before PASSED."""
    order = list(CheckOutcome)
    return max((result.outcome for result in results), key=order.index, default=CheckOutcome.PASSED)


def _results(check: NamedCheck, facts: HandoverFacts) -> Iterator[CheckResult]:
    remarks = list(check.look(facts))
    if all(remark.outcome is CheckOutcome.NOTE for remark in remarks):
        yield CheckResult(check.name, None, CheckOutcome.PASSED, check.promise)
    for remark in remarks:
        yield CheckResult(check.name, remark.partition, remark.outcome, remark.numbers, remark.what_to_do)
