"""Fairness under exhausted quotas: of partitions, and of topics."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine

from include.tiering.configs.config_store import (
    ALL_BROKERS,
    ConfigEntity,
    ConfigValues,
    EntityType,
    FreshTopicQuotaConfigs,
)
from include.tiering.configs.rules import check_rules
from include.tiering.copying.copy_batch import BatchResult
from include.tiering.copying.report import CopyRun, present_copy
from include.tiering.errors import ConfigRefusedError
from include.tiering.quotas.contract import ByteLimiter, Scope, UnlimitedBytes
from include.tiering.quotas.sql_topic_quotas import SqlTopicQuotas
from include.tiering.quotas.topic_quotas import TOPIC_QUOTAS_ENABLE, TOPIC_THRESHOLD, TOTAL_THRESHOLD, MeterKind
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.contract import SegmentOutcome
from tests.doubles.databases import migrated_database
from tests.doubles.deployment import World
from tests.doubles.manual_clock import ManualClock
from tests.doubles.segments import CLUSTER_ID

# Starvation under an exhausted quota, with fairness off and on: one slot, a real file store and a real database.

SEGMENT_BYTES = 1_000
SEGMENT_SECONDS = 10
HOUR_MS = 3_600_000


@dataclass
class ExhaustedQuota:
    """Grants only as much as comes anew: every byte waits, on the clock of the test."""

    clock: ManualClock
    bytes_per_second: float = SEGMENT_BYTES / SEGMENT_SECONDS
    waited_seconds: float = 0.0
    waits_for: Scope | None = None

    def take(self, wanted_bytes: int) -> int:
        seconds = wanted_bytes / self.bytes_per_second
        self.clock.advance(seconds)
        self.waited_seconds += seconds
        return wanted_bytes


class OneSlot(World):
    """A deployment whose pool has one slot. The database has the same clock as the batch."""

    def fill(self, limiter: ByteLimiter, *, fairness: bool, max_seconds: float = 1e6) -> BatchResult:
        self.limiter = limiter
        return self.batch(fairness=fairness, max_seconds=max_seconds, lease_ms=HOUR_MS)

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


def test_a_throttle_time_is_how_long_a_segment_was_held_back(slot):
    """Not how long its slices were: of this quota a segment takes ten seconds, and its indexes a little more."""
    slot.source.add("a")
    slot.urge()
    slot.fill(ExhaustedQuota(slot.clock), fairness=True)
    assert len(slot.held_back_seconds) == 3
    assert all(SEGMENT_SECONDS <= seconds < 2 * SEGMENT_SECONDS for seconds in slot.held_back_seconds)


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


# Topic quotas from end to end: batches over a real database and a file store, other hosts beside them, one clock.


def _rules(_: ConfigValues, after: ConfigValues) -> None:
    check_rules(after)


class Deployment(World):
    """The database has the same clock as the batch."""

    clock: ManualClock

    def __init__(self, engine: Engine, directory: Path) -> None:
        clock = ManualClock()
        super().__init__(engine, directory, clock=clock, now_ms=lambda _: clock.now_ms())
        configs = FreshTopicQuotaConfigs(self.configs, clock, enabled=False)
        self.topic_quotas = self.quotas = SqlTopicQuotas(engine, CLUSTER_ID, configs, now_ms=lambda _: clock.now_ms())

    @property
    def order(self) -> list[str]:
        """The topics of copied segments."""
        return [one.segment_id.topic_id_partition.topic for one in self.copied]

    def set_total(self, bytes_per_second: int) -> None:
        self.configs.alter(
            ALL_BROKERS,
            {TOPIC_QUOTAS_ENABLE: "true", TOTAL_THRESHOLD: str(bytes_per_second)},
            author="ops",
            check=_rules,
        )

    def set_threshold(self, topic: str, bytes_per_second: int) -> None:
        entity = ConfigEntity(EntityType.TOPICS, topic)
        self.configs.alter(entity, {TOPIC_THRESHOLD: str(bytes_per_second)}, author="ops", check=_rules)

    def other_hosts_bring_in(self, **rates: int) -> None:
        """Bytes a second by topic, through the same broker, up to the first tick; then they fall silent."""
        for topic, rate in rates.items():
            self.quotas.accepted(self.quotas.admit(1, topic, size_bytes=5 * rate, records=rate))
        self.clock.advance(5)

    def fill(self, batch_id: str = "run/0", *, max_seconds: float = 1e6) -> BatchResult:
        return self.batch(batch_id=batch_id, max_seconds=max_seconds, lease_ms=HOUR_MS)

    def counts(self, topic: str | None = None) -> dict[MeterKind, int]:
        """Bytes ever, of a topic or of all."""
        (broker,) = self.quotas.report().brokers
        usage = broker if topic is None else next(one for one in broker.topics if one.topic == topic)
        return {kind: meter.bytes.count for kind, meter in usage.meters.kinds.items()}

    def outcomes_by_topic(self) -> dict[str, set[SegmentOutcome]]:
        found: dict[str, set[SegmentOutcome]] = {}
        for item in self.work.items("run"):
            found.setdefault(item.topic_id_partition.topic, set()).add(item.outcome)
        return found

    def require_sums(self) -> None:
        """Every byte that was attempted ended once, and what topics brought in is what the broker brought in."""
        (broker,) = self.quotas.report().brokers
        whole = self.counts()
        assert whole[MeterKind.IO] == sum(whole.values()) - whole[MeterKind.IO]
        topics = [self.counts(one.topic) for one in broker.topics]
        assert whole == {kind: sum(one[kind] for one in topics) for kind in MeterKind}


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with migrated_database(tmp_path) as engine:
        yield Deployment(engine, tmp_path)


def test_with_the_total_exceeded_topics_above_their_thresholds_wait_and_no_others(deployment, caplog):
    for topic in ("clicks", "orders", "audit"):
        deployment.source.add(topic, segments=3, size_bytes=400)
    deployment.set_total(1_000)
    deployment.set_threshold("orders", 500)
    deployment.plan()
    deployment.other_hosts_bring_in(clicks=3_000, orders=400, audit=200)
    result = deployment.fill()
    # The command line shows warnings, and nothing below.
    waits = [record for record in caplog.records if "waits at offset" in record.getMessage()]
    assert [record.levelname for record in waits] == ["WARNING"] * 7
    # clicks and audit share 500: 250 each.
    assert deployment.order == ["audit"] * 3 + ["orders"] * 3 + ["clicks"] * 3
    assert (result.ended, result.failed, result.throttled) == (BatchEnd.NO_WORK, (), ())
    # It asked 0, 1, 3, 7, 15, 31, 61 and 91 s after the others fell silent. A minute leaves e^-1 of 3600 bytes a
    # second, above the total still; 91 s leave e^-1.5 of it, and a little of what the batch itself brought in.
    assert sum(deployment.clock.slept) == 91
    assert deployment.counts("clicks") == {
        MeterKind.IO: 5 * 3_000 + 7 * 400 + 3 * 400,
        MeterKind.ACCEPTED: 5 * 3_000 + 3 * 400,
        MeterKind.ERROR: 0,
        MeterKind.THROTTLED: 7 * 400,
    }
    assert [deployment.counts(topic)[MeterKind.THROTTLED] for topic in ("orders", "audit")] == [0, 0]
    deployment.require_sums()


def test_below_the_total_nothing_at_all_is_refused(deployment):
    for topic in ("clicks", "orders"):
        deployment.source.add(topic, segments=3, size_bytes=1_000)
    deployment.set_total(4_000)
    deployment.set_threshold("clicks", 1)
    deployment.plan()
    deployment.other_hosts_bring_in(clicks=3_000, orders=1_000)
    result = deployment.fill()
    assert (len(result.copied), result.throttled, deployment.clock.slept) == (6, (), [])
    assert deployment.counts()[MeterKind.THROTTLED] == 0
    deployment.require_sums()


def test_switched_off_nothing_is_refused_or_counted(deployment):
    deployment.source.add("clicks", segments=3, size_bytes=1_000)
    deployment.set_total(1_000)
    deployment.plan()
    deployment.other_hosts_bring_in(clicks=3_000)
    before = deployment.counts()
    deployment.configs.alter(ALL_BROKERS, {TOPIC_QUOTAS_ENABLE: "false"}, author="ops")
    deployment.clock.advance(0.5)
    assert len(deployment.fill().copied) == 3
    assert deployment.counts() == before


def test_what_is_left_when_the_time_is_over_stays_planned_and_says_why(deployment):
    for topic in ("clicks", "orders"):
        deployment.source.add(topic, segments=2, size_bytes=1_000)
    deployment.source.add("clicks", 1, segments=2, size_bytes=1_000)
    deployment.set_total(1_000)
    deployment.plan()
    deployment.other_hosts_bring_in(clicks=3_000)
    result = deployment.fill(max_seconds=20)
    assert (result.ended, result.failed, result.worth_retrying) == (BatchEnd.TIME_OVER, (), False)
    assert [(partition.topic, partition.partition) for partition in result.throttled] == [("clicks", 0), ("clicks", 1)]
    assert deployment.outcomes_by_topic() == {"clicks": {SegmentOutcome.PLANNED}, "orders": {SegmentOutcome.COPIED}}
    # Of two partitions of a topic one asks: at 0, 1, 3, 7 and 15 s.
    assert deployment.counts("clicks")[MeterKind.THROTTLED] == 5 * 1_000
    presented = present_copy(CopyRun("run", deployment.work.items("run"), result.seconds))
    assert presented.ok
    assert presented.summary.endswith("0 failed, 4 still planned (4 throttled by topic quota)")
    assert "topic clicks on broker 1 brings in" in presented.document()["left"][0]["message"]
    deployment.clock.advance(300)
    assert len(deployment.fill("run/1").copied) == 4
    assert not present_copy(CopyRun("run", deployment.work.items("run"), 1.0)).summary.count("throttled")
    assert {item.error for item in deployment.work.items("run")} == {None}
    deployment.require_sums()


@dataclass
class SlowLine:
    """2000 bytes a second, on the clock of the test."""

    clock: ManualClock
    waited_seconds: float = 0.0
    waits_for: Scope | None = None

    def take(self, wanted_bytes: int) -> int:
        self.clock.advance(wanted_bytes / 2_000)
        return wanted_bytes


def test_a_topic_that_exceeds_its_share_in_the_middle_of_a_partition_lets_others_go_first(deployment):
    deployment.source.add("clicks", segments=3, size_bytes=20_000)
    deployment.source.add("orders", segments=1, size_bytes=1_000)
    deployment.set_total(1_000)
    deployment.plan()
    deployment.limiter = SlowLine(deployment.clock)
    result = deployment.fill()
    assert deployment.order == ["clicks", "orders", "clicks", "clicks"]
    assert (result.ended, result.failed, result.throttled) == (BatchEnd.NO_WORK, (), ())
    assert deployment.counts("clicks")[MeterKind.ACCEPTED] == 60_000
    assert deployment.counts("clicks")[MeterKind.THROTTLED] > 0
    deployment.require_sums()


def test_a_copy_that_fails_counts_as_an_error_and_once(deployment):
    orders = deployment.source.add("orders", segments=2, size_bytes=1_000)
    deployment.source.corrupt.add((orders.topic_id_partition, 10))
    deployment.set_total(1_000)
    deployment.plan()
    deployment.fill()
    assert deployment.counts("orders") == {
        MeterKind.IO: 2_000,
        MeterKind.ACCEPTED: 1_000,
        MeterKind.ERROR: 1_000,
        MeterKind.THROTTLED: 0,
    }
    deployment.require_sums()


def test_a_total_below_the_sum_and_a_new_topic_that_brings_too_much_are_refused(deployment):
    deployment.set_total(1_000)
    deployment.set_threshold("orders", 600)
    deployment.set_threshold("clicks", 300)
    with pytest.raises(ConfigRefusedError, match=r"sum to 900 .* 1 above .* = 899"):
        deployment.set_total(899)
    with pytest.raises(ConfigRefusedError, match=r"sum to 1001 .* 1 above .* = 1000"):
        deployment.set_threshold("audit", 101)
    with pytest.raises(ConfigRefusedError, match=r"sum to 1001"):
        deployment.set_threshold("clicks", 401)
    deployment.set_threshold("audit", 100)
    deployment.set_total(1_000)
    deployment.other_hosts_bring_in(orders=1, clicks=1, audit=1, logs=1)
    assert {one.topic: one.threshold for one in deployment.quotas.report().brokers[0].topics} == {
        "orders": 600,
        "clicks": 300,
        "audit": 100,
        "logs": 0,
    }
