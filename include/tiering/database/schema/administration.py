"""Tables of the store's identity, dynamic configs and their history, the event log, quotas, handovers, and metrics."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Computed,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
)

from include.tiering.database.schema.base import SERIAL, UUID_TEXT, cluster_key, metadata

stores: Final = Table(
    "stores",
    metadata,
    cluster_key(),
    Column("store_id", UUID_TEXT, nullable=False),
    Column("generation", Integer, nullable=False, comment="raised by each claim, move or take-over"),
    Column("created_at_ms", BigInteger, nullable=False),
    Column(
        "rebuilding_since_ms",
        BigInteger,
        comment="begin of a rebuild of the metadata, which must not be used until it ends; null: none runs",
    ),
    Column("generation_token", Text, comment="random, of this generation; null: none until the next raise"),
    Column("url", Text, comment="place of the keys, with layout and key_prefix; null: not recorded yet"),
    Column("layout", Text),
    Column("key_prefix", Text),
    Column("pending_generation", Integer, comment="next generation, perhaps already in the marker; null: none"),
    Column("pending_token", Text),
    Column("pending_url", Text),
    Column("pending_layout", Text),
    Column("pending_key_prefix", Text),
    Column(
        "conditional_writes",
        Boolean,
        comment="whether the store supports conditional replacement of an object; null: not tried",
    ),
    comment="content that the marker object of the remote store must have before a write or delete",
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
    Index("ix_dynamic_config_changes_entity", "cluster_id", "entity_type", "entity_name", "change_id"),
    Index("ix_dynamic_config_changes_time", "cluster_id", "changed_at_ms"),
    sqlite_autoincrement=True,
    comment="append only",
)


def _topic_of_event() -> str:
    """Return the SQL of the topic that an event is about, see `database/event_log.py`.

    A topic id has 22 characters, so the subject is the topic's name or the partition's, and 25 more: ` (topic id)`.
    """
    name = "substr(subject, 1, length(subject) - 25)"
    has_id = "length(subject) > 25 AND substr(subject, length(subject) - 24, 2) = ' ('"
    topic = f"rtrim({name}, '0123456789')"
    return (
        "CASE WHEN kind IN ('pause', 'resume', 'recovery drill')"
        " THEN CASE WHEN subject NOT IN ('', '*') THEN subject END"
        f" WHEN NOT ({has_id}) THEN NULL"
        f" WHEN kind IN ('owner', 'topic-deletion', 'handover') THEN {name}"
        f" WHEN substr({topic}, length({topic}), 1) = '-' THEN substr({topic}, 1, length({topic}) - 1)"
        " END"
    )


TOPIC_OF_EVENT: Final = _topic_of_event()
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
    Column(
        "topic",
        Text,
        Computed(TOPIC_OF_EVENT, persisted=True),
        comment="name of the topic that the subject is or belongs to; null: none, or all topics",
    ),
    Index("ix_events_time", "cluster_id", "occurred_at_ms"),
    Index("ix_events_topic", "cluster_id", "topic", "occurred_at_ms"),
    sqlite_autoincrement=True,
    comment="append only: decisions and outcomes, never payloads or secrets",
)


quota_ledger: Final = Table(
    "quota_ledger",
    metadata,
    cluster_key(),
    Column("content", Text, nullable=False, comment="quotas in force and the shares of each process, as JSON"),
    comment="on SQLite in a separate file; not needed while no worker runs",
)

topic_meters: Final = Table(
    "topic_meters",
    metadata,
    cluster_key(),
    Column("broker_id", Integer, primary_key=True, autoincrement=False, comment="whose log dirs were read"),
    Column("kind", Text, primary_key=True, comment="io (all attempts), accepted (copied), error, throttled"),
    Column("topic", Text, primary_key=True, comment="name; empty: all topics of the broker"),
    Column("bytes", BigInteger, nullable=False, comment="ever"),
    Column("records", BigInteger, nullable=False, comment="ever"),
    Column("uncounted_bytes", BigInteger, nullable=False, comment="part of bytes that is not in the rate yet"),
    Column("uncounted_records", BigInteger, nullable=False, comment="part of records that is not in the rate yet"),
    Column("bytes_per_second", Float, comment="one-minute rate at the last tick; null before the first"),
    Column("records_per_second", Float, comment="one-minute rate at the last tick; null before the first"),
    Column("last_tick_ms", BigInteger, nullable=False, comment="the same for all kinds of one topic"),
    Column("marked_at_ms", BigInteger, nullable=False, comment="time of the last count, or when the meter was made"),
)


_HANDOVER: Final = ["cluster_id", "handover_id"]

handovers: Final = Table(
    "handovers",
    metadata,
    cluster_key(),
    Column("handover_id", UUID_TEXT, primary_key=True),
    Column("topic_id", UUID_TEXT, nullable=False),
    Column("topic", Text, nullable=False),
    Column("open_topic_id", UUID_TEXT, comment="topic id until the handover ends, then null; unique"),
    Column("step", Text, nullable=False, comment="the step to run next, or again"),
    Column("state", Text, nullable=False, comment="active, stopped, undoing, parked, undone, done"),
    Column("wanted_ms", BigInteger, comment="local.retention.ms at the end; null: as it was"),
    Column("wanted_bytes", BigInteger, comment="local.retention.bytes at the end; null: as it was"),
    Column("retention_order", Text, comment="total-first, local-first; null: total-first"),
    Column("author", Text, nullable=False),
    Column("detail", Text, nullable=False, comment="why it last waited or stopped"),
    Column("plan_hash", Text, comment="of the plan that was shown to a person"),
    Column("approved_by", Text),
    Column("approved_at_ms", BigInteger),
    Column("driver", Text, comment="the process that runs it, or ran it last"),
    Column("token", BigInteger, nullable=False, comment="grows with every driver"),
    Column("driven_until_ms", BigInteger, nullable=False, comment="by the database's clock; 0 once given back"),
    Column("began_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    UniqueConstraint("cluster_id", "open_topic_id", name="uq_handovers_open_topic"),
    comment="this row is locked before any change of the handover",
)

retention_overrides: Final = Table(
    "retention_overrides",
    metadata,
    cluster_key(),
    Column("handover_id", UUID_TEXT, primary_key=True),
    Column("key", Text, primary_key=True, comment="a config of the topic"),
    Column("old_value", Text, comment="null: the topic had no value of its own"),
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
    Column("end_offset", BigInteger, nullable=False, comment="inclusive; start_offset - 1: no offset"),
    Column("log_start_offset", BigInteger, nullable=False, comment="on the broker, as decided or as last accepted"),
    Column("leader", Integer, nullable=False),
    Column("leader_epoch", Integer, nullable=False),
    Column("compared_offset", BigInteger, nullable=False, comment="records below it served by brokers equal the copy"),
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
    comment="last results of the checks of each step",
)

metric_series: Final = Table(
    "metric_series",
    metadata,
    Column("series_id", SERIAL, primary_key=True),
    Column("cluster_id", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("labels", Text, nullable=False, comment="JSON object with the value of each label, sorted by name"),
    Column("value", Float, nullable=False, comment="total of a counter, latest value of a gauge"),
    Column("updated_at_ms", BigInteger, nullable=False, comment="by the clock of the process that recorded it"),
    UniqueConstraint("cluster_id", "metric", "labels", name="uq_metric_series_labels"),
    sqlite_autoincrement=True,
    comment="one row for each metric and set of labels, whatever process records it",
)

metric_hours: Final = Table(
    "metric_hours",
    metadata,
    Column("series_id", BigInteger, primary_key=True, autoincrement=False),
    Column("hour", Integer, primary_key=True, autoincrement=False, comment="since 1970, UTC"),
    Column("cluster_id", Text, nullable=False),
    Column("minutes", Text, nullable=False, comment="JSON object: value of each minute (0 to 59) with a value"),
    ForeignKeyConstraint(["series_id"], ["metric_series.series_id"]),
    Index("ix_metric_hours_hour", "cluster_id", "hour"),
    comment="what a series was in the minutes of the last 14 days",
)
