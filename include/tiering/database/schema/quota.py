"""The ledger of quota shares, and the meters of what topics bring in."""

from typing import Final

from sqlalchemy import BigInteger, Column, Float, Integer, Table, Text

from include.tiering.database.schema.base import cluster_key, metadata

quota_ledger: Final = Table(
    "quota_ledger",
    metadata,
    cluster_key(),
    Column("book", Text, nullable=False, comment="quotas in force and who holds which share of them, as JSON"),
    comment="on SQLite kept in a file of its own; worth nothing after all senders have ended",
)

topic_meters: Final = Table(
    "topic_meters",
    metadata,
    cluster_key(),
    Column("broker_id", Integer, primary_key=True, autoincrement=False, comment="whose log dirs were read"),
    Column("kind", Text, primary_key=True, comment="io, accepted, error, throttled"),
    Column("topic", Text, primary_key=True, comment="name; empty: all topics of the broker"),
    Column("bytes", BigInteger, nullable=False, comment="ever"),
    Column("records", BigInteger, nullable=False, comment="ever"),
    Column("uncounted_bytes", BigInteger, nullable=False, comment="since the last tick"),
    Column("uncounted_records", BigInteger, nullable=False, comment="since the last tick"),
    Column("bytes_per_second", Float, comment="of one minute, as of the last tick; null before the first"),
    Column("records_per_second", Float, comment="of one minute, as of the last tick; null before the first"),
    Column("last_tick_ms", BigInteger, nullable=False, comment="the same for all kinds of one topic"),
    Column("marked_at_ms", BigInteger, nullable=False, comment="when it last counted something, or was made"),
)
