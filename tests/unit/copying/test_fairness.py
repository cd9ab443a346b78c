"""Starvation under an exhausted quota, with fairness off and on: one slot, a real file store and a real database."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from include.tiering.copying.copy_batch import BatchLimits, BatchResult, CopyBatch
from include.tiering.copying.copy_segment import SegmentCopier
from include.tiering.copying.plan_copy import plan_copy
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.kafka.cluster.cluster_metadata import UnknownClusterMetadata
from include.tiering.quotas.contract import ByteLimiter, UnlimitedBytes
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.location import open_storage
from include.tiering.runs.batch import BatchEnd, BatchHeartbeat, SendGate
from include.tiering.runs.contract import BatchProgress, SegmentOutcome
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_topics import SqlTopicRegistry
from include.tiering.segments.topics import register_owners
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_source import MemorySource
from tests.doubles.quotas import SameLimiter

CLUSTER = "cluster"
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


@dataclass
class OneSlot:
    """A deployment whose pool has one slot. The database has the same clock as the batch."""

    source: MemorySource
    storage: RemoteStorage
    metadata: SqlRemoteLogMetadata
    registry: SqlTopicRegistry
    work: SqlWorkStore
    clock: ManualClock
    seed: int = 0

    def plan(self, **urgencies: float) -> None:
        report = self.source.scan()
        register_owners(report, self.registry)
        known: dict[str, Any] = {
            "metadata": self.metadata,
            "registry": self.registry,
            "cluster_metadata": UnknownClusterMetadata(),
        }
        partitions = plan_copy("run", report, now_ms=0, **known).partitions
        urgent = [replace(one, urgency=urgencies.get(one.replica_id.topic_id_partition.topic, 0)) for one in partitions]
        self.work.save_plan("run", urgent)

    def batch(self, limiter: ByteLimiter, *, fairness: bool, max_seconds: float = 1e6) -> BatchResult:
        gate = SendGate(self.clock)
        identity = BatchProgress("run", "run/0", None, "host", 1, "", 0, 0, 0.0, False)
        heartbeat = BatchHeartbeat(
            self.work, gate, self.clock, identity=identity, lease_ms=HOUR_MS, parent_alive=lambda: True
        )
        copier = SegmentCopier(
            self.source, self.storage, self.metadata, self.registry, self.clock, self._random_bytes, lambda *_: None
        )
        return CopyBatch(
            copier,
            self.work,
            SameLimiter(limiter),
            gate,
            heartbeat,
            self.clock,
            run_id="run",
            batch_id="run/0",
            limits=BatchLimits(max_seconds, HOUR_MS, fairness=fairness),
            on_copied=lambda _: None,
        ).run()

    def copied(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for item in self.work.items("run"):
            topic = item.topic_id_partition.topic
            counts[topic] = counts.get(topic, 0) + (item.outcome is SegmentOutcome.COPIED)
        return counts

    def _random_bytes(self, size: int) -> bytes:
        self.seed += 1
        return self.seed.to_bytes(4, "big") * (size // 4)


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[OneSlot]:
    engine = open_engine(f"sqlite:///{tmp_path}/metadata.sqlite")
    upgrade(engine)
    (tmp_path / "remote").mkdir()
    clock = ManualClock()
    yield OneSlot(
        MemorySource(),
        open_storage(f"file://{tmp_path}/remote"),
        SqlRemoteLogMetadata(engine, CLUSTER),
        SqlTopicRegistry(engine, CLUSTER),
        SqlWorkStore(engine, CLUSTER, now_ms=lambda _: clock.now_ms()),
        clock,
    )
    engine.dispose()


def order(result: BatchResult) -> str:
    return " ".join(segment.segment_id.topic_id_partition.topic for segment in result.copied)


@pytest.fixture
def starving(slot: OneSlot) -> OneSlot:
    """One partition has much more to copy than the others, and the batch has time for about eight segments."""
    slot.source.add("a-big", segments=20)
    for topic in ("b", "c", "d"):
        slot.source.add(topic)
    slot.plan()
    return slot


def test_off_one_partition_keeps_the_only_slot_to_the_end(starving):
    result = starving.batch(ExhaustedQuota(starving.clock), fairness=False, max_seconds=8 * SEGMENT_SECONDS)
    assert result.ended is BatchEnd.TIME_OVER
    assert starving.copied() == {"a-big": len(result.copied), "b": 0, "c": 0, "d": 0}


def test_on_all_partitions_advance_alike(starving):
    result = starving.batch(ExhaustedQuota(starving.clock), fairness=True, max_seconds=8 * SEGMENT_SECONDS)
    assert result.ended is BatchEnd.TIME_OVER
    counts = starving.copied().values()
    assert len(result.copied) > 4
    assert max(counts) - min(counts) <= 1


def test_equal_partitions_take_turns_in_a_circle(slot):
    for topic in ("a", "b", "c"):
        slot.source.add(topic)
    slot.plan()
    assert order(slot.batch(ExhaustedQuota(slot.clock), fairness=True)) == "a b c a b c a b c"


def test_the_most_urgent_partition_gets_every_second_turn(slot):
    slot.source.add("urgent", segments=6)
    for topic in ("a", "b"):
        slot.source.add(topic)
    slot.plan(urgent=9.0, a=1.0)
    result = slot.batch(ExhaustedQuota(slot.clock), fairness=True)
    assert order(result) == "urgent a urgent b urgent a urgent b urgent a urgent b"


def test_with_it_off_urgency_alone_decides(slot):
    slot.source.add("a")
    slot.source.add("urgent", segments=4)
    slot.plan(urgent=9.0)
    result = slot.batch(ExhaustedQuota(slot.clock), fairness=False)
    assert order(result) == "urgent urgent urgent urgent a a a"


def test_without_an_exhausted_quota_nothing_is_given_back(slot):
    slot.source.add("a")
    slot.source.add("b")
    slot.plan()
    assert order(slot.batch(UnlimitedBytes(), fairness=True)) == "a a a b b b"


def test_the_only_partition_left_goes_on(slot):
    slot.source.add("a", segments=1)
    slot.source.add("b", segments=5)
    slot.plan()
    assert order(slot.batch(ExhaustedQuota(slot.clock), fairness=True)) == "a b b b b b"


def test_progress_counts_what_was_given_back_once(slot):
    for topic in ("a", "b"):
        slot.source.add(topic)
    slot.plan()
    slot.batch(ExhaustedQuota(slot.clock), fairness=True)
    (progress,) = slot.work.progress("run")
    assert (progress.done_bytes, progress.planned_bytes) == (6 * SEGMENT_BYTES, 6 * SEGMENT_BYTES)
