"""The first schema, in a single migration. Its tables of runs, audits and handovers are in `initial_tables`.

This module is frozen like `initial_tables`: a change of a table is a separate migration. Development versions had the
revisions r0001 to r0024; a database at one of them is refused.
"""

import sqlalchemy as sa
from alembic import op

from include.tiering.database.migrations.initial_tables import (
    BYTES,
    FLAG,
    FLOAT,
    INT,
    LONG,
    PARTITION,
    RUN,
    SERIAL,
    SHORT,
    TEXT,
    UUID,
    column,
    create,
    create_audits,
    create_handovers,
    create_runs,
    index,
    partition_key,
    refers,
)

revision = "r0100"
down_revision = None


def upgrade() -> None:
    _create_segments()
    _create_metadata_topic()
    create_runs()
    create_audits()
    create_handovers()
    _create_administration()


def _create_segments() -> None:
    """Create the tables of topics, partitions and segments."""
    create(
        "topics",
        "one row for each topic id that the platform has used",
        "cluster_id topic_id",
        column("cluster_id", TEXT),
        column("topic_id", UUID),
        column("name", TEXT, "a label: a re-created topic is another row with the same name"),
        column("owner", TEXT, "who copies and expires: none, platform, handing-over, broker"),
        column("deletion_seen_at_ms", LONG, "when its deletion from the cluster was confirmed", null=True),
        column("deletion_evidence", TEXT, "evidence of the deletion; null: none", null=True),
    )
    index("ix_topics_name", "topics", "cluster_id name")
    create(
        "partitions",
        "this row is locked before a segment's state changes",
        PARTITION,
        *partition_key(),
        column("log_start_offset", LONG, "the platform's; remote records below it expire"),
        column("leader_epochs", TEXT, "history merged over time: epoch:start,epoch:start"),
        column(
            "stopped_reason",
            TEXT,
            "why only replacements may finish: a failed segment; null: not stopped",
            null=True,
        ),
        refers("partitions", "topics", "cluster_id topic_id"),
    )
    create(
        "skipped_offsets",
        "append only: offsets missing by a person's decision, or found missing by a rebuild",
        f"{PARTITION} first_offset",
        *partition_key(),
        column("first_offset", LONG),
        column("last_offset", LONG, "inclusive"),
        column("reason", TEXT),
        column("author", TEXT),
        column("recorded_at_ms", LONG),
        refers("skipped_offsets", "partitions", PARTITION),
    )
    create(
        "divergences",
        "where a source no longer continues the archive, and a person's decision about it",
        f"{PARTITION} number",
        *partition_key(),
        column("number", INT, "of the history that a decision begins"),
        column("first_offset", LONG, "the first offset that differs"),
        column("last_offset", LONG, "inclusive; the last remote offset"),
        column("archive_epochs", TEXT, "epochs of the remote records there: epoch,epoch"),
        column("source_epochs", TEXT, "epochs of the source's records there"),
        column("seen_by", TEXT, "plan, copy, verification, rebuild, adoption, store"),
        column("seen_at_ms", LONG),
        column("followed_from", LONG, "the source is followed from here; null: not decided", null=True),
        column("reason", TEXT, null=True),
        column("author", TEXT, null=True),
        column("decided_at_ms", LONG, null=True),
        refers("divergences", "partitions", PARTITION),
    )
    create(
        "segments",
        "remote log segments in every state; DELETE_SEGMENT_FINISHED is a tombstone",
        "segment_key",
        column("segment_key", SERIAL, "order of arrival; splits a table scan into ranges"),
        *partition_key(),
        column("segment_id", UUID, "one attempt to copy"),
        column("start_offset", LONG),
        column("end_offset", LONG, "inclusive"),
        column("max_timestamp_ms", LONG, "largest record timestamp, -1 without one"),
        column("broker_id", INT),
        column("event_timestamp_ms", LONG),
        column("size_bytes", LONG, "of the .log alone"),
        column("leader_epochs", TEXT, "as in segment_epochs; so one row describes a segment"),
        column("custom_metadata", BYTES, null=True),
        column("txn_index_empty", FLAG),
        column("state", SHORT, "id of the state on Kafka's wire"),
        column("verdict", TEXT, "none, passed, failed, expired"),
        column("verdict_detail", TEXT),
        column("verdict_at_ms", LONG, null=True),
        column("log_crc32c", LONG, "of the .log, as verified before the copy", null=True),
        column("source_fingerprint", TEXT, "equal texts: the same source bytes", null=True),
        column("run_id", TEXT, "of the lease under which the attempt began", null=True),
        column("fencing_token", LONG, "of the last fenced change"),
        column("started_at_ms", LONG),
        column("finished_at_ms", LONG, null=True),
        column("delete_started_at_ms", LONG, null=True),
        column("deleted_at_ms", LONG, "tombstone since", null=True),
        column("superseded_by", UUID, "the new copy of the same offsets that replaced it", null=True),
        column("lost_because", TEXT, "why no source can replace it, by the last plan; null: not known", null=True),
        column("given_up_at_ms", LONG, "when a person decided to continue without it", null=True),
        column("origin", TEXT, "who began the copy: platform or broker", default="platform"),
        column("broker_state", SHORT, "state that the brokers' metadata topic gives it; null: none", null=True),
        column(
            "deep_passed_at_ms",
            LONG,
            "time of the last deep verification that passed; null: none, or a failure since",
            null=True,
        ),
        column("history", INT, "0, or the number of a divergence", default="0"),
        refers("segments", "partitions", PARTITION),
        sa.UniqueConstraint("cluster_id", "topic_id", "partition", "segment_id", name="uq_segments_id"),
    )
    index("ix_segments_offset", "segments", f"{PARTITION} start_offset")
    index("ix_segments_run", "segments", RUN)
    index("ix_segments_delete_started", "segments", "cluster_id delete_started_at_ms")
    index("ix_segments_tombstones", "segments", "cluster_id deleted_at_ms", "deleted_at_ms IS NOT NULL")
    index("ix_segments_verdict", "segments", "cluster_id state verdict verdict_at_ms size_bytes")
    index("ix_segments_of_brokers", "segments", "cluster_id topic_id state", "origin = 'broker'")
    index(
        "ix_segments_behind_brokers", "segments", "cluster_id topic_id", "origin = 'platform' AND broker_state > state"
    )
    create(
        "segment_epochs",
        "the part of each leader epoch in each segment",
        "segment_key leader_epoch",
        column("segment_key", SERIAL),
        column("leader_epoch", INT),
        *partition_key(),
        column("start_offset", LONG),
        column("end_offset", LONG, "inclusive; below the start if the epoch has no record"),
        column(
            "broker_reference",
            TEXT,
            "referenced or unreferenced in a broker's cache; null: absent from it",
            null=True,
        ),
        refers("segment_epochs", "segments", "segment_key", ondelete="CASCADE"),
    )
    index("ix_segment_epochs_offset", "segment_epochs", f"{PARTITION} leader_epoch start_offset")
    create(
        "size_counters",
        "updated in the transaction of each state change; a segment counts in the total and in each of its epochs",
        f"{PARTITION} leader_epoch state",
        *partition_key(),
        column("leader_epoch", INT, "-1: the partition's total"),
        column("state", SHORT),
        column("size_bytes", LONG),
        column("segments", LONG),
        column("highest_offset", LONG, "highest end offset (inclusive) ever in this state; totals can fall", null=True),
        sa.CheckConstraint("size_bytes >= 0 AND segments >= 0", name=op.f("ck_size_counters_not_negative")),
    )
    create(
        "quality_results",
        "the last result of each rule for each segment",
        f"{PARTITION} segment_id rule",
        *partition_key(),
        column("segment_id", UUID),
        column("rule", TEXT),
        column("level", TEXT),
        column("passed", FLAG),
        column("message", TEXT),
        column("recorded_at_ms", LONG),
    )


