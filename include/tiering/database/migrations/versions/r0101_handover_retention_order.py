"""The order in which a handover restores retention, an index that finds running batches, and a comment."""

import sqlalchemy as sa
from alembic import op

revision = "r0101"
down_revision = "r0100"


def upgrade() -> None:
    comment = "total-first, local-first; null: total-first"
    op.add_column("handovers", sa.Column("retention_order", sa.Text(), nullable=True, comment=comment))
    if op.get_bind().dialect.supports_comments:
        outcomes = "planned, passed, failed, gone, missing"
        op.alter_column("planned_verifications", "outcome", existing_type=sa.Text(), comment=outcomes)
    op.create_index("ix_batches_updated", "batches", ["cluster_id", "updated_at_ms"])
