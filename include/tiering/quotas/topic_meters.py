"""What a topic, or all topics of a broker, brought in: four kinds of meters, each in bytes and records."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from include.tiering.quotas.ewma import EwmaMeter


class MeterKind(StrEnum):
    """IO is all that was attempted: with nothing in flight it is the sum of the other three.

    What a killed worker had in flight stays in IO alone.
    """

    IO = "io"
    ACCEPTED = "accepted"
    ERROR = "error"
    THROTTLED = "throttled"


@dataclass(frozen=True, slots=True)
class SizedMeter:
    """One kind, in both units. `marked_at_ms` is when it last counted something, or was made."""

    bytes: EwmaMeter
    records: EwmaMeter
    marked_at_ms: int

    @classmethod
    def new(cls, now_ms: int) -> "SizedMeter":
        return cls(EwmaMeter(now_ms), EwmaMeter(now_ms), now_ms)

    def at(self, now_ms: int) -> "SizedMeter":
        return SizedMeter(self.bytes.at(now_ms), self.records.at(now_ms), self.marked_at_ms)

    def mark(self, size_bytes: int, records: int, now_ms: int) -> "SizedMeter":
        return SizedMeter(self.bytes.mark(size_bytes, now_ms), self.records.mark(records, now_ms), now_ms)


@dataclass(frozen=True, slots=True)
class TopicMeters:
    """All kinds, made and ticked together: so their rates add up as their counts do."""

    kinds: Mapping[MeterKind, SizedMeter]

    @classmethod
    def new(cls, now_ms: int) -> "TopicMeters":
        return cls({kind: SizedMeter.new(now_ms) for kind in MeterKind})

    def at(self, now_ms: int) -> "TopicMeters":
        """After all ticks up to `now_ms`, inclusive."""
        return TopicMeters({kind: meter.at(now_ms) for kind, meter in self.kinds.items()})

    def mark(self, kind: MeterKind, size_bytes: int, records: int, now_ms: int) -> "TopicMeters":
        """Count one segment in one kind; the others tick too."""
        ticked = self.at(now_ms)
        return TopicMeters({**ticked.kinds, kind: ticked.kinds[kind].mark(size_bytes, records, now_ms)})

    @property
    def bytes_in_per_second(self) -> float:
        """The rate that thresholds are compared with: of all that was let in, whatever became of it since.

        It counts at admission, so a segment weighs before it is sent; a refused one does not, so a topic that keeps
        asking still recovers.
        """
        attempted, throttled = self.kinds[MeterKind.IO].bytes, self.kinds[MeterKind.THROTTLED].bytes
        return max(0.0, attempted.per_second - throttled.per_second)
