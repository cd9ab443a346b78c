"""Segments that failed the quality gate, with their offsets and what becomes of them."""

from collections.abc import Sequence

from include.tiering.presentation import Document, Table, TopicNames, labels
from include.tiering.segments.failed_copies import FailedCopy


def failed_copy_document(copy: FailedCopy) -> Document:
    return {
        **labels(copy.metadata.topic_id_partition),
        "segment_id": str(copy.segment_id.id),
        "start_offset": copy.offsets.first,
        "end_offset": copy.offsets.last,
        "bytes": copy.metadata.segment_size_bytes,
        "lost_because": copy.lost_because,
        "given_up": copy.given_up,
        "was_left": copy.was_left,
    }


def failed_copies_table(copies: Sequence[FailedCopy]) -> tuple[Table, ...]:
    """No table if nothing failed."""
    names = TopicNames(one.metadata.topic_id_partition for one in copies)
    rows = tuple(
        (names.partition(one.metadata.topic_id_partition), str(one.offsets), str(one.segment_id.id), _outlook(one))
        for one in copies
    )
    columns = ("partition", "offsets", "segment id", "what becomes of it")
    return (Table("not served, as they failed the quality gate", columns, rows),) if rows else ()


def _outlook(copy: FailedCopy) -> str:
    if copy.was_left:
        return "of a history that a decision left: nothing waits for it, no source has it; it stays until it expires"
    if copy.given_up:
        return "given up by decision; it stays until it expires"
    if copy.lost_because is not None:
        return f"lost: {copy.lost_because}; see ./tiering skip"
    return "the next run copies it anew, if the source has it as it was"
