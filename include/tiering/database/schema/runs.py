"""Tables of runs: what they copy, delete, verify and remove, their approvals, and the findings of audits.

The module also has the tables of leases, batches, pauses, and the mirror of Airflow's pools.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
)

from include.tiering.database.schema.base import (
    SERIAL,
    UUID_TEXT,
    cluster_key,
    metadata,
    partition_columns,
    partition_key,
)

_RUN: Final = ["cluster_id", "run_id"]
_PLANNED: Final = ["cluster_id", "run_id", "topic_id", "partition"]

runs: Final = Table(
    "runs",
    metadata,
    cluster_key(),
    Column("run_id", Text, primary_key=True),
    Column("kind", Text, nullable=False, server_default="copy", comment="copy, expire, verify or audit"),
    Column("plan_hash", Text, nullable=False, comment="SHA-256 of the run's only plan"),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("needs_approval", Boolean, comment="of a run that deletes; null: not compared with the deletion limits yet"),
    Column("withdrawn_at_ms", BigInteger, comment="since then nothing of the run may be deleted; null: not withdrawn"),
    Column("withdrawn_by", Text, comment="who withdrew the run"),
)

planned_partitions: Final = Table(
    "planned_partitions",
    metadata,
    *partition_key(),
    Column("run_id", Text, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("broker_id", Integer, nullable=False),
    Column("directory_id", Text, nullable=False),
    Column("urgency", Float, nullable=False, comment="by default the highest is claimed first"),
    Column("stopped", Boolean, nullable=False, comment="a segment failed: no more work in this run"),
    Column("claimed_at_ms", BigInteger, nullable=False, comment="0: never; if equally urgent, the lowest is first"),
    Column("queue", Text, comment="Airflow queue whose workers can read it; null: any"),
    Column("spark_resource", Text, comment="Spark resource of executors that can read it; null: any"),
    ForeignKeyConstraint(_RUN, [f"runs.{name}" for name in _RUN]),
    Index("ix_planned_partitions_run", *_RUN),
)

planned_segments: Final = Table(
    "planned_segments",
    metadata,
    *partition_key(),
    Column("run_id", Text, primary_key=True),
    Column("base_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("end_offset", BigInteger, nullable=False, comment="inclusive"),
    Column("size_bytes", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False, comment="planned, copied, failed, skipped"),
    Column("segment_id", UUID_TEXT, comment="of the attempt that copied it"),
    Column("supersedes", UUID_TEXT, comment="the failed segment that the copy replaces; null: none"),
    Column("path", Text),
    Column("position", BigInteger),
    Column("error", Text, comment="class name"),
    Column("message", Text),
    Column("recorded_at_ms", BigInteger),
    ForeignKeyConstraint(_PLANNED, [f"planned_partitions.{name}" for name in _PLANNED]),
    Index("ix_planned_segments_outcome", *_PLANNED, "outcome"),
)

leases: Final = Table(
    "leases",
    metadata,
    *partition_key(),
    Column("role", Text, primary_key=True, comment="copy, expire or publish: they do not exclude each other"),
    Column("token", BigInteger, nullable=False, comment="grows with every claim and is never given twice"),
    Column("run_id", Text, nullable=False),
    Column("batch_id", Text, nullable=False),
    Column("claimed_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False, comment="by the database's clock; 0: given back or withdrawn"),
    Column("lease_ms", BigInteger, comment="how long it lasts without renewal; null: taken before that was recorded"),
    comment="one row per partition and role, kept for its token",
)

batches: Final = Table(
    "batches",
    metadata,
    cluster_key(),
    Column("run_id", Text, primary_key=True),
    Column("batch_id", Text, primary_key=True),
    Column("pool", Text, comment="whose slot it holds; null outside of Airflow"),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("partition", Text, nullable=False, comment="a label for people: the partition it works on"),
    Column("done_bytes", BigInteger, nullable=False),
    Column("planned_bytes", BigInteger, nullable=False),
    Column("bytes_per_second", Float, nullable=False),
    Column("finished", Boolean, nullable=False),
    Column("started_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    Index("ix_batches_live", "cluster_id", "pool", "updated_at_ms"),
    Index("ix_batches_updated", "cluster_id", "updated_at_ms"),
)

pauses: Final = Table(
    "pauses",
    metadata,
    cluster_key(),
    Column("topic", Text, primary_key=True, comment="name, or * for all topics"),
    Column("author", Text, nullable=False),
    Column("paused_at_ms", BigInteger, nullable=False),
)

pools: Final = Table(
    "pools",
    metadata,
    cluster_key(),
    Column("pool", Text, primary_key=True),
    Column("slots", Integer, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    comment="last known sizes of Airflow's pools; Airflow's are authoritative",
)


planned_expirations: Final = Table(
    "planned_expirations",
    metadata,
    *partition_key(),
    Column("run_id", Text, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("log_start_before", BigInteger, nullable=False, comment="when the plan was made"),
    Column("log_start_offset", BigInteger, nullable=False, comment="log start that the run reaches, group by group"),
    Column("local_bytes", BigInteger, comment="bytes only on the broker at planning; null: unknown or not counted"),
    Column("local_behind_offset", BigInteger, comment="the highest remote offset (inclusive) then; -1: none"),
    Column("local_history", Integer, comment="number of the leader epoch history followed then; null: 0"),
    ForeignKeyConstraint(_RUN, [f"runs.{name}" for name in _RUN]),
    Index("ix_planned_expirations_run", *_RUN),
    comment="partitions of which a run deletes something, or whose log start it raises",
)

planned_deletions: Final = Table(
    "planned_deletions",
    metadata,
    *partition_key(),
    Column("run_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False, comment="order of deletion"),
    Column("segment_id", UUID_TEXT, nullable=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False, comment="inclusive"),
    Column("size_bytes", BigInteger, nullable=False),
    Column("state", SmallInteger, nullable=False, comment="when the plan was made; id on Kafka's wire"),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False, comment="the reason in numbers"),
    Column("outcome", Text, nullable=False, comment="planned, deleted, failed, skipped"),
    Column("error", Text, comment="class name"),
    Column("message", Text),
    Column("recorded_at_ms", BigInteger),
    ForeignKeyConstraint(_PLANNED, [f"planned_expirations.{name}" for name in _PLANNED]),
    Index("ix_planned_deletions_outcome", *_PLANNED, "outcome"),
    Index("ix_planned_deletions_segment", "cluster_id", "topic_id", "partition", "segment_id"),
)

approvals: Final = Table(
    "approvals",
    metadata,
    cluster_key(),
    Column("run_id", Text, primary_key=True),
    Column("plan_hash", Text, nullable=False, comment="the only plan that was approved"),
    Column("author", Text, nullable=False),
    Column("approved_at_ms", BigInteger, nullable=False),
    ForeignKeyConstraint(_RUN, [f"runs.{name}" for name in _RUN]),
)

plan_questions: Final = Table(
    "plan_questions",
    metadata,
    cluster_key(),
    Column("asked_in", Text, primary_key=True, comment="the DAG run"),
    Column("subject", Text, nullable=False, comment="the planned run, or the id of the handover"),
    Column("plan_hash", Text, nullable=False),
    Column("headline", Text, nullable=False),
    Column("body", Text, nullable=False, comment="Markdown, as a person sees it"),
    Column("put_at_ms", BigInteger, nullable=False, comment="when the text was stored"),
    Column("shown_at_ms", BigInteger, comment="null: not shown yet"),
    Column("answer", Text, comment="approved or rejected; null: none yet"),
    Column("answered_by", Text, comment="id of Airflow's user; null: no answer in time"),
    Column("answered_at_ms", BigInteger, comment="by Airflow's clock"),
    Column("recorded_at_ms", BigInteger, comment="by the database's clock"),
    comment="questions about plans, and the answers that Airflow reports",
)


planned_verifications: Final = Table(
    "planned_verifications",
    metadata,
    *partition_key(),
    Column("run_id", Text, primary_key=True),
    Column("segment_id", UUID_TEXT, primary_key=True),
    Column("start_offset", BigInteger, nullable=False),
    Column("depth", Text, nullable=False, comment="shallow or deep"),
    Column("reason", Text, nullable=False, comment="why it was chosen"),
    Column("planned_bytes", BigInteger, nullable=False, comment="estimated bytes to read"),
    Column("outcome", Text, nullable=False, comment="planned, passed, failed, gone, missing, locked"),
    Column("read_bytes", BigInteger, comment="bytes read"),
    Column("recorded_at_ms", BigInteger),
    ForeignKeyConstraint(_RUN, [f"runs.{name}" for name in _RUN]),
    Index("ix_planned_verifications_run", *_RUN, "outcome"),
    comment="segments that a run verifies; a new plan deletes the rows of plans older than 30 days",
)


_PARTITION: Final = ["cluster_id", "topic_id", "partition"]

audits: Final = Table(
    "audits",
    metadata,
    cluster_key(),
    Column("run_id", Text, primary_key=True),
    Column("source", Text, nullable=False, comment="listing or inventory"),
    Column("began_at_ms", BigInteger, nullable=False),
    Column("seen_at_ms", BigInteger, nullable=False, comment="store changes before this time are in the listing"),
    Column("objects", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False, comment="segments that were compared, tombstones included"),
    Column("findings", BigInteger, nullable=False),
    Column("passed_over", Text, nullable=False, comment="JSON: objects and uploads not classified, by reason"),
    Column("refusals", Text, nullable=False, comment="JSON: why no object may be removed because of this audit"),
    Column("recorded_at_ms", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False, server_default="0", comment="in the order in which they ended"),
    Index("ix_audits_recorded", "cluster_id", "recorded_at_ms"),
    comment="audits that have ended",
)

active_guards: Final = Table(
    "active_guards",
    metadata,
    cluster_key(),
    Column("guard", Text, primary_key=True),
    Column("run_id", Text, nullable=False, comment="the audit that raised it first"),
    Column("sentence", Text, nullable=False),
    Column("memory_ms", BigInteger, comment="only older-database: newest segment time with which its audit compared"),
    Column("raised_at_ms", BigInteger, nullable=False),
    comment="objections of audits that no later audit has cleared; nothing expires while there is one",
)

audit_findings: Final = Table(
    "audit_findings",
    metadata,
    Column("finding_id", SERIAL, primary_key=True),
    Column("cluster_id", Text, nullable=False),
    Column("identity", Text, nullable=False, comment="SHA-256 of kind, key, version id, upload id"),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False, comment="control characters escaped"),
    Column("version_id", Text),
    Column("upload_id", Text),
    Column("segment_id", UUID_TEXT),
    Column("topic_id", UUID_TEXT),
    Column("topic", Text),
    Column("partition", Integer),
    Column("start_offset", BigInteger),
    Column("end_offset", BigInteger, comment="inclusive"),
    Column("size_bytes", BigInteger, nullable=False),
    Column("message", Text, nullable=False),
    Column("last_modified_ms", BigInteger, comment="by the store's clock"),
    Column("first_seen_ms", BigInteger, nullable=False),
    Column("last_seen_ms", BigInteger, nullable=False),
    Column("last_run_id", Text, nullable=False, comment="the audit that saw it last"),
    Column("state", Text, nullable=False, comment="open, gone, acted, accepted"),
    Column("state_at_ms", BigInteger, nullable=False),
    Column("author", Text, comment="who accepted it"),
    UniqueConstraint("cluster_id", "identity", name="uq_audit_findings_identity"),
    Index("ix_audit_findings_state", "cluster_id", "state", "last_seen_ms"),
    sqlite_autoincrement=True,
    comment="one row for each difference between store and metadata, however many audits saw it",
)

planned_removals: Final = Table(
    "planned_removals",
    metadata,
    cluster_key(),
    Column("run_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False, comment="order of removal"),
    *partition_columns()[1:],
    Column("topic", Text, nullable=False),
    Column("segment_id", UUID_TEXT, nullable=False),
    Column("kind", Text, nullable=False, comment="of the finding"),
    Column("key", Text, nullable=False),
    Column("token", Text, nullable=False, comment="version id or upload id; empty: the object itself"),
    Column("size_bytes", BigInteger, nullable=False),
    Column("last_modified_ms", BigInteger, nullable=False, comment="when the plan was made; by the store's clock"),
    Column("marked_for_deletion_at_ms", BigInteger, comment="from then on no segment may begin under this id"),
    Column("outcome", Text, nullable=False, comment="planned, removed, gone, kept, failed"),
    Column("message", Text),
    Column("recorded_at_ms", BigInteger),
    ForeignKeyConstraint(_RUN, [f"runs.{name}" for name in _RUN]),
    Index("ix_planned_removals_segment", *_PARTITION, "segment_id"),
    Index("ix_planned_removals_outcome", *_RUN, "outcome"),
    comment="objects, uploads and versions without metadata that a run removes",
)

queue_scans: Final = Table(
    "queue_scans",
    metadata,
    cluster_key(),
    Column("queue", Text, primary_key=True, comment="of Airflow, as log_dirs of the settings name it"),
    Column("scanned_at_ms", BigInteger, nullable=False),
    Column("run_id", Text, nullable=False, comment="of the DAG run that scanned"),
    Column("host", Text, nullable=False, comment="of the worker that read the log dirs"),
    Column("topics", Text, nullable=False, comment="patterns, as a JSON array"),
    Column("log_dirs", Text, nullable=False, comment="JSON: broker id, path, directory id, error of each"),
    Column("report", LargeBinary, nullable=False, comment="compressed JSON; see runs/sql_queue_scans.py"),
    comment="what the workers of a queue last found in the log dirs that only they can read",
)
