"""Metrics of all processes: the latest value of each series, and its minutes of the last 14 days."""

import sqlalchemy as sa
from alembic import op

revision = "r0105"
down_revision = "r0104"


def upgrade() -> None:
    serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "metric_series",
        sa.Column("series_id", serial, primary_key=True),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column(
            "labels", sa.Text(), nullable=False, comment="JSON object with the value of each label, sorted by name"
        ),
        sa.Column("value", sa.Float(), nullable=False, comment="total of a counter, latest value of a gauge"),
        sa.Column(
            "updated_at_ms",
            sa.BigInteger(),
            nullable=False,
            comment="by the clock of the process that recorded it",
        ),
        sa.UniqueConstraint("cluster_id", "metric", "labels", name="uq_metric_series_labels"),
        comment="one row for each metric and set of labels, whatever process records it",
        sqlite_autoincrement=True,
    )
    op.create_table(
        "metric_hours",
        sa.Column("series_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("hour", sa.Integer(), primary_key=True, autoincrement=False, comment="since 1970, UTC"),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column(
            "minutes",
            sa.Text(),
            nullable=False,
            comment="JSON object: value of each minute (0 to 59) with a value",
        ),
        sa.ForeignKeyConstraint(["series_id"], ["metric_series.series_id"]),
        comment="what a series was in the minutes of the last 14 days",
    )
    op.create_index("ix_metric_hours_hour", "metric_hours", ["cluster_id", "hour"])
