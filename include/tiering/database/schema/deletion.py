"""What runs delete, and who approved it."""

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, Integer, SmallInteger, Table, Text

from include.tiering.database.schema.base import UUID_TEXT, cluster_key, metadata, partition_key

_RUN: Final = ["cluster_id", "run_id"]
_PLANNED: Final = ["cluster_id", "run_id", "topic_id", "partition"]

planned_expirations: Final = Table(
    "planned_expirations",
    metadata,
    *partition_key(),
    Column("run_id", Text, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("log_start_before", BigInteger, nullable=False, comment="as the plan found it"),
    Column("log_start_offset", BigInteger, nullable=False, comment="as it is to be before anything is deleted"),
    Column("local_bytes", BigInteger, comment="with the broker alone when it was planned; null: not known"),
    Column("local_behind_offset", BigInteger, comment="the highest offset (inclusive) remote then; -1: none"),
    Column("local_history", Integer, comment="the number of the history that was followed then; null: 0"),
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
    Column("state", SmallInteger, nullable=False, comment="as the plan found it; id on Kafka's wire"),
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
    Column("plan_hash", Text, nullable=False, comment="the plan that was approved, and no other"),
    Column("author", Text, nullable=False),
    Column("approved_at_ms", BigInteger, nullable=False),
    ForeignKeyConstraint(_RUN, [f"runs.{name}" for name in _RUN]),
)

plan_questions: Final = Table(
    "plan_questions",
    metadata,
    cluster_key(),
    Column("asked_in", Text, primary_key=True, comment="the DAG run"),
    Column("subject", Text, nullable=False, comment="the planned run, or the id of the hand-over"),
    Column("plan_hash", Text, nullable=False),
    Column("headline", Text, nullable=False),
    Column("body", Text, nullable=False, comment="Markdown, as a person sees it"),
    Column("put_at_ms", BigInteger, nullable=False, comment="when the text was stored"),
    Column("shown_at_ms", BigInteger, comment="null: no task has asked it yet"),
    Column("answer", Text, comment="approved or rejected; null: none yet"),
    Column("answered_by", Text, comment="id of Airflow's user; null: nobody in time"),
    Column("answered_at_ms", BigInteger, comment="by Airflow's clock"),
    Column("recorded_at_ms", BigInteger, comment="by the database's clock"),
    comment="what people were asked about plans, and what Airflow says they answered",
)
