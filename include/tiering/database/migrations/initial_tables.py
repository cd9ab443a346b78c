"""Tables of the first migration: those of runs, audits and handovers, and the functions that create a table.

The current schema is `database.schema`. This module stays as it is, so that a new database goes through the same steps
as an upgraded database.
"""

from typing import Any, Final

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

TEXT: Final = sa.Text()
UUID: Final = sa.String(length=22)
SHORT: Final = sa.SmallInteger()
INT: Final = sa.Integer()
LONG: Final = sa.BigInteger()
SERIAL: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
FLOAT: Final = sa.Float()
FLAG: Final = sa.Boolean()
BYTES: Final = sa.LargeBinary()
RUN: Final = "cluster_id run_id"
PARTITION: Final = "cluster_id topic_id partition"
PLANNED: Final = "cluster_id run_id topic_id partition"
HANDOVER: Final = "cluster_id handover_id"


def create(name: str, comment: str | None, key: str, *parts: sa.Column[Any] | sa.Constraint) -> None:
    """Create a table. `key` has the columns of its primary key, separated by spaces. SERIAL keys are never reused."""
    primary_key = sa.PrimaryKeyConstraint(*key.split(), name=op.f(f"pk_{name}"))
    is_serial = any(isinstance(part, sa.Column) and part.name == key and part.type is SERIAL for part in parts)
    op.create_table(name, *parts, primary_key, comment=comment, sqlite_autoincrement=is_serial)


def column(
    name: str, kind: TypeEngine[Any], comment: str | None = None, *, null: bool = False, default: str | None = None
) -> sa.Column[Any]:
    """Return a column, which is not nullable by default."""
    return sa.Column(name, kind, nullable=null, server_default=default, comment=comment)


def partition_key() -> tuple[sa.Column[Any], ...]:
    """Return the columns of `PARTITION`."""
    return (column("cluster_id", TEXT), column("topic_id", UUID), column("partition", INT))


def refers(table: str, other: str, columns: str, ondelete: str | None = None) -> sa.ForeignKeyConstraint:
    """Return a foreign key to the columns of the same names in the table `other`."""
    names = columns.split()
    return sa.ForeignKeyConstraint(
        names, [f"{other}.{name}" for name in names], name=op.f(f"fk_{table}_{other}"), ondelete=ondelete
    )


def index(name: str, table: str, columns: str, where: str | None = None) -> None:
    """Create an index of all rows, or of the rows that meet the condition `where`."""
    condition = None if where is None else sa.text(where)
    op.create_index(name, table, columns.split(), sqlite_where=condition, postgresql_where=condition)


