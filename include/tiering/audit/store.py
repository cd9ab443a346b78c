"""Read the metadata that an audit compares with the objects; store audits, findings and active guards, in SQL.

| step of recording an audit          | a crash after it leaves                                              |
|-------------------------------------|----------------------------------------------------------------------|
| a page of findings written          | findings without their audit: the next audit writes what it finds    |
| unseen findings marked as gone      | the same, as the marks are undone: the next step commits them        |
| the audit itself written            | nothing                                                              |
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy import Connection, Row, Select, and_, bindparam, case, delete, func, literal, or_, select, update

from include.tiering.audit.finding import (
    AuditedSegment,
    AuditedTopic,
    AuditFinding,
    FindingIdentity,
    FindingKind,
    PartitionText,
    PassedOver,
)
from include.tiering.audit.record import (
    ActiveGuard,
    AuditRecord,
    AuditSource,
    AuditTally,
    FindingState,
    Guard,
    Memory,
    RecordedFinding,
    Refusal,
    stays_active,
)
from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.schema import (
    active_guards,
    audit_findings,
    audits,
    leases,
    published_records,
    segments,
    topics,
)
from include.tiering.database.transactions import (
    DatedStore,
    NowMs,
    database_now_ms,
    insert_for,
    insert_if_absent,
    is_live_lease,
    reading,
    serialise_writers,
    stored_text,
    upsert,
    writing,
)
from include.tiering.database.unread_records import clear_unread, raised_unread_ms
from include.tiering.errors import StateConflictError
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid
from include.tiering.segments.ingestion_contract import UnreadRecords
from include.tiering.segments.sizes_contract import KeyRange
from include.tiering.segments.sql_metadata_topic import unread_records
from include.tiering.segments.sql_rows import pages_of, split_segments

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

_AUDITED: Final = (
    segments.c.segment_id,
    segments.c.topic_id,
    segments.c.partition,
    segments.c.state,
    segments.c.start_offset,
    segments.c.end_offset,
    segments.c.size_bytes,
    # Each time is set once, when the segment enters the state. The last state comes first, so the first time is newest.
    func.coalesce(
        segments.c.deleted_at_ms,
        segments.c.delete_started_at_ms,
        segments.c.finished_at_ms,
        segments.c.started_at_ms,
    ),
    segments.c.segment_key,
    segments.c.leader_epochs,
)


class SqlAuditedMetadata(DatedStore):
    """`AuditedMetadata` of one cluster over the platform's database."""

    def topics(self) -> Mapping[str, AuditedTopic]:
        """Return a mapping from the id of each topic to the topic."""
        query = select(topics.c.topic_id, topics.c.name, topics.c.owner).where(topics.c.cluster_id == self._cluster_id)
        with reading(self._engine) as connection:
            rows = connection.execute(query)
            return {topic_id: AuditedTopic(name, TopicOwner(owner)) for topic_id, name, owner in rows}

    def leased_partitions(self) -> frozenset[PartitionText]:
        """Return the partitions with a live lease, in any role."""
        with reading(self._engine) as connection:
            live = select(leases.c.topic_id, leases.c.partition).where(
                leases.c.cluster_id == self._cluster_id, is_live_lease(literal(self._now_ms(connection)))
            )
            return frozenset((topic_id, partition) for topic_id, partition in connection.execute(live))

    def split(self, ranges: int) -> Sequence[KeyRange]:
        """Return at most `ranges` ranges of row keys that together have every segment stored now exactly once."""
        return split_segments(self._engine, self._cluster_id, ranges)

    def export(self, key_range: KeyRange) -> Iterator[Sequence[AuditedSegment]]:
        """Return the segments of the range, in pages. Each page is read in a transaction of its own."""
        for rows in pages_of(self._engine, select(*_AUDITED), self._cluster_id, key_range):
            yield [AuditedSegment(*row) for row in rows]


