"""Rows of hand-overs: values of what one holds back, hands over and found out."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, delete, insert, select, update

from include.tiering.database.partitions import partition_from
from include.tiering.database.schema import handover_checks, handover_guards, handover_partitions, handovers
from include.tiering.database.transactions import stored_text
from include.tiering.handover.checks.handover_check import CheckOutcome, CheckResult
from include.tiering.handover.handover import HandoverState, HandoverStep
from include.tiering.handover.handover_contract import (
    GuardValue,
    Handover,
    LocalRetention,
    SeededPartition,
)
from include.tiering.model.ids import Uuid
from include.tiering.runs.deletion_run import Approval

_ORDER: Final = {str(step): number for number, step in enumerate(HandoverStep)}


def of_handover(table: Table, cluster_id: str, handover_id: Uuid) -> ColumnElement[bool]:
    """The condition on the two key columns that every table of hand-overs has."""
    return and_(table.c.cluster_id == cluster_id, table.c.handover_id == str(handover_id))


def guards(connection: Connection, cluster_id: str, handover_id: Uuid) -> Sequence[GuardValue]:
    """By key."""
    query = select(handover_guards).where(of_handover(handover_guards, cluster_id, handover_id))
    rows = connection.execute(query.order_by(handover_guards.c.key))
    return [GuardValue(row.key, row.old_value, row.set_value, row.restored) for row in rows]


def replace_guard(connection: Connection, cluster_id: str, handover_id: Uuid, guard: GuardValue) -> None:
    """In the place of one that was restored, if there is any."""
    table = handover_guards
    connection.execute(delete(table).where(of_handover(table, cluster_id, handover_id), table.c.key == guard.key))
    values = {"key": guard.key, "old_value": guard.old_value, "set_value": guard.set_value, "restored": guard.restored}
    connection.execute(insert(table).values(cluster_id=cluster_id, handover_id=str(handover_id), **values))


def mark_restored(connection: Connection, cluster_id: str, handover_id: Uuid, key: str) -> None:
    table = handover_guards
    of_key = and_(of_handover(table, cluster_id, handover_id), table.c.key == key)
    connection.execute(update(table).where(of_key).values(restored=True))


def replace_seed(
    connection: Connection, cluster_id: str, handover_id: Uuid, topic_id: Uuid, seed: Sequence[SeededPartition]
) -> None:
    table = handover_partitions
    connection.execute(delete(table).where(of_handover(table, cluster_id, handover_id)))
    rows = [
        {
            "cluster_id": cluster_id,
            "handover_id": str(handover_id),
            "topic_id": str(topic_id),
            "partition": one.topic_id_partition.partition,
            "start_offset": one.start_offset,
            "end_offset": one.end_offset,
            "log_start_offset": one.log_start_offset,
            "leader": one.leader,
            "leader_epoch": one.leader_epoch,
            "compared_offset": one.compared_offset,
        }
        for one in seed
    ]
    if rows:
        connection.execute(insert(table), rows)


def seed(connection: Connection, cluster_id: str, handover_id: Uuid) -> Sequence[SeededPartition]:
    """By partition."""
    table = handover_partitions
    same = and_(handovers.c.cluster_id == table.c.cluster_id, handovers.c.handover_id == table.c.handover_id)
    query = select(table, handovers.c.topic).join(handovers, same).where(of_handover(table, cluster_id, handover_id))
    return [_seeded_of(row) for row in connection.execute(query.order_by(table.c.partition))]


def raise_compared(connection: Connection, cluster_id: str, handover_id: Uuid, partition: int, offset: int) -> None:
    table = handover_partitions
    of_partition = and_(of_handover(table, cluster_id, handover_id), table.c.partition == partition)
    connection.execute(
        update(table).where(of_partition, table.c.compared_offset < offset).values(compared_offset=offset)
    )


def replace_checks(
    connection: Connection,
    cluster_id: str,
    handover_id: Uuid,
    topic_id: Uuid,
    step: HandoverStep,
    results: Sequence[CheckResult],
) -> None:
    table = handover_checks
    connection.execute(delete(table).where(of_handover(table, cluster_id, handover_id), table.c.step == step))
    rows = [
        {
            "cluster_id": cluster_id,
            "handover_id": str(handover_id),
            "topic_id": str(topic_id),
            "step": step,
            "position": position,
            "name": one.name,
            "partition": one.partition,
            "outcome": one.outcome,
            "numbers": stored_text(one.numbers),
            "what_to_do": stored_text(one.what_to_do),
        }
        for position, one in enumerate(results)
    ]
    if rows:
        connection.execute(insert(table), rows)


def checks(
    connection: Connection, cluster_id: str, handover_id: Uuid, step: HandoverStep | None
) -> Sequence[CheckResult]:
    """Of one step, or of all, in the order in which they were made."""
    table = handover_checks
    query = select(table).where(of_handover(table, cluster_id, handover_id))
    rows = connection.execute(query if step is None else query.where(table.c.step == step)).all()
    return [_check_of(row) for row in sorted(rows, key=lambda row: (_ORDER[row.step], row.position))]


def handover_of(row: Row[Any]) -> Handover:
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
