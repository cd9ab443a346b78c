"""A lease says how long it lasts, so that one which ends further ahead is known to be none."""

import sqlalchemy as sa
from alembic import op

revision = "r0020"
down_revision = "r0019"


def upgrade() -> None:
    # Not in a batch: SQLite would drop the table and make another.
    column = sa.Column(
        "lease_ms",
        sa.BigInteger(),
        comment="how long it lasts without renewing; null: taken before that was recorded",
    )
    op.add_column("leases", column)
