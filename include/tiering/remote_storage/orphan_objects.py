"""Read and remove orphans: objects, open uploads and old versions that no metadata mention.

Keys are untrusted input; a key that the layout would not write is refused. Each call of `remove` reads the marker.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.errors import FormatError, ObjectKeyError, RemoteStorageError
from include.tiering.formats.aiven_manifest import MAX_MANIFEST_BYTES
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.layouts.contract import SegmentLayout
from include.tiering.remote_storage.object_store import KeyFailure, ObjectStore, OpenUpload, SeenObject

NO_VERSION: Final = ""


class OrphanKind(StrEnum):
    """What is removed: the object under a key, one version of it permanently, or an open upload."""

    OBJECT = "object"
    VERSION = "version"
    UPLOAD = "upload"


@dataclass(frozen=True, slots=True)
class Orphan:
    """One orphan to remove. `token` is the id of the version or upload; empty for an object."""

    kind: OrphanKind
    key: str
    token: str = NO_VERSION


@dataclass(frozen=True, slots=True)
class OrphanFailure:
    """One orphan that may not have been removed. Those of the request without a failure were removed or were absent.

    If one version of a key was not removed, all requested versions of that key have a failure.
    """

    orphan: Orphan
    message: str
    retriable: bool


class OrphanStorage(Protocol):
    """Access to orphans of one store.

    Every method may raise `RemoteStorageUnavailableError` (retriable), `RemoteStorageError`, and `ObjectKeyError` for a
    key that no segment can have.
    """

    def attempt(self, key: str) -> Mapping[str, SeenObject]:
        """Return every object of the copy attempt that `key` names, by key, with the state in the store now."""
        ...

    def manifest(self, key: str) -> bytes:
        """Read a whole manifest.

        Raises:
            RemoteResourceNotFoundError: no such object.
            FormatError: it is longer than a manifest may be.
            ObjectKeyError: `key` is not the key of a manifest.
        """
        ...

    def remove(self, orphans: Sequence[Orphan]) -> tuple[OrphanFailure, ...]:
        """Remove orphans: first uploads, then objects, then versions. Absent orphans are no error.

        A bucket deletes up to 999 objects or versions in one request.

        Returns:
            The orphans that may not have been removed.

        Raises:
            ForeignStoreError: the store's marker is not this database's. Nothing was removed.
        """
        ...


class StoredOrphans:
    """`OrphanStorage` over a store. `require_ours` raises ForeignStoreError if the marker is not the expected one."""

    def __init__(self, store: ObjectStore, layout: SegmentLayout, require_ours: Callable[[], None]) -> None:
        self._store = store
        self.layout = layout
        self._require_ours = require_ours

    def attempt(self, key: str) -> Mapping[str, SeenObject]:
        found = {sibling: self._store.head(sibling) for sibling in self._siblings(key)}
        return {sibling: seen for sibling, seen in found.items() if seen is not None}

    def manifest(self, key: str) -> bytes:
        if self.layout.parse_key(key).kind is not ObjectKind.MANIFEST:
            raise ObjectKeyError(f"{key} is not the key of a manifest")
        content = b""
        for block in self._store.read(key, limiter=UnlimitedBytes()):
            content += block
            if len(content) > MAX_MANIFEST_BYTES:
                raise FormatError(f"{key}: more than {MAX_MANIFEST_BYTES} bytes: too long for a manifest")
        return content

    def remove(self, orphans: Sequence[Orphan]) -> tuple[OrphanFailure, ...]:
        for orphan in orphans:
            self.layout.parse_key(orphan.key)
        self._require_ours()
        failures = [failure for orphan in orphans if (failure := self._abort(orphan)) is not None]
        objects = {orphan.key: orphan for orphan in orphans if orphan.kind is OrphanKind.OBJECT}
        failures += (_failure(objects[failed.key], failed) for failed in self._store.delete(tuple(objects)))
        versions = [orphan for orphan in orphans if orphan.kind is OrphanKind.VERSION]
        if versions:
            not_deleted = self._store.delete_versions([(orphan.key, orphan.token) for orphan in versions])
            failed = {(failure.key, failure.version_id): failure for failure in not_deleted}
            for orphan in versions:
                # A store that does not say which version it kept may have kept any version of the key.
                refused = failed.get((orphan.key, orphan.token)) or failed.get((orphan.key, None))
                failures += [] if refused is None else [_failure(orphan, refused)]
        return tuple(failures)

    def _siblings(self, key: str) -> tuple[str, ...]:
        named = self.layout.parse_key(key)
        partition = named.segment_id.topic_id_partition
        keys = self.layout.keys_of(
            partition.topic,
            str(partition.topic_id),
            partition.partition,
            named.start_offset,
            str(named.segment_id.id),
        )
        return tuple(sibling for _, sibling in keys)

    def _abort(self, orphan: Orphan) -> OrphanFailure | None:
        if orphan.kind is not OrphanKind.UPLOAD:
            return None
        try:
            self._store.abort_upload(OpenUpload(orphan.key, orphan.token))
        except RemoteStorageError as error:
            return OrphanFailure(orphan, str(error), error.retriable)
        return None


def _failure(orphan: Orphan, failure: KeyFailure) -> OrphanFailure:
    return OrphanFailure(orphan, failure.message, failure.retriable)
