"""Ownership: of a topic, of a segment (its origin), of a partition (leases and fences), and of a store (its marker).

A store belongs to one database. The marker object and the database both record which database this is, and where the
keys of the store's segments are. Every run that plans to write or delete raises the generation, and each generation has
a random token. So if a database is copied, or restored from a backup, the first of the two databases that plans becomes
the owner, and the other is refused from then on.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from include.tiering.errors import ForeignStoreError, StorePlaceUnknownError, printable
from include.tiering.model.segments import TopicIdPartition
from include.tiering.units import format_utc


class TopicOwner(StrEnum):
    """Who copies and expires a topic's segments; there is only one owner at a time.

    NONE: no one. PLATFORM: this platform. HANDING_OVER: no one, while the platform's leases end. BROKER: Kafka.
    """

    NONE = "none"
    PLATFORM = "platform"
    HANDING_OVER = "handing-over"
    BROKER = "broker"


class SegmentOrigin(StrEnum):
    """Who began a segment. It never changes: only brokers delete a broker's segment, even if the owner changes."""

    PLATFORM = "platform"
    BROKER = "broker"


class LeaseRole(StrEnum):
    """What the holder of a lease does with the partition. As in Kafka, a copy and an expiration may run in parallel.

    Each role has its own leases and tokens. If the holders of two roles want to change the same segment,
    compare-and-set on its state decides. PUBLISH changes no segment: its holder writes the partition's records into the
    metadata topic.
    """

    COPY = "copy"
    EXPIRE = "expire"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to change one partition in one role.

    A change with a token that is not the newest of its role, or whose lease was given back, fails with LeaseLostError.
    """

    topic_id_partition: TopicIdPartition
    token: int
    role: LeaseRole = LeaseRole.COPY


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLease:
    """The right of one batch to one partition in the role of `fence`, until it expires or the batch gives it back."""

    run_id: str
    batch_id: str
    fence: Fence
    expires_at_ms: int


NOT_RECORDED: Final = (
    "the database does not say where the keys of its store lie: run ./tiering migrate, which checks segments at the"
    " place that the settings name, and then records that place. Nothing is written or deleted"
)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where keys are. If one of these values changes, keys refer to other objects. `url` is as `place_of` spells it."""

    url: str
    layout: str
    key_prefix: str

    @property
    def directory(self) -> Path | None:
        """The directory that has the objects; None if they are in a bucket."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    def overlaps(self, other: "StorePlace") -> bool:
        """Return whether both may refer to the same object: URL and prefix together are one path."""
        ours, theirs = (f"{place.url}/{place.key_prefix}" for place in (self, other))
        return ours.startswith(theirs) or theirs.startswith(ours)

    def __str__(self) -> str:
        prefix = f"key prefix {printable(self.key_prefix)}" if self.key_prefix else "no key prefix"
        return f"{printable(self.url)}, layout {printable(self.layout)}, {prefix}"


@dataclass(frozen=True, slots=True)
class RaisedBy:
    """Who last raised the generation, to be shown to people. `database` contains no user and no password."""

    host: str
    database: str
    at_ms: int

    def __str__(self) -> str:
        return f"{printable(self.database)} on {printable(self.host)}, {format_utc(self.at_ms)}"


@dataclass(frozen=True, slots=True)
class StoreMarker:
    """The object `_tiering-store.json`. Markers are equal if cluster, store, generation and token are.

    Attributes:
        token: random token of this generation; None in a marker of version 1.
        place: where the keys are; None, that is unknown, in a marker of version 1.
    """

    cluster_id: str
    store_id: str
    generation: int
    token: str | None = None
    place: StorePlace | None = field(default=None, compare=False)
    raised_by: RaisedBy | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return a text such as `store 'Sd..' of cluster 'Mk..', generation 2`; quoted, as the values are untrusted."""
        return f"store {self.store_id!r} of cluster {self.cluster_id!r}, generation {self.generation}"

    def is_of_the_same_store(self, other: "StoreMarker") -> bool:
        """Return whether both markers are of the same store, in any generation."""
        return (self.cluster_id, self.store_id) == (other.cluster_id, other.store_id)