def create_runs() -> None:
    """Create the tables of runs, batches, pauses and pools."""
    create(
        "runs",
        None,
        RUN,
        column("cluster_id", TEXT),
        column("run_id", TEXT),
        column("plan_hash", TEXT, "SHA-256 of the run's only plan"),
        column("created_at_ms", LONG),
        column("kind", TEXT, "copy, expire, verify or audit", default="copy"),
        column(
            "needs_approval", FLAG, "of a run that deletes; null: not compared with the deletion limits yet", null=True
        ),
        column("withdrawn_at_ms", LONG, "since then nothing of the run may be deleted; null: not withdrawn", null=True),
        column("withdrawn_by", TEXT, "who withdrew the run", null=True),
    )
    create(
        "leases",
        "one row per partition and role, kept for its token",
        f"{PARTITION} role",
        *partition_key(),
        column("token", LONG, "grows with every claim and is never given twice"),
        column("run_id", TEXT),
        column("batch_id", TEXT),
        column("claimed_at_ms", LONG),
        column("expires_at_ms", LONG, "by the database's clock; 0: given back or withdrawn"),
        column("role", TEXT, "copy, expire or publish: they do not exclude each other"),
        column("lease_ms", LONG, "how long it lasts without renewal; null: taken before that was recorded", null=True),
    )
    create(
        "batches",
        None,
        f"{RUN} batch_id",
        column("cluster_id", TEXT),
        column("run_id", TEXT),
        column("batch_id", TEXT),
        column("pool", TEXT, "whose slot it holds; null outside of Airflow", null=True),
        column("host", TEXT),
        column("pid", LONG),
        column("partition", TEXT, "a label for people: the partition it works on"),
        column("done_bytes", LONG),
        column("planned_bytes", LONG),
        column("bytes_per_second", FLOAT),
        column("finished", FLAG),
        column("started_at_ms", LONG),
        column("updated_at_ms", LONG),
    )
    index("ix_batches_live", "batches", "cluster_id pool updated_at_ms")
    create(
        "planned_partitions",
        None,
        f"{PARTITION} run_id",
        *partition_key(),
        column("run_id", TEXT),
        column("topic", TEXT),
        column("broker_id", INT),
        column("directory_id", TEXT),
        column("urgency", FLOAT, "by default the highest is claimed first"),
        column("stopped", FLAG, "a segment failed: no more work in this run"),
        column("claimed_at_ms", LONG, "0: never; if equally urgent, the lowest is first"),
        column("queue", TEXT, "Airflow queue whose workers can read it; null: any", null=True),
        column("spark_resource", TEXT, "Spark resource of executors that can read it; null: any", null=True),
        refers("planned_partitions", "runs", RUN),
    )
    index("ix_planned_partitions_run", "planned_partitions", RUN)
    create(
        "planned_segments",
        None,
        f"{PARTITION} run_id base_offset",
        *partition_key(),
        column("run_id", TEXT),
        column("base_offset", LONG),
        column("end_offset", LONG, "inclusive"),
        column("size_bytes", LONG),
        column("outcome", TEXT, "planned, copied, failed, skipped"),
        column("segment_id", UUID, "of the attempt that copied it", null=True),
        column("path", TEXT, null=True),
        column("position", LONG, null=True),
        column("error", TEXT, "class name", null=True),
        column("message", TEXT, null=True),
        column("recorded_at_ms", LONG, null=True),
        column("supersedes", UUID, "the failed segment that the copy replaces; null: none", null=True),
        refers("planned_segments", "planned_partitions", PLANNED),
    )
    index("ix_planned_segments_outcome", "planned_segments", f"{PLANNED} outcome")
    create(
        "planned_expirations",
        "partitions of which a run deletes something, or whose log start it raises",
        f"{PARTITION} run_id",
        *partition_key(),
        column("run_id", TEXT),
        column("topic", TEXT),
        column("log_start_before", LONG, "when the plan was made"),
        column("log_start_offset", LONG, "log start that the run reaches, group by group"),
        column("local_bytes", LONG, "bytes only on the broker at planning; null: unknown or not counted", null=True),
        column("local_behind_offset", LONG, "the highest remote offset (inclusive) then; -1: none", null=True),
        column("local_history", INT, "number of the leader epoch history followed then; null: 0", null=True),
        refers("planned_expirations", "runs", RUN),
    )
    index("ix_planned_expirations_run", "planned_expirations", RUN)
    create(
        "planned_deletions",
        None,
        f"{PARTITION} run_id position",
        *partition_key(),
        column("run_id", TEXT),
        column("position", INT, "order of deletion"),
        column("segment_id", UUID),
        column("start_offset", LONG),
        column("end_offset", LONG, "inclusive"),
        column("size_bytes", LONG),
        column("state", SHORT, "when the plan was made; id on Kafka's wire"),
        column("reason", TEXT),
        column("detail", TEXT, "the reason in numbers"),
        column("outcome", TEXT, "planned, deleted, failed, skipped"),
        column("error", TEXT, "class name", null=True),
        column("message", TEXT, null=True),
        column("recorded_at_ms", LONG, null=True),
        refers("planned_deletions", "planned_expirations", PLANNED),
    )
    index("ix_planned_deletions_outcome", "planned_deletions", f"{PLANNED} outcome")
    index("ix_planned_deletions_segment", "planned_deletions", f"{PARTITION} segment_id")
    create(
        "planned_verifications",
        "segments that a run verifies; a new plan deletes the rows of plans older than 30 days",
        f"{PARTITION} run_id segment_id",
        *partition_key(),
        column("run_id", TEXT),
        column("segment_id", UUID),
        column("start_offset", LONG),
        column("depth", TEXT, "shallow or deep"),
        column("reason", TEXT, "why it was chosen"),
        column("planned_bytes", LONG, "estimated bytes to read"),
        column("outcome", TEXT, "planned, passed, failed, gone"),
        column("read_bytes", LONG, "bytes read", null=True),
        column("recorded_at_ms", LONG, null=True),
        refers("planned_verifications", "runs", RUN),
    )
    index("ix_planned_verifications_run", "planned_verifications", f"{RUN} outcome")
    create(
        "planned_removals",
        "objects, uploads and versions without metadata that a run removes",
        f"{RUN} position",
        column("cluster_id", TEXT),
        column("run_id", TEXT),
        column("position", INT, "order of removal"),
        column("topic_id", UUID),
        column("partition", INT),
        column("topic", TEXT),
        column("segment_id", UUID),
        column("kind", TEXT, "of the finding"),
        column("key", TEXT),
        column("token", TEXT, "version id or upload id; empty: the object itself"),
        column("size_bytes", LONG),
        column("last_modified_ms", LONG, "when the plan was made; by the store's clock"),
        column("marked_for_deletion_at_ms", LONG, "from then on no segment may begin under this id", null=True),
        column("outcome", TEXT, "planned, removed, gone, kept, failed"),
        column("message", TEXT, null=True),
        column("recorded_at_ms", LONG, null=True),
        refers("planned_removals", "runs", RUN),
    )
    index("ix_planned_removals_segment", "planned_removals", f"{PARTITION} segment_id")
    index("ix_planned_removals_outcome", "planned_removals", f"{RUN} outcome")
    create(
        "approvals",
        None,
        RUN,
        column("cluster_id", TEXT),
        column("run_id", TEXT),
        column("plan_hash", TEXT, "the only plan that was approved"),
        column("author", TEXT),
        column("approved_at_ms", LONG),
        refers("approvals", "runs", RUN),
    )
    create(
        "plan_questions",
        "questions about plans, and the answers that Airflow reports",
        "cluster_id asked_in",
        column("cluster_id", TEXT),
        column("asked_in", TEXT, "the DAG run"),
        column("subject", TEXT, "the planned run, or the id of the handover"),
        column("plan_hash", TEXT),
        column("headline", TEXT),
        column("body", TEXT, "Markdown, as a person sees it"),
        column("put_at_ms", LONG, "when the text was stored"),
        column("shown_at_ms", LONG, "null: not shown yet", null=True),
        column("answer", TEXT, "approved or rejected; null: none yet", null=True),
        column("answered_by", TEXT, "id of Airflow's user; null: no answer in time", null=True),
        column("answered_at_ms", LONG, "by Airflow's clock", null=True),
        column("recorded_at_ms", LONG, "by the database's clock", null=True),
    )


