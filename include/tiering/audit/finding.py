"""What an audit finds, and what it decides from: the metadata's segments, the time of the listing, and live leases.

There is one finding for each object, version, upload or segment about which store and metadata disagree.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from include.tiering.errors import RemoteMetadataError
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid
from include.tiering.remote_storage.layouts.contract import SegmentLayout
from include.tiering.segments.contract import KeyRange

FindingIdentity = tuple[str, str, str, str]


class FindingKind(StrEnum):
    """The kind of a finding.

    A key is a segment's if this store's layout could have written it. A segment id is known if the metadata has it in
    any state except DELETE_SEGMENT_FINISHED (a tombstone).
    """

    ORPHAN = "orphan"
    """An object of a segment id that is unknown, or a tombstone, and that cannot be adopted. One per object.

    Harmless: a copy or a deletion that dies leaves such objects (KIP-405 writes STARTED before the first object, and
    DELETE_FINISHED after the last).
    """

    ADOPTABLE = "adoptable"
    """All objects of an unknown segment id without a tombstone, with a manifest that can be parsed and agrees with the
    keys. One per segment, under the key of its manifest; bytes are those of all its objects. It can be adopted, and is
    never deleted by default.
    """

    ABANDONED_COPY = "abandoned-copy"
    """COPY_SEGMENT_STARTED, or DELETE_SEGMENT_STARTED longer than every hold, without a live lease of the partition.
    One per segment, under the key of its log; bytes are those of its objects, which are no orphans.
    """

    DANGLING_REFERENCE = "dangling-reference"
    """An object that a FINISHED segment must have is not in the listing. A fetch of these offsets fails. One per
    missing object, under the key that it should have.
    """

    SIZE_MISMATCH = "size-mismatch"
    """The length of a FINISHED segment's log differs from the metadata, or another object has an impossible length.
    One per object; bytes are those in the store.
    """

    DUPLICATE = "duplicate"
    """The same records of a partition are stored twice: the same start and end offset, under the same leader epochs.

    Either a FINISHED segment if lookups return another FINISHED one: one per segment, under the key of its log. Or an
    otherwise adoptable copy if there is a FINISHED segment or a newer adoptable copy: one per segment, under the key of
    its manifest, with the bytes of all its objects, and never deleted by default.
    """

    WRONG_LAYOUT = "wrong-layout"
    """An object that names a known segment id, under a key that is not one of that segment: another prefix, topic,
    partition, start offset or object kind. One per object.
    """

    FOREIGN_OBJECT = "foreign-object"
    """A key that this layout never writes and that names no known segment id. Or each object of an unknown segment id
    that has all of them, in a layout without manifests: a complete copy that cannot be proven. Or an object of a topic
    that brokers tier, without a record, although all records up to its age were read. Never deleted by the platform."""

    OPEN_MULTIPART_UPLOAD = "open-multipart-upload"
    """A write that did not become an object (a multipart upload; a temporary file in a file tree), while no copy of its
    segment is running. It uses space and is in no listing of objects. One per upload; bytes are 0 if the store does
    not report them.
    """

    OLD_VERSION = "old-version"
    """A version of an object, or a delete marker, that is not the latest of its key. It uses space and is never read.
    One per version.
    """

    DELETE_MARKER = "delete-marker"
    """The latest version of a key is a delete marker: the key has no object. One per key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One finding.

    `key` is relative to the store's prefix, exactly as the store returns it. Any writer may have chosen it, so it is
    not safe for a terminal (`errors.printable`) and need not pass `object_store.checked_key`.

    `size_bytes` is what is stored under the key (see the kind), 0 if nothing is. Ids, `topic` (a label), `partition`
    and offsets (of the segment, inclusive) are None if neither the key nor the metadata has them. `version_id` is set
    if the store keeps versions; "null" is the id of objects from before it did. `upload_id` is the store's token of an
    open upload, as in `OpenUpload`, None for other kinds. `last_modified_ms` is by the store's clock. `leader_epochs`
    are those of an adoptable copy, as `epochs_text` writes them; they are used during an audit and not recorded.
    """

    kind: FindingKind
    key: str
    message: str
    size_bytes: int = 0
    segment_id: Uuid | None = None
    topic_id: Uuid | None = None
    topic: str | None = None
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    last_modified_ms: int | None = None
    version_id: str | None = None
    upload_id: str | None = None
    leader_epochs: str | None = None

    @property
    def identity(self) -> FindingIdentity:
        """Return (kind, key, version id, upload id), empty for none; it is equal for one finding of two audits."""
        return (self.kind.value, self.key, self.version_id or "", self.upload_id or "")


PartitionText = tuple[str, int]
"""Topic id in Kafka's text form, partition."""


class AuditedSegment(NamedTuple):
    """One segment in any state, tombstones included.

    Ids are in Kafka's text form, `state` is Kafka's number, offsets are inclusive. `changed_at_ms` is when the segment
    entered its state, by the database's clock; `arrival` ascends in the order in which attempts began. Of FINISHED
    segments with the same offsets under the same leader epochs, lookups return the one with the highest `arrival`.
    `leader_epochs` is as `epochs_text` writes it.
    """

    segment_id: str
    topic_id: str
    partition: int
    state: int
    start_offset: int
    end_offset: int
    size_bytes: int
    changed_at_ms: int
    arrival: int
    leader_epochs: str


