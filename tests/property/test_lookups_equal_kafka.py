"""In one lineage, lookups answer as Kafka's own metadata cache does."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles.databases import empty, memory_engine
from tests.doubles.present import present
from tests.doubles.segments import CLUSTER_ID, fence_of, finish, partition_of, segment_of

PARTITION = partition_of("orders", 0)


@dataclass
class EpochState:
    """What the broker keeps for one leader epoch, as observed with its real classes."""

    offset_to_segment: dict[int, RemoteLogSegmentMetadata] = field(default_factory=dict)
    highest: int | None = None

    def finished(self, start: int, end: int, segment: RemoteLogSegmentMetadata) -> None:
        while self.offset_to_segment and max(self.offset_to_segment) >= start and present(self.highest) <= end:
            del self.offset_to_segment[max(self.offset_to_segment)]
        self.offset_to_segment[start] = segment
        self.highest = end if self.highest is None else max(self.highest, end)

    def lookup(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        floor = max((start for start in self.offset_to_segment if start <= offset), default=None)
        if floor is None:
            return None
        segment = self.offset_to_segment[floor]
        return segment if offset <= present(segment.end_offset_of_epoch(epoch)) else None


@st.composite
def lineages(draw: st.DrawFn) -> list[RemoteLogSegmentMetadata]:
    """Segments cut from one history: ends ascend, starts lie anywhere up to the next offset."""
    starts = sorted(draw(st.sets(st.integers(1, 59), max_size=4)))
    history = LeaderEpochs.of(enumerate([0, *starts]))
    ends = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=6)))
    segments = []
    for number, end in enumerate(ends):
        start = draw(st.integers(0, end))
        segments.append(segment_of(PARTITION, number, start, end, dict(history.range(start, end + 1))))
    return segments


@settings(max_examples=30)
@given(lineages())
def test_every_lookup(segments: list[RemoteLogSegmentMetadata]):
    empty(memory_engine())
    metadata = SqlRemoteLogMetadata(memory_engine(), CLUSTER_ID)
    fence = fence_of(memory_engine(), PARTITION)
    kafka = {epoch: EpochState() for epoch in range(6)}
    for segment in segments:
        finished = finish(metadata, segment, fence)
        for epoch, start in segment.segment_leader_epochs:
            kafka[epoch].finished(start, present(segment.end_offset_of_epoch(epoch)), finished)
    for epoch, state in kafka.items():
        assert metadata.highest_offset_for_epoch(PARTITION, epoch) == state.highest
        for offset in range(0, 62, 3):
            assert metadata.segment_for_offset(PARTITION, epoch, offset) == state.lookup(epoch, offset)
