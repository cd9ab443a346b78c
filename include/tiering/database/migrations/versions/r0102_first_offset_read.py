"""At which offset the reading of a metadata partition began, and an outcome of verifications in a comment."""

import sqlalchemy as sa
from alembic import op

revision = "r0102"
down_revision = "r0101"


def upgrade() -> None:
    comment = "where the reading began; null: not known"
    op.add_column("metadata_positions", sa.Column("first_offset", sa.BigInteger(), nullable=True, comment=comment))
    if op.get_bind().dialect.supports_comments:
        outcomes = "planned, passed, failed, gone, missing, locked"
        op.alter_column("planned_verifications", "outcome", existing_type=sa.Text(), comment=outcomes)