def epochs_text(leader_epochs: LeaderEpochs) -> str:
    """Return ascending ``epoch:start`` pairs with commas between them: a text column for rows of Spark jobs."""
    return ",".join(f"{epoch}:{start_offset}" for epoch, start_offset in leader_epochs)


def epochs_of_text(text: str) -> LeaderEpochs:
    """Parse what `epochs_text` wrote."""
    pairs = (pair.split(":") for pair in text.split(",") if pair)
    return LeaderEpochs.of((int(epoch), int(start_offset)) for epoch, start_offset in pairs)


@dataclass(frozen=True, slots=True)
class AuditedTopic:
    """A topic of the metadata."""

    name: str
    owner: TopicOwner

    @property
    def is_ours(self) -> bool:
        """Return whether only the platform writes its segments; otherwise objects of unknown ids are no orphans."""
        return self.owner in (TopicOwner.PLATFORM, TopicOwner.NONE)


class AuditedMetadata(Protocol):
    """The metadata of one cluster, read only.

    Every method may raise `MetadataUnavailableError`.
    """

    def now_ms(self) -> int:
        """Return the time by the database's clock."""
        ...

    def topics(self) -> Mapping[str, AuditedTopic]:
        """Return the topics by id."""
        ...

    def leased_partitions(self) -> frozenset[PartitionText]:
        """Return the partitions with a live lease, in any role."""
        ...

    def split(self, ranges: int) -> Sequence[KeyRange]:
        """Return at most `ranges` ranges that together have every current segment once."""
        ...

    def export(self, key_range: KeyRange) -> Iterator[Sequence[AuditedSegment]]:
        """Return the segments of the range, in pages. Each page is a transaction of its own."""
        ...


DEFAULT_MIN_AGE_MS: Final = 24 * 3_600_000

ManifestReader = Callable[[str], bytes | None]
"""Returns the manifest object of a key; None if this process cannot read manifests. Raises RemoteResourceNotFoundError
if it is gone, another RemoteStorageError if it cannot be a manifest or the store does not answer."""


def no_manifest(key: str) -> bytes | None:
    """Return None: the `ManifestReader` of a process that cannot read manifests."""
    return None


@dataclass(frozen=True, slots=True)
class AuditMoment:
    """The time of a listing, by the database's clock (of an inventory: by its own), and the ages that count as new.

    `settled_ms`: a change is certainly in the listing if it was made this long before `listed_at_ms`. `min_age_ms` is
    the age guard. `delete_hold_ms` is the longest planned wait between the start of a deletion and the first object.
    """

    listed_at_ms: int
    settled_ms: int = 0
    min_age_ms: int = DEFAULT_MIN_AGE_MS
    delete_hold_ms: int = 0

    def was_settled(self, changed_at_ms: int) -> bool:
        """Return whether a change at this time was complete before the listing began."""
        return changed_at_ms < self.listed_at_ms - self.settled_ms

    def is_young(self, at_ms: int) -> bool:
        """Return whether this time is younger than the age guard."""
        return at_ms > self.listed_at_ms - self.min_age_ms

    def is_past_hold(self, delete_started_at_ms: int) -> bool:
        """Return whether a deletion is older than the age guard and every hold."""
        return delete_started_at_ms <= self.listed_at_ms - max(self.min_age_ms, self.delete_hold_ms)


@dataclass(frozen=True, slots=True)
class AuditContext:
    """What classification needs besides objects and segments.

    Attributes:
        leased_partitions: partitions with a live lease, read after the segments.
        unread: partitions that brokers tier and whose records were not all read.
        brokers_read_ms: for partitions whose records were all read: when the end of the records was determined.
    """

    moment: AuditMoment
    layout: SegmentLayout
    topics: Mapping[str, AuditedTopic]
    leased_partitions: frozenset[PartitionText]
    read_manifest: ManifestReader = no_manifest
    unread: frozenset[PartitionText] = frozenset()
    brokers_read_ms: Mapping[PartitionText, int] = field(default_factory=dict)

    def topic(self, topic_id: str) -> AuditedTopic:
        """Return the topic of a segment in the metadata.

        Raises:
            RemoteMetadataError: the metadata has no such topic.
        """
        found = self.topics.get(topic_id)
        if found is None:
            raise RemoteMetadataError(f"topic id {topic_id} has segments but no topic: the database is damaged")
        return found


class PassedOver(StrEnum):
    """Why objects were not classified. They are counted, so that a report shows what it does not cover."""

    YOUNG = "young"
    """Younger than the age guard: a copy may be running, or the database may be behind."""

    CHANGING = "changing"
    """The segment changed since the listing began, or an object disappeared: the next audit classifies it."""

    OF_BROKERS = "of-brokers"
    """Unknown segment ids of a topic that brokers tier or that is being handed over: brokers write objects without a
    row here. They are classified only if the brokers' records about them must have been read."""

    UNREAD = "unread"
    """Of a partition that brokers tier and whose records were not all read: ./tiering ingest reads them."""


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """Findings, and how many objects were passed over."""

    findings: tuple[AuditFinding, ...] = ()
    passed_over: Mapping[PassedOver, int] = field(default_factory=Counter)


NOTHING_FOUND: Final = AuditOutcome()
