"""The end of an audit: check dangling references again, evaluate the guards, and record the audit.

Nothing is removed here. A dangling reference is a FINISHED segment without one of the objects that it must have. It
fails the audit's run and raises an alarm. So the object and then the segment's row are read again, and the finding is
reported only if the object is missing and the row is FINISHED. The first 2,000 dangling references of the comparison
(`_MAX_CHECKED_AGAIN`) are checked again; further ones are reported unchecked. The order of the two reads matters: a
deletion takes the row out of FINISHED before it deletes objects, so if the object is missing and the row that is read
afterwards is still FINISHED, no deletion has removed the object. The comparison reports a dangling reference only for a
segment that was FINISHED before the listing began. So if the object exists after all, and the row is FINISHED, the
listing was incomplete, and may lack other objects too: the guard INCOMPLETE_LISTING raises an objection, and this audit
sets no finding to GONE.

The guards are conditions under which the audit's comparison can be trusted; the head of `record` lists them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.audit.finding import COMPLETE_COPIES, AuditFinding, FindingKind, PassedOver
from include.tiering.audit.record import (
    AuditEvidence,
    AuditRecord,
    AuditSource,
    AuditStore,
    AuditTally,
    FindingState,
    UnknownCopy,
    known_before_restore,
    refusals,
)
from include.tiering.errors import FormatError, RemoteResourceNotFoundError, RemoteStorageError, UnknownVersionError
from include.tiering.formats.aiven_manifest import parse_manifest
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.orphan_objects import OrphanStorage
from include.tiering.segments.contract import RemoteLogMetadata

_MAX_CHECKED_AGAIN: Final = 2_000
_MAX_MANIFESTS: Final = 100
_MANIFEST_SUFFIX: Final = f".{ObjectKind.MANIFEST.value}"
EVIDENCE: Final = (FindingKind.DANGLING_REFERENCE, *COMPLETE_COPIES)
"""The kinds of findings that guards decide from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenByAudit:
    """What an audit saw.

    `began_at_ms` is the database's time before the listing. If the listing is an inventory, which was made before the
    audit began, `seen_at_ms` is the time up to which it certainly has all changes of objects; otherwise it is None.
    `objects` counts current objects, `rows` segments in every state. `listing_ended_ms` and `rows_began_ms` are by this
    process's monotonic clock, so they can be compared only with each other. `covers` are the kinds of findings that
    this source can show.
    """

    run_id: str
    source: AuditSource
    began_at_ms: int
    objects: int
    rows: int
    findings: Sequence[AuditFinding]
    passed_over: Mapping[PassedOver, int]
    listing_ended_ms: int
    rows_began_ms: int
    covers: Collection[FindingKind]
    seen_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AuditReport:
    """An audit that ended, and its findings without the dangling references that the second check refuted."""

    record: AuditRecord
    findings: tuple[AuditFinding, ...]
    tally: AuditTally


@dataclass(frozen=True, slots=True)
class AuditEnd:
    """Checks dangling references again, evaluates the guards, and records what an audit saw.

    Attributes:
        objection: why the store is not this database's, which is the objection of FOREIGN_STORE; None if the store is
            this database's.
        clock_contradiction: how a time from another source, such as the store's clock, contradicts the database's
            clock, which is the objection of CLOCK_DISAGREES; None if no such time does.
    """

    audits: AuditStore
    metadata: RemoteLogMetadata
    storage: OrphanStorage
    objection: str | None
    clock_contradiction: str | None

    def conclude(self, seen: SeenByAudit) -> AuditReport:
        """Record the audit and its findings, without the dangling references that the second check refutes.

        Raises:
            RemoteStorageUnavailableError, MetadataUnavailableError: the audit was not recorded; some of its findings
                may have been recorded, as `AuditStore.record` explains.
        """
        confirmed: list[AuditFinding] = []
        unlisted: list[str] = []
        checked = 0
        for finding in seen.findings:
            if finding.kind is FindingKind.DANGLING_REFERENCE and (checked := checked + 1) <= _MAX_CHECKED_AGAIN:
                is_there = self._is_there(finding.key)
                if not self._is_finished(finding):
                    continue
                if is_there:
                    unlisted.append(finding.key)
                    continue
            confirmed.append(finding)
        evidence = AuditEvidence(
            objection=self.objection,
            clock_contradiction=self.clock_contradiction,
            segment_objects=sum(seen.passed_over.values()) + sum(each.segment_id is not None for each in confirmed),
            memory=known_before_restore(self.audits.memory(), self.audits.active_guards()),
            unknown_copies=tuple(self._unknown_copies(confirmed)),
            listing_ended_ms=seen.listing_ended_ms,
            rows_began_ms=seen.rows_began_ms,
            unlisted=unlisted,
        )
        record = AuditRecord(
            seen.run_id,
            seen.source,
            seen.began_at_ms,
            seen.began_at_ms if seen.seen_at_ms is None else min(seen.seen_at_ms, seen.began_at_ms),
            seen.objects,
            seen.rows,
            refusals(evidence),
            seen.passed_over,
        )
        tally = self.audits.record(record, confirmed, covers=() if unlisted else seen.covers)
        return AuditReport(replace(record, findings=tally.seen), tuple(confirmed), tally)

    def _is_finished(self, finding: AuditFinding) -> bool:
        if finding.segment_id is None or finding.topic_id is None or finding.partition is None or not finding.topic:
            return True
        partition = TopicIdPartition(finding.topic_id, finding.partition, finding.topic)
        row = self.metadata.segment(RemoteLogSegmentId(partition, finding.segment_id))
        return row is not None and row.metadata.is_finished

    def _is_there(self, key: str) -> bool:
        return key in self.storage.attempt(key)

    def _unknown_copies(self, findings: Sequence[AuditFinding]) -> Iterator[UnknownCopy]:
        """Return the complete copies without a row whose objects were written last, at most 100.

        Copies whose finding a person has accepted are left out first.
        """
        complete = [
            finding
            for finding in findings
            if finding.kind in COMPLETE_COPIES and finding.key.endswith(_MANIFEST_SUFFIX)
        ]
        accepted = (
            {finding.finding.identity for finding in self.audits.findings((FindingState.ACCEPTED,))} if complete else ()
        )
        copies = [copy for copy in complete if copy.identity not in accepted]
        newest = sorted(copies, key=lambda copy: copy.last_modified_ms or 0, reverse=True)[:_MAX_MANIFESTS]
        for copy in newest:
            yield UnknownCopy(copy.key, self._began_ms(copy))

    def _began_ms(self, copy: AuditFinding) -> int | None:
        """Return when the copy began, by its manifest; None if the manifest is gone or damaged.

        If the manifest does not tell the time or cannot be read, return when the copy was stored, which is not earlier.
        """
        try:
            metadata = parse_manifest(self.storage.manifest(copy.key)).metadata
        except UnknownVersionError:
            return copy.last_modified_ms
        except (FormatError, RemoteResourceNotFoundError):
            return None
        except RemoteStorageError as error:
            if error.retriable:
                raise
            return copy.last_modified_ms
        return copy.last_modified_ms if metadata is None else metadata.event_timestamp_ms
