"""Who withdrew a run that deletes, what a plan was based on, and which plans name a segment."""

import sqlalchemy as sa
from alembic import op

revision = "r0018"
down_revision = "r0017"


def upgrade() -> None:
    # Not in a batch: SQLite would drop the tables under the rows that refer to them.
    op.add_column(
        "runs",
        sa.Column(
            "withdrawn_at_ms",
            sa.BigInteger(),
            comment="since then nothing of it may be deleted, for good; null: it may",
        ),
    )
    op.add_column("runs", sa.Column("withdrawn_by", sa.Text(), comment="who decided that"))
    op.add_column(
        "planned_expirations",
        sa.Column(
            "local_bytes",
            sa.BigInteger(),
            comment="with the broker alone when it was planned; null: not known",
        ),
    )
    op.add_column(
        "planned_expirations",
        sa.Column(
            "local_behind_offset",
            sa.BigInteger(),
            comment="the highest offset (inclusive) remote then; -1: none",
        ),
    )
    op.create_index(
        "ix_planned_deletions_segment",
        "planned_deletions",
        ["cluster_id", "topic_id", "partition", "segment_id"],
        unique=False,
    )
