"""Another segment of the store, asked before one that is missing is taken for lost.

A segment whose log is there was damaged, not lost: the store shows that it is ours. If it is missing, the marker is
read, and the log of a segment that passed is looked for, of the same partition where there is one. Where that one is
missing as well, the store is in doubt. Where nothing has passed, there is nobody to ask.
"""

from collections.abc import Callable, Iterable
from itertools import chain

from include.tiering.errors import RemoteStorageError, StoreInDoubtError
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.verdict import Verdict
from include.tiering.quota.contract import UnlimitedBytes
from include.tiering.remote_metadata.contract import RemoteLogMetadata, SegmentRow
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage

_PASSED_ONCE = frozenset({Verdict.PASSED, Verdict.EXPIRED})


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
        if self._has_log(segment):
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
        if witness is None or self._has_log(witness):
            return None
        return (
            f"segment {missing.remote_log_segment_id} is not in the store, nor is {witness.remote_log_segment_id},"
            " which passed: is the store's disk mounted, and are remote_storage.url, layout and key_prefix right?"
            " If both are lost, ./tiering verify finds it"
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

    def _has_log(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Nothing is read for it."""
        stored = self._storage().open_log_segment(segment, limiter=UnlimitedBytes()).objects()
        return any(one.kind is ObjectKind.LOG for one in stored)


def _last_passed(rows: Iterable[SegmentRow]) -> RemoteLogSegmentMetadata | None:
    passed = [row for row in rows if row.metadata.is_finished and row.verdict in _PASSED_ONCE]
    last = max(passed, key=lambda row: (row.verdict is Verdict.PASSED, row.verdict_at_ms or 0), default=None)
    return None if last is None else last.metadata
