"""What all tables share: constraint names, key columns, column types.

Times are in UTC milliseconds and sizes in bytes. A UUID is stored as the 22 characters that Kafka prints.
"""

from typing import Any, Final

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Text

from include.tiering.model.segments import UUID_TEXT_LENGTH

metadata: Final = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

UUID_TEXT: Final = String(UUID_TEXT_LENGTH)
# SQLite generates increasing keys only for an INTEGER PRIMARY KEY.
SERIAL: Final = BigInteger().with_variant(Integer(), "sqlite")

PARTITION_TOTAL: Final = -1
"""The `leader_epoch` under which `size_counters` keeps a partition's total; no real epoch is negative."""


def cluster_key() -> Column[str]:
    return Column("cluster_id", Text, primary_key=True)


def topic_key() -> tuple[Column[Any], ...]:
    return (cluster_key(), Column("topic_id", UUID_TEXT, primary_key=True))


def partition_key() -> tuple[Column[Any], ...]:
    return (*topic_key(), Column("partition", Integer, primary_key=True, autoincrement=False))


def partition_columns() -> tuple[Column[Any], ...]:
    """Return the three columns of a partition for a table in which they are not the primary key."""
    return (
        Column("cluster_id", Text, nullable=False),
        Column("topic_id", UUID_TEXT, nullable=False),
        Column("partition", Integer, nullable=False),
    )
