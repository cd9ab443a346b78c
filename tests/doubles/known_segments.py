"""Which segments of a stopped cluster's log dirs may be copied, from what Kafka's own tools and its admin API said."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.doubles.broker_data import DataSet, expected

PartitionName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class KnownSegment:
    """Offsets are inclusive."""

    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class KnownPartition:
    """`local_bytes` are those of all other segments of the leader's replica."""

    eligible: Sequence[KnownSegment]
    local_bytes: int


def known_partitions(data_set: DataSet) -> Mapping[PartitionName, KnownPartition]:
    """Partitions of which something may be copied."""
    facts = expected(data_set)["facts"]["topics"]
    replicas: dict[str, dict[str, Any]] = {}
    for broker in expected(data_set)["snapshots"]["stopped"].values():
        for directory, replica in broker["partitions"].items():
            # Whoever knows the latest leader epoch led last.
            if replica["leader_epochs"] >= replicas.get(directory, {"leader_epochs": []})["leader_epochs"]:
                replicas[directory] = replica
    found = {}
    for directory, replica in replicas.items():
        topic, _, partition = directory.rpartition("-")
        offsets = facts[topic]["partitions"][partition]["offsets"]
        if topic.startswith("__") or "compact" in facts[topic]["configs"]["cleanup.policy"]:
            continue
        eligible = tuple(_eligible(replica["segments"], offsets))
        every_byte = sum(segment["valid_bytes"] for segment in replica["segments"])
        known = KnownPartition(eligible, every_byte - sum(segment.size_bytes for segment in eligible))
        if known.eligible:
            found[topic, int(partition)] = known
    return found


def _eligible(segments: Sequence[Mapping[str, Any]], offsets: Mapping[str, Any]) -> Iterator[KnownSegment]:
    """Rolled, not wholly below the log start, wholly below the last stable offset (and so the high watermark)."""
    for segment in segments:
        if segment["active"] or segment["end_offset"] < offsets["earliest"]["offset"]:
            continue
        if segment["end_offset"] < offsets["latest_read_committed"]["offset"]:
            yield KnownSegment(
                segment["base_offset"], segment["end_offset"], segment["valid_bytes"], segment["max_timestamp"]
            )
