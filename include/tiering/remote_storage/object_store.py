r"""Contract of an object store: objects under keys, and a listing of all of them.

An object of a segment is written once, as a whole, and never changed: `put` creates, it does not overwrite. A visible
object is complete, and it is durable when `put` has returned. `RemoteStorage` is an object store together with a
layout. `put` and `read` transfer and charge bytes in blocks.

An `ObjectListing` lists everything in a store, in parts that many processes can read concurrently. A listing that is
not complete raises an error: a response that ends early, repeats itself, is out of order or cannot be parsed is never
taken for a smaller store. Keys are listed as they are stored, relative to the prefix: they are untrusted input. In a
key that is not UTF-8, each byte that is not part of a UTF-8 character is escaped (`\xff`).
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
    """Size and checksum of a stored object.

    `crc32c` covers the whole object and was computed by the store, from what it received or from what it holds, never
    by the sender; None if this store keeps no such checksum and the object was not read back to compute it.
    """

    size_bytes: int
    crc32c: int | None


@dataclass(frozen=True, slots=True)
class SeenObject:
    """The object that a key had when it was requested.

    Attributes:
        last_modified_ms: UTC milliseconds by the store's clock; some stores give whole seconds only.
        version_id: None where the store keeps no versions.
    """

    size_bytes: int
    last_modified_ms: int
    version_id: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One object under the prefix. The key is as it is stored: any program may have written it."""

    key: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An unfinished write: under way, or left behind.

    `token` is opaque to callers (a multipart upload id, or the name of a temporary file).
    """

    key: str
    token: str


@dataclass(frozen=True, slots=True)
class KeyFailure:
    """One key of a delete request whose object may not have been deleted, or that was refused."""

    key: str
    message: str
    retriable: bool
    version_id: str | None = None
    """The version that was to be deleted; None if none was named, or the store does not say which."""


class ObjectStore(Protocol):
    """Objects under one prefix of one medium. Keys are relative to that prefix; those of requests pass `checked_key`.

    Every method may raise `RemoteStorageUnavailableError` (retriable) and `RemoteStorageError`.
    """

    def describe(self) -> str:
        """Return a URL without credentials, for messages and logs."""
        ...

    @property
    def slow_downs(self) -> int:
        """How often the store has asked so far for fewer requests (S3: SlowDown, status 503 or 429)."""
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
        """Create the object; on return it is complete and durable.

        On an error no incomplete object is visible under `key`. The complete object may be visible, if the store
        created it and only the confirmation failed.

        Args:
            key: of an object that does not exist.
            body: the content.
            crc32c: checksum of all of `body`; the store refuses the object if it receives other bytes.
            limiter: each byte is charged before it is sent, and again if it is sent again.
            on_sent: on success the sum of its arguments is the size of `body`.
            running_crc32c: if known, the checksums of the first step (`RUNNING_CRC32C_STEP_BYTES`) of `body`, of the
                first two steps, and so on.

        Returns:
            True if the store's response named the checksum that it computed over the whole object, and it is `crc32c`,
            so that `stat` would add nothing; False if `stat` is needed to find out.

        Raises:
            RemoteObjectExistsError: the key exists; the object there stays as it is.
            RemoteChecksumError: the bytes do not have this checksum or length.
            RemoteStorageFullError: no space, or a storage quota is used up.
            Exception: exceptions of `body`, `limiter` and `on_sent` are raised unchanged.
        """
        ...

    def read_version(self, key: str, max_bytes: int) -> tuple[bytes, str] | None:
        """Read a small object whole, with its version for `replace`; None if there is no such object.

        Raises:
            RemoteStorageError: it is larger than `max_bytes`.
        """
        ...

    def replace(self, key: str, content: bytes, *, version: str | None = None) -> bool:
        """Write or replace a small object atomically: a reader gets the old or the new content, whole.

        Only for the platform's own records: objects of a segment are never changed.

        Args:
            key: of the object.
            content: the new content.
            version: replace only this version. None: replace any version, or create the object.

        Returns:
            False, without a change, if `version` is given and another version, or no object, is there. If a response is
            lost, the result may be False although the object was replaced.
        """
        ...

    def replaces_conditionally(self, key: str) -> bool:
        """Test with a scratch object under `key`, which is removed, whether `replace` compares the version here."""
        ...

    def stat(self, key: str, *, read_back: bool = True, most_bytes: int | None = None) -> ObjectStat | None:
        """Return size and checksum; None if there is no such object.

        Without `read_back` no byte of the object is read: a checksum that the store does not keep is None. The same
        holds for an object that has more than `most_bytes`.
        """
        ...

    def head(self, key: str) -> SeenObject | None:
        """Return size, time and version without reading the object; None if there is no such object."""
        ...

    def read(self, key: str, first: int = 0, last: int | None = None, *, limiter: ByteLimiter) -> Iterator[bytes]:
        """Read bytes `first` to `last` (both inclusive; `last` None: to the end) in blocks.

        No request is sent before the first block is requested. Each block is charged to `limiter` before it is read.

        Raises (with the first block):
            RemoteResourceNotFoundError: no such object, or it ends before `first` or `last`.
        """
        ...

    def delete(self, keys: Collection[str]) -> tuple[KeyFailure, ...]:
        """Remove these objects, and return those that failed. Absent objects are no error."""
        ...

    def delete_versions(self, versions: Collection[tuple[str, str]]) -> tuple[KeyFailure, ...]:
        """Remove these versions, given as (key, version id), permanently; return those that failed.

        A delete marker is a version, too. Absent versions are no error.

        If the latest version of a key is removed, the version before it becomes the latest. A directory keeps no
        versions: there every removal fails.
        """
        ...

    def list_objects(self, prefix: str = "") -> Iterator[ObjectEntry]:
        """List every complete object whose key starts with `prefix`, in no particular order."""
        ...

    @property
    def keeps_checksums(self) -> bool:
        """Whether the store keeps the CRC-32C of objects that `put` wrote, so that `stat` reads none of their bytes."""
        ...

    @property
    def leaves_uploads(self) -> bool:
        """Whether a complete object may have an open upload, because the response with the upload's id was lost."""
        ...

    def list_open_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        """List every unfinished write under `prefix`, in no particular order."""
        ...

    def abort_upload(self, upload: OpenUpload) -> None:
        """Remove what an unfinished write has stored, so that its writer fails; do nothing if nothing is stored."""
        ...

    def clock_ms(self, key: str) -> int | None:
        """Return the store's own clock now, in UTC milliseconds, perhaps in whole seconds.

        None if the store does not show its clock, or has no object under `key`.

        Args:
            key: of an existing object, which the request is about.
        """
        ...

    def check_capacity(self) -> None:
        """Check that the medium has the free space that this store requires, if the medium shows its free space.

        Raises:
            RemoteStorageFullError: there is less; the message names the free and the required space.
        """
        ...


