"""Which segments somebody read as a whole and found right."""

import sqlalchemy as sa
from alembic import op

revision = "r0017"
down_revision = "r0016"


def upgrade() -> None:
    # Not in a batch: SQLite would drop the table under the rows that refer to it.
    op.add_column(
        "segments",
        sa.Column(
            "deep_passed_at_ms",
            sa.BigInteger(),
            comment="verdict of the last look that read every byte and passed; null: none did since it failed",
        ),
    )
