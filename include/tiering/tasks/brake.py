"""The brake of everything that deletes: above which share a person has to agree, and whether two sums agree.

A mistake in a setting looks like any other plan; what gives it away is how much goes at once. So what a run would
delete of a topic is measured together with what was deleted of it within the last 24 hours, against what there would be
without either. The totals come a second time from the database, by another way than the plan's; a difference stops the
run as a large share does.

A run that is stopped is released by an approval of exactly its plan, known by its hash. Another plan needs another one.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from include.tiering.model.ids import Uuid
from include.tiering.units import format_bytes
from include.tiering.work.deletion_contract import Approval, DeletionStore, PlannedExpiration, TopicTotals

WINDOW_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TopicAction:
    """What a destructive run does to one topic, in bytes of FINISHED segments.

    `recent_bytes` were deleted within the window before, `remote_bytes` are there now, `planned_bytes` included.
    """

    topic_id: Uuid
    topic: str
    planned_bytes: int
    recent_bytes: int
    remote_bytes: int

    @property
    def window_bytes(self) -> int:
        """What is gone of the window after the run."""
        return self.planned_bytes + self.recent_bytes

    @property
    def share(self) -> float:
        """0 to 1; of a topic without bytes 0."""
        before_bytes = self.remote_bytes + self.recent_bytes
        return self.window_bytes / before_bytes if before_bytes else 0.0


@dataclass(frozen=True, slots=True)
class BrakeLimits:
    """Without an approval goes at most `max_share` of a topic, and whatever does not exceed `min_bytes`."""

    max_share: float
    min_bytes: int


@dataclass(frozen=True, slots=True)
class BrakeReport:
    """What the brake says of a run. `reasons` are sentences, about `topic_ids`; with any, the run needs an approval."""

    run_id: str
    plan_hash: str
    actions: tuple[TopicAction, ...]
    reasons: tuple[str, ...]
    approval: Approval | None = None
    topic_ids: frozenset[Uuid] = frozenset()

    @property
    def needs_approval(self) -> bool:
        return bool(self.reasons)

    @property
    def is_released(self) -> bool:
        return not self.reasons or self.approval is not None


def apply_brake(
    run_id: str,
    deletions: DeletionStore,
    limits: BrakeLimits,
    *,
    author: str,
    demands: Mapping[Uuid, str] = MappingProxyType({}),
) -> BrakeReport:
    """Judge a stored plan and record the answer with the run, so that no batch takes work that is not released.

    `demands`: topics that need an approval whatever their share, each with the caller's sentence why.

    Raises:
        StateConflictError: no such run was planned.
    """
    run, plan = deletions.run(run_id), deletions.plan(run_id)
    totals = deletions.totals(run_id, window_ms=WINDOW_MS)
    actions = tuple(map(_action, totals))
    objections = (demands, disagreements(plan, totals), excesses(actions, limits))
    reasons = tuple(sentence for one in objections for sentence in one.values())
    deletions.record_brake(
        run_id, needs_approval=bool(reasons), detail="; ".join(reasons) or "within the limits", author=author
    )
    return BrakeReport(run_id, run.plan_hash, actions, reasons, run.approval, frozenset().union(*objections))


def excesses(actions: Iterable[TopicAction], limits: BrakeLimits) -> dict[Uuid, str]:
    """One sentence for each topic that loses too much at once."""
    return {
        action.topic_id: (
            f"{action.topic}: {format_bytes(action.planned_bytes)} planned and {format_bytes(action.recent_bytes)}"
            f" deleted within 24 hours are {action.share:.1%} of what there was; without an approval at most"
            f" {limits.max_share:.1%} or {format_bytes(limits.min_bytes)} go"
        )
        for action in actions
        if action.window_bytes > limits.min_bytes and action.share > limits.max_share
    }


def disagreements(plan: Sequence[PlannedExpiration], totals: Sequence[TopicTotals]) -> dict[Uuid, str]:
    """One sentence for each topic of which the plan and the database do not say the same."""
    by_plan, by_database = _sums(plan), {one.topic_id: (one.planned_segments, one.planned_bytes) for one in totals}
    names = {p.topic_id_partition.topic_id: p.topic_id_partition.topic for p in plan}
    sentences: dict[Uuid, list[str]] = defaultdict(list)
    for topic_id, said in by_plan.items():
        if (found := by_database.get(topic_id, (0, 0))) != said:
            sentences[topic_id].append(
                f"{names[topic_id]}: the plan counts {said[0]} segments with {said[1]} bytes,"
                f" the database {found[0]} with {found[1]}"
            )
    for one in totals:
        if one.above_log_start:
            sentences[one.topic_id].append(
                f"{one.topic}: {one.above_log_start} planned segments reach beyond the log start that their deletion"
                " leaves"
            )
    return {topic_id: "; ".join(lines) for topic_id, lines in sentences.items()}


def _sums(plan: Iterable[PlannedExpiration]) -> Mapping[Uuid, tuple[int, int]]:
    """Segments, and FINISHED bytes, by topic."""
    segments: dict[Uuid, int] = defaultdict(int)
    size_bytes: dict[Uuid, int] = defaultdict(int)
    for planned in plan:
        topic_id = planned.topic_id_partition.topic_id
        segments[topic_id] += len(planned.deletions)
        size_bytes[topic_id] += planned.finished_bytes
    return {topic_id: (count, size_bytes[topic_id]) for topic_id, count in segments.items()}


def _action(totals: TopicTotals) -> TopicAction:
    return TopicAction(totals.topic_id, totals.topic, totals.planned_bytes, totals.recent_bytes, totals.remote_bytes)
