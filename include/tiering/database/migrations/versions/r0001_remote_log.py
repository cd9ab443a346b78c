"""Topics, partitions, segments, counters, quality results."""

import sqlalchemy as sa
from alembic import op

revision = "r0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "quality_results",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("segment_id", sa.String(length=22), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("recorded_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "cluster_id", "topic_id", "partition", "segment_id", "rule", name=op.f("pk_quality_results")
        ),
        comment="the last result of each rule for each segment",
    )
    op.create_table(
        "size_counters",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "leader_epoch", sa.Integer(), autoincrement=False, nullable=False, comment="-1: the partition's total"
        ),
        sa.Column("state", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("segments", sa.BigInteger(), nullable=False),
        sa.Column(
            "highest_offset",
            sa.BigInteger(),
            comment="highest end (inclusive) that ever entered this state; never lowered",
        ),
        sa.CheckConstraint("size_bytes >= 0 AND segments >= 0", name=op.f("ck_size_counters_not_negative")),
        sa.PrimaryKeyConstraint(
            "cluster_id", "topic_id", "partition", "leader_epoch", "state", name=op.f("pk_size_counters")
        ),
        comment="moved in the transaction of each state change; a segment counts once in the total, once in each epoch",
    )
    op.create_table(
        "topics",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column(
            "name", sa.Text(), nullable=False, comment="a label: a re-created topic is another row with the same name"
        ),
        sa.Column(
            "owner", sa.Text(), nullable=False, comment="who copies and expires: none, platform, handing-over, broker"
        ),
        sa.Column("retention_ms", sa.BigInteger(), comment="ours, for owner platform; null keeps for ever"),
        sa.Column("retention_bytes", sa.BigInteger(), comment="ours, local and remote together; null keeps for ever"),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", name=op.f("pk_topics")),
        comment="one row per topic id that the platform has dealt with",
    )
    op.create_index("ix_topics_name", "topics", ["cluster_id", "name"])
    op.create_table(
        "partitions",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "log_start_offset", sa.BigInteger(), nullable=False, comment="ours: remote records below it are gone"
        ),
        sa.Column(
            "leader_epochs", sa.Text(), nullable=False, comment="history merged over time: epoch:start,epoch:start"
        ),
        sa.Column(
            "stopped_reason",
            sa.Text(),
            comment="set while a FINISHED segment has the verdict failed: nothing may follow it",
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id", "topic_id"], ["topics.cluster_id", "topics.topic_id"], name=op.f("fk_partitions_topics")
        ),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", "partition", name=op.f("pk_partitions")),
        comment="its row is locked before any of the partition's segments changes",
    )
    op.create_table(
        "segments",
        sa.Column(
            "segment_key",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            nullable=False,
            comment="order of arrival; ranges of it part a table scan",
        ),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("segment_id", sa.String(length=22), nullable=False, comment="one attempt to copy"),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False, comment="inclusive"),
        sa.Column(
            "max_timestamp_ms", sa.BigInteger(), nullable=False, comment="largest record timestamp, -1 without one"
        ),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("event_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False, comment="of the .log alone"),
        sa.Column(
            "leader_epochs", sa.Text(), nullable=False, comment="as in segment_epochs, so that one row is one segment"
        ),
        sa.Column("custom_metadata", sa.LargeBinary()),
        sa.Column("txn_index_empty", sa.Boolean(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False, comment="id of the state on Kafka's wire"),
        sa.Column("verdict", sa.Text(), nullable=False, comment="none, passed, failed, expired"),
        sa.Column("verdict_detail", sa.Text(), nullable=False),
        sa.Column("verdict_at_ms", sa.BigInteger()),
        sa.Column("log_crc32c", sa.BigInteger(), comment="of the .log, as the check pass saw it"),
        sa.Column("source_fingerprint", sa.Text(), comment="equal texts: the same source bytes"),
        sa.Column("run_id", sa.Text(), comment="of the lease under which the attempt began"),
        sa.Column("fencing_token", sa.BigInteger(), nullable=False, comment="of the last change"),
        sa.Column("started_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("finished_at_ms", sa.BigInteger()),
        sa.Column("delete_started_at_ms", sa.BigInteger()),
        sa.Column("deleted_at_ms", sa.BigInteger(), comment="tombstone since"),
        sa.ForeignKeyConstraint(
            ["cluster_id", "topic_id", "partition"],
            ["partitions.cluster_id", "partitions.topic_id", "partitions.partition"],
            name=op.f("fk_segments_partitions"),
        ),
        sa.PrimaryKeyConstraint("segment_key", name=op.f("pk_segments")),
        sa.UniqueConstraint("cluster_id", "topic_id", "partition", "segment_id", name="uq_segments_id"),
        comment="remote log segments in every state; DELETE_SEGMENT_FINISHED is a tombstone",
        sqlite_autoincrement=True,
    )
    op.create_index("ix_segments_offset", "segments", ["cluster_id", "topic_id", "partition", "start_offset"])
    op.create_index("ix_segments_run", "segments", ["cluster_id", "run_id"])
    op.create_table(
        "segment_epochs",
        sa.Column(
            "segment_key", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("leader_epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column(
            "end_offset",
            sa.BigInteger(),
            nullable=False,
            comment="inclusive; below the start if the epoch has no record",
        ),
        sa.ForeignKeyConstraint(
            ["segment_key"], ["segments.segment_key"], name=op.f("fk_segment_epochs_segments"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("segment_key", "leader_epoch", name=op.f("pk_segment_epochs")),
        comment="the part of each leader epoch in each segment",
    )
    op.create_index(
        "ix_segment_epochs_offset",
        "segment_epochs",
        ["cluster_id", "topic_id", "partition", "leader_epoch", "start_offset"],
    )
