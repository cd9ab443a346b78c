"""The report of a handover: its steps, the results of checks, overrides, and the offsets that are handed over."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

from include.tiering.handover.checks import CheckOutcome, CheckResult
from include.tiering.handover.contract import Handover, HandoverStore, RetentionOverride, SeededPartition
from include.tiering.handover.rules import STEPS, HandoverState, HandoverStep, Undo
from include.tiering.presentation import Presentation, Table, count
from include.tiering.runs.approval import ApprovalQuestion
from include.tiering.units import format_utc

WHAT_STEPS_DO: Final = {
    HandoverStep.PRECONDITIONS: "check whether this topic may be handed over",
    HandoverStep.OVERRIDES: "store the retention configs, and set retention to unlimited",
    HandoverStep.COPY: "copy all rolled segments, from the broker's log start on",
    HandoverStep.QUALITY_CHECK: "verify every segment, and check what brokers would take over",
    HandoverStep.APPROVAL: "wait until a person approves exactly this plan",
    HandoverStep.FENCE: "set the owner to handing-over: no batch copies or expires",
    HandoverStep.RECHECK: "check log starts, epochs, leaders and configs again",
    HandoverStep.PUBLISH: "send remote log metadata, and read it back",
    HandoverStep.SWITCH: "set remote.storage.enable=true",
    HandoverStep.WATCH: "wait until brokers know what is remote; no log start may rise",
    HandoverStep.TAKE_OVER: "set the owner to broker",
    HandoverStep.RETENTION: "restore total retention",
    HandoverStep.LOCAL_RETENTION: "lower local retention step by step, and compare records",
}
_SHORT_HASH: Final = 12
_CHECK_COLUMNS: Final = ("check", "partition>", "outcome", "what was found", "what to do")


class CheckDocument(TypedDict):
    """The result of one check; `partition` is null if it is about the topic."""

    name: str
    partition: int | None
    outcome: str
    numbers: str
    what_to_do: str


class OverrideDocument(TypedDict):
    """A config of the topic that the handover changes; `old_value` is null if the topic had none of its own."""

    key: str
    old_value: str | None
    set_value: str
    restored: bool


class SeededPartitionDocument(TypedDict):
    """The offsets of one partition that are handed over, both ends inclusive."""

    partition: int
    start_offset: int
    end_offset: int
    log_start_offset: int
    leader: int
    leader_epoch: int
    compared_offset: int | None


class HandoverDocument(TypedDict):
    """A handover and its last checks; `guards` are the retention overrides that keep brokers from deleting."""

    handover_id: str
    topic: str
    topic_id: str
    step: str
    state: str
    detail: str
    plan_hash: str | None
    approved_by: str | None
    refusal: str | None
    checks: list[CheckDocument]
    guards: list[OverrideDocument]
    partitions: list[SeededPartitionDocument]


class HandoverChecksDocument(TypedDict):
    """A dry run, which changed nothing; `guards` are the retention overrides that the handover would set."""

    topic: str
    checks: list[CheckDocument]
    guards: list[OverrideDocument]
    segments_to_copy: int


@dataclass(frozen=True, slots=True)
class HandoverView:
    """A handover with its latest check results, its overrides and its seed.

    `refusal`: why the plan that waits for an approval did not get one; None otherwise.
    """

    handover: Handover
    checks: Sequence[CheckResult] = ()
    overrides: Sequence[RetentionOverride] = ()
    seed: Sequence[SeededPartition] = ()
    refusal: str | None = None


def latest_checks(store: HandoverStore, handover: Handover) -> Sequence[CheckResult]:
    """Return the results of the present step, or of the last step before it that has any."""
    for step in reversed(STEPS[: STEPS.index(handover.step) + 1]):
        if checks := store.checks(handover.handover_id, step):
            return checks
    return ()


def present_handover(view: HandoverView) -> Presentation:
    """Present a handover. It is `ok` only if the handover is DONE or UNDONE and there is no refusal."""
    handover = view.handover
    is_ok = handover.state.has_ended and view.refusal is None
    return Presentation(lambda: handover_document(view), lambda: _tables(view), _summary(view), ok=is_ok)


def present_checks(
    topic: str, results: Sequence[CheckResult], would: Sequence[RetentionOverride], to_copy: int
) -> Presentation:
    """Present a dry run, which changed nothing. `to_copy`: number of rolled segments that are not remote yet."""
    refused = sum(result.outcome is CheckOutcome.REFUSED for result in results)
    waiting = sum(result.outcome is CheckOutcome.WAITING for result in results)
    outcome = f"{count(refused, 'check')} refused, {waiting} waiting" if refused or waiting else "no check refused"
    return Presentation(
        lambda: HandoverChecksDocument(
            topic=topic, checks=_checks(results), guards=_overrides(would), segments_to_copy=to_copy
        ),
        lambda: tuple(table for table in (_check_table(results, passed=True), _override_table(would)) if table.rows),
        f"{topic}: {outcome}; {count(to_copy, 'segment')} not remote yet; nothing was changed",
        ok=not refused and not waiting,
    )


def step_line(handover: Handover) -> str:
    """Return a line such as `step 3 of 13, copy: copy all rolled segments, ...`."""
    step = handover.step
    return f"step {STEPS.index(step) + 1} of {len(STEPS)}, {step}: {WHAT_STEPS_DO[step]}"


def handover_question(view: HandoverView) -> ApprovalQuestion:
    """Return the question that a person answers before the topic is handed over."""
    handover = view.handover
    offsets = [
        f"| {seeded.topic_id_partition.partition} | {_offsets(seeded)} | {seeded.log_start_offset} |"
        for seeded in view.seed
    ]
    notes = [check for check in view.checks if check.outcome is CheckOutcome.NOTE]
    lines = [
        f"Plan `{handover.plan_hash}` hands topic `{handover.topic}` ({handover.topic_id}) over to its brokers.",
        "",
        "| partition | offsets | broker's log start |",
        "|---|---|---|",
        *offsets,
        "",
        *(f"* {note.name}: {note.numbers}" for note in notes),
        "",
        "Segments that are copied until the topic is fenced off are verified and handed over too.",
        "**Approve** fences the topic off, publishes these segments and sets `remote.storage.enable=true`: then the",
        "brokers copy and expire it, and Kafka has no way back that keeps the remote segments.",
        "**Reject** changes nothing; `./tiering handover TOPIC --undo` restores the topic's configs.",
    ]
    what = f"{count(len(view.seed), 'partition')} of {handover.topic}"
    return ApprovalQuestion(f"Hand {what} over? Plan {(handover.plan_hash or '')[:_SHORT_HASH]}", "\n".join(lines))


def undo_sentence(handover: Handover, undo: Undo) -> str:
    """Return in one line what an undo would do."""
    if undo.ends_as is None:
        return f"{handover.topic} cannot be given back: {undo.reason}"
    doing = "; ".join(action.value for action in undo.actions)
    return f"{doing}. It ends as {undo.ends_as}" + (f": {undo.reason}" if undo.reason else "")


def _summary(view: HandoverView) -> str:
    handover = view.handover
    if view.refusal is not None:
        return f"{handover.topic}: {view.refusal}"
    if handover.state is HandoverState.DONE:
        return f"{handover.topic} is handed over: {handover.detail}"
    if handover.state is HandoverState.ACTIVE:
        return f"{handover.topic} waits at {handover.step}: {handover.detail or 'its driver ended'}"
    return f"{handover.topic} is {handover.state} at {handover.step}: {handover.detail}"


def handover_document(view: HandoverView) -> HandoverDocument:
    handover = view.handover
    return {
        "handover_id": str(handover.handover_id),
        "topic": handover.topic,
        "topic_id": str(handover.topic_id),
        "step": handover.step.value,
        "state": handover.state.value,
        "detail": handover.detail,
        "plan_hash": handover.plan_hash,
        "approved_by": None if handover.approval is None else handover.approval.author,
        "refusal": view.refusal,
        "checks": _checks(view.checks),
        "guards": _overrides(view.overrides),
        "partitions": [
            {
                "partition": seeded.topic_id_partition.partition,
                "start_offset": seeded.start_offset,
                "end_offset": seeded.end_offset,
                "log_start_offset": seeded.log_start_offset,
                "leader": seeded.leader,
                "leader_epoch": seeded.leader_epoch,
                "compared_offset": seeded.compared_offset,
            }
            for seeded in view.seed
        ],
    }


def _checks(results: Sequence[CheckResult]) -> list[CheckDocument]:
    return [
        {
            "name": result.name,
            "partition": result.partition,
            "outcome": result.outcome.value,
            "numbers": result.numbers,
            "what_to_do": result.what_to_do,
        }
        for result in results
    ]


def _overrides(overrides: Sequence[RetentionOverride]) -> list[OverrideDocument]:
    return [
        {
            "key": override.key,
            "old_value": override.old_value,
            "set_value": override.set_value,
            "restored": override.restored,
        }
        for override in overrides
    ]


def _tables(view: HandoverView) -> tuple[Table, ...]:
    checks = _check_table(view.checks, passed=False)
    tables = (_steps(view.handover), checks, _override_table(view.overrides), _seed(view.seed))
    return tuple(table for table in tables if table.rows)


def _steps(handover: Handover) -> Table:
    now = STEPS.index(handover.step)
    rows = []
    for number, step in enumerate(STEPS):
        is_done = number < now or handover.state is HandoverState.DONE
        mark = "done" if is_done else (str(handover.state) if number == now else "")
        rows.append((f"{number + 1:2} {step}", WHAT_STEPS_DO[step], mark))
    began = format_utc(handover.began_at_ms)
    return Table(f"handover of {handover.topic}, begun {began}", ("step", "what it does", "state"), tuple(rows))


def _check_table(results: Sequence[CheckResult], *, passed: bool) -> Table:
    shown = [result for result in results if passed or result.outcome is not CheckOutcome.PASSED]
    rows = tuple(
        (
            check.name,
            "" if check.partition is None else str(check.partition),
            str(check.outcome),
            check.numbers,
            check.what_to_do,
        )
        for check in shown
    )
    ok = sum(result.outcome is CheckOutcome.PASSED for result in results)
    return Table(f"checks ({ok} of {len(results)} passed)", _CHECK_COLUMNS, rows)


def _override_table(overrides: Sequence[RetentionOverride]) -> Table:
    rows = tuple(
        (
            override.key,
            "unset" if override.old_value is None else override.old_value,
            override.set_value,
            "yes" if override.restored else "no",
        )
        for override in overrides
    )
    return Table("retention overrides", ("config", "was", "is set to", "restored"), rows)


def _seed(seed: Sequence[SeededPartition]) -> Table:
    rows = tuple(
        (
            str(partition.topic_id_partition),
            _offsets(partition),
            str(partition.log_start_offset),
            f"{partition.leader}, epoch {partition.leader_epoch}",
            str(partition.compared_offset),
        )
        for partition in seed
    )
    columns = ("partition", "offsets", "log start>", "leader", "compared below>")
    return Table("what is handed over", columns, rows)


def _offsets(seeded: SeededPartition) -> str:
    return "nothing" if seeded.is_empty else f"{seeded.start_offset}..{seeded.end_offset}"
