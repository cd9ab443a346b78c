"""What audits saw and found, and what they are to remove."""

import sqlalchemy as sa
from alembic import op

revision = "r0012"
down_revision = "r0011"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("COMMENT ON COLUMN runs.kind IS 'copy, expire, verify or audit'")
    op.create_table(
        "audits",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False, comment="listing or inventory"),
        sa.Column("began_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_at_ms", sa.BigInteger(), nullable=False, comment="of when is surely all that it saw"),
        sa.Column("objects", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False, comment="segments that were compared, tombstones included"),
        sa.Column("findings", sa.BigInteger(), nullable=False),
        sa.Column("passed_over", sa.Text(), nullable=False, comment="JSON: objects that were not judged, by reason"),
        sa.Column(
            "refusals", sa.Text(), nullable=False, comment="JSON: why nothing may be removed by what this audit saw"
        ),
        sa.Column("recorded_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "run_id", name=op.f("pk_audits")),
        comment="audits that came to an end",
    )
    op.create_index("ix_audits_recorded", "audits", ["cluster_id", "recorded_at_ms"])
    op.create_table(
        "audit_findings",
        sa.Column("finding_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False, comment="SHA-256 of kind, key, version id, upload id"),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False, comment="control characters escaped"),
        sa.Column("version_id", sa.Text()),
        sa.Column("upload_id", sa.Text()),
        sa.Column("segment_id", sa.String(length=22)),
        sa.Column("topic_id", sa.String(length=22)),
        sa.Column("topic", sa.Text()),
        sa.Column("partition", sa.Integer()),
        sa.Column("start_offset", sa.BigInteger()),
        sa.Column("end_offset", sa.BigInteger(), comment="inclusive"),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("last_modified_ms", sa.BigInteger(), comment="by the store's clock"),
        sa.Column("first_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_run_id", sa.Text(), nullable=False, comment="the audit that saw it last"),
        sa.Column("state", sa.Text(), nullable=False, comment="open, gone, acted, accepted"),
        sa.Column("state_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("author", sa.Text(), comment="who accepted it"),
        sa.PrimaryKeyConstraint("finding_id", name=op.f("pk_audit_findings")),
        sa.UniqueConstraint("cluster_id", "identity", name="uq_audit_findings_identity"),
        comment="one row for each thing that store and metadata disagree about, whatever number of audits saw it",
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_findings_state", "audit_findings", ["cluster_id", "state", "last_seen_ms"])
    op.create_table(
        "planned_removals",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False, comment="order of removal"),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("segment_id", sa.String(length=22), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False, comment="of the finding"),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False, comment="version id or upload id; empty: the object itself"),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column(
            "last_modified_ms", sa.BigInteger(), nullable=False, comment="as the plan saw it; by the store's clock"
        ),
        sa.Column("condemned_at_ms", sa.BigInteger(), comment="from then on no segment may begin under this id"),
        sa.Column("outcome", sa.Text(), nullable=False, comment="planned, removed, gone, kept, failed"),
        sa.Column("message", sa.Text()),
        sa.Column("recorded_at_ms", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["cluster_id", "run_id"], ["runs.cluster_id", "runs.run_id"], name=op.f("fk_planned_removals_runs")
        ),
        sa.PrimaryKeyConstraint("cluster_id", "run_id", "position", name=op.f("pk_planned_removals")),
        comment="objects, uploads and versions without metadata that a run removes",
    )
    op.create_index(
        "ix_planned_removals_segment", "planned_removals", ["cluster_id", "topic_id", "partition", "segment_id"]
    )
    op.create_index("ix_planned_removals_outcome", "planned_removals", ["cluster_id", "run_id", "outcome"])
