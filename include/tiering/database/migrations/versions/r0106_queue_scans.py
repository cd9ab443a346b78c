"""What the workers of a queue last found in the log dirs that only they can read."""

import sqlalchemy as sa
from alembic import op

revision = "r0106"
down_revision = "r0105"


def upgrade() -> None:
    op.create_table(
        "queue_scans",
        sa.Column("cluster_id", sa.Text(), primary_key=True),
        sa.Column("queue", sa.Text(), primary_key=True, comment="of Airflow, as log_dirs of the settings name it"),
        sa.Column("scanned_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False, comment="of the DAG run that scanned"),
        sa.Column("host", sa.Text(), nullable=False, comment="of the worker that read the log dirs"),
        sa.Column("topics", sa.Text(), nullable=False, comment="patterns, as a JSON array"),
        sa.Column("log_dirs", sa.Text(), nullable=False, comment="JSON: broker id, path, directory id, error of each"),
        sa.Column("report", sa.LargeBinary(), nullable=False, comment="compressed JSON; see runs/sql_queue_scans.py"),
        comment="what the workers of a queue last found in the log dirs that only they can read",
    )
