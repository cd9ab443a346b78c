"""The ledger of quota shares."""

from typing import Final

from sqlalchemy import Column, Table, Text

from include.tiering.database.schema.base import cluster_key, metadata

quota_ledger: Final = Table(
    "quota_ledger",
    metadata,
    cluster_key(),
    Column("book", Text, nullable=False, comment="quotas in force and who holds which share of them, as JSON"),
    comment="on SQLite kept in a file of its own; worth nothing after all senders have ended",
)
