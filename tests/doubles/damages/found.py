"""What the product finds of a picture that was brought into a real store."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, cast

from include.tiering.audit.compare import classify, gather
from include.tiering.audit.finding import AuditContext, AuditedSegment, AuditedTopic, AuditMoment, epochs_text
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Depth, RemoteLogSegmentId, RemoteLogSegmentMetadata
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.object_store import KeyInterval, ObjectListing, ObjectStore
from include.tiering.remote_storage.segment_reader import read_small
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.stored_copies import Suspicion
from include.tiering.sizes.compare import settle_stored
from include.tiering.verification.measure_segment import measure_segment
from include.tiering.verification.measures import SegmentMeasure, measure_partition
from include.tiering.verification.suites import PARTITION_RULES, STORED_RULES
from tests.doubles.damages.damage import Damage
from tests.doubles.damages.picture import LAYOUT, Picture, whole_picture
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.storage_backdoor import Backdoor

_FAR_MS: Final = 2**43
"""Long after anything was written: no object is young."""

Subject = tuple[SegmentRow, RemoteLogSegmentMetadata | None]


@dataclass(frozen=True)
class Store:
    """A real store; `backdoor` leads around it."""

    objects: ObjectStore
    listing: ObjectListing[KeyInterval]
    backdoor: Backdoor

    @property
    def storage(self) -> SegmentStorage:
        return SegmentStorage(self.objects, LAYOUT)

    def fill(self) -> None:
        self.backdoor.raw_write(MARKER_KEY, b"{}")
        for key, content in whole_picture().objects.items():
            self.backdoor.raw_write(key, content)

    def bring(self, before: Picture, after: Picture) -> None:
        for key in before.objects.keys() - after.objects.keys():
            self.backdoor.raw_delete(key)
        for key, content in after.objects.items():
            if before.objects.get(key) != content:
                self.backdoor.raw_write(key, content)


@dataclass(frozen=True)
class Scene:
    """A damage that was done to a store."""

    picture: Picture
    store: Store

    def measure(self, depth: Depth) -> list[SegmentMeasure]:
        """At the segments that it touches."""
        return measures_of(touched(self.picture), self.store, depth)

    def of_neighbours(self) -> set[str]:
        """At partitions and stored sizes, and as an audit does."""
        return found_beside(self.picture, self.store)


@contextmanager
def done(damage: Damage, store: Store) -> Iterator[Scene]:
    """`store` is filled. Undone at the end."""
    whole = whole_picture()
    damaged = whole.copy()
    damage.do(damaged)
    if damage.recorded:
        damaged.record_checksums()
    store.bring(whole, damaged)
    try:
        yield Scene(damaged, store)
    finally:
        store.bring(damaged, whole)


def subjects_of(picture: Picture) -> Iterator[Subject]:
    for rows in picture.rows.values():
        in_order = sorted(rows, key=lambda row: row.metadata.end_offset)
        yield in_order[0], None
        yield from ((row, before.metadata) for before, row in pairwise(in_order))


def touched(picture: Picture) -> list[Subject]:
    """Segments that are not as they were: their rows, their objects, or who comes before."""
    whole = whole_picture()
    as_before = {row.metadata.remote_log_segment_id: (row, previous) for row, previous in subjects_of(whole)}

    def is_touched(row: SegmentRow, previous: RemoteLogSegmentMetadata | None) -> bool:
        keys = [key for _, key in LAYOUT.keys(row.metadata)]
        same_objects = all(picture.objects.get(key) == whole.objects.get(key) for key in keys)
        return as_before.get(row.metadata.remote_log_segment_id) != (row, previous) or not same_objects

    return [subject for subject in subjects_of(picture) if is_touched(*subject)]


def measures_of(subjects: Sequence[Subject], store: Store, depth: Depth) -> list[SegmentMeasure]:
    return [
        measure_segment(row, previous=previous, storage=store.storage, limiter=UnlimitedBytes(), depth=depth)
        for row, previous in subjects
    ]


def broken(measures: Sequence[SegmentMeasure]) -> set[str]:
    return {breach.rule.rule_id for breach in PlainEvaluator().evaluate(measures)}


def found_beside(picture: Picture, store: Store) -> set[str]:
    """Of partitions, of stored sizes, and by an audit."""
    return {*_of_partitions(picture), *_of_sizes(picture, store), *_by_an_audit(picture, store)}


def _of_partitions(picture: Picture) -> Iterator[str]:
    for name, rows in picture.rows.items():
        measure = measure_partition(
            rows[0].metadata.topic_id_partition,
            [row.metadata for row in rows],
            log_start_offset=picture.log_starts[name],
            log_end_offset=picture.log_ends[name],
            leader_epochs=picture.histories.get(name, LeaderEpochs()),
        )
        yield from (breach.rule.rule_id for breach in PlainEvaluator(PARTITION_RULES).evaluate([measure]))


class _Rows:
    """The one question that is asked of the metadata."""

    def __init__(self, picture: Picture) -> None:
        self._rows = {row.metadata.remote_log_segment_id: row for rows in picture.rows.values() for row in rows}

    def segment(self, segment_id: RemoteLogSegmentId) -> SegmentRow | None:
        return self._rows.get(segment_id)


def _of_sizes(picture: Picture, store: Store) -> Iterator[str]:
    suspects = [(row.metadata.remote_log_segment_id, Suspicion.MISSING) for row, _ in touched(picture)]
    known = {segment_id for segment_id, _ in suspects} | {
        row.metadata.remote_log_segment_id for row, _ in subjects_of(picture)
    }
    listed = {found.segment_id for found in store.storage.list_segment_objects()}
    suspects += [(segment_id, Suspicion.UNKNOWN) for segment_id in listed - known]
    rows = cast(RemoteLogMetadata, _Rows(picture))
    for difference in settle_stored(suspects, rows, store.storage, PlainEvaluator(STORED_RULES)):
        yield from (breach.rule.rule_id for breach in difference.broken)


def _by_an_audit(picture: Picture, store: Store) -> Iterator[str]:
    def read_manifest(key: str) -> bytes:
        return read_small(store.objects, key, limiter=UnlimitedBytes())

    partitions = {row.metadata.topic_id_partition for row, _ in subjects_of(picture)}
    topics = {str(each.topic_id): AuditedTopic(each.topic, TopicOwner.PLATFORM) for each in partitions}
    context = AuditContext(AuditMoment(_FAR_MS), LAYOUT, topics, frozenset(), read_manifest)
    pages = store.listing.pages(KeyInterval())
    segments = (_fact(row.metadata, number) for number, (row, _) in enumerate(subjects_of(picture)))
    result = classify(gather(pages, (), context), segments, context)
    assert not result.passed_over
    yield from (finding.kind.value for finding in result.findings)


def _fact(metadata: RemoteLogSegmentMetadata, arrival: int) -> AuditedSegment:
    return AuditedSegment(
        str(metadata.remote_log_segment_id.id),
        str(metadata.topic_id_partition.topic_id),
        metadata.topic_id_partition.partition,
        int(metadata.state),
        metadata.start_offset,
        metadata.end_offset,
        metadata.segment_size_bytes,
        metadata.event_timestamp_ms,
        arrival,
        epochs_text(metadata.segment_leader_epochs),
    )
