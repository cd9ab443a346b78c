"""What an audit finds, and what it decides from: segments of the metadata, the listing's moment, who works where.

A finding is one row for each object, version, upload or segment that store and metadata disagree about.
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
    """What is wrong. A key is a segment's if this store's layout could have written it; "known" means that the metadata
    has the segment id in any state but DELETE_SEGMENT_FINISHED (a tombstone).
    """

    ORPHAN = "orphan"
    """An object of a segment id that is unknown, or a tombstone, and that cannot be adopted. One per object.

    Tolerable, never dangerous: what a copy or a delete leaves when it dies (KIP-405 writes STARTED before the first
    object, and DELETE_FINISHED after the last).
    """

    ADOPTABLE = "adoptable"
    """All objects of an unknown segment id that was never deleted here, with a manifest that can be parsed and says
    what the keys say. One per segment, under the key of its manifest; bytes are those of all its objects. Offered for
    adoption, never deleted by default.
    """

    ABANDONED_COPY = "abandoned-copy"
    """COPY_SEGMENT_STARTED, or DELETE_SEGMENT_STARTED past every hold, and nobody holds the lease that would go on with
    it. One per segment, under the key of its log; bytes are what the store holds of it. Its objects are no orphans.
    """

    DANGLING_REFERENCE = "dangling-reference"
    """An object that a FINISHED segment must have is not in the listing. Never tolerable: a fetch of these offsets
    fails. One per missing object, under the key that it should have.
    """

    SIZE_MISMATCH = "size-mismatch"
    """The log of a FINISHED segment has another length than the metadata says, or one of its other objects has a length
    that it cannot have. One per object; bytes are what the store holds.
    """

    DUPLICATE = "duplicate"
    """The same records of a partition are stored twice: the same start and end, under the same leader epochs. A
    FINISHED segment beside another FINISHED one that answers lookups: one per segment, under the key of its log. Or
    what would be adoptable, beside a FINISHED segment or a newer adoptable one: one per segment, under the key of its
    manifest, bytes of all its objects, and no more to be deleted by default than an adoptable one.
    """

    WRONG_LAYOUT = "wrong-layout"
    """An object that names a known segment id under a key which that segment does not have: another prefix, topic,
    partition, start offset or object kind. One per object.
    """

    FOREIGN_OBJECT = "foreign-object"
    """A key that this layout would never write and that names no known segment id. Or each object of an unknown segment
    id that has all of them, in a layout without manifests: a complete copy that nobody can prove to be one. Or of a
    topic that brokers tier, and of which no record tells that must have been read by now. Not ours to delete."""

    OPEN_MULTIPART_UPLOAD = "open-multipart-upload"
    """A write that never became an object (a multipart upload; a temporary file in a file tree), and no copy of its
    segment is under way. Costs space, is seen by no listing of objects. One per upload; bytes are 0 where the store
    does not tell.
    """

    OLD_VERSION = "old-version"
    """A version of an object that is not its latest (an older delete marker, too), in a bucket that keeps versions: it
    costs, and nothing reads it. One per version.
    """

    DELETE_MARKER = "delete-marker"
    """The latest version of a key says that it was deleted: the key has no object. One per key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One finding. `key` is relative to the store's prefix, exactly as the store gives it: anybody may have written it,
    so it is not safe for a terminal (`errors.printable`) and need not pass `object_store.checked_key`.

    `size_bytes` is what is stored under the key (see the kind), 0 where nothing is. Ids, `topic` (a label), `partition`
    and offsets (of the segment, inclusive) are None where neither the key nor the metadata tells them. `version_id` is
    set where the store keeps versions, "null" being the id of what was written before it did; `upload_id` for open
    uploads alone: the store's token, as in `OpenUpload`. `last_modified_ms` is by the store's clock. `leader_epochs`
    are those of an adoptable copy, as `epochs_text` writes them, while an audit runs: no record keeps
    them.
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
        """Equal in two audits: the same finding, seen again. (kind, key, version id, upload id), empty for none."""
        return (self.kind.value, self.key, self.version_id or "", self.upload_id or "")


PartitionText = tuple[str, int]
"""Topic id as Kafka prints it, partition."""


class AuditedSegment(NamedTuple):
    """One segment in any state, tombstones included. Ids as Kafka prints them, `state` as on Kafka's wire, offsets
    inclusive. `changed_at_ms` is when it entered that state, by the database's clock; `arrival` grows with the order in
    which attempts began. Of FINISHED segments with the same offsets under the same leader epochs the last to arrive
    answers lookups. `leader_epochs` is as `epochs_text` writes it.
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
    """``epoch:start`` pairs with commas between them, ascending: one plain column of a job's rows."""
    return ",".join(f"{epoch}:{start_offset}" for epoch, start_offset in leader_epochs)