def create_audits() -> None:
    """Create the tables of audits, findings and guards."""
    create(
        "audits",
        "audits that have ended",
        RUN,
        column("cluster_id", TEXT),
        column("run_id", TEXT),
        column("source", TEXT, "listing or inventory"),
        column("began_at_ms", LONG),
        column("seen_at_ms", LONG, "store changes before this time are in the listing"),
        column("objects", LONG),
        column("rows", LONG, "segments that were compared, tombstones included"),
        column("findings", LONG),
        column("passed_over", TEXT, "JSON: objects and uploads not classified, by reason"),
        column("refusals", TEXT, "JSON: why no object may be removed because of this audit"),
        column("recorded_at_ms", LONG),
        column("sequence", LONG, "in the order in which they ended", default="0"),
    )
    index("ix_audits_recorded", "audits", "cluster_id recorded_at_ms")
    create(
        "active_guards",
        "objections of audits that no later audit has cleared; nothing expires while there is one",
        "cluster_id guard",
        column("cluster_id", TEXT),
        column("guard", TEXT),
        column("run_id", TEXT, "the audit that raised it first"),
        column("sentence", TEXT),
        column("memory_ms", LONG, "only older-database: newest segment time with which its audit compared", null=True),
        column("raised_at_ms", LONG),
    )
    create(
        "audit_findings",
        "one row for each difference between store and metadata, however many audits saw it",
        "finding_id",
        column("finding_id", SERIAL),
        column("cluster_id", TEXT),
        column("identity", TEXT, "SHA-256 of kind, key, version id, upload id"),
        column("kind", TEXT),
        column("key", TEXT, "control characters escaped"),
        column("version_id", TEXT, null=True),
        column("upload_id", TEXT, null=True),
        column("segment_id", UUID, null=True),
        column("topic_id", UUID, null=True),
        column("topic", TEXT, null=True),
        column("partition", INT, null=True),
        column("start_offset", LONG, null=True),
        column("end_offset", LONG, "inclusive", null=True),
        column("size_bytes", LONG),
        column("message", TEXT),
        column("last_modified_ms", LONG, "by the store's clock", null=True),
        column("first_seen_ms", LONG),
        column("last_seen_ms", LONG),
        column("last_run_id", TEXT, "the audit that saw it last"),
        column("state", TEXT, "open, gone, acted, accepted"),
        column("state_at_ms", LONG),
        column("author", TEXT, "who accepted it", null=True),
        sa.UniqueConstraint("cluster_id", "identity", name="uq_audit_findings_identity"),
    )
    index("ix_audit_findings_state", "audit_findings", "cluster_id state last_seen_ms")


