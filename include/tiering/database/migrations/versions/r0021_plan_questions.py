"""Questions to people about plans, and their answers."""

import sqlalchemy as sa
from alembic import op

revision = "r0021"
down_revision = "r0020"


def upgrade() -> None:
    op.create_table(
        "plan_questions",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("asked_in", sa.Text(), nullable=False, comment="the DAG run"),
        sa.Column("subject", sa.Text(), nullable=False, comment="the planned run, or the id of the hand-over"),
        sa.Column("plan_hash", sa.Text(), nullable=False),
        sa.Column("headline", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False, comment="Markdown, as a person sees it"),
        sa.Column("put_at_ms", sa.BigInteger(), nullable=False, comment="when the text was stored"),
        sa.Column("shown_at_ms", sa.BigInteger(), comment="null: no task has asked it yet"),
        sa.Column("answer", sa.Text(), comment="approved or rejected; null: none yet"),
        sa.Column("answered_by", sa.Text(), comment="id of Airflow's user; null: nobody in time"),
        sa.Column("answered_at_ms", sa.BigInteger(), comment="by Airflow's clock"),
        sa.Column("recorded_at_ms", sa.BigInteger(), comment="by the database's clock"),
        sa.PrimaryKeyConstraint("cluster_id", "asked_in", name=op.f("pk_plan_questions")),
        comment="what people were asked about plans, and what Airflow says they answered",
    )
