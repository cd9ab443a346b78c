"""What audits saw, what they found, and what of it is to be removed."""

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, Integer, Table, Text, UniqueConstraint

from include.tiering.database.schema.base import SERIAL, UUID_TEXT, cluster_key, metadata, partition_columns

_RUN: Final = ["cluster_id", "run_id"]
_PARTITION: Final = ["cluster_id", "topic_id", "partition"]

audits: Final = Table(
    "audits",
    metadata,
    cluster_key(),
    Column("run_id", Text, primary_key=True),
    Column("source", Text, nullable=False, comment="listing or inventory"),
    Column("began_at_ms", BigInteger, nullable=False),
    Column("seen_at_ms", BigInteger, nullable=False, comment="of when is surely all that it saw"),
    Column("objects", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False, comment="segments that were compared, tombstones included"),
    Column("findings", BigInteger, nullable=False),
    Column("passed_over", Text, nullable=False, comment="JSON: objects that were not judged, by reason"),
    Column("refusals", Text, nullable=False, comment="JSON: why nothing may be removed by what this audit saw"),
    Column("recorded_at_ms", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False, server_default="0", comment="in the order in which they ended"),
    Index("ix_audits_recorded", "cluster_id", "recorded_at_ms"),
    comment="audits that came to an end",
)

standing_guards: Final = Table(
    "standing_guards",
    metadata,
    cluster_key(),
    Column("guard", Text, primary_key=True),
    Column("run_id", Text, nullable=False, comment="the audit that raised it first"),
    Column("sentence", Text, nullable=False),
    Column("memory_ms", BigInteger, comment="the newest that the database remembered then"),
    Column("raised_at_ms", BigInteger, nullable=False),
    comment="objections of audits that no later audit has cleared: nothing expires",
)

audit_findings: Final = Table(
    "audit_findings",
    metadata,
    Column("finding_id", SERIAL, primary_key=True),
    Column("cluster_id", Text, nullable=False),
    Column("identity", Text, nullable=False, comment="SHA-256 of kind, key, version id, upload id"),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False, comment="control characters escaped"),
    Column("version_id", Text),
    Column("upload_id", Text),
    Column("segment_id", UUID_TEXT),
    Column("topic_id", UUID_TEXT),
    Column("topic", Text),
    Column("partition", Integer),
    Column("start_offset", BigInteger),
    Column("end_offset", BigInteger, comment="inclusive"),
    Column("size_bytes", BigInteger, nullable=False),
    Column("message", Text, nullable=False),
    Column("last_modified_ms", BigInteger, comment="by the store's clock"),
    Column("first_seen_ms", BigInteger, nullable=False),
    Column("last_seen_ms", BigInteger, nullable=False),
    Column("last_run_id", Text, nullable=False, comment="the audit that saw it last"),
    Column("state", Text, nullable=False, comment="open, gone, acted, accepted"),
    Column("state_at_ms", BigInteger, nullable=False),
    Column("author", Text, comment="who accepted it"),
    UniqueConstraint("cluster_id", "identity", name="uq_audit_findings_identity"),
    Index("ix_audit_findings_state", "cluster_id", "state", "last_seen_ms"),
    sqlite_autoincrement=True,
    comment="one row for each thing that store and metadata disagree about, whatever number of audits saw it",
)

planned_removals: Final = Table(
    "planned_removals",
    metadata,
    cluster_key(),
    Column("run_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False, comment="order of removal"),
    *partition_columns()[1:],
    Column("topic", Text, nullable=False),
    Column("segment_id", UUID_TEXT, nullable=False),
    Column("kind", Text, nullable=False, comment="of the finding"),
    Column("key", Text, nullable=False),
    Column("token", Text, nullable=False, comment="version id or upload id; empty: the object itself"),
    Column("size_bytes", BigInteger, nullable=False),
    Column("last_modified_ms", BigInteger, nullable=False, comment="as the plan saw it; by the store's clock"),
    Column("condemned_at_ms", BigInteger, comment="from then on no segment may begin under this id"),
    Column("outcome", Text, nullable=False, comment="planned, removed, gone, kept, failed"),
    Column("message", Text),
    Column("recorded_at_ms", BigInteger),
    ForeignKeyConstraint(_RUN, [f"runs.{name}" for name in _RUN]),
    Index("ix_planned_removals_segment", *_PARTITION, "segment_id"),
    Index("ix_planned_removals_outcome", *_RUN, "outcome"),
    comment="objects, uploads and versions without metadata that a run removes",
)
