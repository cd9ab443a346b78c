"""Where sources stopped to continue what was archived, what was decided about it, and which history a segment is of."""

import sqlalchemy as sa
from alembic import op

revision = "r0023"
down_revision = "r0022"


def upgrade() -> None:
    op.create_table(
        "divergences",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "number",
            sa.Integer(),
            autoincrement=False,
            nullable=False,
            comment="of the history that a decision begins",
        ),
        sa.Column("first_offset", sa.BigInteger(), nullable=False, comment="the first one that differs"),
        sa.Column("last_offset", sa.BigInteger(), nullable=False, comment="inclusive; the last one that was remote"),
        sa.Column("archive_epochs", sa.Text(), nullable=False, comment="that wrote what is remote there: epoch,epoch"),
        sa.Column("source_epochs", sa.Text(), nullable=False, comment="that wrote what the source has there"),
        sa.Column("seen_by", sa.Text(), nullable=False, comment="plan, copy, verification"),
        sa.Column("seen_at_ms", sa.BigInteger(), nullable=False),
        sa.Column(
            "followed_from", sa.BigInteger(), comment="from here on the source is followed; null: nobody decided"
        ),
        sa.Column("reason", sa.Text()),
        sa.Column("author", sa.Text()),
        sa.Column("decided_at_ms", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["cluster_id", "topic_id", "partition"],
            ["partitions.cluster_id", "partitions.topic_id", "partitions.partition"],
            name=op.f("fk_divergences_partitions"),
        ),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", "partition", "number", name=op.f("pk_divergences")),
        comment="where a source stopped to continue what was archived, and what somebody decided about it",
    )
    # Not in a batch: SQLite would drop the table under the rows that refer to it.
    op.add_column(
        "segments",
        sa.Column(
            "history",
            sa.Integer(),
            nullable=False,
            server_default="0",
            comment="0, or the number of a divergence",
        ),
    )
