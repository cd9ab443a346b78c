"""Runs, plans, leases, batches, pauses, pools."""

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), comment="whose slot it holds; null outside of Airflow"),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False, comment="a label for people: the partition it works on"),
        sa.Column("done_bytes", sa.BigInteger(), nullable=False),
        sa.Column("planned_bytes", sa.BigInteger(), nullable=False),
        sa.Column("bytes_per_second", sa.Float(), nullable=False),
        sa.Column("finished", sa.Boolean(), nullable=False),
        sa.Column("started_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "run_id", "batch_id", name=op.f("pk_batches")),
    )
    op.create_index("ix_batches_live", "batches", ["cluster_id", "pool", "updated_at_ms"])
    op.create_table(
        "leases",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False, comment="grows with every claim and is never given twice"),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("claimed_at_ms", sa.BigInteger(), nullable=False),
        sa.Column(
            "expires_at_ms", sa.BigInteger(), nullable=False, comment="by the database's clock; 0 once given back"
        ),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", "partition", name=op.f("pk_leases")),
        comment="one row per partition, kept for its token",
    )
    op.create_table(
        "pauses",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False, comment="name, or * for all sending"),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("paused_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "topic", name=op.f("pk_pauses")),
    )
    op.create_table(
        "pools",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "pool", name=op.f("pk_pools")),
        comment="mirror of Airflow's pools, whose truth is in Airflow",
    )
    op.create_table(
        "runs",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("plan_hash", sa.Text(), nullable=False, comment="SHA-256 of the plan: a run has one"),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "run_id", name=op.f("pk_runs")),
    )
    op.create_table(
        "planned_partitions",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("directory_id", sa.Text(), nullable=False),
        sa.Column("urgency", sa.Float(), nullable=False, comment="the highest is claimed first"),
        sa.Column("stopped", sa.Boolean(), nullable=False, comment="a segment failed: no more work in this run"),
        sa.Column(
            "claimed_at_ms", sa.BigInteger(), nullable=False, comment="0 if never; among equals the longest wait wins"
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id", "run_id"], ["runs.cluster_id", "runs.run_id"], name=op.f("fk_planned_partitions_runs")
        ),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", "partition", "run_id", name=op.f("pk_planned_partitions")),
    )
    op.create_index("ix_planned_partitions_run", "planned_partitions", ["cluster_id", "run_id"])
    op.create_table(
        "planned_segments",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("base_offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False, comment="inclusive"),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False, comment="planned, copied, failed, skipped"),
        sa.Column("segment_id", sa.String(length=22), comment="of the attempt that copied it"),
        sa.Column("path", sa.Text()),
        sa.Column("position", sa.BigInteger()),
        sa.Column("error", sa.Text(), comment="class name"),
        sa.Column("message", sa.Text()),
        sa.Column("recorded_at_ms", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["cluster_id", "run_id", "topic_id", "partition"],
            [
                "planned_partitions.cluster_id",
                "planned_partitions.run_id",
                "planned_partitions.topic_id",
                "planned_partitions.partition",
            ],
            name=op.f("fk_planned_segments_planned_partitions"),
        ),
        sa.PrimaryKeyConstraint(
            "cluster_id", "topic_id", "partition", "run_id", "base_offset", name=op.f("pk_planned_segments")
        ),
    )
    op.create_index(
        "ix_planned_segments_outcome", "planned_segments", ["cluster_id", "run_id", "topic_id", "partition", "outcome"]
    )
