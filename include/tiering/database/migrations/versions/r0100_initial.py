"""The first schema: one migration. Its tables of runs, audits and handovers are in `initial_tables`.

Frozen as `initial_tables` is: a change of a table is a migration of its own, which says so in its own words.
Development versions numbered theirs from r0001 to r0024; a database of one of them is refused, not taken for this one.
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
    """Topics, partitions and segments."""
    create(
        "topics",
        "one row per topic id that the platform has dealt with",
        "cluster_id topic_id",
        column("cluster_id", TEXT),
        column("topic_id", UUID),
        column("name", TEXT, "a label: a re-created topic is another row with the same name"),
        column("owner", TEXT, "who copies and expires: none, platform, handing-over, broker"),
        column("deletion_seen_at_ms", LONG, "when its deletion from the cluster was positively seen", null=True),
        column("deletion_evidence", TEXT, "what said so; null as long as nothing did", null=True),
    )
    index("ix_topics_name", "topics", "cluster_id name")
    create(
        "partitions",
        "its row is locked before any of the partition's segments changes",
        PARTITION,
        *partition_key(),
        column("log_start_offset", LONG, "ours: remote records below it are gone"),
        column("leader_epochs", TEXT, "history merged over time: epoch:start,epoch:start"),
        column(
            "stopped_reason",
            TEXT,
            "set while a FINISHED segment has the verdict failed: nothing may follow it",
            null=True,
        ),
        refers("partitions", "topics", "cluster_id topic_id"),
    )
    create(
        "skipped_offsets",
        "append only: a gap that somebody decided to go on behind",
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
        "where a source stopped to continue what was archived, and what somebody decided about it",
        f"{PARTITION} number",
        *partition_key(),
        column("number", INT, "of the history that a decision begins"),
        column("first_offset", LONG, "the first one that differs"),
        column("last_offset", LONG, "inclusive; the last one that was remote"),
        column("archive_epochs", TEXT, "that wrote what is remote there: epoch,epoch"),
        column("source_epochs", TEXT, "that wrote what the source has there"),
        column("seen_by", TEXT, "plan, copy, verification"),
        column("seen_at_ms", LONG),
        column("followed_from", LONG, "from here on the source is followed; null: nobody decided", null=True),
        column("reason", TEXT, null=True),
        column("author", TEXT, null=True),
        column("decided_at_ms", LONG, null=True),
        refers("divergences", "partitions", PARTITION),
    )
    create(
        "segments",
        "remote log segments in every state; DELETE_SEGMENT_FINISHED is a tombstone",
        "segment_key",
        column("segment_key", SERIAL, "order of arrival; ranges of it part a table scan"),
        *partition_key(),
        column("segment_id", UUID, "one attempt to copy"),
        column("start_offset", LONG),
        column("end_offset", LONG, "inclusive"),
        column("max_timestamp_ms", LONG, "largest record timestamp, -1 without one"),
        column("broker_id", INT),
        column("event_timestamp_ms", LONG),
        column("size_bytes", LONG, "of the .log alone"),
        column("leader_epochs", TEXT, "as in segment_epochs, so that one row is one segment"),
        column("custom_metadata", BYTES, null=True),
        column("txn_index_empty", FLAG),
        column("state", SHORT, "id of the state on Kafka's wire"),
        column("verdict", TEXT, "none, passed, failed, expired"),
        column("verdict_detail", TEXT),
        column("verdict_at_ms", LONG, null=True),
        column("log_crc32c", LONG, "of the .log, as the check pass saw it", null=True),
        column("source_fingerprint", TEXT, "equal texts: the same source bytes", null=True),
        column("run_id", TEXT, "of the lease under which the attempt began", null=True),
        column("fencing_token", LONG, "of the last change"),
        column("started_at_ms", LONG),
        column("finished_at_ms", LONG, null=True),
        column("delete_started_at_ms", LONG, null=True),
        column("deleted_at_ms", LONG, "tombstone since", null=True),
        column("superseded_by", UUID, "the new copy of the same offsets that took its place", null=True),
        column(
            "lost_because", TEXT, "why no source can replace it, as the last plan saw it; null: none said so", null=True
        ),
        column("given_up_at_ms", LONG, "when somebody decided to go on without it; it stops nothing since", null=True),
        column("origin", TEXT, "who began it: platform or broker", default="platform"),
        column("broker_state", SHORT, "state that the brokers' metadata topic gives it; null: none", null=True),
        column(
            "deep_passed_at_ms",
            LONG,
            "verdict of the last look that read every byte and passed; null: none did since it failed",
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
            "how a broker's cache knows it here: referenced, unreferenced; null: not",
            null=True,
        ),
        refers("segment_epochs", "segments", "segment_key", ondelete="CASCADE"),
    )
    index("ix_segment_epochs_offset", "segment_epochs", f"{PARTITION} leader_epoch start_offset")
    create(
        "size_counters",
        "moved in the transaction of each state change; a segment counts once in the total, once in each epoch",
        f"{PARTITION} leader_epoch state",
        *partition_key(),
        column("leader_epoch", INT, "-1: the partition's total"),
        column("state", SHORT),
        column("size_bytes", LONG),
        column("segments", LONG),
        column(
            "highest_offset", LONG, "highest end (inclusive) that ever entered this state; never lowered", null=True
        ),
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
    """What was read from, and published to, the brokers' metadata topic."""
    create(
        "metadata_topics",
        "the topic __remote_log_metadata that was read",
        "cluster_id",
        column("cluster_id", TEXT),
        column("topic_id", UUID, "one that was created again is another"),
        column("partition_count", INT),
    )
    create(
        "metadata_positions",
        "moved in the transaction that applies the records before it",
        "cluster_id metadata_partition",
        column("cluster_id", TEXT),
        column("metadata_partition", INT),
        column("next_offset", LONG, "everything below was applied"),
        column("end_offset", LONG, "exclusive, as the cluster last said"),
        column("bounds_read_at_ms", LONG, "when the cluster last said something"),
        column(
            "stopped", TEXT, "why nothing behind next_offset is applied; null: nothing stands in the way", null=True
        ),
        column("rereading_to", LONG, "read again from the beginning up to here (exclusive); null: complete", null=True),
    )
    create(
        "ingested_records",
        "how many records did what, ever",
        "cluster_id metadata_partition outcome",
        column("cluster_id", TEXT),
        column("metadata_partition", INT),
        column("outcome", TEXT, "applied, unknown-segment, illegal-transition, unusable"),
        column("records", LONG),
    )
    create(
        "broker_epochs",
        "what a broker's cache holds of each leader epoch beside its segments",
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
        column("next_offset", LONG, "everything below was read back"),
        column("begun_at_ms", LONG),
        refers("publications", "partitions", PARTITION),
    )
    create(
        "published_records",
        "records of ours in the metadata topic; the last of a partition may be pending",
        f"{PARTITION} sequence",
        *partition_key(),
        column("sequence", INT, "order of sending, without gaps"),
        column("segment_id", UUID),
        column("state", SHORT, "id on Kafka's wire"),
        column("start_offset", LONG),
        column("end_offset", LONG, "inclusive"),
        column("value", BYTES, "what is sent, however often it has to be tried"),
        column("intended_at_ms", LONG, "written down before it was sent"),
        column("metadata_offset", LONG, "where it was read back; null: it may be there, or not", null=True),
        refers("published_records", "publications", PARTITION),
    )


