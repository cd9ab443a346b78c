"""Compare segments, sizes and objects before and after an expiration."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.table import Table

from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.model.segments import TopicIdPartition
from include.tiering.model.sizes import PartitionSize

if TYPE_CHECKING:
    from include.tiering.app import App

_OF_THE_STORE: Final = "_tiering-"
"""How the keys of the store's marker, and of the object that a `ready` writes and removes, begin."""
OBJECTS_OF_A_SEGMENT: Final = 3
"""Objects of a segment in the layout `aiven`: log, indexes, manifest."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Segments, bytes and log start offset of one partition at one time."""

    segments: int
    size_bytes: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Holdings:
    """Content of the platform at one time. `objects` counts the objects of segments in the store's listing."""

    partitions: Mapping[TopicIdPartition, Stored]
    objects: int

    @property
    def segments(self) -> int:
        return sum(stored.segments for stored in self.partitions.values())


def holdings(app: "App") -> Holdings:
    """Read the present content of database and store."""
    stored = {size.topic_id_partition: _stored(app, size) for size in app.sizes.partition_sizes()}
    return Holdings(
        stored, sum(1 for key, _ in app.adapters.storage.list_objects() if not key.startswith(_OF_THE_STORE))
    )


def limit_retention(app: "App", topic: str, retention_bytes: int) -> None:
    """Set the retention as `./tiering configs` does."""
    changes = {"retention.bytes": str(retention_bytes)}
    app.configs.alter(ConfigEntity(EntityType.TOPICS, topic), changes, author="demo")


def faults(before: Holdings, after: Holdings, topic: str) -> Iterator[str]:
    """Check an expiration of `topic` by size; yield one line for each missing or unexpected change."""
    if after.segments >= before.segments:
        yield f"no segment of {topic} was deleted"
    if after.objects != OBJECTS_OF_A_SEGMENT * after.segments:
        yield f"{after.objects} objects for {after.segments} segments"
    for partition, was in before.partitions.items():
        now = after.partitions.get(partition, Stored(0, 0, 0))
        if partition.topic != topic and now != was:
            yield f"{partition} is not of {topic}, and changed from {was} to {now}"
        elif now.segments < was.segments and now.log_start_offset <= was.log_start_offset:
            yield f"{partition} lost segments without a higher log start offset"
        elif was.segments and not now.segments:
            yield f"{partition} lost everything"


def table(before: Holdings, after: Holdings, topic: str) -> Table:
    """Show segments, bytes and log start offset per partition of the topic, before and after."""
    shown = Table(title="tiering_expiration by size", title_justify="left")
    shown.add_column("partition")
    for numbers in ("segments\nbefore", "after", "bytes\nbefore", "after", "log start\nbefore", "after"):
        shown.add_column(numbers, justify="right")
    for partition, was in before.partitions.items():
        if partition.topic == topic:
            now = after.partitions.get(partition, Stored(0, 0, 0))
            pairs = zip(
                (was.segments, was.size_bytes, was.log_start_offset),
                (now.segments, now.size_bytes, now.log_start_offset),
                strict=True,
            )
            shown.add_row(str(partition), *(str(number) for pair in pairs for number in pair))
    return shown


def _stored(app: "App", size: PartitionSize) -> Stored:
    retained = app.adapters.stores.metadata.retention_state(size.topic_id_partition)
    return Stored(size.segments, size.size_bytes, retained.log_start_offset)
