"""The index from which verdicts are counted also has the time of the last deep verification."""

from alembic import op

revision = "r0108"
down_revision = "r0107"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        # With millions of segments an index takes longer than any other statement may.
        op.execute("SET LOCAL statement_timeout = 0")
    op.drop_index("ix_segments_verdict", "segments")
    op.create_index(
        "ix_segments_verdict",
        "segments",
        ["cluster_id", "state", "verdict", "verdict_at_ms", "deep_passed_at_ms", "size_bytes"],
    )
