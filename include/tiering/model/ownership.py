"""Who may change what: the owner of a topic, who began a segment, the fence of a partition, the owner of a store.

A store belongs to one database. Its marker object and the database both say which one, and where the keys of the
store's segments lie. The generation grows with every run that plans to write or delete, and each has a random token of
its own. So of two databases that were one once (a copy, a backup that was restored) the first that plans is the owner,
and the other one is refused from then on.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from include.tiering.errors import ForeignStoreError, StorePlaceUnknownError, printable
from include.tiering.model.segments import TopicIdPartition
from include.tiering.units import format_utc


class TopicOwner(StrEnum):
    """One owner at a time, so that no segment is copied or expired by two.

    NONE: nobody; PLATFORM: we do; HANDING_OVER: nobody, our leases are drained; BROKER: Kafka does.
    """

    NONE = "none"
    PLATFORM = "platform"
    HANDING_OVER = "handing-over"
    BROKER = "broker"


class SegmentOrigin(StrEnum):
    """It never changes: what a broker began is the broker's to delete, whoever owns the topic later."""

    PLATFORM = "platform"
    BROKER = "broker"


class LeaseRole(StrEnum):
    """What the holder of a lease does with the partition. As in Kafka, one copies while another expires.

    Each role has its own leases and tokens. Where two want the same segment, compare-and-set on its state decides.
    PUBLISH changes no segment: its holder is the one who writes about the partition into the metadata topic.
    """

    COPY = "copy"
    EXPIRE = "expire"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class Fence:
    """Right to change one partition in one role.

    A change with a token that is not the newest of its role fails with LeaseLostError.
    """

    topic_id_partition: TopicIdPartition
    token: int
    role: LeaseRole = LeaseRole.COPY


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLease:
    """The right of one batch to one partition in the role of its fence, until it expires or is released."""

    run_id: str
    batch_id: str
    fence: Fence
    expires_at_ms: int


NOT_RECORDED: Final = (
    "the database does not say where the keys of its store lie: run ./tiering migrate, which looks at segments there"
    " before it records it. Nothing is written or deleted"
)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where keys lie: another value of any of the three names other objects. `url` is normalised (`place_of`)."""

    url: str
    layout: str
    key_prefix: str

    def overlaps(self, other: "StorePlace") -> bool:
        """Whether a key of one may name an object of the other: URL and prefix are one path, however it is split."""
        ours, theirs = (f"{one.url}/{one.key_prefix}" for one in (self, other))
        return ours.startswith(theirs) or theirs.startswith(ours)

    def __str__(self) -> str:
        prefix = f"key prefix {printable(self.key_prefix)}" if self.key_prefix else "no key prefix"
        return f"{printable(self.url)}, layout {printable(self.layout)}, {prefix}"


@dataclass(frozen=True, slots=True)
class RaisedBy:
    """Who raised the generation last, for a person. `database` names no user and no password."""

    host: str
    database: str
    at_ms: int

    def __str__(self) -> str:
        return f"{printable(self.database)} on {printable(self.host)}, {format_utc(self.at_ms)}"


@dataclass(frozen=True, slots=True)
class StoreMarker:
    """The object `_tiering-store.json`. Two are equal if they are of the same generation of the same owner.

    Attributes:
        token: of this generation; None in a marker of version 1, which had none.
        place: None in a marker of version 1: then nothing says where keys lie.
    """

    cluster_id: str
    store_id: str
    generation: int
    token: str | None = None
    place: StorePlace | None = field(default=None, compare=False)
    raised_by: RaisedBy | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """`store 'Sd..' of cluster 'Mk..', generation 2`; quoted, as it may come from somebody else's store."""
        return f"store {self.store_id!r} of cluster {self.cluster_id!r}, generation {self.generation}"

    def is_of_the_same_store(self, other: "StoreMarker") -> bool:
        """Whatever the generations are."""
        return (self.cluster_id, self.store_id) == (other.cluster_id, other.store_id)


@dataclass(frozen=True, slots=True)
class AcceptedMarkers:
    """What the store's marker may say for this database: its generation, or the next one while it is being raised.

    `conditional`: whether the store replaces an object only if it is the expected one; None if nobody has tried.
    """

    current: StoreMarker
    pending: StoreMarker | None = None
    conditional: bool | None = field(default=None, compare=False)

    def accepts(self, found: StoreMarker | None) -> bool:
        return found is not None and found in (self.current, self.pending)

    @property
    def places(self) -> tuple[StorePlace, ...]:
        """Where the database says that keys lie, and where to they are being moved; none if a version before this left
        it so, and the place was not recorded yet.
        """
        return tuple(one.place for one in (self.current, self.pending) if one is not None and one.place is not None)

    def require_place(self, place: StorePlace | None) -> None:
        """Compare where the settings say that keys lie with what the database says; `place` None: with nothing.

        Raises:
            StorePlaceUnknownError: the database does not say it.
            ForeignStoreError: they differ, or a move to another place was begun and has not come to its end.
        """
        if place is None or place in self.places:
            return
        if not self.places:
            raise StorePlaceUnknownError(NOT_RECORDED)
        raise ForeignStoreError(elsewhere(self.places[0], place))

    def require(self, found: StoreMarker | None, place: StorePlace | None) -> None:
        """Raises ForeignStoreError unless `found` is accepted, and of the place that the settings name."""
        self.require_place(place)
        if found is None or not self.accepts(found):
            raise ForeignStoreError(self.objection(found))
        expected = self.pending if self.pending == found else self.current
        for known in (found.place, None if expected is None else expected.place):
            if place is not None and known not in (None, place):
                raise ForeignStoreError(elsewhere(known, place))

    def objection(self, found: StoreMarker | None) -> str:
        """One sentence on a marker that is not accepted: whose it is, and what to do."""
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
                " or another bucket; set remote_storage.url right, or, if this copy is what there is, go on with it by"
                " ./tiering take-over-store. Or this database is from elsewhere, and was used with another copy of the"
                " store; set metadata.url to the database of this one. Nothing is written or deleted"
            )
        by = "" if found.raised_by is None else f", raised by {found.raised_by}"
        return (
            f"another database has used store {found.store_id!r} since: it is at generation {found.generation}{by};"
            f" this database is at {ours.generation}. Set metadata.url to that database, or make this one the"
            " owner with ./tiering take-over-store. Nothing is written or deleted"
        )


def elsewhere(stored: StorePlace | None, place: StorePlace) -> str:
    """One sentence on settings that name another place than the one where keys lie."""
    return (
        f"the keys of this store lie in {stored}, the settings name {place}: set remote_storage.url, layout and"
        " key_prefix right, or, if the objects were moved, run ./tiering relocate-store. Nothing is written or deleted"
    )
