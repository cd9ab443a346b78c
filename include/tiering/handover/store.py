"""Handovers of one cluster in SQL.

Every change to an existing handover locks the handover's row first; `release` only updates this row, and needs no lock
before that.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, bindparam, delete, insert, select, update

from include.tiering.database.event_log import EventKind, record_event, topic_subject
from include.tiering.database.schema import handover_checks, handover_partitions, handovers, retention_overrides
from include.tiering.database.transactions import (
    DatedStore,
    draw_token,
    ensure_partition,
    insert_if_absent,
    is_within_lease,
    partition_from,
    reading,
    stored_text,
    token_after,
    writing,
)
from include.tiering.errors import LeaseLostError, StateConflictError
from include.tiering.handover.checks import CheckOutcome, CheckResult
from include.tiering.handover.contract import Drive, Handover, LocalRetention, RetentionOverride, SeededPartition
from include.tiering.handover.rules import HandoverState, HandoverStep, RetentionOrder
from include.tiering.model.ownership import LeaseRole, PartitionLease
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.runs import sql_batches
from include.tiering.runs.deletion_run import Approval

_FOUND: Final = select(handovers).where(
    handovers.c.cluster_id == bindparam("of_cluster"), handovers.c.handover_id == bindparam("of_handover")
)
_LOCKED: Final = _FOUND.with_for_update()
_CHANGE: Final = update(handovers).where(
    handovers.c.cluster_id == bindparam("of_cluster"), handovers.c.handover_id == bindparam("of_handover")
)
"""Sets the columns that are named in its parameters."""


class SqlHandoverStore(DatedStore):
    """`HandoverStore` in the platform's database. Every call is one transaction, with times by the database's clock."""

    def begin(self, handover_id: Uuid, topic_id: Uuid, topic: str, wanted: LocalRetention, *, author: str) -> Handover:
        """Store a new handover: ACTIVE, at the first step. Idempotent for the same id and topic."""
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            values = {
                "cluster_id": self._cluster_id,
                "handover_id": str(handover_id),
                "topic_id": str(topic_id),
                "topic": topic,
                "open_topic_id": str(topic_id),
                "step": HandoverStep.PRECONDITIONS,
                "state": HandoverState.ACTIVE,
                "wanted_ms": wanted.local_retention_ms,
                "wanted_bytes": wanted.local_retention_bytes,
                "retention_order": RetentionOrder.LOCAL_FIRST,
                "author": stored_text(author),
                "detail": "",
                "token": 0,
                "driven_until_ms": 0,
                "began_at_ms": now_ms,
                "updated_at_ms": now_ms,
            }
            is_new = insert_if_absent(connection, handovers, values)
            row = connection.execute(_FOUND, self._key(handover_id)).one_or_none()
            if row is None or row.topic_id != str(topic_id):
                why = f"{topic} ({topic_id}) has a handover that has not ended, or {handover_id} is another topic's"
                raise StateConflictError(why)
            begun = _handover_of(row)
            if is_new:
                self._event(connection, begun, f"{handover_id} begins", author, now_ms)
            return begun

    def handover(self, handover_id: Uuid) -> Handover:
        """Return this handover."""
        with reading(self._engine) as connection:
            row = connection.execute(_FOUND, self._key(handover_id)).one_or_none()
        if row is None:
            raise StateConflictError(f"there is no handover {handover_id}")
        return _handover_of(row)

    def latest(self, topic_id: Uuid) -> Handover | None:
        """Return the handover of this topic that has not ended, else the newest one; None if there never was one."""
        of_topic = and_(handovers.c.cluster_id == self._cluster_id, handovers.c.topic_id == str(topic_id))
        newest = (handovers.c.open_topic_id.is_(None), handovers.c.began_at_ms.desc(), handovers.c.handover_id)
        with reading(self._engine) as connection:
            row = connection.execute(select(handovers).where(of_topic).order_by(*newest).limit(1)).one_or_none()
        return None if row is None else _handover_of(row)

    def open_handovers(self) -> Sequence[Handover]:
        """Return the handovers that have not ended, ordered by topic."""
        is_open = and_(handovers.c.cluster_id == self._cluster_id, handovers.c.open_topic_id.is_not(None))
        with reading(self._engine) as connection:
            rows = connection.execute(select(handovers).where(is_open).order_by(handovers.c.topic))
            return [_handover_of(row) for row in rows]

    def drive(self, handover_id: Uuid, driver: str, *, lease_ms: int) -> Drive | None:
        """Take the lease to drive a handover. The same driver may take it again, with a new token."""
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            row = self._locked(connection, handover_id)
            if is_within_lease(row.driven_until_ms, now_ms=now_ms, lease_ms=lease_ms) and row.driver != driver:
                return None
            token = token_after(row.token, draw_token(now_ms))
            drive = Drive(handover_id, driver, token, now_ms + lease_ms)
            values = {"driver": stored_text(driver), "token": drive.token, "driven_until_ms": drive.expires_at_ms}
            connection.execute(_CHANGE, {**self._key(handover_id), **values})
            return drive

    def renew(self, drive: Drive, *, lease_ms: int) -> Drive:
        """Prolong the lease to `lease_ms` from now."""
        with self._driven(drive) as (connection, _, now_ms):
            prolonged = replace(drive, expires_at_ms=now_ms + lease_ms)
            self._set(connection, drive, {"driven_until_ms": prolonged.expires_at_ms})
            return prolonged

    def release(self, drive: Drive) -> None:
        """Release the lease. Without effect if it was lost."""
        mine = _CHANGE.where(handovers.c.token == drive.token)
        with writing(self._engine) as connection:
            connection.execute(mine, {**self._key(drive.handover_id), "driven_until_ms": 0})

    def advance(
        self, drive: Drive, step: HandoverStep, *, expected: HandoverStep, detail: str = "", event: str | None = None
    ) -> Handover:
        """Set the step if it is `expected`, and record an event. Do nothing if it is `step` already."""
        with self._driven(drive) as (connection, found, now_ms):
            if found.step is step:
                return found
            if found.step is not expected:
                raise StateConflictError(f"handover {drive.handover_id} is at {found.step}, not at {expected}")
            what = event or f"{expected} is done, {step} is next"
            self._event(connection, found, what, drive.driver, now_ms)
            return self._changed(connection, drive, {"step": step, "detail": detail, "updated_at_ms": now_ms})

    def set_state(self, drive: Drive, state: HandoverState, *, detail: str) -> Handover:
        """Set the state and its detail; record an event if the state changes."""
        with self._driven(drive) as (connection, found, now_ms):
            if found.state.has_ended and found.state is not state:
                raise StateConflictError(f"handover {drive.handover_id} has ended: {found.state}")
            if found.state is not state:
                what = f"{found.state} -> {state} at {found.step}: {detail}"
                self._event(connection, found, what, drive.driver, now_ms)
            values: dict[str, Any] = {"state": state, "detail": detail, "updated_at_ms": now_ms}
            return self._changed(connection, drive, values | ({"open_topic_id": None} if state.has_ended else {}))

    def save_overrides(self, drive: Drive, overrides: Sequence[RetentionOverride]) -> Sequence[RetentionOverride]:
        """Store the old values of configs before any of them is changed."""
        with self._driven(drive) as (connection, found, now_ms):
            known = {override.key: override for override in self._overrides(connection, drive.handover_id)}
            for override in overrides:
                kept = known.get(override.key)
                if kept is not None and not kept.restored and override.old_value in {kept.old_value, kept.set_value}:
                    continue
                _replace_override(connection, self._cluster_id, drive.handover_id, override)
                was = "unset" if override.old_value is None else override.old_value
                what = f"{override.key} is to be {override.set_value}, was {was}"
                self._event(connection, found, what, drive.driver, now_ms)
            return self._overrides(connection, drive.handover_id)

    def overrides(self, handover_id: Uuid) -> Sequence[RetentionOverride]:
        """Return all retention overrides of the handover, ordered by key."""
        with reading(self._engine) as connection:
            return self._overrides(connection, handover_id)

    def overrides_restored(self, drive: Drive, keys: Collection[str]) -> None:
        """Mark the overrides of these configs as restored. Keys without an override are ignored."""
        with self._driven(drive) as (connection, found, now_ms):
            left = {
                override.key for override in self._overrides(connection, drive.handover_id) if not override.restored
            }
            for key in sorted(left.intersection(keys)):
                _mark_restored(connection, self._cluster_id, drive.handover_id, key)
                self._event(connection, found, f"{key} has its final value", drive.driver, now_ms)

    def save_seed(self, drive: Drive, seed: Sequence[SeededPartition]) -> None:
        """Replace all seeded partitions of the handover."""
        with self._driven(drive) as (connection, found, _):
            table = handover_partitions
            connection.execute(delete(table).where(_of_handover(table, self._cluster_id, drive.handover_id)))
            rows = [
                {
                    "cluster_id": self._cluster_id,
                    "handover_id": str(drive.handover_id),
                    "topic_id": str(found.topic_id),
                    "partition": partition.topic_id_partition.partition,
                    "start_offset": partition.start_offset,
                    "end_offset": partition.end_offset,
                    "log_start_offset": partition.log_start_offset,
                    "leader": partition.leader,
                    "leader_epoch": partition.leader_epoch,
                    "compared_offset": partition.compared_offset,
                }
                for partition in seed
            ]
            if rows:
                connection.execute(insert(table), rows)

    def seed(self, handover_id: Uuid) -> Sequence[SeededPartition]:
        """Return the seeded partitions, ordered by partition number."""
        table = handover_partitions
        same = and_(handovers.c.cluster_id == table.c.cluster_id, handovers.c.handover_id == table.c.handover_id)
        query = select(table, handovers.c.topic).join(handovers, same).order_by(table.c.partition)
        with reading(self._engine) as connection:
            rows = connection.execute(query.where(_of_handover(table, self._cluster_id, handover_id)))
            return [_seeded_of(row) for row in rows]

    def note_compared(self, drive: Drive, partition: int, offset: int) -> None:
        """Raise `compared_offset` (exclusive) of a seeded partition; a lower offset changes nothing."""
        with self._driven(drive) as (connection, _, _):
            table = handover_partitions
            raised = (
                update(table)
                .where(_of_handover(table, self._cluster_id, drive.handover_id))
                .where(table.c.partition == partition, table.c.compared_offset < offset)
            )
            connection.execute(raised.values(compared_offset=offset))

    def claim(
        self, drive: Drive, partition: TopicIdPartition, role: LeaseRole, *, lease_ms: int
    ) -> PartitionLease | None:
        """Take the lease of a partition in a role, so that every older token of that lease is refused from then on."""
        with self._driven(drive) as (connection, found, now_ms):
            # All drivers use the same batch id, so that a new driver takes over the leases of a dead one at once.
            run_id = batch_id = found.run_id
            ensure_partition(connection, self._cluster_id, partition)
            fence = sql_batches.take(
                connection,
                self._cluster_id,
                partition,
                role,
                run_id=run_id,
                batch_id=batch_id,
                now_ms=now_ms,
                lease_ms=lease_ms,
            )
        if fence is None:
            return None
        return PartitionLease(run_id=run_id, batch_id=batch_id, fence=fence, expires_at_ms=now_ms + lease_ms)

    def propose(self, drive: Drive, plan_hash: str) -> Handover:
        """Store the hash of a plan for approval. If it differs from the stored hash, the approval is removed."""
        with self._driven(drive) as (connection, found, now_ms):
            if found.plan_hash == plan_hash:
                return found
            changed = {"plan_hash": plan_hash, "approved_by": None, "approved_at_ms": None, "updated_at_ms": now_ms}
            return self._changed(connection, drive, changed)

    def approve(self, handover_id: Uuid, plan_hash: str, *, author: str) -> Handover:
        """Store the approval of a plan and record an event. Idempotent: the first approval of a plan stays."""
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            found = _handover_of(self._locked(connection, handover_id))
            if found.plan_hash != plan_hash:
                raise StateConflictError(
                    f"handover {handover_id} of {found.topic} has the plan {found.plan_hash}, not {plan_hash}"
                )
            if found.approval is None:
                values = {"approved_by": stored_text(author), "approved_at_ms": now_ms, "updated_at_ms": now_ms}
                connection.execute(_CHANGE, {**self._key(handover_id), **values})
                self._event(connection, found, f"plan {plan_hash} is approved", author, now_ms)
            return _handover_of(self._locked(connection, handover_id))

    def record_checks(self, drive: Drive, step: HandoverStep, results: Sequence[CheckResult]) -> None:
        """Replace the results of the checks of this step."""
        with self._driven(drive) as (connection, found, _):
            table = handover_checks
            of_handover = _of_handover(table, self._cluster_id, drive.handover_id)
            connection.execute(delete(table).where(of_handover, table.c.step == step))
            rows = [
                {
                    "cluster_id": self._cluster_id,
                    "handover_id": str(drive.handover_id),
                    "topic_id": str(found.topic_id),
                    "step": step,
                    "position": position,
                    "name": result.name,
                    "partition": result.partition,
                    "outcome": result.outcome,
                    "numbers": stored_text(result.numbers),
                    "what_to_do": stored_text(result.what_to_do),
                }
                for position, result in enumerate(results)
            ]
            if rows:
                connection.execute(insert(table), rows)

    def checks(self, handover_id: Uuid, step: HandoverStep | None = None) -> Sequence[CheckResult]:
        """Return the results of one step's checks, in the order of `record_checks`, or of all steps in their order."""
        table = handover_checks
        query = select(table).where(_of_handover(table, self._cluster_id, handover_id))
        if step is not None:
            query = query.where(table.c.step == step)
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        return [_check_of(row) for row in sorted(rows, key=lambda row: (_ORDER[row.step], row.position))]

    @contextmanager
    def _driven(self, drive: Drive) -> Iterator[tuple[Connection, Handover, int]]:
        """Open a transaction with the handover locked, and yield connection, handover and the database's time in ms.

        Raises:
            LeaseLostError: the lease was released, or has a new token because a process took it since.
        """
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            row = self._locked(connection, drive.handover_id)
            if row.token != drive.token or row.driven_until_ms == 0:
                raise LeaseLostError(
                    f"handover {drive.handover_id}: token {drive.token} of {drive.driver} is not valid any more: the"
                    f" lease was released, or {row.driver} took it with token {row.token}"
                )
            yield connection, _handover_of(row), now_ms

    def _locked(self, connection: Connection, handover_id: Uuid) -> Row[Any]:
        row = connection.execute(_LOCKED, self._key(handover_id)).one_or_none()
        if row is None:
            raise StateConflictError(f"there is no handover {handover_id}")
        return row

    def _changed(self, connection: Connection, drive: Drive, values: Mapping[str, Any]) -> Handover:
        self._set(connection, drive, values)
        return _handover_of(self._locked(connection, drive.handover_id))

    def _set(self, connection: Connection, drive: Drive, values: Mapping[str, Any]) -> None:
        cut = {name: stored_text(value) if name == "detail" else value for name, value in values.items()}
        connection.execute(_CHANGE, {**self._key(drive.handover_id), **cut})

    def _overrides(self, connection: Connection, handover_id: Uuid) -> Sequence[RetentionOverride]:
        """Return the overrides, ordered by key."""
        query = select(retention_overrides).where(_of_handover(retention_overrides, self._cluster_id, handover_id))
        rows = connection.execute(query.order_by(retention_overrides.c.key))
        return [RetentionOverride(row.key, row.old_value, row.set_value, row.restored) for row in rows]

    def _event(self, connection: Connection, handover: Handover, detail: str, author: str, now_ms: int) -> None:
        subject = topic_subject(handover.topic, handover.topic_id)
        record_event(connection, self._cluster_id, EventKind.HANDOVER, subject, detail, author, now_ms)

    def _key(self, handover_id: Uuid) -> dict[str, str]:
        """The parameters that `_FOUND`, `_LOCKED` and `_CHANGE` need."""
        return {"of_cluster": self._cluster_id, "of_handover": str(handover_id)}


