"""Remote log size of each partition and leader epoch; FINISHED segments only."""

from collections.abc import Sequence

from include.tiering.model.sizes import PartitionSize
from include.tiering.reports.presentation import Document, Presentation, Table, count, labels
from include.tiering.units import format_bytes


def present_sizes(sizes: Sequence[PartitionSize]) -> Presentation:
    """A segment that spans leader epochs counts once in its partition and once in each of its epochs."""
    total_bytes = sum(size.size_bytes for size in sizes)
    segments = sum(size.segments for size in sizes)
    summary = f"{count(len(sizes), 'partition')}, {count(segments, 'segment')}, {format_bytes(total_bytes)}"
    return Presentation(lambda: _document(sizes), lambda: _tables(sizes), summary)


def _document(sizes: Sequence[PartitionSize]) -> Document:
    return {
        "partitions": [
            {
                **labels(size.topic_id_partition),
                "bytes": size.size_bytes,
                "segments": size.segments,
                "leader_epochs": [
                    {"epoch": epoch.leader_epoch, "bytes": epoch.size_bytes, "segments": epoch.segments}
                    for epoch in size.leader_epochs
                ],
            }
            for size in sizes
        ]
    }


def _tables(sizes: Sequence[PartitionSize]) -> tuple[Table, ...]:
    rows = tuple(
        (
            str(size.topic_id_partition),
            str(size.segments),
            format_bytes(size.size_bytes),
            ", ".join(f"{epoch.leader_epoch}: {format_bytes(epoch.size_bytes)}" for epoch in size.leader_epochs),
        )
        for size in sizes
    )
    return (Table("remote log size", ("partition", "segments>", "bytes>", "by leader epoch"), rows),)
