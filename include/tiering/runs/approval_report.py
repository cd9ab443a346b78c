"""What a person is asked before a run that the brake stopped deletes anything: a headline, and Markdown below it."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.configs.deletion_limits import Loosening
from include.tiering.model.ids import Uuid
from include.tiering.presentation import TopicNames, count
from include.tiering.runs.brake import BrakeReport, TopicAction
from include.tiering.runs.deletion_contract import PlannedExpiration
from include.tiering.units import format_bytes

_MOST_TOPICS: Final = 50
_MOST_LOOSENED: Final = 20
_SHORT_HASH: Final = 12
_COLUMNS: Final = ("topic", "segments", "bytes", "share", "last 24 h", "remote now", "why")


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """`subject` is one line of text, `body` Markdown."""

    subject: str
    body: str


def approval_question(
    brake: BrakeReport,
    expirations: Sequence[PlannedExpiration],
    shared_names: Collection[str] = (),
    loosened: Sequence[Loosening] = (),
) -> ApprovalQuestion:
    """Names the plan by its hash; topics that lose the largest share come first, at most 50 of them. Topics of
    `shared_names` are named with their id. `loosened`: limits that let more go than before, oldest first."""
    names = TopicNames((planned.topic_id_partition for planned in expirations), shared=shared_names)
    reasons = _reasons(expirations)
    segments = sum(counted.total() for counted in reasons.values())
    size_bytes = sum(deletion.size_bytes for planned in expirations for deletion in planned.deletions)
    what = f"{count(segments, 'segment')} ({format_bytes(size_bytes)}) of {count(len(reasons), 'topic')}"
    actions = sorted(brake.actions, key=lambda action: (-action.share, action.topic))
    lines = [
        f"Plan `{brake.plan_hash}` of run `{brake.run_id}` deletes {what} from remote storage.",
        "",
        *(f"* {reason}" for reason in brake.reasons[:_MOST_TOPICS]),
        *_left_out(len(brake.reasons), "reason"),
        "",
        *loosened_lines(loosened),
        *_table(actions[:_MOST_TOPICS], reasons, names),
        *_left_out(len(actions), "topic"),
        "",
        "The share is what is planned and what was deleted within 24 hours, of what there would be without either.",
        "**Approve** deletes exactly this plan. **Reject**, or no answer in time, deletes nothing.",
        "A retention that was cut by mistake: reject, then mend it (`./tiering configs --entity-type topics`).",
    ]
    return ApprovalQuestion(f"Delete {what}? Plan {brake.plan_hash[:_SHORT_HASH]}", "\n".join(lines))


def loosened_lines(loosened: Sequence[Loosening]) -> Iterator[str]:
    """Which limits were loosened, by whom and when; nothing if none was."""
    if not loosened:
        return
    yield "**Limits of deletions were loosened since the last approval:**"
    yield ""
    if len(loosened) > _MOST_LOOSENED:
        yield f"* {count(len(loosened) - _MOST_LOOSENED, 'earlier change')}: `./tiering configs --describe --history`"
    yield from (f"* {one}" for one in loosened[-_MOST_LOOSENED:])
    yield ""


def _reasons(expirations: Sequence[PlannedExpiration]) -> dict[Uuid, Counter[str]]:
    """Segments by reason, by topic."""
    found: dict[Uuid, Counter[str]] = {}
    for planned in expirations:
        counted = found.setdefault(planned.topic_id_partition.topic_id, Counter())
        counted.update(deletion.reason for deletion in planned.deletions)
    return found


def _table(actions: Sequence[TopicAction], reasons: dict[Uuid, Counter[str]], names: TopicNames) -> Iterator[str]:
    yield _row(_COLUMNS)
    yield _row(("---",) * len(_COLUMNS))
    for action in actions:
        counted = reasons.get(action.topic_id, Counter[str]())
        yield _row(
            (
                f"`{names.topic(action.topic, action.topic_id)}`",
                str(counted.total()),
                format_bytes(action.planned_bytes),
                f"{action.share:.1%}",
                format_bytes(action.recent_bytes),
                format_bytes(action.remote_bytes),
                ", ".join(f"{reason} {number}" for reason, number in counted.items()),
            )
        )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _left_out(total: int, noun: str) -> Iterator[str]:
    if total > _MOST_TOPICS:
        yield ""
        yield f"and {count(total - _MOST_TOPICS, f'more {noun}')}"