def raise_or_clear(connection: Connection, cluster_id: str, audit: AuditRecord, now_ms: int) -> None:
    """Update the active guards in the transaction that records the audit.

    An active guard keeps the time at which it was first raised, and its `memory_ms`.
    """
    if not audit.refusals and audit.source is AuditSource.LISTING:
        of_audits = active_guards.c.guard != Guard.UNREAD_RECORDS
        connection.execute(delete(active_guards).where(active_guards.c.cluster_id == cluster_id, of_audits))
    for refusal in filter(stays_active, audit.refusals):
        values = {
            "cluster_id": cluster_id,
            "guard": refusal.guard,
            "run_id": audit.run_id,
            "sentence": refusal.sentence,
            "memory_ms": refusal.memory_ms,
            "raised_at_ms": now_ms,
        }
        insert_if_absent(connection, active_guards, values)


def active_guards_of(connection: Connection, cluster_id: str, now_ms: NowMs = database_now_ms) -> list[ActiveGuard]:
    """Return the active guards, ordered by name."""
    query = select(active_guards).where(active_guards.c.cluster_id == cluster_id)
    found = []
    for row in connection.execute(query.order_by(active_guards.c.guard)).all():
        guard, unread = Guard(row.guard), UnreadRecords()
        if guard is Guard.UNREAD_RECORDS:
            unread = unread_records(connection, cluster_id, row.raised_at_ms, now_ms(connection))
        found.append(ActiveGuard(guard, row.sentence, row.raised_at_ms, row.memory_ms, unread))
    return found


PAGE_FINDINGS: Final = 500
_ENDED: Final = (FindingState.GONE, FindingState.ACTED)
_KEPT_ON_CONFLICT: Final = ("cluster_id", "identity", "kind", "key", "version_id", "upload_id", "first_seen_ms")