def epochs_of_text(text: str) -> LeaderEpochs:
    """The inverse of `epochs_text`."""
    pairs = (pair.split(":") for pair in text.split(",") if pair)
    return LeaderEpochs.of((int(epoch), int(start_offset)) for epoch, start_offset in pairs)


@dataclass(frozen=True, slots=True)
class AuditedTopic:
    """A topic that the metadata knows."""

    name: str
    owner: TopicOwner

    @property
    def is_ours(self) -> bool:
        """Whether nobody but the platform writes its segments: only then is an unknown segment id an orphan's."""
        return self.owner in (TopicOwner.PLATFORM, TopicOwner.NONE)


class AuditedMetadata(Protocol):
    """The metadata of one cluster, read only.

    Every method may raise `MetadataUnavailableError`.
    """

    def now_ms(self) -> int:
        """The database's clock."""
        ...

    def topics(self) -> Mapping[str, AuditedTopic]:
        """By topic id."""
        ...

    def worked_on(self) -> frozenset[PartitionText]:
        """Partitions of which somebody holds a live lease, in whatever role."""
        ...

    def split(self, ranges: int) -> Sequence[KeyRange]:
        """At most `ranges` ranges that hold every segment of now once."""
        ...

    def export(self, key_range: KeyRange) -> Iterator[Sequence[AuditedSegment]]:
        """Segments of the range, in pages. Each page is a transaction of its own."""
        ...


DEFAULT_MIN_AGE_MS: Final = 24 * 3_600_000

ManifestReader = Callable[[str], bytes | None]
"""The manifest object under a key. None: manifests cannot be read now. Raises RemoteResourceNotFoundError if it is
gone, another RemoteStorageError if it cannot be one or the store does not answer."""


def no_manifest(key: str) -> bytes | None:
    """A `ManifestReader` of whoever cannot read any."""
    return None


@dataclass(frozen=True, slots=True)
class AuditMoment:
    """Of when the listing is, by the database's clock (an inventory's: its own), and what counts as too new.

    `settled_ms`: a change is surely in the listing if it was made so long before `listed_at_ms`. `min_age_ms` is the
    age guard. `delete_hold_ms`: a delete that began may wait so long on purpose before anything goes.
    """

    listed_at_ms: int
    settled_ms: int = 0
    min_age_ms: int = DEFAULT_MIN_AGE_MS
    delete_hold_ms: int = 0

    def was_settled(self, changed_at_ms: int) -> bool:
        """Whether all that led to this change was done before the listing began."""
        return changed_at_ms < self.listed_at_ms - self.settled_ms

    def is_young(self, at_ms: int) -> bool:
        """Younger than the age guard."""
        return at_ms > self.listed_at_ms - self.min_age_ms

    def is_past_hold(self, delete_started_at_ms: int) -> bool:
        return delete_started_at_ms <= self.listed_at_ms - max(self.min_age_ms, self.delete_hold_ms)


@dataclass(frozen=True, slots=True)
class AuditContext:
    """`worked_on`: partitions with a live lease, asked for after the segments were read. `unread`: those that brokers
    tier and of which not all was read that brokers wrote. `brokers_read_ms`: of partitions of which all was read, when
    the brokers were asked how much that is.
    """

    moment: AuditMoment
    layout: SegmentLayout
    topics: Mapping[str, AuditedTopic]
    worked_on: frozenset[PartitionText]
    read_manifest: ManifestReader = no_manifest
    unread: frozenset[PartitionText] = frozenset()
    brokers_read_ms: Mapping[PartitionText, int] = field(default_factory=dict)

    def topic(self, topic_id: str) -> AuditedTopic:
        """Of a segment of the metadata.

        Raises:
            RemoteMetadataError: the metadata has the segment and not its topic.
        """
        found = self.topics.get(topic_id)
        if found is None:
            raise RemoteMetadataError(f"topic id {topic_id} has segments and no topic: the database is damaged")
        return found


class PassedOver(StrEnum):
    """Why objects were not classified. They are counted, so that nobody takes silence for health."""

    YOUNG = "young"
    """Younger than the age guard: a copy that is under way, or a database that is behind."""

    CHANGING = "changing"
    """The segment changed since the listing began, or an object vanished: the next audit sees it settled."""

    OF_BROKERS = "of-brokers"
    """Unknown segment ids of a topic that is handed over, or its brokers': they write objects that no metadata here
    knows, unless all that they wrote about them must have been read."""

    UNREAD = "unread"
    """Of a partition that brokers tier, and of which not all was read that they wrote: ./tiering ingest."""


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """Findings, and how many objects were passed over."""

    findings: tuple[AuditFinding, ...] = ()
    passed_over: Mapping[PassedOver, int] = field(default_factory=Counter)


NOTHING_FOUND: Final = AuditOutcome()
