"""Store identity, dynamic configs, events."""

import sqlalchemy as sa
from alembic import op

revision = "r0003"
down_revision = "r0002"


def upgrade() -> None:
    op.create_table(
        "dynamic_config_changes",
        sa.Column(
            "change_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            nullable=False,
            comment="the highest of a cluster is its configs' version",
        ),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("entity_type", sa.Text(), nullable=False),
        sa.Column("entity_name", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("old_value", sa.Text(), comment="null: was not set"),
        sa.Column("new_value", sa.Text(), comment="null: removed"),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("changed_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("change_id", name=op.f("pk_dynamic_config_changes")),
        comment="append only",
        sqlite_autoincrement=True,
    )
    op.create_index("ix_dynamic_config_changes_version", "dynamic_config_changes", ["cluster_id", "change_id"])
    op.create_table(
        "dynamic_configs",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("entity_type", sa.Text(), nullable=False, comment="brokers, topics or clients"),
        sa.Column("entity_name", sa.Text(), nullable=False, comment="empty: the default of this type"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "entity_type", "entity_name", "name", name=op.f("pk_dynamic_configs")),
    )
    op.create_table(
        "events",
        sa.Column("event_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("occurred_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_events")),
        comment="append only: decisions and outcomes, never payloads or secrets",
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_time", "events", ["cluster_id", "occurred_at_ms"])
    op.create_table(
        "stores",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("store_id", sa.String(length=22), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False, comment="raised when the store is taken over on purpose"),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_stores")),
        comment="what the marker object of the remote store must say before anything is written or deleted",
    )