def _create_metadata_topic() -> None:
    """Create the tables of records read from, and published to, the brokers' metadata topic."""
    create(
        "metadata_topics",
        "the topic __remote_log_metadata that was read",
        "cluster_id",
        column("cluster_id", TEXT),
        column("topic_id", UUID, "changes if the topic is created again"),
        column("partition_count", INT),
    )
    create(
        "metadata_positions",
        "updated in the transaction that applies the records before it",
        "cluster_id metadata_partition",
        column("cluster_id", TEXT),
        column("metadata_partition", INT),
        column("next_offset", LONG, "all records below it were processed"),
        column("end_offset", LONG, "exclusive, by the last answer of the cluster"),
        column("bounds_read_at_ms", LONG, "when the cluster last answered"),
        column("stopped", TEXT, "why no record from next_offset on is read; null: not stopped", null=True),
        column("rereading_to", LONG, "read again from the beginning up to here (exclusive); null: complete", null=True),
    )
    create(
        "ingested_records",
        "how many records had this outcome since the topic was last read from its beginning",
        "cluster_id metadata_partition outcome",
        column("cluster_id", TEXT),
        column("metadata_partition", INT),
        column("outcome", TEXT, "applied, unknown-segment, illegal-transition, unusable"),
        column("records", LONG),
    )
    create(
        "broker_epochs",
        "what a broker's cache holds of each leader epoch besides its segments",
        f"{PARTITION} leader_epoch",
        *partition_key(),
        column("leader_epoch", INT),
        column("highest_offset", LONG, "inclusive; the highest that brokers ever finished"),
    )
    create(
        "publications",
        None,
        PARTITION,
        *partition_key(),
        column("metadata_partition", INT),
        column("partition_count", INT, "of the metadata topic, when it was begun"),
        column("next_offset", LONG, "all records below it were read back"),
        column("begun_at_ms", LONG),
        refers("publications", "partitions", PARTITION),
    )
    create(
        "published_records",
        "records of this platform in the metadata topic; the last of a partition may be pending",
        f"{PARTITION} sequence",
        *partition_key(),
        column("sequence", INT, "order of sending, without gaps"),
        column("segment_id", UUID),
        column("state", SHORT, "id on Kafka's wire"),
        column("start_offset", LONG),
        column("end_offset", LONG, "inclusive"),
        column("value", BYTES, "the bytes to send, the same in each attempt"),
        column("intended_at_ms", LONG, "recorded before it was sent"),
        column("metadata_offset", LONG, "where it was read back; null: not known whether it is there", null=True),
        refers("published_records", "publications", PARTITION),
    )