UNREAD_GUARD: Final = "unread-records"
"""Name of the guard that is active while a database may not know which segments were published."""


@dataclass(frozen=True, slots=True)
class AcceptedMarkers:
    """Markers that this database accepts: that of its generation, and the next one while the store is being claimed.

    `conditional` is whether the store supports conditional replacement of an object; None if that was never tried.
    """

    current: StoreMarker
    pending: StoreMarker | None = None
    conditional: bool | None = field(default=None, compare=False)

    def accepts(self, found: StoreMarker | None) -> bool:
        return found is not None and found in (self.current, self.pending)

    @property
    def places(self) -> tuple[StorePlace, ...]:
        """The recorded place of the keys, and the place to which they are being moved; empty if none was recorded."""
        markers = (self.current, self.pending)
        return tuple(marker.place for marker in markers if marker is not None and marker.place is not None)

    def require_place(self, place: StorePlace | None) -> None:
        """Compare the place in the settings with that in the database; with `place` None, compare nothing.

        Raises:
            StorePlaceUnknownError: the database has no place.
            ForeignStoreError: `place` is neither the recorded place nor that to which the store is being moved.
        """
        if place is None or place in self.places:
            return
        if not self.places:
            raise StorePlaceUnknownError(NOT_RECORDED)
        raise ForeignStoreError(elsewhere(self.places[0], place))

    def require(self, found: StoreMarker | None, place: StorePlace | None) -> None:
        """Check that `found` is accepted, and that its place and the recorded one are `place`, that of the settings.

        A place that is None is not compared.

        Raises:
            ForeignStoreError: the marker is missing or not accepted, or a place differs.
            StorePlaceUnknownError: as for `require_place`.
        """
        self.require_place(place)
        if found is None or not self.accepts(found):
            raise ForeignStoreError(self.objection(found))
        expected = self.pending if self.pending == found else self.current
        for known in (found.place, None if expected is None else expected.place):
            if place is not None and known not in (None, place):
                raise ForeignStoreError(elsewhere(known, place))

    def objection(self, found: StoreMarker | None) -> str:
        """Return a text about a marker that is not accepted: whose it is, and what to do."""
        ours = self.current
        if found is None:
            return (
                f"the store has no _tiering-store.json, expected {ours}: is its disk mounted and its URL right?"
                " Nothing is written or deleted"
            )
        if not found.is_of_the_same_store(ours):
            return f"the store belongs to {found}, this database to {ours}: nothing is written or deleted"
        if found.generation < ours.generation:
            by = "" if found.raised_by is None else f", raised by {found.raised_by}"
            return (
                f"store {found.store_id!r} is at generation {found.generation}{by}; this database is at"
                f" {ours.generation}. Either the store was set back: it is an older copy, a snapshot that was restored"
                " or another bucket; correct remote_storage.url, or, if there is no newer copy, continue with this"
                " store by ./tiering take-over-store. Or this database belongs to another copy of the store: set"
                " metadata.url to the database of the copy that remote_storage.url names. Nothing is written or deleted"
            )
        by = "" if found.raised_by is None else f", raised by {found.raised_by}"
        return (
            f"another database has used store {found.store_id!r}: the store is at generation {found.generation}{by};"
            f" this database is at {ours.generation}. Set metadata.url to that database, or make this one the"
            " owner with ./tiering take-over-store. Nothing is written or deleted"
        )


def elsewhere(stored: StorePlace | None, place: StorePlace) -> str:
    """Return a text about settings that name another place than the one where the keys are."""
    return (
        f"the keys of this store lie in {stored}, the settings name {place}: correct remote_storage.url, layout and"
        " key_prefix, or, if the objects were moved, run ./tiering relocate-store. Nothing is written or deleted"
    )
