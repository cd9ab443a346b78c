"""Failed segments: what took their place, what no source can replace, what was given up."""

import sqlalchemy as sa
from alembic import op

revision = "r0011"
down_revision = "r0010"


def upgrade() -> None:
    # Not in a batch: SQLite would drop the tables under the rows that refer to them.
    op.add_column(
        "segments",
        sa.Column(
            "superseded_by", sa.String(length=22), comment="the new copy of the same offsets that took its place"
        ),
    )
    op.add_column(
        "segments",
        sa.Column(
            "lost_because",
            sa.Text(),
            comment="why no source can replace it, as the last plan saw it; null: none said so",
        ),
    )
    op.add_column(
        "segments",
        sa.Column(
            "given_up_at_ms",
            sa.BigInteger(),
            comment="when somebody decided to go on without it; it stops nothing since",
        ),
    )
    op.add_column(
        "planned_segments",
        sa.Column(
            "supersedes",
            sa.String(length=22),
            comment="the failed segment whose place the copy is to take; null: none",
        ),
    )
