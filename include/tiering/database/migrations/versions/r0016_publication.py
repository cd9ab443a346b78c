"""What was published to the brokers' metadata topic."""

import sqlalchemy as sa
from alembic import op

revision = "r0016"
down_revision = "r0015"

_PARTITION = ["cluster_id", "topic_id", "partition"]


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("COMMENT ON COLUMN leases.role IS 'copy, expire or publish: each works beside the others'")
    op.create_table(
        "publications",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("metadata_partition", sa.Integer(), nullable=False),
        sa.Column("partition_count", sa.Integer(), nullable=False, comment="of the metadata topic, when it was begun"),
        sa.Column("next_offset", sa.BigInteger(), nullable=False, comment="everything below was read back"),
        sa.Column("begun_at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            _PARTITION, [f"partitions.{name}" for name in _PARTITION], name=op.f("fk_publications_partitions")
        ),
        sa.PrimaryKeyConstraint(*_PARTITION, name=op.f("pk_publications")),
    )
    op.create_table(
        "published_records",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "sequence", sa.Integer(), autoincrement=False, nullable=False, comment="order of sending, without gaps"
        ),
        sa.Column("segment_id", sa.String(length=22), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False, comment="id on Kafka's wire"),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False, comment="inclusive"),
        sa.Column("value", sa.LargeBinary(), nullable=False, comment="what is sent, however often it has to be tried"),
        sa.Column("intended_at_ms", sa.BigInteger(), nullable=False, comment="written down before it was sent"),
        sa.Column("metadata_offset", sa.BigInteger(), comment="where it was read back; null: it may be there, or not"),
        sa.ForeignKeyConstraint(
            _PARTITION, [f"publications.{name}" for name in _PARTITION], name=op.f("fk_published_records_publications")
        ),
        sa.PrimaryKeyConstraint(*_PARTITION, "sequence", name=op.f("pk_published_records")),
        comment="records of ours in the metadata topic; the last of a partition may be pending",
    )
