"""Metadata that are being rebuilt from the store."""

import sqlalchemy as sa
from alembic import op

revision = "r0013"
down_revision = "r0012"


def upgrade() -> None:
    # Not in a batch: SQLite would drop the table and make another.
    op.add_column(
        "stores",
        sa.Column(
            "rebuilding_since_ms",
            sa.BigInteger(),
            comment="its metadata are being rebuilt from its objects, and serve nobody; null: they are whole",
        ),
    )
