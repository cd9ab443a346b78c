"""The generation of a store has a token and is raised by each run that plans; where keys lie is recorded."""

import sqlalchemy as sa
from alembic import op

revision = "r0019"
down_revision = "r0018"


def upgrade() -> None:
    for column in (
        sa.Column(
            "generation_token",
            sa.Text(),
            comment="of this generation; null: nobody has raised it since markers have one",
        ),
        sa.Column("url", sa.Text(), comment="where keys lie, with layout and key_prefix; null: not recorded yet"),
        sa.Column("layout", sa.Text()),
        sa.Column("key_prefix", sa.Text()),
        sa.Column(
            "pending_generation", sa.Integer(), comment="being raised to: the marker may say this one already; or null"
        ),
        sa.Column("pending_token", sa.Text()),
        sa.Column("pending_url", sa.Text()),
        sa.Column("pending_layout", sa.Text()),
        sa.Column("pending_key_prefix", sa.Text()),
        sa.Column(
            "conditional_writes",
            sa.Boolean(),
            comment="whether the store replaces an object only if it is the expected one; null: nobody has tried",
        ),
    ):
        # Not in a batch: SQLite would drop the table and make another.
        op.add_column("stores", column)
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("stores", "generation", comment="raised by each run that plans")
