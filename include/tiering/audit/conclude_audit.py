"""The end of an audit: what it saw is looked at again, guarded, and recorded. Nothing is removed here.

A reference that dangles fails a run and wakes people, so it is believed only if the row and the store say the same when
they are asked again, in this order: a segment that is deleted meanwhile is no longer FINISHED before its objects go. An
object that is there after all, of a segment that was FINISHED before the listing began, is not healed by that: the
listing lacked it, and whatever else it lacked would look like nothing at all.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.audit.finding import AuditFinding, FindingKind, PassedOver
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
from include.tiering.errors import FormatError, RemoteStorageError
from include.tiering.formats.aiven_manifest import parse_manifest
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.orphan_objects import OrphanStorage
from include.tiering.segments.contract import RemoteLogMetadata

_MOST_ASKED_AGAIN: Final = 2_000
_MOST_MANIFESTS: Final = 100
_MANIFEST_SUFFIX: Final = f".{ObjectKind.MANIFEST.value}"
_COMPLETE: Final = (FindingKind.ADOPTABLE, FindingKind.DUPLICATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenByAudit:
    """What an audit hands over. `began_at_ms` is the database's time before the listing; `seen_at_ms` that since which
    all that was seen is so for sure, if it is of an earlier time. `listing_ended_ms` and `rows_began_ms` are of one
    clock, whichever. `covers`: kinds that this source can show.
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
    """An audit as it ended, and those of its findings that were believed."""

    record: AuditRecord
    findings: tuple[AuditFinding, ...]
    tally: AuditTally


@dataclass(frozen=True, slots=True)
class AuditEnd:
    """Everything that the end of an audit asks.

    Attributes:
        objection: why the store is not this database's, None if it is.
        clock_contradiction: why the database's clock is not believed, None if it is.
    """

    audits: AuditStore
    metadata: RemoteLogMetadata
    storage: OrphanStorage
    objection: str | None
    clock_contradiction: str | None

    def conclude(self, seen: SeenByAudit) -> AuditReport:
        """Raises RemoteStorageUnavailableError, MetadataUnavailableError: nothing was recorded."""
        believed: list[AuditFinding] = []
        unlisted: list[str] = []
        asked = 0
        for finding in seen.findings:
            if finding.kind is FindingKind.DANGLING_REFERENCE and (asked := asked + 1) <= _MOST_ASKED_AGAIN:
                if not self._is_finished(finding):
                    continue
                if self._is_there(finding.key):
                    unlisted.append(finding.key)
                    continue
            believed.append(finding)
        evidence = AuditEvidence(
            objection=self.objection,
            clock_contradiction=self.clock_contradiction,
            segment_objects=sum(seen.passed_over.values()) + sum(one.segment_id is not None for one in believed),
            memory=known_before_restore(self.audits.memory(), self.audits.active_guards()),
            unknown_copies=tuple(self._unknown_copies(believed)),
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
        tally = self.audits.record(record, believed, covers=() if unlisted else seen.covers)
        return AuditReport(replace(record, findings=tally.seen), tuple(believed), tally)

    def _is_finished(self, finding: AuditFinding) -> bool:
        if finding.segment_id is None or finding.topic_id is None or finding.partition is None or not finding.topic:
            return True
        partition = TopicIdPartition(finding.topic_id, finding.partition, finding.topic)
        row = self.metadata.segment(RemoteLogSegmentId(partition, finding.segment_id))
        return row is not None and row.metadata.is_finished

    def _is_there(self, key: str) -> bool:
        return key in self.storage.attempt(key)

    def _unknown_copies(self, findings: Sequence[AuditFinding]) -> Iterator[UnknownCopy]:
        """The newest in the store, by its own clock, with what their manifests say. What a person accepted is known."""
        complete = [
            finding for finding in findings if finding.kind in _COMPLETE and finding.key.endswith(_MANIFEST_SUFFIX)
        ]
        accepted = (
            {finding.finding.identity for finding in self.audits.findings((FindingState.ACCEPTED,))} if complete else ()
        )
        copies = [one for one in complete if one.identity not in accepted]
        newest = sorted(copies, key=lambda copy: copy.last_modified_ms or 0, reverse=True)[:_MOST_MANIFESTS]
        for one in newest:
            yield UnknownCopy(one.key, self._began_ms(one.key))

    def _began_ms(self, key: str) -> int | None:
        try:
            metadata = parse_manifest(self.storage.manifest(key)).metadata
        except FormatError:
            return None
        except RemoteStorageError as error:
            if error.retriable:
                raise
            return None
        return None if metadata is None else metadata.event_timestamp_ms
