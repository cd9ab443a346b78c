"""What was read of the brokers' metadata topic, and what brokers know by it."""

from typing import Final

from sqlalchemy import BigInteger, Column, Integer, Table, Text

from include.tiering.database.schema.base import UUID_TEXT, cluster_key, metadata, partition_key

metadata_topics: Final = Table(
    "metadata_topics",
    metadata,
    cluster_key(),
    Column("topic_id", UUID_TEXT, nullable=False, comment="one that was created again is another"),
    Column("partition_count", Integer, nullable=False),
    comment="the topic __remote_log_metadata that was read",
)

metadata_positions: Final = Table(
    "metadata_positions",
    metadata,
    cluster_key(),
    Column("metadata_partition", Integer, primary_key=True, autoincrement=False),
    Column("next_offset", BigInteger, nullable=False, comment="everything below was applied"),
    Column("end_offset", BigInteger, nullable=False, comment="exclusive, as the cluster last said"),
    Column("looked_at_ms", BigInteger, nullable=False, comment="when the cluster last said something"),
    Column("stopped", Text, comment="why nothing behind next_offset is applied; null: nothing stands in the way"),
    Column("rereading_to", BigInteger, comment="read again from the beginning up to here (exclusive); null: complete"),
    comment="moved in the transaction that applies the records before it",
)

ingested_records: Final = Table(
    "ingested_records",
    metadata,
    cluster_key(),
    Column("metadata_partition", Integer, primary_key=True, autoincrement=False),
    Column("outcome", Text, primary_key=True, comment="applied, unknown-segment, illegal-transition, unusable"),
    Column("records", BigInteger, nullable=False),
    comment="how many records did what, ever",
)

broker_epochs: Final = Table(
    "broker_epochs",
    metadata,
    *partition_key(),
    Column("leader_epoch", Integer, primary_key=True, autoincrement=False),
    Column("highest_offset", BigInteger, nullable=False, comment="inclusive; the highest that brokers ever finished"),
    comment="what a broker's cache remembers of each leader epoch beside its segments",
)
