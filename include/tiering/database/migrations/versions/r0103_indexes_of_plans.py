"""Indexes with which a plan reads the segments that something happens to, however many others there are."""

import sqlalchemy as sa
from alembic import op

revision = "r0103"
down_revision = "r0102"

_PARTITION = ["cluster_id", "topic_id", "partition"]


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        # With millions of segments an index takes longer than any other statement may.
        op.execute("SET LOCAL statement_timeout = 0")
    _index("ix_segments_start", ["start_offset", "segment_key", "size_bytes", "state"], "state = 1")
    _index("ix_segments_end", ["end_offset", "history"], "state = 1")
    _index("ix_segments_timestamp", ["max_timestamp_ms", "start_offset"], "state = 1")
    _index("ix_segments_under_way", ["start_offset"], "state IN (0, 2)")
    _index("ix_segments_brokers_sizes", ["state", "size_bytes"], "origin = 'broker'")
    _index("ix_segments_known_to_brokers", ["segment_id"], "origin = 'platform' AND broker_state < 3")


def _index(name: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "segments", [*_PARTITION, *columns], sqlite_where=condition, postgresql_where=condition)
