"""What was published to the brokers' metadata topic: one journal for each user partition."""

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Integer, LargeBinary, SmallInteger, Table

from include.tiering.database.schema.base import UUID_TEXT, metadata, partition_key

_PARTITION: Final = ["cluster_id", "topic_id", "partition"]

publications: Final = Table(
    "publications",
    metadata,
    *partition_key(),
    Column("metadata_partition", Integer, nullable=False),
    Column("partition_count", Integer, nullable=False, comment="of the metadata topic, when it was begun"),
    Column("next_offset", BigInteger, nullable=False, comment="everything below was read back"),
    Column("begun_at_ms", BigInteger, nullable=False),
    ForeignKeyConstraint(_PARTITION, [f"partitions.{name}" for name in _PARTITION]),
)

published_records: Final = Table(
    "published_records",
    metadata,
    *partition_key(),
    Column("sequence", Integer, primary_key=True, autoincrement=False, comment="order of sending, without gaps"),
    Column("segment_id", UUID_TEXT, nullable=False),
    Column("state", SmallInteger, nullable=False, comment="id on Kafka's wire"),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False, comment="inclusive"),
    Column("value", LargeBinary, nullable=False, comment="what is sent, however often it has to be tried"),
    Column("intended_at_ms", BigInteger, nullable=False, comment="written down before it was sent"),
    Column("metadata_offset", BigInteger, comment="where it was read back; null: it may be there, or not"),
    ForeignKeyConstraint(_PARTITION, [f"publications.{name}" for name in _PARTITION]),
    comment="records of ours in the metadata topic; the last of a partition may be pending",
)