def checked_key(key: str) -> str:
    """Return `key` if it can only name an object inside the prefix.

    Accepted: components of ``A-Z a-z 0-9 . _ -`` joined by single slashes, none of them ``.`` or ``..``;
    1,024 characters at most.

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
    """Return `prefix` if it is empty or a legal key, with or without a slash at its end.

    Raises:
        ObjectKeyError: anything else.
    """
    if prefix:
        checked_key(prefix.removesuffix("/"))
    return prefix


_BORDERS_PER_PART: Final = 4
_MOST_BORDERS: Final = 10_000


class ListedObject(NamedTuple):
    """One object, or one version of it where the listing shows versions (`version_id` may be None where it does not).

    A delete marker is a version without content. `last_modified_ms` is by the store's clock, UTC. This is a named tuple
    because a listing may have millions of objects, which are converted into columns.
    """

    key: str
    size_bytes: int
    last_modified_ms: int
    version_id: str | None = None
    is_latest: bool = True
    is_delete_marker: bool = False

    @property
    def is_current(self) -> bool:
        """Whether a read of the key returns this version."""
        return self.is_latest and not self.is_delete_marker


class ListedUpload(NamedTuple):
    """One unfinished write.

    Attributes:
        upload_id: the same value as `token` of `OpenUpload`.
        size_bytes: 0 where the store does not show how much was sent so far.
    """

    key: str
    upload_id: str
    initiated_ms: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ListingProperties:
    """What a listing shows, and its point in time.

    Attributes:
        shows_versions: if False, it lists current objects only: no old versions, no delete markers.
        shows_open_uploads: whether it lists open uploads.
        taken_at_ms: the time of the listing by the store's clock; None for a live listing, which shows each part as it
            is when that part is read.
        settled_ms: how long before `taken_at_ms` a change must have been made to be certainly in the listing.
    """

    shows_versions: bool
    shows_open_uploads: bool
    taken_at_ms: int | None = None
    settled_ms: int = 0


PartT = TypeVar("PartT")


class ObjectListing(Protocol[PartT]):
    """A listing of everything below one prefix of one store. Parts can be pickled and read in other processes.

    Every method may raise `RemoteStorageUnavailableError` (retriable) and `RemoteStorageError`.
    """

    def describe(self) -> str:
        """Return a URL of what is listed, without credentials, for messages and logs."""
        ...

    def properties(self) -> ListingProperties:
        """Return what this listing shows, and its point in time."""
        ...

    def parts(self, wanted: int) -> Sequence[PartT]:
        """Divide the keys into parts. In a live listing every key, also one written meanwhile, belongs to exactly one.

        Args:
            wanted: the approximate number of parts, 1 or more; the keys may allow fewer. An inventory ignores it.
        """
        ...

    def pages(self, part: PartT) -> Iterator[Sequence[ListedObject]]:
        """List the objects of one part, in pages that bound the reader's memory."""
        ...

    def open_uploads(self) -> Iterator[Sequence[ListedUpload]]:
        """List all unfinished writes below the prefix; nothing if the listing cannot show them."""
        ...


