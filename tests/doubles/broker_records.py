"""Records as brokers write them to the metadata topic, in any order: sound ones, late ones, foreign ones."""

import random
from typing import Final

from hypothesis import strategies as st

from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, TopicIdPartition
from tests.doubles.segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, partition_of, segment_of, update_of

Records = list[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate]
MOST_OFFSET: Final = 15
_CHANGES: Final = (FINISHED, FINISHED, FINISHED, DELETE_STARTED, DELETE_FINISHED)


@st.composite
def record_sequences(
    draw: st.DrawFn, partitions: tuple[TopicIdPartition, ...] = (partition_of("orders"),), most: int = 30
) -> Records:
    """Up to seven segments that overlap as they like, over up to three of four leader epochs; no poison. A segment that
    begins twice has the same offsets and epochs."""
    segments = [_segment(draw, draw(st.sampled_from(partitions)), number) for number in range(draw(st.integers(1, 7)))]
    records: Records = []
    for _ in range(draw(st.integers(0, most))):
        segment = draw(st.sampled_from(segments))
        change = draw(st.sampled_from((None, *_CHANGES)))
        custom = draw(st.sampled_from((None, b"custom")))
        records.append(segment if change is None else update_of(segment, change, custom_metadata=custom))
    return records


def _segment(draw: st.DrawFn, partition: TopicIdPartition, number: int) -> RemoteLogSegmentMetadata:
    start, end = sorted((draw(st.integers(0, MOST_OFFSET)), draw(st.integers(0, MOST_OFFSET))))
    epochs = sorted(draw(st.sets(st.integers(0, 3), min_size=1, max_size=3)))
    later = sorted(draw(st.integers(start, end)) for _ in epochs[1:])
    epoch_starts = dict(zip(epochs, [start, *later], strict=True))
    return segment_of(partition, number, start, end, epoch_starts, size_bytes=draw(st.integers(0, 5_000)))


def random_records(source: random.Random, partitions: tuple[TopicIdPartition, ...], most: int = 30) -> Records:
    """The same by a plain generator: thousands of sequences in a second."""
    segments = []
    for number in range(source.randint(1, 7)):
        start, end = sorted(source.choices(range(MOST_OFFSET + 1), k=2))
        epochs = sorted(source.sample(range(4), source.randint(1, 3)))
        later = sorted(source.choices(range(start, end + 1), k=len(epochs) - 1))
        epoch_starts = dict(zip(epochs, [start, *later], strict=True))
        segments.append(segment_of(source.choice(partitions), number, start, end, epoch_starts))
    records: Records = []
    for _ in range(source.randint(0, most)):
        segment, change = source.choice(segments), source.choice((None, *_CHANGES))
        records.append(segment if change is None else update_of(segment, change))
    return records
