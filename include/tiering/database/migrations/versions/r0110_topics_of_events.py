"""The topic of each event in a column that the database computes, by which the events of one topic are found.

The subject of an event is the name of its topic, or `orders (topic id)`, or `orders-0 (topic id)`. A topic id has 22
characters, so the last 25 are cut off, then the number of the partition and the hyphen before it.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0110"
down_revision = "r0109"

_NAME = "substr(subject, 1, length(subject) - 25)"
_TOPIC = f"rtrim({_NAME}, '0123456789')"
_EXPRESSION = (
    "CASE WHEN kind IN ('pause', 'resume', 'recovery drill') THEN CASE WHEN subject NOT IN ('', '*') THEN subject END"
    " WHEN NOT (length(subject) > 25 AND substr(subject, length(subject) - 24, 2) = ' (') THEN NULL"
    f" WHEN kind IN ('owner', 'topic-deletion', 'handover') THEN {_NAME}"
    f" WHEN substr({_TOPIC}, length({_TOPIC}), 1) = '-' THEN substr({_TOPIC}, 1, length({_TOPIC}) - 1)"
    " END"
)


def upgrade() -> None:
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    if on_postgresql:
        # There may be more events than a statement may take time for.
        op.execute("SET LOCAL statement_timeout = 0")
    about = "name of the topic that the subject is or belongs to; null: none, or all topics"
    # SQLite adds no stored column to a table, and PostgreSQL has no index on another one.
    computed = sa.Computed(_EXPRESSION, persisted=on_postgresql)
    op.add_column("events", sa.Column("topic", sa.Text, computed, comment=about))
    op.create_index("ix_events_topic", "events", ["cluster_id", "topic", "occurred_at_ms"])