def _create_administration() -> None:
    """Create the tables of the store's identity, configs, events, pauses, pools and quotas."""
    create(
        "stores",
        "content that the marker object of the remote store must have before a write or delete",
        "cluster_id",
        column("cluster_id", TEXT),
        column("store_id", UUID),
        column("generation", INT, "raised by each claim, move or take-over"),
        column("created_at_ms", LONG),
        column(
            "rebuilding_since_ms",
            LONG,
            "begin of a rebuild of the metadata, which must not be used until it ends; null: none runs",
            null=True,
        ),
        column("generation_token", TEXT, "random, of this generation; null: none until the next raise", null=True),
        column("url", TEXT, "place of the keys, with layout and key_prefix; null: not recorded yet", null=True),
        column("layout", TEXT, null=True),
        column("key_prefix", TEXT, null=True),
        column("pending_generation", INT, "next generation, perhaps already in the marker; null: none", null=True),
        column("pending_token", TEXT, null=True),
        column("pending_url", TEXT, null=True),
        column("pending_layout", TEXT, null=True),
        column("pending_key_prefix", TEXT, null=True),
        column(
            "conditional_writes",
            FLAG,
            "whether the store supports conditional replacement of an object; null: not tried",
            null=True,
        ),
    )
    create(
        "dynamic_configs",
        None,
        "cluster_id entity_type entity_name name",
        column("cluster_id", TEXT),
        column("entity_type", TEXT, "brokers, topics or clients"),
        column("entity_name", TEXT, "empty: the default of this type"),
        column("name", TEXT),
        column("value", TEXT),
    )
    create(
        "dynamic_config_changes",
        "append only",
        "change_id",
        column("change_id", SERIAL, "the highest of a cluster is its configs' version"),
        column("cluster_id", TEXT),
        column("entity_type", TEXT),
        column("entity_name", TEXT),
        column("name", TEXT),
        column("old_value", TEXT, "null: was not set", null=True),
        column("new_value", TEXT, "null: removed", null=True),
        column("author", TEXT),
        column("changed_at_ms", LONG),
    )
    index("ix_dynamic_config_changes_version", "dynamic_config_changes", "cluster_id change_id")
    create(
        "events",
        "append only: decisions and outcomes, never payloads or secrets",
        "event_id",
        column("event_id", SERIAL),
        column("cluster_id", TEXT),
        column("occurred_at_ms", LONG),
        column("kind", TEXT),
        column("subject", TEXT),
        column("detail", TEXT),
        column("author", TEXT),
    )
    index("ix_events_time", "events", "cluster_id occurred_at_ms")
    create(
        "pauses",
        None,
        "cluster_id topic",
        column("cluster_id", TEXT),
        column("topic", TEXT, "name, or * for all topics"),
        column("author", TEXT),
        column("paused_at_ms", LONG),
    )
    create(
        "pools",
        "last known sizes of Airflow's pools; Airflow's are authoritative",
        "cluster_id pool",
        column("cluster_id", TEXT),
        column("pool", TEXT),
        column("slots", INT),
        column("updated_at_ms", LONG),
    )
    create(
        "quota_ledger",
        "on SQLite in a separate file; not needed while no worker runs",
        "cluster_id",
        column("cluster_id", TEXT),
        column("content", TEXT, "quotas in force and the shares of each process, as JSON"),
    )
    create(
        "topic_meters",
        None,
        "cluster_id broker_id kind topic",
        column("cluster_id", TEXT),
        column("broker_id", INT, "whose log dirs were read"),
        column("kind", TEXT, "io (all attempts), accepted (copied), error, throttled"),
        column("topic", TEXT, "name; empty: all topics of the broker"),
        column("bytes", LONG, "ever"),
        column("records", LONG, "ever"),
        column("uncounted_bytes", LONG, "part of bytes that is not in the rate yet"),
        column("uncounted_records", LONG, "part of records that is not in the rate yet"),
        column("bytes_per_second", FLOAT, "one-minute rate at the last tick; null before the first", null=True),
        column("records_per_second", FLOAT, "one-minute rate at the last tick; null before the first", null=True),
        column("last_tick_ms", LONG, "the same for all kinds of one topic"),
        column("marked_at_ms", LONG, "time of the last count, or when the meter was made"),
    )
