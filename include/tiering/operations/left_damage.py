"""Failed segments of histories that a decision left, for those who ask about a topic: they keep nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from include.tiering.model.ids import TopicIdPartition
from include.tiering.operations.diagnose import Diagnosis
from include.tiering.segments.failed_copies import FailedCopy


def with_left_damage(
    diagnoses: Sequence[Diagnosis], failed: Mapping[TopicIdPartition, Sequence[FailedCopy]]
) -> tuple[Diagnosis, ...]:
    """Each with what failed of its partition though nothing waits for it: the cause and the advice stay."""
    return tuple(replace(one, finding="; ".join((one.finding, *_said(one, failed)))) for one in diagnoses)


def _said(found: Diagnosis, failed: Mapping[TopicIdPartition, Sequence[FailedCopy]]) -> Sequence[str]:
    copies = () if found.partition is None else failed.get(found.partition, ())
    return [
        f"offsets {one.offsets} of a history that a decision left failed verification (segment {one.segment_id.id}):"
        " nothing waits for them"
        for one in copies
        if one.was_left
    ]
