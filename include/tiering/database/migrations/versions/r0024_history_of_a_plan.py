"""Which history of a partition was followed when its expiration was planned."""

import sqlalchemy as sa
from alembic import op

revision = "r0024"
down_revision = "r0023"


def upgrade() -> None:
    op.add_column(
        "planned_expirations",
        sa.Column("local_history", sa.Integer(), comment="the number of the history that was followed then; null: 0"),
    )
