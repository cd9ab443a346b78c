"""What a medium must do to hold objects: a small contract, and the keys it accepts.

An object of a segment is written once, as a whole, and never changed: `put` creates, it does not overwrite. An object
that can be seen is complete and durable. `RemoteStorage` is one of these stores together with a layout.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from include.tiering.errors import ObjectKeyError, printable
from include.tiering.model.segment_data import ByteSource
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import ProgressCallback

MAX_KEY_LENGTH: Final = 1024
_KEY: Final = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*\Z")


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """What the store has under a key. `crc32c` covers the whole object and was computed by the store, from what it
    received or from what it holds, never by the sender; None if this store computes none."""

    size_bytes: int
    crc32c: int | None


@dataclass(frozen=True, slots=True)
class SeenObject:
    """What is under a key now. `last_modified_ms` is by the store's clock, of whole seconds in some stores;
    `version_id` is None where the store keeps no versions."""

    size_bytes: int
    last_modified_ms: int
    version_id: str | None = None


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One object under the prefix. The key is as the store gives it: anybody may have written it."""

    key: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """A write that has not become an object: running now, or left by a dead process.

    `token` means something to the store alone (a multipart upload id, the name of a temporary file).
    """

    key: str
    token: str


@dataclass(frozen=True, slots=True)
class KeyFailure:
    """One key of a delete that the store did not carry out."""

    key: str
    message: str
    retriable: bool


class ObjectStore(Protocol):
    """Objects under one prefix of one medium. Keys are relative to that prefix and pass `checked_key`.

    Every method may raise `RemoteStorageUnavailableError` (retriable) and `RemoteStorageError`.
    """

    def describe(self) -> str:
        """Where this is, for a person and a log line: a URL without credentials."""
        ...

    def put(
        self,
        key: str,
        body: ByteSource,
        crc32c: int,
        *,
        limiter: ByteLimiter,
        on_sent: ProgressCallback,
        running_crc32c: Sequence[int] = (),
    ) -> bool:
        """Create the object; on return it is complete and durable. On an error nothing is visible under `key`.

        True if the store, in its answer, named the checksum that it computed over the whole object, and it is
        `crc32c`: `stat` would tell no more. False if only `stat` can tell.

        `crc32c` is that of all of `body`, and the store refuses the object if it receives other bytes;
        `running_crc32c`, if known, are those of its first step (`RUNNING_CRC32C_STEP_BYTES`), its first two, and so
        on. Each byte is charged to `limiter` before it leaves, again if it is sent again; on success the sum of what
        `on_sent` got is the size of `body`.

        Raises:
            RemoteObjectExistsError: the key is taken; what is there stays as it is.
            RemoteChecksumError: the bytes do not have this checksum or length.
            RemoteStorageFullError: no space, or a storage quota.
            Exception: whatever `body`, `limiter` or `on_sent` raise comes out unchanged.
        """
        ...

    def read_version(self, key: str, max_bytes: int) -> tuple[bytes, str] | None:
        """A small object whole, and what names this version of it for `replace`; None if there is no such object.

        Raises:
            RemoteStorageError: it is larger than `max_bytes`.
        """
        ...

    def replace(self, key: str, content: bytes, *, version: str | None = None) -> bool:
        """Write a small object in the place of one: a reader gets the old one or the new one, whole. For the store's
        own records alone: what belongs to a segment is never changed.

        With a `version` only in the place of that one: True if it was replaced, False, without a change, if another one
        or none is there. Where an answer is lost, False may be answered although it was replaced. Without a `version`
        in the place of any, and where there is none.
        """
        ...

    def replaces_conditionally(self, key: str) -> bool:
        """Whether `replace` heeds a version here, found out with a scratch object under `key`, which is removed."""
        ...

    def stat(self, key: str, *, read_back: bool = True) -> ObjectStat | None:
        """Size and checksum, None if there is no such object.

        Without `read_back` no byte of the object is read: a checksum that the store does not keep is None.
        """
        ...

    def look(self, key: str) -> SeenObject | None:
        """What is there, without reading it; None if there is no such object."""
        ...

    def read(self, key: str, first: int = 0, last: int | None = None, *, limiter: ByteLimiter) -> Iterator[bytes]:
        """Bytes `first` to `last` (both inclusive; None = the end) in blocks. Nothing is opened before the first
        block is asked for. Each block is charged to `limiter` before it is read.

        Raises (on the first block):
            RemoteResourceNotFoundError: no such object, or it ends before `first` or `last`.
        """
        ...

    def delete(self, keys: Collection[str]) -> tuple[KeyFailure, ...]:
        """Remove these objects; absent ones are fine. One that fails does not keep the others."""
        ...

    def delete_versions(self, versions: Collection[tuple[str, str]]) -> tuple[KeyFailure, ...]:
        """Remove these (key, version id) for good, delete markers too; absent ones are fine. With the latest version of
        a key the one before it becomes what a read gives.

        Every one of them fails in a store that keeps no versions.
        """
        ...

    def list_objects(self, prefix: str = "") -> Iterator[ListedObject]:
        """Every complete object whose key starts with `prefix`, in no particular order."""
        ...

    def list_open_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        """Every write under `prefix` that is not an object yet, in no particular order."""
        ...

    def abort_upload(self, upload: OpenUpload) -> None:
        """Remove what an unfinished write has stored; harmless if it is gone. A writer that still lives fails."""
        ...

    def clock_ms(self, key: str) -> int | None:
        """What the store's own clock says now, in UTC milliseconds, perhaps of a whole second; None if it says nothing.

        It is asked about by way of an object that is there.
        """
        ...

    def check_capacity(self) -> None:
        """Where the medium can tell: that there is room for at least one more segment.

        Raises:
            RemoteStorageFullError: with the number of bytes free and needed.
        """
        ...


def checked_key(key: str) -> str:
    """`key`, if it can only name something inside the prefix.

    Accepted: components of ``A-Z a-z 0-9 . _ -`` joined by single slashes, none of them ``.`` or ``..``.

    Raises:
        ObjectKeyError: anything else.
    """
    if len(key) > MAX_KEY_LENGTH:
        raise ObjectKeyError(f"object key of {len(key)} characters: at most {MAX_KEY_LENGTH} are allowed")
    if _KEY.match(key) is None or not {".", ".."}.isdisjoint(key.split("/")):
        raise ObjectKeyError(
            f"object key {printable(key)!r} is refused: components hold A-Z a-z 0-9 . _ - and are neither . nor .."
        )
    return key


def checked_prefix(prefix: str) -> str:
    """`prefix`, if it is empty or the beginning of a legal key, with or without a slash at its end.

    Raises:
        ObjectKeyError: anything else.
    """
    if prefix:
        checked_key(prefix.removesuffix("/"))
    return prefix