_ORDER: Final = {str(step): number for number, step in enumerate(HandoverStep)}


def _of_handover(table: Table, cluster_id: str, handover_id: Uuid) -> ColumnElement[bool]:
    """Return the condition on the two key columns that every table of handovers has."""
    return and_(table.c.cluster_id == cluster_id, table.c.handover_id == str(handover_id))


def _replace_override(connection: Connection, cluster_id: str, handover_id: Uuid, override: RetentionOverride) -> None:
    """Insert an override in place of an older one with the same key."""
    table = retention_overrides
    connection.execute(delete(table).where(_of_handover(table, cluster_id, handover_id), table.c.key == override.key))
    values = {
        "key": override.key,
        "old_value": override.old_value,
        "set_value": override.set_value,
        "restored": override.restored,
    }
    connection.execute(insert(table).values(cluster_id=cluster_id, handover_id=str(handover_id), **values))


def _mark_restored(connection: Connection, cluster_id: str, handover_id: Uuid, key: str) -> None:
    table = retention_overrides
    of_key = and_(_of_handover(table, cluster_id, handover_id), table.c.key == key)
    connection.execute(update(table).where(of_key).values(restored=True))


def _handover_of(row: Row[Any]) -> Handover:
    approval = None
    if row.approved_by is not None:
        approval = Approval(row.plan_hash, row.approved_by, row.approved_at_ms)
    return Handover(
        handover_id=Uuid.parse(row.handover_id),
        topic_id=Uuid.parse(row.topic_id),
        topic=row.topic,
        step=HandoverStep(row.step),
        state=HandoverState(row.state),
        wanted=LocalRetention(row.wanted_ms, row.wanted_bytes),
        author=row.author,
        detail=row.detail,
        plan_hash=row.plan_hash,
        approval=approval,
        driver=row.driver,
        driven_until_ms=row.driven_until_ms,
        began_at_ms=row.began_at_ms,
        updated_at_ms=row.updated_at_ms,
        retention_order=RetentionOrder(row.retention_order or RetentionOrder.TOTAL_FIRST),
    )


def _seeded_of(row: Row[Any]) -> SeededPartition:
    return SeededPartition(
        partition_from(row.topic_id, row.partition, row.topic),
        row.start_offset,
        row.end_offset,
        row.log_start_offset,
        row.leader,
        row.leader_epoch,
        row.compared_offset,
    )


def _check_of(row: Row[Any]) -> CheckResult:
    return CheckResult(row.name, row.partition, CheckOutcome(row.outcome), row.numbers, row.what_to_do)
