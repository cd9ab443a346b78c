"""What size runs saw of the log directories: how fast their disks fill, and which cannot be read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

from include.tiering.database.metric_series import Series
from include.tiering.operations.monitoring import Minutes

FREE: Final = "tiering_log_dir_free_bytes"
UNREADABLE: Final = "tiering_log_dir_unreadable"
COMPARED_MINUTES: Final = 24 * 60
_LEAST_MINUTES: Final = 60
"""Free bytes that were read within less than this say little about how fast a disk fills."""


@dataclass(frozen=True, slots=True)
class DiskOfLogDir:
    """The disk of a log directory, as size runs saw it on their host.

    Attributes:
        broker: id of the broker that owns the directory.
        path: of the directory.
        free_bytes: as of `as_of_ms`.
        as_of_ms: when a size run read it last.
        filled_per_second: how many bytes a second fewer were free, on average over `over_seconds`, negative if more
            were; None if no two size runs of the last 24 hours were at least an hour apart.
        over_seconds: between these two size runs.
    """

    broker: str
    path: str
    free_bytes: int
    as_of_ms: int
    filled_per_second: float | None = None
    over_seconds: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """When the disk would be full at this rate; None if it does not fill, or the rate is not known."""
        rate = self.filled_per_second
        return self.free_bytes / rate if rate is not None and rate > 0 else None


@dataclass(frozen=True, slots=True)
class UnreadableLogDir:
    """A log directory of the settings that the size run at `as_of_ms` could not read."""

    broker_id: int
    path: str
    as_of_ms: int


def disks(free: Sequence[Series], minutes: Minutes) -> tuple[DiskOfLogDir, ...]:
    """Return the disks of log directories, by broker and path.

    Args:
        free: the last known free bytes.
        minutes: free bytes by minute.
    """
    found = []
    for series in free:
        labels, read = dict(series.key.labels), sorted(minutes.get(series.key, {}).items())
        filled = over = None
        if read and read[-1][0] - read[0][0] >= _LEAST_MINUTES:
            over = (read[-1][0] - read[0][0]) * 60.0
            filled = (read[0][1] - read[-1][1]) / over
        found.append(
            DiskOfLogDir(labels["broker"], labels["log_dir"], round(series.value), series.updated_at_ms, filled, over)
        )
    return tuple(sorted(found, key=lambda disk: (disk.broker, disk.path)))


def unreadable(found: Sequence[Series]) -> tuple[UnreadableLogDir, ...]:
    """Return the log directories of the series whose value is not 0, by broker and path."""
    log_dirs = [
        UnreadableLogDir(int(series.key.label("broker")), series.key.label("log_dir"), series.updated_at_ms)
        for series in found
        if series.value
    ]
    return tuple(sorted(log_dirs, key=lambda log_dir: (log_dir.broker_id, log_dir.path)))


class DiskOfLogDirDocument(TypedDict):
    """The disk of a log directory, as size runs saw it on their host.

    `filled_bytes_per_second` is the average over `over_seconds`, below 0 if the disk gets emptier; both are null if no
    two size runs of the last 24 hours were at least an hour apart. `seconds_left` is at this rate, null if none is.
    """

    broker_id: int
    log_dir: str
    free_bytes: int
    as_of_ms: int
    filled_bytes_per_second: float | None
    over_seconds: float | None
    seconds_left: float | None


class UnreadableLogDirDocument(TypedDict):
    """A log directory of the settings that the last size run could not read, as without its disk."""

    broker_id: int
    log_dir: str
    as_of_ms: int


def disk_document(disk: DiskOfLogDir) -> DiskOfLogDirDocument:
    """Return the JSON of a disk."""
    return {
        "broker_id": int(disk.broker),
        "log_dir": disk.path,
        "free_bytes": disk.free_bytes,
        "as_of_ms": disk.as_of_ms,
        "filled_bytes_per_second": disk.filled_per_second,
        "over_seconds": disk.over_seconds,
        "seconds_left": disk.seconds_left,
    }


def unreadable_document(log_dir: UnreadableLogDir) -> UnreadableLogDirDocument:
    """Return the JSON of a log directory that cannot be read."""
    return {"broker_id": log_dir.broker_id, "log_dir": log_dir.path, "as_of_ms": log_dir.as_of_ms}
