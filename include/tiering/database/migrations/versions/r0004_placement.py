"""Where planned partitions can be read."""

import sqlalchemy as sa
from alembic import op

revision = "r0004"
down_revision = "r0003"


def upgrade() -> None:
    op.add_column(
        "planned_partitions",
        sa.Column("queue", sa.Text(), comment="Airflow queue whose workers can read it; null: any"),
    )
    op.add_column(
        "planned_partitions",
        sa.Column("spark_resource", sa.Text(), comment="Spark resource of executors that can read it; null: any"),
    )