@dataclass(frozen=True, slots=True)
class KeyInterval:
    """A part of a live listing: keys above `after` and up to `until` (inclusive); None is unbounded.

    Keys are ordered by code points, which is the order of their UTF-8 bytes.
    """

    after: str | None = None
    until: str | None = None

    def holds(self, key: str) -> bool:
        return (self.after is None or key > self.after) and (self.until is None or key <= self.until)


def cut(children: Callable[[str], Iterable[str]], wanted: int) -> tuple[KeyInterval, ...]:
    """Divide all keys into about `wanted` intervals, with borders between "directories".

    Args:
        children: returns the directories directly below a directory; each ends in a slash, and the root is "".
            Directories that are left out make the intervals uneven, never incomplete.
        wanted: the approximate number of intervals, 1 or more.
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
    """Parse a time such as ``2026-11-21T20:41:52.000Z`` into UTC milliseconds.

    Raises:
        ValueError: not such a time.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time without its zone: {text[:40]!r}")
    return round(moment.timestamp() * 1000)


def decoded_key(text: str) -> str:
    """Decode a percent-encoded key. Bytes that are not UTF-8 are escaped."""
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
    """Fill `buffer` from `source` at `position`, and return the part that was filled, at least one byte.

    Raises:
        RemoteChecksumError: the source ended early, and did not raise an error itself.
    """
    filled = source.read_into(position, buffer)
    if not filled:
        raise RemoteChecksumError(f"the source ended at byte {position} of {source.size_bytes}")
    return buffer[:filled]


def blocks_of(
    source: ByteSource, first: int, size_bytes: int, limiter: ByteLimiter = _EVERY_BYTE
) -> Iterator[memoryview]:
    """Read `size_bytes` of `source` from `first` on, in blocks that `limiter` grants.

    A block is valid until the next block is requested.

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
    """Static credentials, for deployments that do not use the SDK's credential chain.

    Secrets are never printed: `repr` shows the id of the access key only.
    """

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
