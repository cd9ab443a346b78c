"""Indexes with which the page *Tiering* adds up topics without their leader epochs, and reads few changes of configs.

The index of the counters does not contain the sums, because PostgreSQL would then write to it with each change of one.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0109"
down_revision = "r0108"


def upgrade() -> None:
    of_totals = sa.text("leader_epoch = -1")
    op.create_index(
        "ix_size_counters_totals",
        "size_counters",
        ["cluster_id", "topic_id", "partition", "state"],
        sqlite_where=of_totals,
        postgresql_where=of_totals,
    )
    changes = "dynamic_config_changes"
    op.create_index(f"ix_{changes}_entity", changes, ["cluster_id", "entity_type", "entity_name", "change_id"])
    op.create_index(f"ix_{changes}_time", changes, ["cluster_id", "changed_at_ms"])
