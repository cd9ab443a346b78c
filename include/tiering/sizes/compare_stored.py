"""Compare what the store lists with the rows: what a recount of rows and counters cannot see.

The listing is taken before the rows are read, and a row is there before the first object of its segment: an object
without a row is unknown for good. All else is a suspicion, because segments are copied and deleted meanwhile; it is
believed if the row and the store say the same when they are asked again. Nothing is corrected here.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from include.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.segment_data import IndexType
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.stored_copies import Suspicion, explains_length, manifest_suspicion
from include.tiering.verification.rules import BrokenRule, Judge
from include.tiering.verification.suites import StoredMeasure


@dataclass(frozen=True, slots=True)
class StoredDifference:
    """A partition whose objects are not those of its rows; `segments` are examples, with what is wrong of each."""

    topic_id_partition: TopicIdPartition
    broken: tuple[BrokenRule[StoredMeasure], ...]
    segments: tuple[tuple[RemoteLogSegmentId, Suspicion], ...]


def settle_stored(
    suspects: Iterable[tuple[RemoteLogSegmentId, Suspicion]],
    metadata: RemoteLogMetadata,
    storage: RemoteStorage,
    judge: Judge[StoredMeasure],
) -> tuple[StoredDifference, ...]:
    """What of the suspicions still holds, by partition.

    Raises:
        RemoteStorageUnavailableError: the store cannot be asked.
    """
    believed: dict[TopicIdPartition, list[tuple[RemoteLogSegmentId, Suspicion]]] = defaultdict(list)
    for segment_id, suspicion in suspects:
        found = _ask_again(segment_id, suspicion, metadata, storage)
        if found is not None:
            believed[segment_id.topic_id_partition].append((segment_id, found))
    measures = {_measure(partition, found): partition for partition, found in believed.items()}
    broken: dict[StoredMeasure, list[BrokenRule[StoredMeasure]]] = defaultdict(list)
    for breach in judge.judge(list(measures)):
        broken[breach.measure].append(breach)
    return tuple(
        StoredDifference(measures[measure], tuple(breaches), tuple(believed[measures[measure]]))
        for measure, breaches in broken.items()
    )


def _ask_again(
    segment_id: RemoteLogSegmentId, suspicion: Suspicion, metadata: RemoteLogMetadata, storage: RemoteStorage
) -> Suspicion | None:
    row = metadata.segment(segment_id)
    if row is None:
        return Suspicion.UNKNOWN
    if not row.metadata.is_finished:
        return None
    try:
        manifest = storage.fetch_manifest(row.metadata)
        storage.fetch_index(row.metadata, IndexType.OFFSET)
    except RemoteResourceNotFoundError:
        return Suspicion.MISSING
    except RemoteStorageError as error:
        if error.retriable:
            raise
        return Suspicion.UNREADABLE
    if suspicion is not Suspicion.UNREADABLE and suspicion is not Suspicion.OTHER_EPOCHS:
        sizes = {one.kind: one.size_bytes for one in storage.stat_log_segment(row.metadata)}
        if not storage.required_kinds <= sizes.keys():
            return Suspicion.MISSING
        log_bytes, stored_bytes = row.metadata.segment_size_bytes, sizes[ObjectKind.LOG]
        if stored_bytes != log_bytes and not explains_length(manifest, log_bytes, stored_bytes):
            return Suspicion.OTHER_SIZE
    return None if manifest is None else manifest_suspicion(row.metadata, manifest)


def _measure(partition: TopicIdPartition, found: Iterable[tuple[RemoteLogSegmentId, Suspicion]]) -> StoredMeasure:
    segments = Counter(suspicion for _, suspicion in found)
    return StoredMeasure(
        topic=partition.topic,
        topic_id=str(partition.topic_id),
        partition=partition.partition,
        **{suspicion.value: segments[suspicion] for suspicion in Suspicion},
    )