def _create_administration() -> None:
    """The identity of the store, configs, events, pools and quotas."""
    create(
        "stores",
        "what the marker object of the remote store must say before anything is written or deleted",
        "cluster_id",
        column("cluster_id", TEXT),
        column("store_id", UUID),
        column("generation", INT, "raised by each run that plans"),
        column("created_at_ms", LONG),
        column(
            "rebuilding_since_ms",
            LONG,
            "its metadata are being rebuilt from its objects, and serve nobody; null: they are whole",
            null=True,
        ),
        column(
            "generation_token", TEXT, "of this generation; null: nobody has raised it since markers have one", null=True
        ),
        column("url", TEXT, "where keys lie, with layout and key_prefix; null: not recorded yet", null=True),
        column("layout", TEXT, null=True),
        column("key_prefix", TEXT, null=True),
        column("pending_generation", INT, "being raised to: the marker may say this one already; or null", null=True),
        column("pending_token", TEXT, null=True),
        column("pending_url", TEXT, null=True),
        column("pending_layout", TEXT, null=True),
        column("pending_key_prefix", TEXT, null=True),
        column(
            "conditional_writes",
            FLAG,
            "whether the store replaces an object only if it is the expected one; null: nobody has tried",
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
        column("topic", TEXT, "name, or * for all sending"),
        column("author", TEXT),
        column("paused_at_ms", LONG),
    )
    create(
        "pools",
        "mirror of Airflow's pools, whose truth is in Airflow",
        "cluster_id pool",
        column("cluster_id", TEXT),
        column("pool", TEXT),
        column("slots", INT),
        column("updated_at_ms", LONG),
    )
    create(
        "quota_ledger",
        "on SQLite kept in a file of its own; worth nothing after all senders have ended",
        "cluster_id",
        column("cluster_id", TEXT),
        column("content", TEXT, "quotas in force and who holds which share of them, as JSON"),
    )
    create(
        "topic_meters",
        None,
        "cluster_id broker_id kind topic",
        column("cluster_id", TEXT),
        column("broker_id", INT, "whose log dirs were read"),
        column("kind", TEXT, "io, accepted, error, throttled"),
        column("topic", TEXT, "name; empty: all topics of the broker"),
        column("bytes", LONG, "ever"),
        column("records", LONG, "ever"),
        column("uncounted_bytes", LONG, "since the last tick"),
        column("uncounted_records", LONG, "since the last tick"),
        column("bytes_per_second", FLOAT, "of one minute, as of the last tick; null before the first", null=True),
        column("records_per_second", FLOAT, "of one minute, as of the last tick; null before the first", null=True),
        column("last_tick_ms", LONG, "the same for all kinds of one topic"),
        column("marked_at_ms", LONG, "when it last counted something, or was made"),
    )
