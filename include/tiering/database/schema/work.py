"""Runs and what they copy, leases, batches, the pause switch, the mirror of Airflow's pools."""

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKeyConstraint, Index, Integer, Table, Text

from include.tiering.database.schema.base import UUID_TEXT, cluster_key, metadata, partition_key

_RUN: Final = ["cluster_id", "run_id"]
_PLANNED: Final = ["cluster_id", "run_id", "topic_id", "partition"]

runs: Final = Table(
    "runs",
    metadata,
    cluster_key(),
    Column("run_id", Text, primary_key=True),
    Column("kind", Text, nullable=False, comment="copy, expire, verify or audit"),
    Column("plan_hash", Text, nullable=False, comment="SHA-256 of the plan: a run has one"),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("needs_approval", Boolean, comment="of a run that deletes; null: the brake has not looked at it yet"),
    Column("withdrawn_at_ms", BigInteger, comment="since then nothing of it may be deleted, for good; null: it may"),
    Column("withdrawn_by", Text, comment="who decided that"),
)

planned_partitions: Final = Table(
    "planned_partitions",
    metadata,
    *partition_key(),
    Column("run_id", Text, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("broker_id", Integer, nullable=False),
    Column("directory_id", Text, nullable=False),
    Column("urgency", Float, nullable=False, comment="the highest is claimed first"),
    Column("stopped", Boolean, nullable=False, comment="a segment failed: no more work in this run"),
    Column("claimed_at_ms", BigInteger, nullable=False, comment="0 if never; among equals the longest wait wins"),
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
    Column("supersedes", UUID_TEXT, comment="the failed segment whose place the copy is to take; null: none"),
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
    Column("role", Text, primary_key=True, comment="copy, expire or publish: each works beside the others"),
    Column("token", BigInteger, nullable=False, comment="grows with every claim and is never given twice"),
    Column("run_id", Text, nullable=False),
    Column("batch_id", Text, nullable=False),
    Column("claimed_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False, comment="by the database's clock; 0 once given back"),
    Column("lease_ms", BigInteger, comment="how long it lasts without renewing; null: taken before that was recorded"),
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
)

pauses: Final = Table(
    "pauses",
    metadata,
    cluster_key(),
    Column("topic", Text, primary_key=True, comment="name, or * for all sending"),
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
    comment="mirror of Airflow's pools, whose truth is in Airflow",
)
