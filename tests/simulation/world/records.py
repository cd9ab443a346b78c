"""Records and values of a world."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import google_crc32c

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition
from tests.simulation.world.database import Database

# Records as numbers: what a record is follows from where it was written, so exact bytes need no storing. In Kafka a
# leader epoch has one leader, which only appends: (partition, epoch, offset) names a record for ever, whatever
# branch of history it is on.

SNAPSHOT: Final = bytes.fromhex("000148674bc700000000")

Record = tuple[int, int]
"""(leader epoch, offset)"""


@lru_cache(maxsize=100_000)
def record_bytes(topic_id: bytes, partition: int, epoch: int, offset: int) -> bytes:
    """10 to 16 bytes that no other record has."""
    return b"%s:%d:%d:%d;" % (topic_id[:4].hex().encode(), partition, epoch, offset)


def bytes_of(partition: TopicIdPartition, records: Iterable[Record]) -> bytes:
    """As a `.log` holds them."""
    topic_id, number = partition.topic_id.value, partition.partition
    return b"".join([record_bytes(topic_id, number, epoch, offset) for epoch, offset in records])


def size_of(partition: TopicIdPartition, records: Iterable[Record]) -> int:
    topic_id, number = partition.topic_id.value, partition.partition
    return sum([len(record_bytes(topic_id, number, epoch, offset)) for epoch, offset in records])


def records_of(
    start_offset: int, end_offset: int, epochs: Sequence[tuple[int, int]], known: Collection[Record]
) -> list[Record] | None:
    """The records that a segment of these offsets (inclusive) holds under these epochs; None if some cannot be.

    Below the first epoch (a log start fell into the segment) it is the newest known one of an epoch that is not later.
    """
    records = []
    for offset in range(start_offset, end_offset + 1):
        epoch = max((candidate for candidate, start in epochs if start <= offset), default=None)
        if epoch is None:
            older = [candidate for candidate in range(epochs[0][0] + 1) if (candidate, offset) in known]
            epoch = max(older, default=None)
        if epoch is None:
            return None
        records.append((epoch, offset))
    return records


def index_bytes(what: str, records: Sequence[Record]) -> bytes:
    """Stands in for an offset or time index."""
    return f"{what}:{records[0][1]}:{records[-1][1]}".encode()


def epoch_text(epochs: LeaderEpochs) -> bytes:
    """A leader-epoch-checkpoint."""
    lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
    return ("\n".join(lines) + "\n").encode()


def crc32c(content: bytes) -> int:
    return google_crc32c.value(content)


# Answers of reads, kept while no row was written that they depend on. It saves half of the time of a schedule. Only
# reads whose answer follows from what is stored and from nothing else (no clock) are kept.

_TABLES_OF: Final = {
    "metadata.list_segments": ("segments", "segment_epochs", "topics"),
    "metadata.segment": ("segments", "topics"),
    "selected.segments_under_way": ("segments", "topics"),
    "selected.finished_from": ("segments", "topics"),
    "metadata.partitions": ("size_counters", "topics"),
    "metadata.highest_offset_for_epoch": ("size_counters",),
    "metadata.highest_copied_offset": ("size_counters",),
    "metadata.stopped_reason": ("partitions",),
    "metadata.retention_state": ("partitions",),
    "metadata.skipped_offsets": ("skipped_offsets",),
    "metadata.is_continued": ("divergences", "size_counters", "segments", "segment_epochs"),
    "metadata.divergences": ("divergences", "partitions", "segments"),
    "metadata.merge_leader_epochs": ("partitions", "divergences"),
    "work.remaining": ("planned_segments",),
    "work.has_work": ("planned_partitions", "planned_segments"),
    "work.paused_topics": ("pauses",),
    "work.pool_size": ("pools",),
    "deletions.run": ("runs", "approvals"),
    "deletions.plan": ("planned_expirations", "planned_deletions"),
    "deletions.remaining": ("planned_expirations", "planned_deletions"),
    "deletions.has_work": ("planned_deletions",),
    "registry.owner": ("topics",),
    "generations.accepted": ("stores",),
    "configs.snapshot": ("dynamic_configs", "dynamic_config_changes"),
    "configs.of_entity": ("dynamic_configs",),
    "topic_deletions.all": ("topics",),
    "publications.journal": ("publications", "published_records", "topics"),
    "handovers.handover": ("handovers",),
    "handovers.overrides": ("retention_overrides",),
    "handovers.seed": ("handover_partitions", "topics"),
}
"""The one that writes now and then, `merge_leader_epochs`, writes nothing when it is asked the same again."""


class Memory:
    """Of one world."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._answers: dict[object, tuple[int, Any]] = {}

    def over(self, label: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """`method`, asked only if its answer may be another one."""
        tables = _TABLES_OF.get(label)
        if tables is None:
            return method
        answers, version_of = self._answers, self._db.version

        def cached(*args: Any, **kwargs: Any) -> Any:
            key = (label, args, tuple(kwargs.items()))
            version = version_of(*tables)
            known = answers.get(key)
            if known is not None and known[0] == version:
                return known[1]
            answer = method(*args, **kwargs)
            if version_of(*tables) == version:
                answers[key] = version, answer
            return answer

        return cached


class Cached:
    """A contract whose calls are no scheduling points."""

    def __init__(self, memory: Memory, name: str, target: object) -> None:
        self._memory = memory
        self._name = name
        self._target = target

    def __getattr__(self, method: str) -> Any:
        found = self.__dict__[method] = self._memory.over(f"{self._name}.{method}", getattr(self._target, method))
        return found
