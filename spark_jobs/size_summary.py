"""What a size run found, as the JSON of its summary."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from typing import Any

from pyspark.sql import Row

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.segment_metadata import RemoteLogSegmentState
from include.tiering.model.sizes import EpochSize, PartitionStates, StateSize
from include.tiering.sizes.compare import SizeComparison, StoredDifference
from include.tiering.verification.suites import explain_size

Document = dict[str, Any]
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class Recounted:
    """One partition of the recount. `is_contiguous`: its FINISHED segments hold as many offsets as they reach over, so
    there is neither a hole nor an overlap, or one of each that are equally long."""

    sizes: PartitionStates
    is_contiguous: bool


@dataclass(slots=True)
class Totals:
    """Added up as partitions pass."""

    by_state: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    not_contiguous: list[TopicIdPartition] = field(default_factory=list)

    def counting(self, partitions: Iterable[Recounted]) -> Iterator[PartitionStates]:
        for one in partitions:
            for size in one.sizes.states:
                total = self.by_state[size.state.name]
                total[0] += size.size_bytes
                total[1] += size.segments
            if not one.is_contiguous:
                self.not_contiguous.append(one.sizes.topic_id_partition)
            yield one.sizes

    def document(self) -> Document:
        """Bytes and segments that are FINISHED, then by state."""
        size_bytes, segments = self.by_state.get(_FINISHED.name, (0, 0))
        states = {name: {"bytes": total[0], "segments": total[1]} for name, total in sorted(self.by_state.items())}
        return {"segments": segments, "bytes": size_bytes, "states": states}


def recounted_partitions(rows: Iterable[Row], names: Mapping[Uuid, str]) -> Iterator[Recounted]:
    """From rows of `SIZES`, ordered by topic id, partition, state and leader epoch with nulls first."""
    for (topic_id, number), grouped in groupby(rows, key=lambda row: (row.topic_id, row.partition)):
        partition = TopicIdPartition(Uuid.parse(topic_id), number, names[Uuid.parse(topic_id)])
        states = []
        is_contiguous = True
        for name, sized in groupby(grouped, key=lambda row: row.state):
            total, *epochs = sized
            state = RemoteLogSegmentState[name]
            by_epoch = tuple(EpochSize(row.leader_epoch, row.size_bytes, row.segments) for row in epochs)
            states.append(StateSize(state, total.size_bytes, total.segments, by_epoch))
            if state is _FINISHED:
                is_contiguous = total.offsets == Decimal(total.last_offset - total.first_offset + 1)
        states.sort(key=lambda size: size.state)
        yield Recounted(PartitionStates(partition, tuple(states)), is_contiguous)


def differences_document(comparison: SizeComparison) -> Document:
    return {
        "partitions": comparison.partitions,
        "differences": [
            {
                **labels(difference.topic_id_partition),
                "state": difference.counters.state.name,
                "rules": [
                    {"rule": broken.rule.rule_id, "message": explain_size(broken.rule, broken.measure)}
                    for broken in difference.broken
                ],
                "counters": _size(difference.counters),
                "recounted": _size(difference.recounted),
            }
            for difference in comparison.differences
        ],
        "unsettled": [labels(partition) for partition in comparison.unsettled],
    }


def stored_document(differences: Sequence[StoredDifference], totals: Row, *, unsettled: int) -> Document:
    """`unsettled` is not 0 if there were more suspects than were asked about again."""
    return {
        "objects": totals.objects or 0,
        "segments": totals.segments or 0,
        "bytes": totals.stored_bytes or 0,
        "unsettled": unsettled,
        "differences": [
            {
                **labels(difference.topic_id_partition),
                "rules": [
                    {"rule": broken.rule.rule_id, "message": explain_size(broken.rule, broken.measure)}
                    for broken in difference.broken
                ],
                "segments": [
                    {"segment_id": str(segment_id.id), "kind": suspicion.value}
                    for segment_id, suspicion in difference.segments
                ],
            }
            for difference in differences
        ],
    }


def exit_code(summary: Mapping[str, Any]) -> int:
    stored = summary.get("stored") or {"differences": (), "unsettled": 0}
    found = summary["differences"] or stored["differences"] or stored["unsettled"]
    return int(ExitCode.FINDINGS if found else ExitCode.DONE)


def labels(partition: TopicIdPartition) -> Document:
    return {"topic": partition.topic, "topic_id": str(partition.topic_id), "partition": partition.partition}


def _size(size: StateSize) -> Document:
    epochs = [{"epoch": e.leader_epoch, "bytes": e.size_bytes, "segments": e.segments} for e in size.leader_epochs]
    return {"bytes": size.size_bytes, "segments": size.segments, "leader_epochs": epochs}
