"""Leases by role, what runs delete, approvals; a topic's retention is a dynamic config from here on."""

import sqlalchemy as sa
from alembic import op

revision = "r0007"
down_revision = "r0006"


def upgrade() -> None:
    with op.batch_alter_table("leases") as leases:
        leases.add_column(
            sa.Column(
                "role",
                sa.Text(),
                nullable=False,
                server_default="copy",
                comment="copy or expire: the two work side by side",
            )
        )
        leases.drop_constraint("pk_leases", type_="primary")
        leases.create_primary_key("pk_leases", ["cluster_id", "topic_id", "partition", "role"])
        leases.create_table_comment(
            "one row per partition and role, kept for its token",
            existing_comment="one row per partition, kept for its token",
        )
    with op.batch_alter_table("leases") as leases:
        leases.alter_column("role", server_default=None)
    # Not in a batch: SQLite would drop `runs` under the rows that refer to it.
    op.add_column("runs", sa.Column("kind", sa.Text(), nullable=False, server_default="copy", comment="copy or expire"))
    op.add_column(
        "runs",
        sa.Column(
            "needs_approval", sa.Boolean(), comment="of a run that deletes; null: the brake has not looked at it yet"
        ),
    )
    op.drop_column("topics", "retention_ms")
    op.drop_column("topics", "retention_bytes")
    op.create_index("ix_segments_delete_started", "segments", ["cluster_id", "delete_started_at_ms"])
    op.create_table(
        "approvals",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("plan_hash", sa.Text(), nullable=False, comment="the plan that was approved, and no other"),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("approved_at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id", "run_id"], ["runs.cluster_id", "runs.run_id"], name=op.f("fk_approvals_runs")
        ),
        sa.PrimaryKeyConstraint("cluster_id", "run_id", name=op.f("pk_approvals")),
    )
    op.create_table(
        "planned_expirations",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("log_start_before", sa.BigInteger(), nullable=False, comment="as the plan found it"),
        sa.Column(
            "log_start_offset", sa.BigInteger(), nullable=False, comment="as it is to be before anything is deleted"
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id", "run_id"], ["runs.cluster_id", "runs.run_id"], name=op.f("fk_planned_expirations_runs")
        ),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", "partition", "run_id", name=op.f("pk_planned_expirations")),
        comment="partitions of which a run deletes something, or whose log start it raises",
    )
    op.create_index("ix_planned_expirations_run", "planned_expirations", ["cluster_id", "run_id"])
    op.create_table(
        "planned_deletions",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False, comment="order of deletion"),
        sa.Column("segment_id", sa.String(length=22), nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False, comment="inclusive"),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False, comment="as the plan found it; id on Kafka's wire"),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False, comment="the reason in numbers"),
        sa.Column("outcome", sa.Text(), nullable=False, comment="planned, deleted, failed, skipped"),
        sa.Column("error", sa.Text(), comment="class name"),
        sa.Column("message", sa.Text()),
        sa.Column("recorded_at_ms", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["cluster_id", "run_id", "topic_id", "partition"],
            [
                "planned_expirations.cluster_id",
                "planned_expirations.run_id",
                "planned_expirations.topic_id",
                "planned_expirations.partition",
            ],
            name=op.f("fk_planned_deletions_planned_expirations"),
        ),
        sa.PrimaryKeyConstraint(
            "cluster_id", "topic_id", "partition", "run_id", "position", name=op.f("pk_planned_deletions")
        ),
    )
    op.create_index(
        "ix_planned_deletions_outcome",
        "planned_deletions",
        ["cluster_id", "run_id", "topic_id", "partition", "outcome"],
    )
