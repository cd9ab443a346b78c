"""Identity of the store, dynamic configs with their history, the event log."""

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, Text

from include.tiering.database.schema.base import SERIAL, UUID_TEXT, cluster_key, metadata

stores: Final = Table(
    "stores",
    metadata,
    cluster_key(),
    Column("store_id", UUID_TEXT, nullable=False),
    Column("generation", Integer, nullable=False, comment="raised by each run that plans"),
    Column("created_at_ms", BigInteger, nullable=False),
    Column(
        "rebuilding_since_ms",
        BigInteger,
        comment="its metadata are being rebuilt from its objects, and serve nobody; null: they are whole",
    ),
    Column("generation_token", Text, comment="of this generation; null: nobody has raised it since markers have one"),
    Column("url", Text, comment="where keys lie, with layout and key_prefix; null: not recorded yet"),
    Column("layout", Text),
    Column("key_prefix", Text),
    Column("pending_generation", Integer, comment="being raised to: the marker may say this one already; or null"),
    Column("pending_token", Text),
    Column("pending_url", Text),
    Column("pending_layout", Text),
    Column("pending_key_prefix", Text),
    Column(
        "conditional_writes",
        Boolean,
        comment="whether the store replaces an object only if it is the expected one; null: nobody has tried",
    ),
    comment="what the marker object of the remote store must say before anything is written or deleted",
)

dynamic_configs: Final = Table(
    "dynamic_configs",
    metadata,
    cluster_key(),
    Column("entity_type", Text, primary_key=True, comment="brokers, topics or clients"),
    Column("entity_name", Text, primary_key=True, comment="empty: the default of this type"),
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

dynamic_config_changes: Final = Table(
    "dynamic_config_changes",
    metadata,
    Column("change_id", SERIAL, primary_key=True, comment="the highest of a cluster is its configs' version"),
    Column("cluster_id", Text, nullable=False),
    Column("entity_type", Text, nullable=False),
    Column("entity_name", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("old_value", Text, comment="null: was not set"),
    Column("new_value", Text, comment="null: removed"),
    Column("author", Text, nullable=False),
    Column("changed_at_ms", BigInteger, nullable=False),
    Index("ix_dynamic_config_changes_version", "cluster_id", "change_id"),
    sqlite_autoincrement=True,
    comment="append only",
)

events: Final = Table(
    "events",
    metadata,
    Column("event_id", SERIAL, primary_key=True),
    Column("cluster_id", Text, nullable=False),
    Column("occurred_at_ms", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("author", Text, nullable=False),
    Index("ix_events_time", "cluster_id", "occurred_at_ms"),
    sqlite_autoincrement=True,
    comment="append only: decisions and outcomes, never payloads or secrets",
)
