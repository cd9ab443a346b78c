"""Starvation under an exhausted quota, with fairness off and on: one slot, a real file store and a real database."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from include.tiering.copying.copy_batch import BatchResult
from include.tiering.quotas.contract import ByteLimiter, UnlimitedBytes
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.contract import SegmentOutcome
from tests.doubles.copy_world import World
from tests.doubles.databases import migrated_database
from tests.doubles.manual_clock import ManualClock

SEGMENT_BYTES = 1_000
SEGMENT_SECONDS = 10
HOUR_MS = 3_600_000


@dataclass
class ExhaustedQuota:
    """Grants only as much as comes anew: every byte waits, on the clock of the test."""

    clock: ManualClock
    bytes_per_second: float = SEGMENT_BYTES / SEGMENT_SECONDS
    waited_seconds: float = 0.0

    def take(self, wanted_bytes: int) -> int:
        seconds = wanted_bytes / self.bytes_per_second
        self.clock.advance(seconds)
        self.waited_seconds += seconds
        return wanted_bytes


class OneSlot(World):
    """A deployment whose pool has one slot. The database has the same clock as the batch."""

    def urge(self, **urgencies: float) -> None:
        """Plan the run with an urgency by topic."""
        partitions = self.planned().partitions
        urgent = [replace(one, urgency=urgencies.get(one.replica_id.topic_id_partition.topic, 0)) for one in partitions]
        self.work.save_plan("run", urgent)

    def fill(self, limiter: ByteLimiter, *, fairness: bool, max_seconds: float = 1e6) -> BatchResult:
        self.limiter = limiter
        return self.batch(fairness=fairness, max_seconds=max_seconds, lease_ms=HOUR_MS, checks_ahead=False)

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for item in self.work.items("run"):
            topic = item.topic_id_partition.topic
            counts[topic] = counts.get(topic, 0) + (item.outcome is SegmentOutcome.COPIED)
        return counts


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def slot(tmp_path: Path, clock: ManualClock) -> Iterator[OneSlot]:
    with migrated_database(tmp_path) as engine:
        yield OneSlot(engine, tmp_path, clock=clock, now_ms=lambda _: clock.now_ms())


def order(result: BatchResult) -> str:
    return " ".join(segment.segment_id.topic_id_partition.topic for segment in result.copied)


@pytest.fixture
def starving(slot: OneSlot) -> OneSlot:
    """One partition has much more to copy than the others, and the batch has time for about eight segments."""
    slot.source.add("a-big", segments=20)
    for topic in ("b", "c", "d"):
        slot.source.add(topic)
    slot.urge()
    return slot


def test_off_one_partition_keeps_the_only_slot_to_the_end(starving):
    result = starving.fill(ExhaustedQuota(starving.clock), fairness=False, max_seconds=8 * SEGMENT_SECONDS)
    assert result.ended is BatchEnd.TIME_OVER
    assert starving.counts() == {"a-big": len(result.copied), "b": 0, "c": 0, "d": 0}


def test_on_all_partitions_advance_alike(starving):
    result = starving.fill(ExhaustedQuota(starving.clock), fairness=True, max_seconds=8 * SEGMENT_SECONDS)
    assert result.ended is BatchEnd.TIME_OVER
    counts = starving.counts().values()
    assert len(result.copied) > 4
    assert max(counts) - min(counts) <= 1


def test_equal_partitions_take_turns_in_a_circle(slot):
    for topic in ("a", "b", "c"):
        slot.source.add(topic)
    slot.urge()
    assert order(slot.fill(ExhaustedQuota(slot.clock), fairness=True)) == "a b c a b c a b c"


def test_the_most_urgent_partition_gets_every_second_turn(slot):
    slot.source.add("urgent", segments=6)
    for topic in ("a", "b"):
        slot.source.add(topic)
    slot.urge(urgent=9.0, a=1.0)
    result = slot.fill(ExhaustedQuota(slot.clock), fairness=True)
    assert order(result) == "urgent a urgent b urgent a urgent b urgent a urgent b"


def test_with_it_off_urgency_alone_decides(slot):
    slot.source.add("a")
    slot.source.add("urgent", segments=4)
    slot.urge(urgent=9.0)
    result = slot.fill(ExhaustedQuota(slot.clock), fairness=False)
    assert order(result) == "urgent urgent urgent urgent a a a"


def test_without_an_exhausted_quota_nothing_is_given_back(slot):
    slot.source.add("a")
    slot.source.add("b")
    slot.urge()
    assert order(slot.fill(UnlimitedBytes(), fairness=True)) == "a a a b b b"


def test_the_only_partition_left_goes_on(slot):
    slot.source.add("a", segments=1)
    slot.source.add("b", segments=5)
    slot.urge()
    assert order(slot.fill(ExhaustedQuota(slot.clock), fairness=True)) == "a b b b b b"


def test_progress_counts_what_was_given_back_once(slot):
    for topic in ("a", "b"):
        slot.source.add(topic)
    slot.urge()
    slot.fill(ExhaustedQuota(slot.clock), fairness=True)
    (progress,) = slot.work.progress("run")
    assert (progress.done_bytes, progress.planned_bytes) == (6 * SEGMENT_BYTES, 6 * SEGMENT_BYTES)
