"""A broker's cache against a plain oracle, restored at every step, in whole and in part."""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.model.broker_cache import BrokerCache, BrokerCacheState, Effect
from include.tiering.model.segments import RemoteLogSegmentMetadata
from tests.doubles.record_batches import Records, record_sequences
from tests.doubles.segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, STARTED

ORDER = {STARTED: {STARTED, FINISHED, DELETE_STARTED}, FINISHED: {FINISHED, DELETE_STARTED}}
ORDER |= {DELETE_STARTED: {DELETE_STARTED, DELETE_FINISHED}}


@dataclass
class Oracle:
    """Slow and plain: lists that are searched from end to end, one rule after the other."""

    known: dict[object, RemoteLogSegmentMetadata] = field(default_factory=dict)
    mapped: list[tuple[int, int, object]] = field(default_factory=list)  # epoch, start, id
    loose: list[tuple[int, object]] = field(default_factory=list)  # epoch, id
    highest: dict[int, int] = field(default_factory=dict)

    def apply(self, record: object) -> bool:
        return self._add(record) if isinstance(record, RemoteLogSegmentMetadata) else self._update(record)

    def _add(self, segment: RemoteLogSegmentMetadata) -> bool:
        one = segment.remote_log_segment_id
        if one in self.known and self.known[one].state is not STARTED:
            return False
        self.known[one] = segment
        for epoch, _ in segment.segment_leader_epochs:
            self._loosen(epoch, one)
        return True

    def _update(self, change: Any) -> bool:
        one = change.remote_log_segment_id
        if one not in self.known or change.state not in ORDER[self.known[one].state]:
            return False
        before = self.known[one]
        after = replace(
            before,
            state=change.state,
            broker_id=change.broker_id,
            event_timestamp_ms=change.event_timestamp_ms,
            custom_metadata=change.custom_metadata,
        )
        epochs = list(after.segment_leader_epochs)
        ends = [start - 1 for _, start in epochs[1:]] + [after.end_offset]
        for (epoch, start), end in zip(epochs, ends, strict=True):
            if change.state is FINISHED:
                for entry in sorted((e for e in self.mapped if e[0] == epoch and e[1] >= start), reverse=True):
                    if self.highest[epoch] <= end:
                        self.mapped.remove(entry)
                        self._loosen(epoch, entry[2])
                self.mapped = [e for e in self.mapped if e[:2] != (epoch, start)] + [(epoch, start, one)]
                self.loose = [e for e in self.loose if e != (epoch, one)]
                self.highest[epoch] = max(self.highest.get(epoch, end), end)
            elif change.state is DELETE_STARTED:
                self.mapped = [e for e in self.mapped if e != (epoch, start, one)]
                self._loosen(epoch, one)
            else:
                self.loose = [e for e in self.loose if e != (epoch, one)]
        self.known[one] = after
        if change.state is DELETE_FINISHED:
            del self.known[one]
        return True

    def _loosen(self, epoch: int, one: object) -> None:
        if (epoch, one) not in self.loose:
            self.loose.append((epoch, one))

    def lookup(self, epoch: int, offset: int) -> object | None:
        floor = max((e for e in self.mapped if e[0] == epoch and e[1] <= offset), default=None)
        if floor is None:
            return None
        epochs = list(self.known[floor[2]].segment_leader_epochs)
        after = [start for number, start in epochs if number > epoch]
        end = after[0] - 1 if after else self.known[floor[2]].end_offset
        return floor[2] if offset <= end else None

    def listed(self, epoch: int) -> set[object]:
        return {e[2] for e in self.mapped if e[0] == epoch} | {e[1] for e in self.loose if e[0] == epoch}


@settings(max_examples=150, deadline=None)
@given(records=record_sequences(), whole=st.booleans())
def test_a_cache_says_what_the_plain_model_says(records: Records, whole: bool) -> None:
    oracle, cache = Oracle(), BrokerCache()
    for record in records:
        effect = cache.add(record) if isinstance(record, RemoteLogSegmentMetadata) else cache.update(record)
        assert (effect is Effect.APPLIED) is oracle.apply(record)
        if whole:
            cache = BrokerCache(cache.state())
    assert {one.remote_log_segment_id: one for one in cache.list_segments()} == oracle.known
    for epoch in range(4):
        assert {one.remote_log_segment_id for one in cache.list_segments(epoch)} == oracle.listed(epoch)
        assert cache.highest_offset_for_epoch(epoch) == oracle.highest.get(epoch)
        for offset in range(16):
            found = cache.segment_for_offset(epoch, offset)
            assert (found and found.remote_log_segment_id) == oracle.lookup(epoch, offset)


@settings(max_examples=100, deadline=None)
@given(records=record_sequences())
def test_a_part_of_the_cache_is_enough_to_apply_a_record(records: Records) -> None:
    whole = BrokerCache()
    for record in records:
        before = whole.state()
        part = part_for(record, before)
        effect = whole.add(record) if isinstance(record, RemoteLogSegmentMetadata) else whole.update(record)
        cache = BrokerCache(part)
        assert (cache.add(record) if isinstance(record, RemoteLogSegmentMetadata) else cache.update(record)) is effect
        after, found = whole.state(), cache.state()
        assert {k: v for k, v in before.segments.items() if k not in part.segments} | dict(
            found.segments
        ) == after.segments
        kept = {k: v for k, v in before.references.items() if k not in part.references}
        assert kept | dict(found.references) == after.references
        assert dict(before.highest) | dict(found.highest) == after.highest


def part_for(record: Any, whole: BrokerCacheState) -> BrokerCacheState:
    """The segment itself and, of its epochs, what is referenced at or behind its start."""
    one = record.remote_log_segment_id
    shape = whole.segments.get(one, record if isinstance(record, RemoteLogSegmentMetadata) else None)
    starts = {} if shape is None else dict(shape.segment_leader_epochs)

    def needed(epoch: int, other: Any) -> bool:
        if other == one:
            return True
        return epoch in starts and dict(whole.segments[other].segment_leader_epochs)[epoch] >= starts[epoch]

    references = {key: value for key, value in whole.references.items() if needed(*key)}
    segments = {one, *(segment_id for _, segment_id in references)}
    return BrokerCacheState(
        {key: value for key, value in whole.segments.items() if key in segments},
        references,
        {epoch: offset for epoch, offset in whole.highest.items() if epoch in starts},
    )
