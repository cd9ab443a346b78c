"""Meters of what topics bring in."""

import sqlalchemy as sa
from alembic import op

revision = "r0006"
down_revision = "r0005"


def upgrade() -> None:
    op.create_table(
        "topic_meters",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("broker_id", sa.Integer(), autoincrement=False, nullable=False, comment="whose log dirs were read"),
        sa.Column("kind", sa.Text(), nullable=False, comment="io, accepted, error, throttled"),
        sa.Column("topic", sa.Text(), nullable=False, comment="name; empty: all topics of the broker"),
        sa.Column("bytes", sa.BigInteger(), nullable=False, comment="ever"),
        sa.Column("records", sa.BigInteger(), nullable=False, comment="ever"),
        sa.Column("uncounted_bytes", sa.BigInteger(), nullable=False, comment="since the last tick"),
        sa.Column("uncounted_records", sa.BigInteger(), nullable=False, comment="since the last tick"),
        sa.Column("bytes_per_second", sa.Float(), comment="of one minute, as of the last tick; null before the first"),
        sa.Column(
            "records_per_second", sa.Float(), comment="of one minute, as of the last tick; null before the first"
        ),
        sa.Column("last_tick_ms", sa.BigInteger(), nullable=False, comment="the same for all kinds of one topic"),
        sa.Column(
            "marked_at_ms", sa.BigInteger(), nullable=False, comment="when it last counted something, or was made"
        ),
        sa.PrimaryKeyConstraint("cluster_id", "broker_id", "kind", "topic", name=op.f("pk_topic_meters")),
    )
