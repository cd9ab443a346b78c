"""What a restore may write. A module of its own, because the command line loads it for every command."""

from enum import StrEnum


class RestoreForm(StrEnum):
    """Segment files, which a broker can load; Parquet files, by date; or segments in another remote storage."""

    SEGMENTS = "segments"
    PARQUET = "parquet"
    STORAGE = "storage"