class SqlAuditStore(DatedStore):
    """`AuditStore` over the platform's database.

    Times of recording and of states are by the database's clock. Findings were seen at the time of the listing, which
    may be that of an S3 Inventory.
    """

    def memory(self) -> Memory:
        """Return the number of all segments, whatever their states, and when the latest of them changed its state."""
        query = select(func.count(), func.max(segments.c.event_timestamp_ms)).select_from(segments)
        with reading(self._engine) as connection:
            known, newest_ms = connection.execute(query.where(segments.c.cluster_id == self._cluster_id)).one()
        return Memory(known, newest_ms)

    def record(
        self, audit: AuditRecord, findings: Iterable[AuditFinding], *, covers: Collection[FindingKind]
    ) -> AuditTally:
        """Store an audit and all its findings, which are counted here; `audit.findings` is ignored."""
        found = iter(findings)
        seen = new = 0
        while page := {_identity(finding.identity): finding for finding in islice(found, PAGE_FINDINGS)}:
            seen += len(page)
            new += self._write_page(page, audit)
        with writing(self._engine) as connection:
            serialise_writers(connection, f"audits of {self._cluster_id}")
            now_ms = self._now_ms(connection)
            gone = self._mark_gone(connection, audit, covers, now_ms)
            values = {
                "cluster_id": self._cluster_id,
                "run_id": audit.run_id,
                "source": audit.source,
                "began_at_ms": audit.began_at_ms,
                "seen_at_ms": audit.seen_at_ms,
                "objects": audit.objects,
                "rows": audit.rows,
                "findings": seen,
                "passed_over": json.dumps(dict(audit.passed_over)),
                "refusals": json.dumps([asdict(refusal) for refusal in audit.refusals]),
                "recorded_at_ms": now_ms,
                "sequence": 1 + connection.execute(self._last_sequence()).scalar_one(),
            }
            upsert(connection, audits, values, keep=("sequence",))
            raise_or_clear(connection, self._cluster_id, audit, now_ms)
        return AuditTally(seen, new, gone)

    def declare_nothing_published(self, *, author: str) -> None:
        """Clear UNREAD_RECORDS, because a person declares that this database knows every published segment."""
        with writing(self._engine) as connection:
            now_ms, raised_at_ms = self._now_ms(connection), raised_unread_ms(connection, self._cluster_id)
            unread = unread_records(connection, self._cluster_id, raised_at_ms or now_ms, now_ms)
            of_cluster = published_records.c.cluster_id == self._cluster_id
            published = connection.execute(select(published_records.c.segment_id).where(of_cluster).limit(1)).first()
            if published is not None and (raised_at_ms is None or unread.not_read):
                raise StateConflictError(
                    "segments were published: this database has records of them. Run ./tiering ingest, which reads all"
                    f" that brokers know; it waits for this: {'; '.join(unread.not_read[:1]) or 'nothing'}"
                )
            if raised_at_ms is not None:
                clear_unread(connection, self._cluster_id)
                of_others = "" if published is None else " that this database does not know of"
                deleted = f"; {', '.join(unread.deleted)}" if unread.deleted else ""
                detail = f"declared: no segment was published to brokers{of_others}{deleted}"
                kind = EventKind.STORE_TAKEN_OVER
                record_event(connection, self._cluster_id, kind, self._cluster_id, detail, author, now_ms)

    def audit(self, run_id: str) -> AuditRecord:
        """Return the audit of this run. Raises StateConflictError if none was recorded."""
        query = select(audits).where(audits.c.cluster_id == self._cluster_id, audits.c.run_id == run_id)
        with reading(self._engine) as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise StateConflictError(f"there is no audit {run_id} that ended")
        return _audit_of(row)

    def last_audit(self) -> AuditRecord | None:
        """Return the audit that was recorded last, independently of the clock; None if there is no audit."""
        query = select(audits).where(audits.c.cluster_id == self._cluster_id)
        with reading(self._engine) as connection:
            row = connection.execute(query.order_by(audits.c.sequence.desc()).limit(1)).one_or_none()
        return None if row is None else _audit_of(row)

    def active_guards(self) -> Sequence[ActiveGuard]:
        """Return the active guards, ordered by name."""
        with reading(self._engine) as connection:
            return active_guards_of(connection, self._cluster_id, self._now_ms)

    def findings(self, states: Collection[FindingState] = (FindingState.OPEN,)) -> Sequence[RecordedFinding]:
        """Return the findings in these states, ordered by kind and key."""
        with reading(self._engine) as connection:
            return self._select(connection, audit_findings.c.state.in_(states))

    def newest_open(self, *, leave_out: Collection[FindingKind], at_most: int) -> Sequence[RecordedFinding]:
        """Return at most `at_most` open findings of all kinds except `leave_out`, the last seen first."""
        query = (
            select(audit_findings)
            .where(audit_findings.c.cluster_id == self._cluster_id, audit_findings.c.state == FindingState.OPEN)
            .where(audit_findings.c.kind.not_in(leave_out))
            .order_by(audit_findings.c.last_seen_ms.desc())
            .limit(at_most)
        )
        with reading(self._engine) as connection:
            return [_recorded(row) for row in connection.execute(query)]

    def seen_by(self, run_id: str, kinds: Collection[FindingKind]) -> Sequence[RecordedFinding]:
        """Return the findings of these kinds that this audit saw, in any state, ordered by kind and key.

        Raises:
            StateConflictError: there is no such audit, or a later one was recorded.
        """
        self.audit(run_id)
        own = select(audits.c.sequence).where(audits.c.cluster_id == self._cluster_id, audits.c.run_id == run_id)
        later = select(audits.c.run_id).where(
            audits.c.cluster_id == self._cluster_id, audits.c.sequence > own.scalar_subquery()
        )
        with reading(self._engine) as connection:
            if (other := connection.execute(later.limit(1)).scalar_one_or_none()) is not None:
                raise StateConflictError(f"audit {run_id} is no longer the last one: {other} ended after it")
            seen = audit_findings.c.last_run_id == run_id
            return self._select(connection, and_(seen, audit_findings.c.kind.in_(kinds)))

    def acted(self, identities: Collection[FindingIdentity]) -> None:
        """Set the findings whose objects were removed to ACTED."""
        rows = [{"of_cluster": self._cluster_id, "of_identity": _identity(identity)} for identity in identities]
        if not rows:
            return
        with writing(self._engine) as connection:
            statement = (
                update(audit_findings)
                .where(audit_findings.c.cluster_id == bindparam("of_cluster"))
                .where(audit_findings.c.identity == bindparam("of_identity"))
                .values(state=FindingState.ACTED, state_at_ms=self._now_ms(connection))
            )
            connection.execute(statement, rows)

    def forget(self, older_than_ms: int) -> int:
        """Delete findings that ended, and audits except the last that were recorded, more than `older_than_ms` ago."""
        found, newest = audit_findings.c, self._last_sequence().scalar_subquery()
        with writing(self._engine) as connection:
            before_ms = self._now_ms(connection) - older_than_ms
            ended = delete(audit_findings).where(found.cluster_id == self._cluster_id, found.state.in_(_ENDED))
            recorded = delete(audits).where(audits.c.cluster_id == self._cluster_id, audits.c.sequence < newest)
            deleted = connection.execute(ended.where(found.state_at_ms < before_ms)).rowcount
            return deleted + connection.execute(recorded.where(audits.c.recorded_at_ms < before_ms)).rowcount

    def accept(self, finding_ids: Collection[int], *, author: str) -> Sequence[RecordedFinding]:
        """Set these findings to ACCEPTED and record an event for each; all or none.

        Idempotent: a finding that is accepted already keeps its author and its time.
        """
        wanted = and_(audit_findings.c.cluster_id == self._cluster_id, audit_findings.c.finding_id.in_(finding_ids))
        with writing(self._engine) as connection:
            found = {recorded.finding_id: recorded for recorded in self._select(connection, wanted)}
            for finding_id in finding_ids:
                state = found[finding_id].state if finding_id in found else None
                if state not in (FindingState.OPEN, FindingState.ACCEPTED):
                    raise StateConflictError(f"finding {finding_id} is {state or 'unknown'}, not open: nothing changed")
            now_ms = self._now_ms(connection)
            values = {"state": FindingState.ACCEPTED, "state_at_ms": now_ms, "author": stored_text(author)}
            is_open = audit_findings.c.state == FindingState.OPEN
            change = update(audit_findings).where(wanted, is_open).values(**values)
            for finding_id in connection.execute(change.returning(audit_findings.c.finding_id)).scalars().all():
                recorded = found[finding_id]
                subject = f"finding {recorded.finding_id}"
                detail = f"{recorded.finding.kind} {recorded.finding.key}"
                record_event(connection, self._cluster_id, EventKind.FINDING_ACCEPTED, subject, detail, author, now_ms)
            return self._select(connection, wanted)

    def _last_sequence(self) -> Select[int]:
        last = audits.alias("last")
        return select(func.coalesce(func.max(last.c.sequence), 0)).where(last.c.cluster_id == self._cluster_id)

    def _write_page(self, page: dict[str, AuditFinding], audit: AuditRecord) -> int:
        """Write a page of findings; return how many of them are new or open again."""
        table = audit_findings.c
        known = select(table.identity, table.state, table.state_at_ms).where(
            table.cluster_id == self._cluster_id, table.identity.in_(page)
        )
        with writing(self._engine, durable=False) as connection:
            now_ms = self._now_ms(connection)
            # An audit that saw the store before a finding ended does not reopen it.
            still = {
                row.identity
                for row in connection.execute(known)
                if row.state not in _ENDED or audit.seen_at_ms < row.state_at_ms <= now_ms
            }
            rows = [
                _values(finding, audit, now_ms) | {"cluster_id": self._cluster_id, "identity": identity}
                for identity, finding in page.items()
            ]
            connection.execute(_write(connection.dialect.name), rows)
        return len(page) - len(still)

    def _mark_gone(
        self, connection: Connection, audit: AuditRecord, covers: Collection[FindingKind], now_ms: int
    ) -> int:
        """Set findings that this audit did not see to GONE; return how many.

        Findings that an audit with a later time saw stay, unless that time is in the future: then its clock was wrong.
        """
        table = audit_findings.c
        ahead = and_(table.last_seen_ms > now_ms, table.last_run_id != audit.run_id)
        unseen = (
            update(audit_findings)
            .where(table.cluster_id == self._cluster_id, table.kind.in_(covers))
            .where(table.state.in_((FindingState.OPEN, FindingState.ACCEPTED)))
            .where(or_(table.last_seen_ms < audit.seen_at_ms, ahead))
        )
        return connection.execute(unseen.values(state=FindingState.GONE, state_at_ms=now_ms)).rowcount

    def _select(self, connection: Connection, condition: Any) -> list[RecordedFinding]:
        query = select(audit_findings).where(audit_findings.c.cluster_id == self._cluster_id, condition)
        ordered = query.order_by(audit_findings.c.kind, audit_findings.c.key, audit_findings.c.finding_id)
        return [_recorded(row) for row in connection.execute(ordered)]