def create_handovers() -> None:
    """Create the tables of handovers of topics to their brokers."""
    create(
        "handovers",
        "this row is locked before any change of the handover",
        HANDOVER,
        column("cluster_id", TEXT),
        column("handover_id", UUID),
        column("topic_id", UUID),
        column("topic", TEXT),
        column("open_topic_id", UUID, "topic id until the handover ends, then null; unique", null=True),
        column("step", TEXT, "the step to run next, or again"),
        column("state", TEXT, "active, stopped, undoing, parked, undone, done"),
        column("wanted_ms", LONG, "local.retention.ms at the end; null: as it was", null=True),
        column("wanted_bytes", LONG, "local.retention.bytes at the end; null: as it was", null=True),
        column("author", TEXT),
        column("detail", TEXT, "why it last waited or stopped"),
        column("plan_hash", TEXT, "of the plan that was shown to a person", null=True),
        column("approved_by", TEXT, null=True),
        column("approved_at_ms", LONG, null=True),
        column("driver", TEXT, "the process that runs it, or ran it last", null=True),
        column("token", LONG, "grows with every driver"),
        column("driven_until_ms", LONG, "by the database's clock; 0 once given back"),
        column("began_at_ms", LONG),
        column("updated_at_ms", LONG),
        sa.UniqueConstraint("cluster_id", "open_topic_id", name="uq_handovers_open_topic"),
    )
    create(
        "retention_overrides",
        "stored before the config is changed",
        f"{HANDOVER} key",
        column("cluster_id", TEXT),
        column("handover_id", UUID),
        column("key", TEXT, "a config of the topic"),
        column("old_value", TEXT, "null: the topic had no value of its own", null=True),
        column("set_value", TEXT),
        column("restored", FLAG),
        refers("retention_overrides", "handovers", HANDOVER),
    )
    create(
        "handover_partitions",
        "what is handed over",
        f"{HANDOVER} partition",
        column("cluster_id", TEXT),
        column("handover_id", UUID),
        column("topic_id", UUID),
        column("partition", INT),
        column("start_offset", LONG),
        column("end_offset", LONG, "inclusive; start_offset - 1: no offset"),
        column("log_start_offset", LONG, "on the broker, as decided or as last accepted"),
        column("leader", INT),
        column("leader_epoch", INT),
        column("compared_offset", LONG, "records below it served by brokers equal the copy"),
        refers("handover_partitions", "handovers", HANDOVER),
    )
    create(
        "handover_checks",
        "last results of the checks of each step",
        f"{HANDOVER} step position",
        column("cluster_id", TEXT),
        column("handover_id", UUID),
        column("topic_id", UUID),
        column("step", TEXT),
        column("position", INT),
        column("name", TEXT),
        column("partition", INT, "null: the topic as a whole", null=True),
        column("outcome", TEXT, "passed, note, waiting, refused"),
        column("numbers", TEXT),
        column("what_to_do", TEXT),
        refers("handover_checks", "handovers", HANDOVER),
    )
