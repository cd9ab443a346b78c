"""The order in which audits ended, and their objections that stand until a later audit clears them."""

import json

import sqlalchemy as sa
from alembic import op

revision = "r0022"
down_revision = "r0021"

_IN_ORDER = """
    UPDATE audits SET sequence = (
        SELECT count(*) FROM audits AS other
        WHERE other.cluster_id = audits.cluster_id
        AND (other.recorded_at_ms < audits.recorded_at_ms
             OR (other.recorded_at_ms = audits.recorded_at_ms AND other.run_id <= audits.run_id))
    )
"""
_OF_THE_LAST = """
    SELECT cluster_id, run_id, refusals, recorded_at_ms FROM audits AS it
    WHERE sequence = (SELECT max(sequence) FROM audits WHERE cluster_id = it.cluster_id)
"""


def upgrade() -> None:
    # Not in a batch: SQLite would drop the table under what refers to it.
    op.add_column(
        "audits",
        sa.Column(
            "sequence",
            sa.BigInteger(),
            nullable=False,
            server_default="0",
            comment="in the order in which they ended",
        ),
    )
    op.execute(_IN_ORDER)
    guards = op.create_table(
        "standing_guards",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("guard", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False, comment="the audit that raised it first"),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("memory_ms", sa.BigInteger(), comment="the newest that the database remembered then"),
        sa.Column("raised_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "guard", name=op.f("pk_standing_guards")),
        comment="objections of audits that no later audit has cleared: nothing expires",
    )
    standing = [
        {
            "cluster_id": audit.cluster_id,
            "guard": refusal["guard"],
            "run_id": audit.run_id,
            "sentence": refusal["sentence"],
            "raised_at_ms": audit.recorded_at_ms,
        }
        for audit in op.get_bind().execute(sa.text(_OF_THE_LAST))
        for refusal in json.loads(audit.refusals)
        if refusal["guard"] == "older-database"
    ]
    op.bulk_insert(guards, standing)
