"""Runs that verify, and segments by the age of their verdict."""

import sqlalchemy as sa
from alembic import op

revision = "r0010"
down_revision = "r0009"


def upgrade() -> None:
    op.create_table(
        "planned_verifications",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("segment_id", sa.String(length=22), nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("depth", sa.Text(), nullable=False, comment="shallow or deep"),
        sa.Column("reason", sa.Text(), nullable=False, comment="why it was chosen"),
        sa.Column("planned_bytes", sa.BigInteger(), nullable=False, comment="about so many are to be read"),
        sa.Column("outcome", sa.Text(), nullable=False, comment="planned, passed, failed, gone"),
        sa.Column("read_bytes", sa.BigInteger(), comment="that were read"),
        sa.Column("recorded_at_ms", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["cluster_id", "run_id"],
            ["runs.cluster_id", "runs.run_id"],
            name=op.f("fk_planned_verifications_runs"),
        ),
        sa.PrimaryKeyConstraint(
            "cluster_id", "topic_id", "partition", "run_id", "segment_id", name=op.f("pk_planned_verifications")
        ),
        comment="segments that a run verifies; kept for a month",
    )
    op.create_index("ix_planned_verifications_run", "planned_verifications", ["cluster_id", "run_id", "outcome"])
    op.create_index(
        "ix_segments_verdict", "segments", ["cluster_id", "state", "verdict", "verdict_at_ms", "size_bytes"]
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("COMMENT ON COLUMN runs.kind IS 'copy, expire or verify'")
