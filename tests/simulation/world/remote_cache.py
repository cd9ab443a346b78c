"""What brokers know of one partition's remote log, by plain rules over the records of `__remote_log_metadata`.

Written from Kafka's rules and not from the product's cache, which makes it an oracle: what is known by id, and for
every leader epoch which segment answers from which offset on (only FINISHED ones), which others it knows, and the
highest offset that it ever finished.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from include.tiering.formats.remote_log_metadata import decode
from include.tiering.formats.remote_log_metadata_records import SegmentRecord, SegmentUpdateRecord

STARTED, FINISHED, DELETING, GONE = range(4)
_NEXT: Final = {(STARTED, FINISHED), (STARTED, DELETING), (FINISHED, DELETING), (DELETING, GONE)}

Place = tuple[str, int]
"""Topic id and number of a partition."""


class StopsBrokersError(Exception):
    """Every broker that reads this record stops reading, now and after each restart."""


@dataclass(frozen=True, slots=True)
class Known:
    """One segment. Offsets are inclusive, `epochs` are (epoch, its first offset in the segment)."""

    segment_id: str
    start_offset: int
    end_offset: int
    epochs: tuple[tuple[int, int], ...]
    size_bytes: int
    max_timestamp_ms: int
    state: int
    is_brokers: bool

    def end_of(self, epoch: int) -> int:
        """Its last offset of the epoch."""
        following = [start for one, start in self.epochs if one > epoch]
        return following[0] - 1 if following else self.end_offset


class _Epoch:
    def __init__(self) -> None:
        self.at: dict[int, str] = {}
        self.others: set[str] = set()
        self.highest: int | None = None

    def finish(self, start: int, end: int, segment_id: str) -> None:
        while self.at and max(self.at) >= start and self.highest is not None and self.highest <= end:
            self.others.add(self.at.pop(max(self.at)))
        self.at[start] = segment_id
        self.others.discard(segment_id)
        self.highest = end if self.highest is None else max(self.highest, end)


class RemoteCache:
    """Of one partition."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self._epochs: dict[int, _Epoch] = {}

    def take(self, said: Any, *, is_brokers: bool) -> bool:
        """One record more; False if brokers drop it. Raises StopsBrokersError."""
        segment_id = str(said.segment_id.id)
        if isinstance(said, SegmentRecord):
            return self._begin(segment_id, said, is_brokers)
        assert isinstance(said, SegmentUpdateRecord)
        known = self.known.get(segment_id)
        state = int(said.state)
        if known is None or (known.state != state and (known.state, state) not in _NEXT):
            return False
        if state == STARTED:
            raise StopsBrokersError(f"{segment_id}: an update to STARTED")
        for epoch, start in known.epochs:
            self._change(self._epochs.setdefault(epoch, _Epoch()), known, epoch, start, state)
        if state == GONE:
            del self.known[segment_id]
        else:
            self.known[segment_id] = replace(known, state=state)
        return True

    def _begin(self, segment_id: str, said: SegmentRecord, is_brokers: bool) -> bool:
        if said.state != STARTED:
            raise StopsBrokersError(f"{segment_id} begins in state {said.state}")
        known = self.known.get(segment_id)
        if known is not None and known.state != STARTED:
            return False
        epochs = tuple((entry.leader_epoch, entry.offset) for entry in said.epochs)
        self.known[segment_id] = Known(
            segment_id,
            said.start_offset,
            said.end_offset,
            epochs,
            said.size_bytes,
            said.max_timestamp_ms,
            STARTED,
            is_brokers,
        )
        for epoch, _ in epochs:
            self._epochs.setdefault(epoch, _Epoch()).others.add(segment_id)
        return True

    def _change(self, epoch: _Epoch, known: Known, number: int, start: int, state: int) -> None:
        if state == FINISHED:
            epoch.finish(start, known.end_of(number), known.segment_id)
        elif state == DELETING:
            if epoch.at.get(start) == known.segment_id:
                del epoch.at[start]
            epoch.others.add(known.segment_id)
        else:
            epoch.others.discard(known.segment_id)

    def lookup(self, epoch: int, offset: int) -> Known | None:
        """What answers for an offset under an epoch."""
        found = self._epochs.get(epoch)
        starts = [] if found is None else [start for start in found.at if start <= offset]
        if found is None or not starts:
            return None
        known = self.known[found.at[max(starts)]]
        return known if offset <= known.end_of(epoch) else None

    def listed(self, epoch: int) -> list[Known]:
        """By start offset, the one that answers first."""
        found = self._epochs.get(epoch)
        if found is None:
            return []
        ids = [found.at[start] for start in sorted(found.at)]
        ids += [one for one in self.known if one in found.others]
        return sorted((self.known[one] for one in ids if one in self.known), key=lambda one: one.start_offset)

    def highest(self, epoch: int) -> int | None:
        """What the epoch ever finished, inclusive."""
        found = self._epochs.get(epoch)
        return None if found is None else found.highest

    def live(self) -> list[Known]:
        """Begun or FINISHED, by start offset."""
        return sorted(
            (one for one in self.known.values() if one.state <= FINISHED),
            key=lambda one: (one.start_offset, one.end_offset),
        )

    def finished_to(self, start_offset: int) -> int:
        """Up to where (exclusive) FINISHED segments cover every offset from there on."""
        return covered_to(start_offset, (one for one in self.live() if one.state == FINISHED))

    def shown(self) -> tuple[Any, ...]:
        """All that could be told apart by asking."""
        return (
            dict(self.known),
            {number: (dict(one.at), frozenset(one.others), one.highest) for number, one in self._epochs.items()},
        )


def covered_to(start_offset: int, ascending: Iterable[Known]) -> int:
    """The first offset from `start_offset` on that none of these has."""
    end = start_offset
    for one in ascending:
        if one.start_offset <= end:
            end = max(end, one.end_offset + 1)
    return end


@lru_cache(maxsize=4_096)
def said_by(value: bytes) -> Any:
    """Raises FormatError."""
    return decode(value)


def place_of(said: Any) -> Place:
    """Which partition a record is about."""
    entry = said.segment_id.partition
    return str(entry.topic_id), entry.partition
