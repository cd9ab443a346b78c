"""All that a store holds, listed in parts that many processes read at once.

A listing is complete or an error: an answer that ends early, repeats itself, is out of order or cannot be parsed raises
and never looks like a smaller store. Keys are as the store gives them, relative to its prefix: anybody may have written
them. One that is no UTF-8 has its other bytes escaped (`\\xff`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice, pairwise
from typing import Final, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_plus

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
    store does not tell what was sent so far."""

    key: str
    upload_id: str
    initiated_ms: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ListingFacts:
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

    def facts(self) -> ListingFacts: ...

    def parts(self, wanted: int) -> Sequence[PartT]:
        """Parts that together hold every key once, whatever is written meanwhile; about `wanted` (1 or more) where the
        keys allow it."""
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
    bytes; None is unbounded. A part of a live listing."""

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
