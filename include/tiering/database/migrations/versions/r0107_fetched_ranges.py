"""The ranges into which the logs of leaders are cut that are read by the Fetch API."""

from include.tiering.database.migrations.initial_tables import (
    BYTES,
    FLAG,
    LONG,
    PARTITION,
    TEXT,
    column,
    create,
    partition_key,
)

revision = "r0107"
down_revision = "r0106"


def upgrade() -> None:
    create(
        "fetched_ranges",
        "where the logs of leaders are cut; a closed range never changes",
        f"{PARTITION} base_offset",
        *partition_key(),
        column("base_offset", LONG),
        column("end_offset", LONG, "inclusive"),
        column("start_offset", LONG, "the first offset that was requested: at least the base offset"),
        column("size_bytes", LONG),
        column("batch_count", LONG),
        column("first_timestamp_ms", LONG, "the largest of the first batch; -1: none"),
        column("max_timestamp_ms", LONG, "-1: none"),
        column("crc32c", LONG, "of all bytes"),
        column("leader_epochs", TEXT, "of the batches: epoch:start,epoch:start"),
        column("producer_snapshot", BYTES, "the producers after the last batch, as a broker writes them"),
        column("closed", FLAG, "false: the newest range, to which batches are added"),
        column("recorded_at_ms", LONG),
    )
