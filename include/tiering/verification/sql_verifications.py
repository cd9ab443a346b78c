"""Verification runs of one cluster, in SQL."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, and_, bindparam, delete, func, insert, select, update

from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.schema import planned_verifications, quality_results, runs, topics
from include.tiering.database.transactions import (
    ClusterStore,
    in_partition,
    insert_if_absent,
    key_of,
    partition_from,
    reading,
    writing,
)
from include.tiering.errors import StateConflictError
from include.tiering.model.segments import Depth, RemoteLogSegmentId, Uuid
from include.tiering.segments.contract import QualityResult
from include.tiering.verification.plan import (
    KEPT_PLANS_MS,
    PlannedVerification,
    PlanShare,
    VerificationOutcome,
    VerificationReason,
    VerificationResult,
    VerificationTotal,
)

_KIND: Final = "verify"
_SAME_TOPIC: Final = and_(
    topics.c.cluster_id == planned_verifications.c.cluster_id, topics.c.topic_id == planned_verifications.c.topic_id
)
_ORDER: Final = ("name", "topic_id", "partition", "start_offset", "segment_id")
_IN_ORDER: Final = (
    select(planned_verifications, topics.c.name)
    .join(topics, _SAME_TOPIC)
    .order_by(topics.c.name, *(planned_verifications.c[name] for name in _ORDER[1:]))
)
_OF_SEGMENT: Final = and_(
    *(
        quality_results.c[name] == planned_verifications.c[name]
        for name in ("cluster_id", "topic_id", "partition", "segment_id")
    )
)
_BROKEN: Final = (
    _IN_ORDER.add_columns(quality_results.c.rule, quality_results.c.level, quality_results.c.message)
    .join(quality_results, _OF_SEGMENT)
    .where(quality_results.c.passed.is_(False))
    .where(planned_verifications.c.outcome.in_((str(VerificationOutcome.PASSED), str(VerificationOutcome.FAILED))))
    .order_by(quality_results.c.rule)
)
_THIS: Final = and_(
    in_partition(planned_verifications),
    planned_verifications.c.run_id == bindparam("of_run"),
    planned_verifications.c.segment_id == bindparam("of_segment"),
)
_RECORD: Final = update(planned_verifications).where(_THIS)
_NOTE: Final = _RECORD.where(planned_verifications.c.outcome == str(VerificationOutcome.PLANNED))
_IS_PLANNED: Final = select(planned_verifications.c.outcome).where(_THIS)


class SqlVerificationStore(ClusterStore):
    """`VerificationStore` over the platform's database. Every call is one transaction."""

    def save_plan(self, run_id: str, planned: Sequence[PlannedVerification]) -> None:
        """Store a plan, and delete plans older than `KEPT_PLANS_MS` by the database's clock."""
        hashed = _plan_hash(planned)
        run = {"cluster_id": self._cluster_id, "run_id": run_id, "kind": _KIND, "plan_hash": hashed}
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            if not insert_if_absent(connection, runs, run | {"created_at_ms": now_ms}):
                is_run = and_(runs.c.cluster_id == self._cluster_id, runs.c.run_id == run_id)
                known = connection.execute(select(runs.c.kind, runs.c.plan_hash).where(is_run)).one()
                if tuple(known) != (_KIND, hashed):
                    raise StateConflictError(f"run {run_id} has another plan already: use a new run id")
                return
            if planned:
                connection.execute(insert(planned_verifications), [self._values(run_id, each) for each in planned])
            self._delete_old_plans(connection, now_ms - KEPT_PLANS_MS)

    def pending(self, run_id: str, *, at_most: int, share: PlanShare | None = None) -> Sequence[PlannedVerification]:
        """Return the first `at_most` segments that are still PLANNED, ordered by topic, partition and start offset."""
        if share is None:
            return self._read(self._with_outcome(run_id, VerificationOutcome.PLANNED).limit(at_most))
        first, end = share.bounds(sum(total.segments for total in self.totals(run_id)))
        rows = planned_verifications.c
        of_run = _IN_ORDER.where(rows.cluster_id == self._cluster_id, rows.run_id == run_id)
        part = of_run.offset(first).limit(end - first).subquery()
        query = select(part).where(part.c.outcome == str(VerificationOutcome.PLANNED))
        return self._read(query.order_by(*(part.c[name] for name in _ORDER)).limit(at_most))

    def planned(self, run_id: str, outcome: VerificationOutcome) -> Sequence[PlannedVerification]:
        """Return all segments with this outcome, ordered by topic, partition and start offset."""
        return self._read(self._with_outcome(run_id, outcome))

    def broken_rules(self, run_id: str) -> Sequence[tuple[int, QualityResult]]:
        """Return the rules that segments of the run with the outcome PASSED or FAILED break now."""
        rows = planned_verifications.c
        query = _BROKEN.where(rows.cluster_id == self._cluster_id, rows.run_id == run_id)
        with reading(self._engine) as connection:
            return [
                (
                    row.start_offset,
                    QualityResult(_planned_of(row).segment_id, row.rule, row.level, passed=False, message=row.message),
                )
                for row in connection.execute(query)
            ]

    def record(self, run_id: str, results: Sequence[VerificationResult]) -> None:
        """Store the outcomes of planned segments, all or none. Idempotent. A later outcome replaces an earlier one."""
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            for result in results:
                values = {"outcome": str(result.outcome), "read_bytes": result.read_bytes, "recorded_at_ms": now_ms}
                key = key_of(self._cluster_id, result.segment_id.topic_id_partition)
                key |= {"of_run": run_id, "of_segment": str(result.segment_id.id)}
                is_note = result.outcome in (VerificationOutcome.MISSING, VerificationOutcome.LOCKED)
                if connection.execute(_NOTE if is_note else _RECORD, key | values).rowcount == 1:
                    continue
                if not is_note or connection.execute(_IS_PLANNED, key).first() is None:
                    raise StateConflictError(f"the plan of run {run_id} does not contain segment {result.segment_id}")

    def note_confirmed_losses(self, found: str, *, author: str) -> None:
        """Record as an event that `author` confirmed missing segments as lost; `found` describes them."""
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            kind = EventKind.LOSSES_CONFIRMED
            record_event(connection, self._cluster_id, kind, "missing segments", found, author, now_ms)

    def totals(self, run_id: str) -> Sequence[VerificationTotal]:
        """Return the totals of each outcome, in the order of `VerificationOutcome`."""
        rows = planned_verifications.c
        query = (
            select(
                rows.outcome, func.count(), func.sum(rows.planned_bytes), func.sum(func.coalesce(rows.read_bytes, 0))
            )
            .where(rows.cluster_id == self._cluster_id, rows.run_id == run_id)
            .group_by(rows.outcome)
        )
        with reading(self._engine) as connection:
            found = {outcome: numbers for outcome, *numbers in connection.execute(query)}
        return [VerificationTotal(o, *map(int, found.get(str(o), (0, 0, 0)))) for o in VerificationOutcome]

    def _with_outcome(self, run_id: str, outcome: VerificationOutcome) -> Select[Any]:
        rows = planned_verifications.c
        return _IN_ORDER.where(rows.cluster_id == self._cluster_id, rows.run_id == run_id, rows.outcome == str(outcome))

    def _read(self, query: Select[Any]) -> list[PlannedVerification]:
        with reading(self._engine) as connection:
            return [_planned_of(row) for row in connection.execute(query)]

    def _values(self, run_id: str, planned: PlannedVerification) -> dict[str, Any]:
        partition = planned.segment_id.topic_id_partition
        return {
            "cluster_id": self._cluster_id,
            "topic_id": str(partition.topic_id),
            "partition": partition.partition,
            "run_id": run_id,
            "segment_id": str(planned.segment_id.id),
            "start_offset": planned.start_offset,
            "depth": str(planned.depth),
            "reason": planned.reason.code,
            "planned_bytes": planned.planned_bytes,
            "outcome": str(VerificationOutcome.PLANNED),
        }

    def _delete_old_plans(self, connection: Connection, created_before_ms: int) -> None:
        is_old = and_(
            runs.c.cluster_id == self._cluster_id, runs.c.kind == _KIND, runs.c.created_at_ms < created_before_ms
        )
        old_runs = select(runs.c.run_id).where(is_old)
        rows = planned_verifications.c
        connection.execute(
            delete(planned_verifications).where(rows.cluster_id == self._cluster_id, rows.run_id.in_(old_runs))
        )
        connection.execute(delete(runs).where(is_old))


def _planned_of(row: Row[Any]) -> PlannedVerification:
    partition = partition_from(row.topic_id, row.partition, row.name)
    return PlannedVerification(
        RemoteLogSegmentId(partition, Uuid.parse(row.segment_id)),
        row.start_offset,
        Depth(row.depth),
        VerificationReason.of(row.reason),
        row.planned_bytes,
    )


def _plan_hash(planned: Sequence[PlannedVerification]) -> str:
    """Return the SHA-256 of the planned segments and their depths, in order."""
    hashed = hashlib.sha256()
    for each in planned:
        partition = each.segment_id.topic_id_partition
        hashed.update(f"{partition.topic_id} {partition.partition} {each.segment_id.id} {each.depth}\n".encode())
    return hashed.hexdigest()
