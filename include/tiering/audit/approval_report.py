"""What a person is asked before anything without metadata is removed: a headline, and Markdown below it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from include.tiering.audit.plan_removals import RemovalPlan
from include.tiering.audit.report import removal_sentence
from include.tiering.configs.deletion_limits import Loosening
from include.tiering.presentation import TopicNames, count
from include.tiering.runs.approval_report import ApprovalQuestion, loosened_lines
from include.tiering.runs.brake import BrakeReport
from include.tiering.units import format_bytes

_MOST: Final = 50
_SHORT_HASH: Final = 12


def removal_question(plan: RemovalPlan, brake: BrakeReport, loosened: Sequence[Loosening] = ()) -> ApprovalQuestion:
    """Names the plan by its hash; topics that lose most come first, at most 50 of them, with examples of keys.

    `loosened`: limits that let more go than before, oldest first.
    """
    what = removal_sentence(len(plan.removals), plan.size_bytes)
    segments = len({removal.segment_id for removal in plan.removals})
    headline = (
        f"Plan `{brake.plan_hash}` of run `{brake.run_id}` removes {what} of {count(segments, 'segment id')} that no"
        f" metadata knows, found by audit `{plan.audit_run_id}`."
    )
    lines = [
        headline,
        "",
        *(f"* {reason}" for reason in brake.reasons[:_MOST]),
        "",
        *loosened_lines(loosened),
        *_topics(plan, brake),
        "",
        "Each is looked at again before it goes: what was written since, or is known to metadata by then, stays.",
        "**Approve** removes exactly this plan. **Reject**, or no answer in time, removes nothing.",
    ]
    return ApprovalQuestion(f"Remove {what} without metadata? Plan {brake.plan_hash[:_SHORT_HASH]}", "\n".join(lines))


def _topics(plan: RemovalPlan, brake: BrakeReport) -> Iterator[str]:
    kinds: dict[object, Counter[str]] = {}
    example: dict[object, str] = {}
    for removal in plan.removals:
        topic_id = removal.segment_id.topic_id_partition.topic_id
        kinds.setdefault(topic_id, Counter())[str(removal.kind)] += 1
        example.setdefault(topic_id, removal.key)
    names = TopicNames(removal.segment_id.topic_id_partition for removal in plan.removals)
    yield "| topic | bytes | share | what | such as |"
    yield "| --- | --- | --- | --- | --- |"
    for action in sorted(brake.actions, key=lambda one: (-one.planned_bytes, one.topic))[:_MOST]:
        counted = ", ".join(f"{kind} {number}" for kind, number in kinds.get(action.topic_id, Counter()).items())
        yield (
            f"| `{names.topic(action.topic, action.topic_id)}` | {format_bytes(action.planned_bytes)}"
            f" | {action.share:.1%} | {counted} |"
            f" `{example.get(action.topic_id, '')}` |"
        )
    if len(brake.actions) > _MOST:
        yield ""
        yield f"and {count(len(brake.actions) - _MOST, 'more topic')}"