def _identity(identity: FindingIdentity) -> str:
    """Return a short ASCII text for an identity with any key."""
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def _write(dialect_name: str) -> "sqlite.Insert | postgresql.Insert":
    """Return the statement that inserts findings, or updates those that were seen again.

    An accepted finding stays accepted, and a finding that ended after the audit saw the store stays ended. Stored times
    in the future are from a wrong clock and are ignored.
    """
    statement = insert_for(dialect_name, audit_findings)
    old, new = audit_findings.c, statement.excluded
    has_ended = or_(*(old.state == state for state in _ENDED))
    now_ms = new.state_at_ms
    reopens = and_(has_ended, or_(old.state_at_ms <= new.last_seen_ms, old.state_at_ms > now_ms))
    later = and_(old.last_seen_ms > new.last_seen_ms, old.last_seen_ms <= now_ms)
    changed: dict[str, Any] = {
        column.name: new[column.name]
        for column in audit_findings.c
        if column.name not in (*_KEPT_ON_CONFLICT, "finding_id", "author")
    }
    changed |= {
        "last_seen_ms": case((later, old.last_seen_ms), else_=new.last_seen_ms),
        "state": case((reopens, new.state), else_=old.state),
        "state_at_ms": case((reopens, new.state_at_ms), else_=old.state_at_ms),
    }
    return statement.on_conflict_do_update(index_elements=["cluster_id", "identity"], set_=changed)


