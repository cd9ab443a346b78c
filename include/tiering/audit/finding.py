"""The findings of an audit, and the input for them: segments and topics of the metadata, live leases, and times.

Each finding is about one object, version, key, upload, segment or copy, as `FindingKind` says.
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
from include.tiering.segments.sizes_contract import KeyRange

FindingIdentity = tuple[str, str, str, str]


class FindingKind(StrEnum):
    """The kind of a finding.

    A segment id is known if the metadata has it in any state except DELETE_SEGMENT_FINISHED (a tombstone); otherwise it
    is unknown. In topics that brokers tier, the current objects of unknown ids can only be FOREIGN_OBJECT.
    """

    ORPHAN = "orphan"
    """An object of an unknown segment id, if the id has a tombstone, or its objects are no complete copy.

    There is one finding per object. No fetch reads orphans. They are left by a database that was restored or lost, by
    another writer, or by a write that arrived after its segment was deleted. A copy or a deletion that only dies leaves
    none, because its segment id stays known: KIP-405 writes STARTED before the first object, and DELETE_FINISHED after
    the last."""

    ADOPTABLE = "adoptable"
    """A complete copy: an unknown segment id without a tombstone has all required objects, and a manifest that can
    be parsed and agrees with the keys and lengths of the objects. If the manifest is not read (access is denied, or
    this process reads no manifests), only the existence of the objects is checked. There is one finding per segment,
    under the key of its manifest; its bytes are those of all its objects. `./tiering adopt` makes a segment of it
    unless something forbids this; no removal run deletes it."""

    ABANDONED_COPY = "abandoned-copy"
    """A segment is in COPY_SEGMENT_STARTED for at least the minimum age, or in DELETE_SEGMENT_STARTED for at least
    the minimum age and the hold of superseded segments, and its partition has no live lease. In topics that
    brokers tier or take over, only COPY_SEGMENT_STARTED counts, and leases are not compared. There is one finding per
    segment, under the key of its log; its bytes are those of its objects, which are no orphans."""

    DANGLING_REFERENCE = "dangling-reference"
    """The listing lacks an object that a segment must have, although the segment was FINISHED before the listing began.
    The segment's offsets cannot be read. There is one finding per missing object, under the key that it should have."""

    SIZE_MISMATCH = "size-mismatch"
    """A FINISHED segment's log has another length than the metadata says, or its manifest is longer than the limit, or
    an object that is never empty is empty. A compressed or encrypted log must instead have the stored length that its
    manifest says, and the manifest the original length that the metadata says. There is one finding per object; its
    bytes are those in the store."""

    DUPLICATE = "duplicate"
    """The same records of a partition are stored more than once: with the same start and end offset, under the same
    leader epochs.

    The finding is either about a FINISHED segment, if lookups return another FINISHED segment with these records; it is
    under the key of the segment's log. Or it is about an otherwise adoptable copy, if a FINISHED segment or a newer
    adoptable copy has these records; it is under the key of the copy's manifest, with the bytes of all its objects.
    There is one finding per superfluous segment or copy. No removal run deletes either."""

    WRONG_LAYOUT = "wrong-layout"
    """An object's key names a known segment id, and is none of the keys of that segment: it has another prefix, topic,
    partition, start offset or object kind. There is one finding per object."""

    FOREIGN_OBJECT = "foreign-object"
    """An object that the platform never deletes. Its key is one that this layout never writes, and names no known
    segment id. Or the layout has no manifests, and the object belongs to an unknown segment id with all its objects,
    which may be a complete copy. Or brokers tier its topic, and all of their records that could mention it were read:
    they have none of its segment, or recorded the segment as deleted. There is one finding per object."""

    OPEN_MULTIPART_UPLOAD = "open-multipart-upload"
    """A write that did not become an object (a multipart upload; a temporary file in a file tree) is at least as old as
    the minimum age; its partition has no live lease, and brokers do not tier its topic or take it over. It uses space
    and is in no listing of objects. There is one finding per upload; its bytes are 0 if the store does not say how many
    they are."""

    OLD_VERSION = "old-version"
    """A version of an object, or a delete marker, that is not the latest of its key. It uses space and is never read.
    There is one finding per version; there are none for the store's marker and the objects of write checks."""

    DELETE_MARKER = "delete-marker"
    """The latest version of a key is a delete marker: the key has no object. There is one finding per key, with the
    exceptions of OLD_VERSION."""


COMPLETE_COPIES: Final = (FindingKind.ADOPTABLE, FindingKind.DUPLICATE)
"""The kinds of findings about complete copies of which the metadata have no row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One finding.

    `key` is relative to the store's prefix, exactly as the store returns it. Any writer may have chosen it, so it is
    not safe for a terminal (`errors.printable`) and need not pass `object_store.checked_key`.

    `size_bytes` are the stored bytes that the kind describes, 0 if nothing is stored. Ids, `topic` (a label),
    `partition` and offsets (of the segment, inclusive) are None if they are unknown. `version_id` is set only if the
    store keeps versions; "null" is the id of objects from before it kept versions. `upload_id` is the store's token of
    an open upload, as in `OpenUpload`, None for other kinds. `last_modified_ms` is by the store's clock: for a finding
    about several objects the newest time, for an upload the time at which it began, None if nothing is stored or if a
    FINISHED segment is a duplicate.
    `leader_epochs` are those of an adoptable copy, as `epochs_text` writes them; they are used during an audit and not
    recorded.
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
        """Return (kind, key, version id, upload id), equal in all audits that see the finding; absent ids are empty."""
        return (self.kind.value, self.key, self.version_id or "", self.upload_id or "")


PartitionText = tuple[str, int]
"""Topic id in Kafka's text form, partition."""


