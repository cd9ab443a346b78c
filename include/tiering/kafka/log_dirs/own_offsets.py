"""Which offsets of a log directory's checkpoints are of the log that lies there now.

Brokers write offsets down under the names of partitions, every few seconds (high watermarks) to every minute, and read
nothing back while they run. Where a topic was deleted and created again, the name has another log, and until the next
checkpoint the offset of the older one: it may lie above all that the new log has replicated, and above its end.

An offset is not this log's, and so unknown, where
- it lies above the end of the log: then it is of another log, or the log lost its end;
- its checkpoint was written before the log was begun, which is when `partition.metadata` was written. A broker makes
  that file once, before the first record, and both files are on one file system, with one clock.

Brokers collect the offsets some time before they write them. So a checkpoint that is hardly newer than the log is
believed only where no directory of an older log of the name lies beside it; brokers keep those for a while.

Where a `.log` is older than `partition.metadata`, the files have the times of a copy (a restored backup, a checkout),
or the log is older than topic ids: times say nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.kafka.log_dirs.dirs import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Checkpoint,
    Checkpoints,
)
from include.tiering.kafka.log_dirs.found_replica import Doubt

_NS_PER_MS: Final = 1_000_000
_SURELY_AFTER_NS: Final = 1_000_000_000
"""A checkpoint that is newer than the log by more than this was collected after the log was begun."""


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """When a log was begun, as its files say.

    `begun_ns` is the time of `partition.metadata`. `times_are_kept`: the files have the times that the broker gave
    them, as far as can be seen. `has_predecessor`: whether the directory of an older log of this name lies beside it;
    asked only where times do not decide.
    """

    begun_ns: int
    times_are_kept: bool
    has_predecessor: Callable[[], bool]

    def is_newer_than(self, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint speaks of what had this name before."""
        if not self.times_are_kept:
            return False
        if checkpoint.written_ns < self.begun_ns:
            return True
        return checkpoint.written_ns < self.begun_ns + _SURELY_AFTER_NS and self.has_predecessor()


def times_are_kept(begun_ns: int, written_ms: Iterable[int]) -> bool:
    """Whether `partition.metadata` is older than the records: brokers write it first, copies often last.

    Args:
        begun_ns: the time of `partition.metadata`.
        written_ms: the times of all `.log` files that are not empty.
    """
    times, begun_ms = list(written_ms), begun_ns // _NS_PER_MS
    return not times or (min(times) >= begun_ms and max(times) > begun_ms)


@dataclass(frozen=True, slots=True)
class OwnOffsets:
    """What the checkpoints say of this log: None = nothing, or nothing that is to be believed, as `doubt` says."""

    high_watermark: int | None
    log_start: int | None
    recovery_point: int | None
    doubt: Doubt | None
    above_log_end: int | None
    """The highest of those that lie above the end of the log."""


_CHECKPOINTS: Final = (
    ("high watermark", HIGH_WATERMARKS, IneligibleReason.HIGH_WATERMARK_ABOVE_LOG_END),
    ("recovery point", RECOVERY_POINTS, IneligibleReason.RECOVERY_POINT_ABOVE_LOG_END),
    ("log start offset", LOG_STARTS, IneligibleReason.LOG_START_ABOVE_LOG_END),
)


def own_offsets(
    checkpoints: Checkpoints, partition: tuple[str, int], origin: LogOrigin, log_end: int | None
) -> OwnOffsets:
    """What is believed of the checkpoints.

    Args:
        partition: topic and number.
        log_end: the log end offset (exclusive); None = not known, as the active segment is damaged.
    """
    known: list[int | None] = []
    doubts: list[Doubt] = []
    above: list[int] = []
    by_name = (checkpoints.high_watermarks, checkpoints.recovery_points, checkpoints.log_starts)
    for (what, file, reason), checkpoint in zip(_CHECKPOINTS, by_name, strict=True):
        offset = checkpoint.offsets.get(partition)
        if offset is not None and log_end is not None and offset > log_end:
            above.append(offset)
            doubts.append(Doubt(reason))
            offset = None
        elif offset is not None and origin.is_newer_than(checkpoint):
            doubts.append(Doubt(IneligibleReason.CHECKPOINT_OLDER_THAN_LOG, _older(what, file, offset)))
            offset = None
        known.append(offset)
    high_watermark, recovery_point, log_start = known
    return OwnOffsets(
        high_watermark=high_watermark,
        log_start=log_start,
        recovery_point=recovery_point,
        doubt=next(iter(doubts), None),
        above_log_end=max(above, default=None),
    )


def _older(what: str, file: str, offset: int) -> str:
    return (
        f"{file} has {what} {offset} under this name, but was written before the log was begun: it is of another log"
        " of this name; the next checkpoint says"
    )
