"""What a plan has to say of topics that were deleted, before a person approves it."""

from collections.abc import Iterable, Mapping

from include.tiering.model.ids import Uuid
from include.tiering.model.retention import DeletionReason
from include.tiering.runs.deletion_contract import PlannedExpiration
from include.tiering.segments.topic_deletions_contract import TopicDeletion
from include.tiering.units import format_utc


def deletion_demands(plan: Iterable[PlannedExpiration], recorded: Mapping[Uuid, TopicDeletion]) -> dict[Uuid, str]:
    """One sentence for each topic whose segments go because it was deleted: that is never done without a person."""
    topics = {
        planned.topic_id_partition.topic_id: planned.topic_id_partition.topic
        for planned in plan
        if any(one.reason == DeletionReason.TOPIC_DELETED for one in planned.deletions)
    }
    return {
        topic_id: f"{topic} ({topic_id}): {_why_all_goes(recorded.get(topic_id))}" for topic_id, topic in topics.items()
    }


def _why_all_goes(deletion: TopicDeletion | None) -> str:
    if deletion is None:
        return "all of it would go because the topic was deleted, which is no longer recorded"
    seen = f"seen {format_utc(deletion.seen_at_ms)}, {deletion.evidence}"
    return f"the topic was deleted ({seen}): all of it goes, which always needs an approval"