class AuditedSegment(NamedTuple):
    """One segment in any state, tombstones included.

    Ids are in Kafka's text form, `state` is Kafka's number, offsets are inclusive. `changed_at_ms` is when the segment
    entered its state, by the database's clock; `arrival` ascends in the order in which rows were stored. Of FINISHED
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
        """Return whether the owner is the platform or no one; otherwise objects of unknown ids are no orphans."""
        return self.owner in (TopicOwner.PLATFORM, TopicOwner.NONE)


class AuditedMetadata(Protocol):
    """The metadata of one cluster, read only.

    Every method may raise `MetadataUnavailableError`.
    """

    def now_ms(self) -> int:
        """Return the time by the database's clock."""
        ...

    def topics(self) -> Mapping[str, AuditedTopic]:
        """Return a mapping from the id of each topic to the topic."""
        ...

    def leased_partitions(self) -> frozenset[PartitionText]:
        """Return the partitions with a live lease, in any role."""
        ...

    def split(self, ranges: int) -> Sequence[KeyRange]:
        """Return at most `ranges` ranges of row keys that together have every segment stored now exactly once."""
        ...

    def export(self, key_range: KeyRange) -> Iterator[Sequence[AuditedSegment]]:
        """Return the segments of the range, in pages. Each page is read in a transaction of its own."""
        ...


DEFAULT_MIN_AGE_MS: Final = 24 * 3_600_000

ManifestReader = Callable[[str], bytes | None]
"""Returns the content of the manifest under a key; None if this process cannot read manifests. Raises
RemoteResourceNotFoundError if there is no such object, another RemoteStorageError if the object cannot be a manifest or
the store does not answer."""


def no_manifest(key: str) -> bytes | None:
    """Return None: the `ManifestReader` of a process that cannot read manifests."""
    return None


@dataclass(frozen=True, slots=True)
class AuditMoment:
    """The time of a listing, and the ages that its objects and changes are compared with.

    `listed_at_ms` is when the listing began, by the database's clock; for an inventory it is the inventory's own time,
    if that is earlier. A change is certainly in the listing if it was made more than `settled_ms` before
    `listed_at_ms`. `min_age_ms` is the minimum age (`tiering.audit.min.age.ms`). `delete_hold_ms` is the longest
    planned wait between the start of a deletion and the deletion of the first object.
    """

    listed_at_ms: int
    settled_ms: int = 0
    min_age_ms: int = DEFAULT_MIN_AGE_MS
    delete_hold_ms: int = 0

    def was_settled(self, changed_at_ms: int) -> bool:
        """Return whether a change at this time is certainly in the listing."""
        return changed_at_ms < self.listed_at_ms - self.settled_ms

    def is_young(self, at_ms: int) -> bool:
        """Return whether this time is younger than the minimum age."""
        return at_ms > self.listed_at_ms - self.min_age_ms

    def is_past_hold(self, delete_started_at_ms: int) -> bool:
        """Return whether a deletion is at least as old as the minimum age, and as `delete_hold_ms`."""
        return delete_started_at_ms <= self.listed_at_ms - max(self.min_age_ms, self.delete_hold_ms)


@dataclass(frozen=True, slots=True)
class AuditContext:
    """What classification needs besides objects and segments.

    Attributes:
        leased_partitions: partitions with a live lease, read after the segments.
        unread: partitions that brokers tier and whose records were not all read.
        brokers_read_ms: for partitions whose records were all read: when the end of the records was determined, by the
            database's clock.
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
    """Why objects or uploads were not classified. They are counted, so that a report shows what it does not cover."""

    YOUNG = "young"
    """The objects or uploads, or another object of the same unknown segment id, are younger than the minimum age: a
    copy may run, or the database may lack recent rows."""

    CHANGING = "changing"
    """The segment may have changed since the listing began, a manifest disappeared, or the partition of an upload has a
    live lease. A later audit classifies them."""

    OF_BROKERS = "of-brokers"
    """They are uploads, or objects of an unknown segment id, in a topic that brokers tier or that is being handed over:
    brokers write without a row here. Such objects are classified only if they are so old that the brokers' records
    about them must have been read; uploads are never classified."""

    UNREAD = "unread"
    """Brokers tier their partition, and the brokers' records were not all read: ./tiering ingest reads them."""


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """Findings, and how many objects and uploads were passed over."""

    findings: tuple[AuditFinding, ...] = ()
    passed_over: Mapping[PassedOver, int] = field(default_factory=Counter)


NOTHING_FOUND: Final = AuditOutcome()
