"""What an audit finds: one row for each object, version, upload or segment that store and metadata disagree about."""

from dataclasses import dataclass
from enum import StrEnum

from include.tiering.model.ids import Uuid

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
    are those of an adoptable copy, as `segment_facts.epochs_text` writes them, while an audit runs: no record keeps
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