def _values(finding: AuditFinding, audit: AuditRecord, now_ms: int) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "key": stored_text(finding.key),
        "version_id": None if finding.version_id is None else stored_text(finding.version_id),
        "upload_id": None if finding.upload_id is None else stored_text(finding.upload_id),
        "segment_id": None if finding.segment_id is None else str(finding.segment_id),
        "topic_id": None if finding.topic_id is None else str(finding.topic_id),
        "topic": None if finding.topic is None else stored_text(finding.topic),
        "partition": finding.partition,
        "start_offset": finding.start_offset,
        "end_offset": finding.end_offset,
        "size_bytes": finding.size_bytes,
        "message": stored_text(finding.message),
        "last_modified_ms": finding.last_modified_ms,
        "first_seen_ms": audit.seen_at_ms,
        "last_seen_ms": audit.seen_at_ms,
        "last_run_id": audit.run_id,
        "state": FindingState.OPEN,
        "state_at_ms": now_ms,
    }


def _recorded(row: Row[Any]) -> RecordedFinding:
    finding = AuditFinding(
        kind=FindingKind(row.kind),
        key=row.key,
        message=row.message,
        size_bytes=row.size_bytes,
        segment_id=None if row.segment_id is None else Uuid.parse(row.segment_id),
        topic_id=None if row.topic_id is None else Uuid.parse(row.topic_id),
        topic=row.topic,
        partition=row.partition,
        start_offset=row.start_offset,
        end_offset=row.end_offset,
        last_modified_ms=row.last_modified_ms,
        version_id=row.version_id,
        upload_id=row.upload_id,
    )
    return RecordedFinding(
        row.finding_id, finding, FindingState(row.state), row.first_seen_ms, row.last_seen_ms, row.author
    )


def _audit_of(row: Row[Any]) -> AuditRecord:
    refused = cast("list[dict[str, Any]]", json.loads(row.refusals))
    refusals = tuple(Refusal(Guard(each["guard"]), each["sentence"], each.get("memory_ms")) for each in refused)
    passed_over = {PassedOver(reason): number for reason, number in json.loads(row.passed_over).items()}
    return AuditRecord(
        row.run_id,
        AuditSource(row.source),
        row.began_at_ms,
        row.seen_at_ms,
        row.objects,
        row.rows,
        refusals,
        passed_over,
        row.findings,
    )
