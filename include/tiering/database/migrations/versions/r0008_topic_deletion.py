"""What is known of a topic's deletion, and tombstones by age."""

import sqlalchemy as sa
from alembic import op

revision = "r0008"
down_revision = "r0007"


def upgrade() -> None:
    # Not in a batch: SQLite would drop `topics` under the rows that refer to it.
    op.add_column(
        "topics",
        sa.Column(
            "deletion_seen_at_ms",
            sa.BigInteger(),
            comment="when its deletion from the cluster was positively seen",
        ),
    )
    op.add_column(
        "topics",
        sa.Column("deletion_evidence", sa.Text(), comment="what said so; null as long as nothing did"),
    )
    op.create_index(
        "ix_segments_tombstones",
        "segments",
        ["cluster_id", "deleted_at_ms"],
        sqlite_where=sa.text("deleted_at_ms IS NOT NULL"),
        postgresql_where=sa.text("deleted_at_ms IS NOT NULL"),
    )
