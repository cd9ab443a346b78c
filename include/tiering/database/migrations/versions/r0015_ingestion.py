"""What was read of the brokers' metadata topic; who began a segment, and what brokers say of it."""

import sqlalchemy as sa
from alembic import op

revision = "r0015"
down_revision = "r0014"


def upgrade() -> None:
    op.create_table(
        "metadata_topics",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False, comment="one that was created again is another"),
        sa.Column("partition_count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_metadata_topics")),
        comment="the topic __remote_log_metadata that was read",
    )
    op.create_table(
        "metadata_positions",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("metadata_partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False, comment="everything below was applied"),
        sa.Column("end_offset", sa.BigInteger(), nullable=False, comment="exclusive, as the cluster last said"),
        sa.Column("looked_at_ms", sa.BigInteger(), nullable=False, comment="when the cluster last said something"),
        sa.Column(
            "stopped", sa.Text(), comment="why nothing behind next_offset is applied; null: nothing stands in the way"
        ),
        sa.Column(
            "rereading_to",
            sa.BigInteger(),
            comment="read again from the beginning up to here (exclusive); null: complete",
        ),
        sa.PrimaryKeyConstraint("cluster_id", "metadata_partition", name=op.f("pk_metadata_positions")),
        comment="moved in the transaction that applies the records before it",
    )
    op.create_table(
        "ingested_records",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("metadata_partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "outcome", sa.Text(), nullable=False, comment="applied, unknown-segment, illegal-transition, unusable"
        ),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "metadata_partition", "outcome", name=op.f("pk_ingested_records")),
        comment="how many records did what, ever",
    )
    op.create_table(
        "broker_epochs",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("leader_epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "highest_offset",
            sa.BigInteger(),
            nullable=False,
            comment="inclusive; the highest that brokers ever finished",
        ),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", "partition", "leader_epoch", name=op.f("pk_broker_epochs")),
        comment="what a broker's cache remembers of each leader epoch beside its segments",
    )
    # Not in a batch: SQLite would drop the tables under the rows that refer to them.
    op.add_column(
        "segments",
        sa.Column(
            "origin",
            sa.Text(),
            nullable=False,
            server_default="platform",
            comment="who began it: platform or broker",
        ),
    )
    op.add_column(
        "segments",
        sa.Column(
            "broker_state",
            sa.SmallInteger(),
            comment="state that the brokers' metadata topic gives it; null: none",
        ),
    )
    op.add_column(
        "segment_epochs",
        sa.Column(
            "broker_reference",
            sa.Text(),
            comment="how a broker's cache knows it here: referenced, unreferenced; null: not",
        ),
    )
    _index("ix_segments_of_brokers", ["cluster_id", "topic_id", "state"], "origin = 'broker'")
    _index("ix_segments_behind_brokers", ["cluster_id", "topic_id"], "origin = 'platform' AND broker_state > state")


def _index(name: str, columns: list[str], where: str) -> None:
    op.create_index(name, "segments", columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
