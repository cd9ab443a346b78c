"""Another segment of the store, asked before one that is missing is taken for lost.

A segment of which every object is there was damaged, not lost: the store shows that it is ours. If one is missing, or
has no bytes, the marker is read, and a segment that passed is looked for, of the same partition where there is one. It
proves something if it is whole: every object, the log in its full length, the manifest of this segment. Else the store
is in doubt: a mirror that is under way has some objects of everything. Where nothing has passed, there is nobody to
ask.
"""

from collections.abc import Callable, Iterable
from itertools import chain

from include.tiering.errors import RemoteStorageError, StoreInDoubtError
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.verdict import Verdict
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.absent import absent_kinds
from include.tiering.remote_storage.contract import KeptObject, ObjectKind, RemoteStorage, SegmentReader
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.suspicion import explains_length, manifest_suspicion


class StoreWitness:
    """Asks for each partition's witness once in its life: make another one for another run. `storage` is opened when it
    is needed."""

    def __init__(self, metadata: RemoteLogMetadata, storage: Callable[[], RemoteStorage]) -> None:
        self._metadata = metadata
        self._storage = storage
        self._answers: dict[TopicIdPartition, str | None] = {}

    def doubt(self, segment: RemoteLogSegmentMetadata) -> str | None:
        """Why a FINISHED segment may not be taken for lost; None if it may, or is not missing.

        Raises:
            RemoteStorageError: the store did not answer.
            ForeignStoreError: its marker is another one.
        """
        if not self._absent(self._reader(segment).objects()):
            return None
        partition = segment.topic_id_partition
        if partition not in self._answers:
            self._storage().check_marker()
            self._answers[partition] = self._answer(segment)
        return self._answers[partition]

    def doubt_or_error(self, segment: RemoteLogSegmentMetadata) -> str | None:
        """As `doubt`; what keeps the store from being asked is one, too."""
        try:
            return self.doubt(segment)
        except RemoteStorageError as error:
            return f"the store could not be asked whether it is the right one: {error}"

    def require(self, segment: RemoteLogSegmentMetadata) -> None:
        """Raises StoreInDoubtError, and what `doubt` raises."""
        doubt = self.doubt(segment)
        if doubt is not None:
            raise StoreInDoubtError(doubt)

    def _answer(self, missing: RemoteLogSegmentMetadata) -> str | None:
        witness = self._witness(missing)
        fault = None if witness is None else self._fault(witness)
        if witness is None or fault is None:
            return None
        return (
            f"segment {missing.remote_log_segment_id} is not whole in the store, nor is"
            f" {witness.remote_log_segment_id}, which passed: it has {fault}; is the store's disk mounted, are"
            " remote_storage.url, layout and key_prefix right, and does no restore or sync into it still run? If both"
            " are lost, ./tiering verify finds it"
        )

    def _witness(self, missing: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata | None:
        """The one that passed last in the same partition, else in the first other one that has any."""
        partition = missing.topic_id_partition
        others = (one for one in self._metadata.partitions() if one != partition)
        for place in chain((partition,), others):
            rows = self._metadata.list_segments(place)
            found = _last_passed(row for row in rows if row.metadata != missing)
            if found is not None:
                return found
        return None

    def _fault(self, witness: RemoteLogSegmentMetadata) -> str | None:
        """What is wrong with the objects of a segment that passed. Its manifest alone is read."""
        reader = self._reader(witness)
        stored = reader.objects()
        if absent := self._absent(stored):
            return f"no {', '.join(absent)}"
        manifest = reader.manifest()
        if manifest is not None and (suspicion := manifest_suspicion(witness, manifest)) is not None:
            return f"a manifest of another segment ({suspicion})"
        (stored_bytes,) = (one.size_bytes for one in stored if one.kind is ObjectKind.LOG)
        log_bytes = witness.segment_size_bytes
        if stored_bytes != log_bytes and not explains_length(manifest, log_bytes, stored_bytes):
            return f"a log of {stored_bytes} bytes, not {log_bytes}"
        return None

    def _absent(self, stored: Iterable[KeptObject]) -> tuple[ObjectKind, ...]:
        return absent_kinds(stored, self._storage().required_kinds)

    def _reader(self, segment: RemoteLogSegmentMetadata) -> SegmentReader:
        return self._storage().open_log_segment(segment, limiter=UnlimitedBytes())


def _last_passed(rows: Iterable[SegmentRow]) -> RemoteLogSegmentMetadata | None:
    passed = [row for row in rows if row.metadata.is_finished and row.verdict.is_served]
    last = max(passed, key=lambda row: (row.verdict is Verdict.PASSED, row.verdict_at_ms or 0), default=None)
    return None if last is None else last.metadata
