"""What a medium does for segments: it holds objects under keys, and it lists all of them.

An object of a segment is written once, as a whole, and never changed: `put` creates, it does not overwrite. An object
that can be seen is complete and durable. `RemoteStorage` is one of these stores together with a layout. Bytes on their
way to a store or from one are read and charged in blocks.

An `ObjectListing` is all that a store holds, in parts that many processes read at once. It is complete or an error: an
answer that ends early, repeats itself, is out of order or cannot be parsed raises and never looks like a smaller store.
Keys are as the store gives them, relative to its prefix: anybody may have written them. One that is no UTF-8 has its
other bytes escaped (`\\xff`).
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice, pairwise
from typing import Final, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_plus

from include.tiering.errors import ObjectKeyError, RemoteChecksumError, printable
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.segments import ByteSource
from include.tiering.quotas.contract import ByteLimiter, UnlimitedBytes
from include.tiering.remote_storage.contract import ProgressCallback
from include.tiering.units import MIB

MAX_KEY_LENGTH: Final = 1024
_KEY: Final = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*\Z")


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """What the store has under a key. `crc32c` covers the whole object and was computed by the store, from what it
    received or from what it holds, never by the sender; None if this store computes none.
    """

    size_bytes: int
    crc32c: int | None


@dataclass(frozen=True, slots=True)
class SeenObject:
    """What is under a key now. `last_modified_ms` is by the store's clock, of whole seconds in some stores;
    `version_id` is None where the store keeps no versions.
    """

    size_bytes: int
    last_modified_ms: int
    version_id: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectEntry:
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

    def head(self, key: str) -> SeenObject | None:
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

    def list_objects(self, prefix: str = "") -> Iterator[ObjectEntry]:
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


_BORDERS_PER_PART: Final = 4
_MOST_BORDERS: Final = 10_000


class ListedObject(NamedTuple):
    """One object, or one version of it where the store keeps versions (`version_id` is None where it does not).

    A delete marker is a version without content. `last_modified_ms` is by the store's clock, UTC. A named tuple: there
    are a million of them, and they become columns.
    """

    key: str
    size_bytes: int
    last_modified_ms: int
    version_id: str | None = None
    is_latest: bool = True
    is_delete_marker: bool = False

    @property
    def is_current(self) -> bool:
        """What a read of the key gives."""
        return self.is_latest and not self.is_delete_marker


class ListedUpload(NamedTuple):
    """One write that has not become an object. `upload_id` as `token` of `OpenUpload`; `size_bytes` is 0 where the
    store does not tell what was sent so far.
    """

    key: str
    upload_id: str
    initiated_ms: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ListingProperties:
    """What a listing can show and of when it is.

    `taken_at_ms` is None for a listing of now, which begins when its first part does; else the store's time to which it
    belongs, and `settled_ms` says how long before that a change must have been made to be in it for sure. A listing of
    current objects alone (`shows_versions` False) says nothing about old versions and delete markers.
    """

    shows_versions: bool
    shows_open_uploads: bool
    taken_at_ms: int | None = None
    settled_ms: int = 0


PartT = TypeVar("PartT")


class ObjectListing(Protocol[PartT]):
    """Everything below one prefix of one store. Parts can be pickled and read by another process's listing.

    Every method may raise `RemoteStorageUnavailableError` (retriable) and `RemoteStorageError`.
    """

    def describe(self) -> str:
        """What is listed, for a person: a URL without credentials."""
        ...

    def properties(self) -> ListingProperties: ...

    def parts(self, wanted: int) -> Sequence[PartT]:
        """Parts that together hold every key once, whatever is written meanwhile; about `wanted` (1 or more) where the
        keys allow it.
        """
        ...

    def pages(self, part: PartT) -> Iterator[Sequence[ListedObject]]:
        """The objects of one part; a page bounds the memory of whoever reads."""
        ...

    def open_uploads(self) -> Iterator[Sequence[ListedUpload]]:
        """All writes below the prefix that are no objects yet; none if the listing cannot show them."""
        ...


@dataclass(frozen=True, slots=True)
class KeyInterval:
    """Keys above `after` and up to `until` (inclusive) in the order of their code points, which is that of their UTF-8
    bytes; None is unbounded. A part of a live listing.
    """

    after: str | None = None
    until: str | None = None

    def holds(self, key: str) -> bool:
        return (self.after is None or key > self.after) and (self.until is None or key <= self.until)


def cut(children: Callable[[str], Iterable[str]], wanted: int) -> tuple[KeyInterval, ...]:
    """About `wanted` intervals that together are everything, with borders between "directories".

    `children` gives the directories directly below one (each ends in a slash, the first is ""). What it forgets makes
    the intervals uneven, never incomplete.
    """
    borders = list(islice(children(""), _MOST_BORDERS))
    if len(borders) < wanted * _BORDERS_PER_PART:
        below = chain.from_iterable(children(border) for border in tuple(borders))
        borders += islice(below, _MOST_BORDERS)
    borders.sort()
    chosen = borders if len(borders) < wanted else [borders[n * len(borders) // wanted] for n in range(1, wanted)]
    edges = (None, *chosen, None)
    return tuple(KeyInterval(after, until) for after, until in pairwise(edges))


def milliseconds(text: str) -> int:
    """``2026-11-21T20:41:52.000Z`` -> UTC milliseconds.

    Raises:
        ValueError: not such a time.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time without its zone: {text[:40]!r}")
    return round(moment.timestamp() * 1000)


def decoded_key(text: str) -> str:
    """A percent-encoded key. Bytes that are no UTF-8 are escaped."""
    if "%" not in text and "+" not in text:
        return text
    return unquote_plus(text, errors="backslashreplace")


BLOCK_BYTES: Final = MIB
_EVERY_BYTE: Final = UnlimitedBytes()


@dataclass(frozen=True, slots=True)
class BytesSource:
    """A `ByteSource` of bytes in memory: indexes, manifests, markers."""

    content: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def read_into(self, position: int, buffer: memoryview) -> int:
        part = self.content[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


def crc32c_of(content: bytes) -> int:
    return extend_crc32c(0, content)


def filled_block(source: ByteSource, position: int, buffer: memoryview) -> memoryview:
    """The part of `buffer` that `source` could fill from `position` on: at least one byte.

    Raises:
        RemoteChecksumError: the source ended, without saying so itself.
    """
    filled = source.read_into(position, buffer)
    if not filled:
        raise RemoteChecksumError(f"the source ended at byte {position} of {source.size_bytes}")
    return buffer[:filled]


def blocks_of(
    source: ByteSource, first: int, size_bytes: int, limiter: ByteLimiter = _EVERY_BYTE
) -> Iterator[memoryview]:
    """`size_bytes` of `source` from `first` on, in blocks as `limiter` grants them; each is valid until the next one.

    Raises:
        RemoteChecksumError: as `filled_block`.
        SendingStoppedError, LeaseLostError: from the limiter.
    """
    buffer = memoryview(bytearray(min(BLOCK_BYTES, size_bytes)))
    position = first
    end = first + size_bytes
    while position < end:
        granted_bytes = limiter.take(min(len(buffer), end - position))
        block = filled_block(source, position, buffer[:granted_bytes])
        yield block
        position += len(block)


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Static credentials, for deployments that do not use the SDK's own chain.

    Never printed: only the access key's id shows in `repr`.
    """

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
