"""The offsets of partitions that one broker leads: five questions, each for all of them at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import BrokersError, BrokersRefusedError
from include.tiering.kafka.cluster.brokers_contract import OffsetsAnswer, PartitionOffsets
from include.tiering.kafka.protocol.cluster_connections import ClusterConnections
from include.tiering.kafka.protocol.error_codes import refusal
from include.tiering.kafka.protocol.offset_requests import ListOffsets, OffsetSpec, TopicPartition
from include.tiering.model.ids import TopicIdPartition

_NONE: Final = -1

# The last stable offset before the high watermark, which it never exceeds: both only grow.
_QUESTIONS: Final = (
    ("earliest", OffsetSpec.EARLIEST, False),
    ("earliest_local", OffsetSpec.EARLIEST_LOCAL, False),
    ("latest_tiered", OffsetSpec.LATEST_TIERED, False),
    ("last_stable_offset", OffsetSpec.LATEST, True),
    ("high_watermark", OffsetSpec.LATEST, False),
)
_OF_TIERED_STORAGE: Final = frozenset({OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST_TIERED})


@dataclass(frozen=True, slots=True)
class LeaderPartition:
    """A partition, and the leader that it has in `leader_epoch`."""

    partition: TopicIdPartition
    leader: int
    leader_epoch: int

    @property
    def on_wire(self) -> TopicPartition:
        return TopicPartition(self.partition.topic, self.partition.partition)


def offsets_of_leader(connections: ClusterConnections, leader: int, asked: Sequence[LeaderPartition]) -> OffsetsAnswer:
    """A partition whose leader or leader epoch changes in between is refused: all its offsets are of one leader.

    Raises:
        BrokersError: the broker cannot be asked.
    """
    refused: dict[TopicIdPartition, BrokersError] = {}
    found: dict[TopicIdPartition, dict[str, int]] = {one.partition: {} for one in asked}
    for name, spec, read_committed in _QUESTIONS:
        left = [one for one in asked if one.partition not in refused]
        request = ListOffsets(spec, {one.on_wire: one.leader_epoch for one in left}, read_committed)
        if spec in _OF_TIERED_STORAGE and not connections.knows(leader, request):
            for one in left:
                found[one.partition][name] = _NONE
            continue
        answer = connections.ask(leader, request) if left else {}
        for one in left:
            what = f"{name.replace('_', ' ')} of {one.partition} from broker {leader}"
            offset = answer.get(one.on_wire)
            if offset is None:
                refused[one.partition] = BrokersRefusedError(f"{what}: the answer leaves it out")
            elif offset.error:
                refused[one.partition] = refusal(offset.error, what)
            elif offset.offset == _NONE and spec not in _OF_TIERED_STORAGE:
                refused[one.partition] = BrokersRefusedError(f"{what}: there is none")
            else:
                found[one.partition][name] = offset.offset
    answered = {one.partition: _offsets(one, found[one.partition]) for one in asked if one.partition not in refused}
    return OffsetsAnswer(answered, refused)


def _offsets(one: LeaderPartition, found: dict[str, int]) -> PartitionOffsets:
    return PartitionOffsets(
        leader=one.leader,
        leader_epoch=one.leader_epoch,
        earliest=found["earliest"],
        earliest_local=_or_none(found["earliest_local"]),
        latest_tiered=_or_none(found["latest_tiered"]),
        last_stable_offset=found["last_stable_offset"],
        high_watermark=found["high_watermark"],
    )


def _or_none(offset: int) -> int | None:
    return None if offset == _NONE else offset
