"""Hand-overs of topics to their brokers."""

import sqlalchemy as sa
from alembic import op

revision = "r0014"
down_revision = "r0013"


def upgrade() -> None:
    op.create_table(
        "handovers",
        *_key(),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column(
            "open_topic_id",
            sa.String(length=22),
            comment="the topic id until it has ended, then null: one at a time of a topic",
        ),
        sa.Column("step", sa.Text(), nullable=False, comment="what is to be done next, or again"),
        sa.Column("state", sa.Text(), nullable=False, comment="active, stopped, undoing, parked, undone, done"),
        sa.Column("wanted_ms", sa.BigInteger(), comment="local.retention.ms at the end; null: as it was"),
        sa.Column("wanted_bytes", sa.BigInteger(), comment="local.retention.bytes at the end; null: as it was"),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False, comment="what it last waited or stopped for"),
        sa.Column("plan_hash", sa.Text(), comment="of what was put before a person"),
        sa.Column("approved_by", sa.Text()),
        sa.Column("approved_at_ms", sa.BigInteger()),
        sa.Column("driver", sa.Text(), comment="the process that carries it on, or did last"),
        sa.Column("token", sa.BigInteger(), nullable=False, comment="grows with every driver"),
        sa.Column(
            "driven_until_ms", sa.BigInteger(), nullable=False, comment="by the database's clock; 0 once given back"
        ),
        sa.Column("began_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "handover_id", name=op.f("pk_handovers")),
        sa.UniqueConstraint("cluster_id", "open_topic_id", name="uq_handovers_open_topic"),
        comment="its row is locked before anything of the hand-over changes",
    )
    op.create_table(
        "handover_guards",
        *_key(),
        sa.Column("key", sa.Text(), nullable=False, comment="a config of the topic"),
        sa.Column("old_value", sa.Text(), comment="null: the topic had none of its own"),
        sa.Column("set_value", sa.Text(), nullable=False),
        sa.Column("restored", sa.Boolean(), nullable=False),
        _of_handover("handover_guards"),
        sa.PrimaryKeyConstraint("cluster_id", "handover_id", "key", name=op.f("pk_handover_guards")),
        comment="stored before the config is changed",
    )
    op.create_table(
        "handover_partitions",
        *_key(),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False, comment="inclusive; start_offset - 1: nothing"),
        sa.Column("log_start_offset", sa.BigInteger(), nullable=False, comment="the broker's when this was decided"),
        sa.Column("leader", sa.Integer(), nullable=False),
        sa.Column("leader_epoch", sa.Integer(), nullable=False),
        sa.Column(
            "compared_offset", sa.BigInteger(), nullable=False, comment="below it brokers served what was copied"
        ),
        _of_handover("handover_partitions"),
        sa.PrimaryKeyConstraint("cluster_id", "handover_id", "partition", name=op.f("pk_handover_partitions")),
        comment="what is handed over",
    )
    op.create_table(
        "handover_checks",
        *_key(),
        sa.Column("topic_id", sa.String(length=22), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), comment="null: the topic as a whole"),
        sa.Column("outcome", sa.Text(), nullable=False, comment="passed, note, waiting, refused"),
        sa.Column("numbers", sa.Text(), nullable=False),
        sa.Column("what_to_do", sa.Text(), nullable=False),
        _of_handover("handover_checks"),
        sa.PrimaryKeyConstraint("cluster_id", "handover_id", "step", "position", name=op.f("pk_handover_checks")),
        comment="what the checks of each step said last",
    )


def _key() -> tuple[sa.Column[str], ...]:
    return (
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("handover_id", sa.String(length=22), nullable=False),
    )


def _of_handover(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["cluster_id", "handover_id"],
        ["handovers.cluster_id", "handovers.handover_id"],
        name=op.f(f"fk_{table}_handovers"),
    )
