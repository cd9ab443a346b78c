"""Hand-overs of topics to their brokers: how far each is, and what it has to put back."""

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, ForeignKeyConstraint, Integer, Table, Text, UniqueConstraint

from include.tiering.database.schema.base import UUID_TEXT, cluster_key, metadata

_HANDOVER: Final = ["cluster_id", "handover_id"]

handovers: Final = Table(
    "handovers",
    metadata,
    cluster_key(),
    Column("handover_id", UUID_TEXT, primary_key=True),
    Column("topic_id", UUID_TEXT, nullable=False),
    Column("topic", Text, nullable=False),
    Column("open_topic_id", UUID_TEXT, comment="the topic id until it has ended, then null: one at a time of a topic"),
    Column("step", Text, nullable=False, comment="what is to be done next, or again"),
    Column("state", Text, nullable=False, comment="active, stopped, undoing, parked, undone, done"),
    Column("wanted_ms", BigInteger, comment="local.retention.ms at the end; null: as it was"),
    Column("wanted_bytes", BigInteger, comment="local.retention.bytes at the end; null: as it was"),
    Column("author", Text, nullable=False),
    Column("detail", Text, nullable=False, comment="what it last waited or stopped for"),
    Column("plan_hash", Text, comment="of what was put before a person"),
    Column("approved_by", Text),
    Column("approved_at_ms", BigInteger),
    Column("driver", Text, comment="the process that carries it on, or did last"),
    Column("token", BigInteger, nullable=False, comment="grows with every driver"),
    Column("driven_until_ms", BigInteger, nullable=False, comment="by the database's clock; 0 once given back"),
    Column("began_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    UniqueConstraint("cluster_id", "open_topic_id", name="uq_handovers_open_topic"),
    comment="its row is locked before anything of the hand-over changes",
)

handover_guards: Final = Table(
    "handover_guards",
    metadata,
    cluster_key(),
    Column("handover_id", UUID_TEXT, primary_key=True),
    Column("key", Text, primary_key=True, comment="a config of the topic"),
    Column("old_value", Text, comment="null: the topic had none of its own"),
    Column("set_value", Text, nullable=False),
    Column("restored", Boolean, nullable=False),
    ForeignKeyConstraint(_HANDOVER, [f"handovers.{name}" for name in _HANDOVER]),
    comment="stored before the config is changed",
)

handover_partitions: Final = Table(
    "handover_partitions",
    metadata,
    cluster_key(),
    Column("handover_id", UUID_TEXT, primary_key=True),
    Column("topic_id", UUID_TEXT, nullable=False),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False, comment="inclusive; start_offset - 1: nothing"),
    Column("log_start_offset", BigInteger, nullable=False, comment="the broker's when this was decided"),
    Column("leader", Integer, nullable=False),
    Column("leader_epoch", Integer, nullable=False),
    Column("compared_offset", BigInteger, nullable=False, comment="below it brokers served what was copied"),
    ForeignKeyConstraint(_HANDOVER, [f"handovers.{name}" for name in _HANDOVER]),
    comment="what is handed over",
)

handover_checks: Final = Table(
    "handover_checks",
    metadata,
    cluster_key(),
    Column("handover_id", UUID_TEXT, primary_key=True),
    Column("topic_id", UUID_TEXT, nullable=False),
    Column("step", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("partition", Integer, comment="null: the topic as a whole"),
    Column("outcome", Text, nullable=False, comment="passed, note, waiting, refused"),
    Column("numbers", Text, nullable=False),
    Column("what_to_do", Text, nullable=False),
    ForeignKeyConstraint(_HANDOVER, [f"handovers.{name}" for name in _HANDOVER]),
    comment="what the checks of each step said last",
)
