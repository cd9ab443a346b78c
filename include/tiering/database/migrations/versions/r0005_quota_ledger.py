"""The ledger of quota shares."""

import sqlalchemy as sa
from alembic import op

revision = "r0005"
down_revision = "r0004"


def upgrade() -> None:
    op.create_table(
        "quota_ledger",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column(
            "book",
            sa.Text(),
            nullable=False,
            comment="quotas in force and who holds which share of them, as JSON",
        ),
        sa.PrimaryKeyConstraint("cluster_id", name="pk_quota_ledger"),
        comment="on SQLite kept in a file of its own; worth nothing after all senders have ended",
    )
