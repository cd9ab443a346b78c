"""The deletion limits: a plan needs an approval if it deletes too much, or if its totals differ from the database's.

A mistake in a setting makes a plan like any other, except that it deletes much at once. So for each topic the bytes
that a run would delete, without those counted when an earlier run began to delete them, are added to the bytes deleted
within the last 24 hours. The sum is divided by the bytes that would be stored if neither were deleted, in any segment
state; this is the topic's share. A topic that loses few bytes passes whatever its share. So two limits apply to all
topics together: how many bytes the topics that pass in this way may lose together, and how many topics may lose
everything. The database also computes the totals, independently of the plan; a difference stops the run as a large
share does. A demand of the caller, such as for a deleted topic, stops the run, too.

A run that was stopped is released by an approval of exactly its plan, which the plan's hash identifies.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from include.tiering.model.segments import Uuid
from include.tiering.runs.deletion_run import Approval, DeletionStore, PlannedExpiration, TopicTotals
from include.tiering.settings import TieringSettings
from include.tiering.units import GIB, format_bytes

WINDOW_MS: Final = 24 * 60 * 60 * 1000
_MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class TopicAction:
    """What a run deletes of one topic, in bytes of segments in any state.

    Attributes:
        planned_bytes: bytes that the plan deletes.
        recent_bytes: see `TopicTotals.recent_bytes`.
        remote_bytes: bytes stored now, without those that `recent_bytes` counts.
        begun_bytes: the part of `planned_bytes` that an earlier run began to delete and that was counted then.
        unapproved_bytes: see `TopicTotals.unapproved_bytes`.
        loses_everything: see `TopicTotals.loses_everything`.
    """

    topic_id: Uuid
    topic: str
    planned_bytes: int
    recent_bytes: int
    remote_bytes: int
    begun_bytes: int = 0
    unapproved_bytes: int = 0
    loses_everything: bool = False

    @property
    def counted_bytes(self) -> int:
        """The bytes that the plan adds to those already deleted or being deleted."""
        return self.planned_bytes - self.begun_bytes

    @property
    def only_resumes(self) -> bool:
        """Whether the plan only finishes deletions of this topic that earlier runs began and that were counted then."""
        return self.planned_bytes > 0 and self.counted_bytes == 0

    @property
    def window_bytes(self) -> int:
        """The bytes that count as deleted within the window when the run is done."""
        return self.counted_bytes + self.recent_bytes

    @property
    def share(self) -> float:
        """`window_bytes` divided by the bytes stored if none were deleted, 0 to 1; 0 for a topic without bytes."""
        before_bytes = self.remote_bytes + self.recent_bytes
        return self.window_bytes / before_bytes if before_bytes else 0.0


@dataclass(frozen=True, slots=True)
class DeletionLimits:
    """What may be deleted without an approval within 24 hours; all limits are inclusive.

    A topic may lose a share of `max_share`, or `min_bytes` whatever its share. All topics above `max_share` that lose
    at most `min_bytes` each may lose `total_max_bytes` together. `max_whole_topics` topics may lose everything.
    """

    max_share: float
    min_bytes: int
    total_max_bytes: int = GIB
    max_whole_topics: int = 1


@dataclass(frozen=True, slots=True)
class DeletionLimitReport:
    """The result of the limits for a run. Each of the `reasons`, sentences about `topic_ids`, requires an approval."""

    run_id: str
    plan_hash: str
    actions: tuple[TopicAction, ...]
    reasons: tuple[str, ...]
    approval: Approval | None = None
    topic_ids: frozenset[Uuid] = frozenset()

    @property
    def needs_approval(self) -> bool:
        return bool(self.reasons)


def apply_deletion_limits(
    run_id: str,
    deletions: DeletionStore,
    limits: DeletionLimits,
    *,
    author: str,
    demands: Mapping[Uuid, str] = MappingProxyType({}),
    dry_run: bool = False,
) -> DeletionLimitReport:
    """Apply the limits to a stored plan and record the result.

    Args:
        run_id: the run of the plan.
        deletions: the store of the plan.
        limits: what may be deleted without an approval.
        author: who evaluates, for the event log.
        demands: topics that need an approval whatever their share, each with a sentence that says why.
        dry_run: do not record the result. Then only an approval by a person releases the run.

    Raises:
        StateConflictError: no such run was planned.
    """
    run, plan = deletions.run(run_id), deletions.plan(run_id)
    totals = deletions.totals(run_id, window_ms=WINDOW_MS)
    actions = tuple(map(_action, totals))
    shown = tuple(action for action, total in zip(actions, totals, strict=True) if total.planned_segments)
    objections = (demands, disagreements(plan, totals), excesses(shown, limits))
    in_all = total_excesses(actions, limits)
    reasons = (*(sentence for objection in objections for sentence in objection.values()), *in_all)
    if not dry_run:
        detail = "; ".join(reasons) or "within the limits"
        deletions.record_limit_check(run_id, needs_approval=bool(reasons), detail=detail, author=author)
    topic_ids = frozenset().union(*objections, *in_all.values())
    return DeletionLimitReport(run_id, run.plan_hash, shown, reasons, run.approval, topic_ids)


def excesses(actions: Iterable[TopicAction], limits: DeletionLimits) -> dict[Uuid, str]:
    """Return a sentence for each topic above both limits of a topic, unless the plan only finishes its deletions."""
    return {
        action.topic_id: (
            f"{action.topic}: {format_bytes(action.planned_bytes)} planned and {format_bytes(action.recent_bytes)}"
            f" deleted within 24 hours are {action.share:.1%} of what there was; without an approval the limit is"
            f" {limits.max_share:.1%} or {format_bytes(limits.min_bytes)}"
        )
        for action in actions
        if not action.only_resumes and action.window_bytes > limits.min_bytes and action.share > limits.max_share
    }


def total_excesses(actions: Sequence[TopicAction], limits: DeletionLimits) -> dict[str, frozenset[Uuid]]:
    """Return a sentence for each limit of all topics together that is exceeded, with the topics that exceed it.

    Only topics with `counted_bytes` are returned; a limit without such a topic gives no sentence. Recent deletions that
    were approved do not count towards `total_max_bytes`.
    """
    whole = [action for action in actions if action.loses_everything]
    small = [
        action for action in actions if action.share > limits.max_share and action.window_bytes <= limits.min_bytes
    ]
    small_bytes = sum(action.counted_bytes + action.unapproved_bytes for action in small)
    found = {}
    if len(whole) > limits.max_whole_topics and (planned := _planned_of(whole)):
        sentence = (
            f"{len(whole)} topics lose everything within 24 hours ({_names(whole)}); without an approval at most"
            f" {limits.max_whole_topics}"
        )
        found[sentence] = planned
    if small_bytes > limits.total_max_bytes and (planned := _planned_of(small)):
        sentence = (
            f"{len(small)} topics lose more than {limits.max_share:.1%} of their bytes within 24 hours, each at most"
            f" {format_bytes(limits.min_bytes)}, in all {format_bytes(small_bytes)} ({_names(small)}); without an"
            f" approval at most {format_bytes(limits.total_max_bytes)} in all"
        )
        found[sentence] = planned
    return found


def _planned_of(actions: Iterable[TopicAction]) -> frozenset[Uuid]:
    return frozenset(action.topic_id for action in actions if action.counted_bytes)


def _names(actions: Sequence[TopicAction]) -> str:
    most = sorted(actions, key=lambda action: (-action.window_bytes, action.topic))[:_MOST_NAMES]
    rest = f" and {len(actions) - _MOST_NAMES} more" if len(actions) > _MOST_NAMES else ""
    return ", ".join(action.topic for action in most) + rest


def disagreements(plan: Sequence[PlannedExpiration], totals: Sequence[TopicTotals]) -> dict[Uuid, str]:
    """Return a sentence for each topic about which the plan and the database contradict each other.

    They do if their sums differ, or if a planned segment counts as `TopicTotals.above_log_start`.
    """
    by_plan, by_database = (
        _sums(plan),
        {total.topic_id: (total.planned_segments, total.planned_bytes) for total in totals},
    )
    names = {p.topic_id_partition.topic_id: p.topic_id_partition.topic for p in plan}
    sentences: dict[Uuid, list[str]] = defaultdict(list)
    for topic_id, counted in by_plan.items():
        if (found := by_database.get(topic_id, (0, 0))) != counted:
            sentences[topic_id].append(
                f"{names[topic_id]}: the plan counts {counted[0]} segments with {counted[1]} bytes,"
                f" the database {found[0]} with {found[1]}"
            )
    for total in totals:
        if total.above_log_start:
            sentences[total.topic_id].append(
                f"{total.topic}: {total.above_log_start} planned segments reach beyond the log start"
                " that their deletion leaves"
            )
    return {topic_id: "; ".join(lines) for topic_id, lines in sentences.items()}


def _sums(plan: Iterable[PlannedExpiration]) -> Mapping[Uuid, tuple[int, int]]:
    """Add up segments and bytes by topic."""
    segments: dict[Uuid, int] = defaultdict(int)
    size_bytes: dict[Uuid, int] = defaultdict(int)
    for planned in plan:
        topic_id = planned.topic_id_partition.topic_id
        segments[topic_id] += len(planned.deletions)
        size_bytes[topic_id] += planned.size_bytes
    return {topic_id: (count, size_bytes[topic_id]) for topic_id, count in segments.items()}


def _action(totals: TopicTotals) -> TopicAction:
    return TopicAction(
        totals.topic_id,
        totals.topic,
        totals.planned_bytes,
        totals.recent_bytes,
        totals.remote_bytes,
        totals.begun_bytes,
        totals.unapproved_bytes,
        totals.loses_everything,
    )


def deletion_limits(settings: TieringSettings) -> DeletionLimits:
    """Return the limits, from the settings of expiration, up to which a run may delete without an approval."""
    limits = settings.expiration
    return DeletionLimits(limits.max_share, limits.min_bytes, limits.total_max_bytes, limits.max_whole_topics)
