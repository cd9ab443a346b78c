"""Tables of topics, partitions and segments, and of records read from, or published to, the brokers' metadata topic."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from include.tiering.database.schema.base import (
    SERIAL,
    UUID_TEXT,
    cluster_key,
    metadata,
    partition_columns,
    partition_key,
    topic_key,
)

_PARTITION: Final = ["cluster_id", "topic_id", "partition"]


def _partial(name: str, *columns: str, where: str) -> Index:
    """Return an index of the rows with this condition.

    SQLite uses it only for statements that have the same condition with its values in the text, as in
    `segments.sql_selected`.
    """
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


topics: Final = Table(
    "topics",
    metadata,
    *topic_key(),
    Column("name", Text, nullable=False, comment="a label: a re-created topic is another row with the same name"),
    Column("owner", Text, nullable=False, comment="who copies and expires: none, platform, handing-over, broker"),
    Column("deletion_seen_at_ms", BigInteger, comment="when its deletion from the cluster was confirmed"),
    Column("deletion_evidence", Text, comment="evidence of the deletion; null: none"),
    Index("ix_topics_name", "cluster_id", "name"),
    comment="one row for each topic id that the platform has used",
)

partitions: Final = Table(
    "partitions",
    metadata,
    *partition_key(),
    Column("log_start_offset", BigInteger, nullable=False, comment="the platform's; remote records below it expire"),
    Column("leader_epochs", Text, nullable=False, comment="history merged over time: epoch:start,epoch:start"),
    Column(
        "stopped_reason",
        Text,
        comment="why only replacements may finish: a failed segment; null: not stopped",
    ),
    Column(
        "finished_bytes",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="of FINISHED segments, added up by triggers on segments",
    ),
    ForeignKeyConstraint(["cluster_id", "topic_id"], ["topics.cluster_id", "topics.topic_id"]),
    comment="this row is locked before a segment's state changes",
)

skipped_offsets: Final = Table(
    "skipped_offsets",
    metadata,
    *partition_key(),
    Column("first_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("last_offset", BigInteger, nullable=False, comment="inclusive"),
    Column("reason", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("recorded_at_ms", BigInteger, nullable=False),
    ForeignKeyConstraint(_PARTITION, [f"partitions.{name}" for name in _PARTITION]),
    comment="append only: offsets missing by a person's decision, or found missing by a rebuild",
)

fetched_ranges: Final = Table(
    "fetched_ranges",
    metadata,
    *partition_key(),
    Column("base_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("end_offset", BigInteger, nullable=False, comment="inclusive"),
    Column(
        "start_offset",
        BigInteger,
        nullable=False,
        comment="the first offset that was requested: at least the base offset",
    ),
    Column("size_bytes", BigInteger, nullable=False),
    Column("batch_count", BigInteger, nullable=False),
    Column("first_timestamp_ms", BigInteger, nullable=False, comment="the largest of the first batch; -1: none"),
    Column("max_timestamp_ms", BigInteger, nullable=False, comment="-1: none"),
    Column("crc32c", BigInteger, nullable=False, comment="of all bytes"),
    Column("leader_epochs", Text, nullable=False, comment="of the batches: epoch:start,epoch:start"),
    Column(
        "producer_snapshot",
        LargeBinary,
        nullable=False,
        comment="the producers after the last batch, as a broker writes them",
    ),
    Column("closed", Boolean, nullable=False, comment="false: the newest range, to which batches are added"),
    Column("recorded_at_ms", BigInteger, nullable=False),
    comment="where the logs of leaders are cut; a closed range never changes",
)

divergences: Final = Table(
    "divergences",
    metadata,
    *partition_key(),
    Column("number", Integer, primary_key=True, autoincrement=False, comment="of the history that a decision begins"),
    Column("first_offset", BigInteger, nullable=False, comment="the first offset that differs"),
    Column("last_offset", BigInteger, nullable=False, comment="inclusive; the last remote offset"),
    Column("archive_epochs", Text, nullable=False, comment="epochs of the remote records there: epoch,epoch"),
    Column("source_epochs", Text, nullable=False, comment="epochs of the source's records there"),
    Column("seen_by", Text, nullable=False, comment="plan, copy, verification, rebuild, adoption, store"),
    Column("seen_at_ms", BigInteger, nullable=False),
    Column("followed_from", BigInteger, comment="the source is followed from here; null: not decided"),
    Column("reason", Text),
    Column("author", Text),
    Column("decided_at_ms", BigInteger),
    ForeignKeyConstraint(_PARTITION, [f"partitions.{name}" for name in _PARTITION]),
    comment="where a source no longer continues the archive, and a person's decision about it",
)

segments: Final = Table(
    "segments",
    metadata,
    Column("segment_key", SERIAL, primary_key=True, comment="order of arrival; splits a table scan into ranges"),
    *partition_columns(),
    Column("segment_id", UUID_TEXT, nullable=False, comment="one attempt to copy"),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False, comment="inclusive"),
    Column("max_timestamp_ms", BigInteger, nullable=False, comment="largest record timestamp, -1 without one"),
    Column("broker_id", Integer, nullable=False),
    Column("event_timestamp_ms", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False, comment="of the .log alone"),
    Column("leader_epochs", Text, nullable=False, comment="as in segment_epochs; so one row describes a segment"),
    Column("custom_metadata", LargeBinary),
    Column("txn_index_empty", Boolean, nullable=False),
    Column("state", SmallInteger, nullable=False, comment="id of the state on Kafka's wire"),
    Column("verdict", Text, nullable=False, comment="none, passed, failed, expired"),
    Column("verdict_detail", Text, nullable=False),
    Column("verdict_at_ms", BigInteger),
    Column(
        "deep_passed_at_ms",
        BigInteger,
        comment="time of the last deep verification that passed; null: none, or a failure since",
    ),
    Column("log_crc32c", BigInteger, comment="of the .log, as verified before the copy"),
    Column("source_fingerprint", Text, comment="equal texts: the same source bytes"),
    Column("run_id", Text, comment="of the lease under which the attempt began"),
    Column("fencing_token", BigInteger, nullable=False, comment="of the last fenced change"),
    Column("started_at_ms", BigInteger, nullable=False),
    Column("finished_at_ms", BigInteger),
    Column("delete_started_at_ms", BigInteger),
    Column("deleted_at_ms", BigInteger, comment="tombstone since"),
    Column("superseded_by", UUID_TEXT, comment="the new copy of the same offsets that replaced it"),
    Column("lost_because", Text, comment="why no source can replace it, by the last plan; null: not known"),
    Column("given_up_at_ms", BigInteger, comment="when a person decided to continue without it"),
    Column("origin", Text, nullable=False, server_default="platform", comment="who began the copy: platform or broker"),
    Column("broker_state", SmallInteger, comment="state that the brokers' metadata topic gives it; null: none"),
    Column("history", Integer, nullable=False, server_default="0", comment="0, or the number of a divergence"),
    UniqueConstraint(*_PARTITION, "segment_id", name="uq_segments_id"),
    ForeignKeyConstraint(_PARTITION, [f"partitions.{name}" for name in _PARTITION]),
    Index("ix_segments_offset", *_PARTITION, "start_offset"),
    # Without tombstones, which lie where a log begins and may be more than the segments that are left of it.
    _partial("ix_segments_start", *_PARTITION, "start_offset", "segment_key", "size_bytes", "state", where="state = 1"),
    _partial("ix_segments_end", *_PARTITION, "end_offset", "history", where="state = 1"),
    _partial("ix_segments_timestamp", *_PARTITION, "max_timestamp_ms", "start_offset", where="state = 1"),
    _partial("ix_segments_under_way", *_PARTITION, "start_offset", where="state IN (0, 2)"),
    Index("ix_segments_run", "cluster_id", "run_id"),
    Index("ix_segments_verdict", "cluster_id", "state", "verdict", "verdict_at_ms", "deep_passed_at_ms", "size_bytes"),
    Index("ix_segments_delete_started", "cluster_id", "delete_started_at_ms"),
    _partial("ix_segments_tombstones", "cluster_id", "deleted_at_ms", where="deleted_at_ms IS NOT NULL"),
    _partial("ix_segments_of_brokers", "cluster_id", "topic_id", "state", where="origin = 'broker'"),
    _partial("ix_segments_brokers_sizes", *_PARTITION, "state", "size_bytes", where="origin = 'broker'"),
    _partial(
        "ix_segments_behind_brokers",
        "cluster_id",
        "topic_id",
        where="origin = 'platform' AND broker_state > state",
    ),
    _partial(
        "ix_segments_known_to_brokers",
        *_PARTITION,
        "segment_id",
        where="origin = 'platform' AND broker_state < 3",
    ),
    sqlite_autoincrement=True,
    comment="remote log segments in every state; DELETE_SEGMENT_FINISHED is a tombstone",
)

segment_epochs: Final = Table(
    "segment_epochs",
    metadata,
    Column("segment_key", SERIAL, primary_key=True, autoincrement=False),
    Column("leader_epoch", Integer, primary_key=True, autoincrement=False),
    *partition_columns(),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False, comment="inclusive; below the start if the epoch has no record"),
    Column("broker_reference", Text, comment="referenced or unreferenced in a broker's cache; null: absent from it"),
    ForeignKeyConstraint(["segment_key"], ["segments.segment_key"], ondelete="CASCADE"),
    Index("ix_segment_epochs_offset", *_PARTITION, "leader_epoch", "start_offset"),
    comment="the part of each leader epoch in each segment",
)

size_counters: Final = Table(
    "size_counters",
    metadata,
    *partition_key(),
    Column("leader_epoch", Integer, primary_key=True, autoincrement=False, comment="-1: the partition's total"),
    Column("state", SmallInteger, primary_key=True, autoincrement=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("segments", BigInteger, nullable=False),
    Column("highest_offset", BigInteger, comment="highest end offset (inclusive) ever in this state; totals can fall"),
    _partial("ix_size_counters_totals", *_PARTITION, "state", where="leader_epoch = -1"),
    CheckConstraint("size_bytes >= 0 AND segments >= 0", name="not_negative"),
    comment="updated in the transaction of each state change; a segment counts in the total and in each of its epochs",
)

quality_results: Final = Table(
    "quality_results",
    metadata,
    *partition_key(),
    Column("segment_id", UUID_TEXT, primary_key=True),
    Column("rule", Text, primary_key=True),
    Column("level", Text, nullable=False),
    Column("passed", Boolean, nullable=False),
    Column("message", Text, nullable=False),
    Column("recorded_at_ms", BigInteger, nullable=False),
    comment="the last result of each rule for each segment",
)


metadata_topics: Final = Table(
    "metadata_topics",
    metadata,
    cluster_key(),
    Column("topic_id", UUID_TEXT, nullable=False, comment="changes if the topic is created again"),
    Column("partition_count", Integer, nullable=False),
    comment="the topic __remote_log_metadata that was read",
)

metadata_positions: Final = Table(
    "metadata_positions",
    metadata,
    cluster_key(),
    Column("metadata_partition", Integer, primary_key=True, autoincrement=False),
    Column("next_offset", BigInteger, nullable=False, comment="all records below it were processed"),
    Column("end_offset", BigInteger, nullable=False, comment="exclusive, by the last answer of the cluster"),
    Column("bounds_read_at_ms", BigInteger, nullable=False, comment="when the cluster last answered"),
    Column("stopped", Text, comment="why no record from next_offset on is read; null: not stopped"),
    Column("rereading_to", BigInteger, comment="read again from the beginning up to here (exclusive); null: complete"),
    Column("first_offset", BigInteger, comment="where the reading began; null: not known"),
    comment="updated in the transaction that applies the records before it",
)

ingested_records: Final = Table(
    "ingested_records",
    metadata,
    cluster_key(),
    Column("metadata_partition", Integer, primary_key=True, autoincrement=False),
    Column("outcome", Text, primary_key=True, comment="applied, unknown-segment, illegal-transition, unusable"),
    Column("records", BigInteger, nullable=False),
    comment="how many records had this outcome since the topic was last read from its beginning",
)

broker_epochs: Final = Table(
    "broker_epochs",
    metadata,
    *partition_key(),
    Column("leader_epoch", Integer, primary_key=True, autoincrement=False),
    Column("highest_offset", BigInteger, nullable=False, comment="inclusive; the highest that brokers ever finished"),
    comment="what a broker's cache holds of each leader epoch besides its segments",
)


publications: Final = Table(
    "publications",
    metadata,
    *partition_key(),
    Column("metadata_partition", Integer, nullable=False),
    Column("partition_count", Integer, nullable=False, comment="of the metadata topic, when it was begun"),
    Column("next_offset", BigInteger, nullable=False, comment="all records below it were read back"),
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
    Column("value", LargeBinary, nullable=False, comment="the bytes to send, the same in each attempt"),
    Column("intended_at_ms", BigInteger, nullable=False, comment="recorded before it was sent"),
    Column("metadata_offset", BigInteger, comment="where it was read back; null: not known whether it is there"),
    ForeignKeyConstraint(_PARTITION, [f"publications.{name}" for name in _PARTITION]),
    comment="records of this platform in the metadata topic; the last of a partition may be pending",
)
