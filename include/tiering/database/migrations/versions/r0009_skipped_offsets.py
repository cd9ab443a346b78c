"""Offsets that archives go on without, by decision."""

import sqlalchemy as sa
from alembic import op

revision = "r0009"
down_revision = "r0008"


def upgrade() -> None:
    op.create_table(
        "skipped_offsets",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("first_offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_offset", sa.BigInteger(), nullable=False, comment="inclusive"),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("recorded_at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id", "topic_id", "partition"],
            ["partitions.cluster_id", "partitions.topic_id", "partitions.partition"],
            name=op.f("fk_skipped_offsets_partitions"),
        ),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", "partition", "first_offset", name=op.f("pk_skipped_offsets")),
        comment="append only: a gap that somebody decided to go on behind",
    )
