"""What runs verify."""

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, Table, Text

from include.tiering.database.schema.base import UUID_TEXT, metadata, partition_key

_RUN: Final = ["cluster_id", "run_id"]

planned_verifications: Final = Table(
    "planned_verifications",
    metadata,
    *partition_key(),
    Column("run_id", Text, primary_key=True),
    Column("segment_id", UUID_TEXT, primary_key=True),
    Column("start_offset", BigInteger, nullable=False),
    Column("depth", Text, nullable=False, comment="shallow or deep"),
    Column("reason", Text, nullable=False, comment="why it was chosen"),
    Column("planned_bytes", BigInteger, nullable=False, comment="about so many are to be read"),
    Column("outcome", Text, nullable=False, comment="planned, passed, failed, gone"),
    Column("read_bytes", BigInteger, comment="that were read"),
    Column("recorded_at_ms", BigInteger),
    ForeignKeyConstraint(_RUN, [f"runs.{name}" for name in _RUN]),
    Index("ix_planned_verifications_run", *_RUN, "outcome"),
    comment="segments that a run verifies; kept for a month",
)
