"""Topic quotas over SQLite and PostgreSQL: what is counted, what is refused, what a clock may do."""

from fractions import Fraction

import pytest
from sqlalchemy import Engine, select

from include.tiering.configs.config_store import (
    ALL_BROKERS,
    ConfigEntity,
    EntityType,
    FreshTopicQuotaConfigs,
)
from include.tiering.configs.sql_configs import SqlConfigStore
from include.tiering.database.schema import topic_meters
from include.tiering.errors import QuotaExceededError
from include.tiering.quotas.sql_topic_quotas import SqlTopicQuotas
from include.tiering.quotas.topic_quotas import (
    ALPHA,
    TOPIC_QUOTAS_ENABLE,
    TOPIC_THRESHOLD,
    TOTAL_THRESHOLD,
    BrokerUsage,
    MeterKind,
    TopicUsage,
)
from tests.doubles.databases import AdjustableNow
from tests.doubles.manual_clock import ManualClock
from tests.doubles.segments import CLUSTER_ID

TICK_MS = 5_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(engine: Engine) -> SqlConfigStore:
    store = SqlConfigStore(engine, CLUSTER_ID)
    store.alter(ALL_BROKERS, {TOPIC_QUOTAS_ENABLE: "true", TOTAL_THRESHOLD: "1000"}, author="test")
    return store


@pytest.fixture
def gone() -> set[str]:
    return set()


@pytest.fixture
def quotas(
    engine: Engine, store: SqlConfigStore, now: AdjustableNow, clock: ManualClock, gone: set[str]
) -> SqlTopicQuotas:
    configs = FreshTopicQuotaConfigs(store, clock, enabled=False, gone=lambda: frozenset(gone))
    return SqlTopicQuotas(engine, CLUSTER_ID, configs, now_ms=now)


def copy(quotas: SqlTopicQuotas, topic: str, size_bytes: int, *, broker_id: int = 1) -> None:
    quotas.accepted(quotas.admit(broker_id, topic, size_bytes=size_bytes, records=size_bytes // 100))


def broker_of(quotas: SqlTopicQuotas, broker_id: int = 1) -> BrokerUsage:
    return next(usage for usage in quotas.report().brokers if usage.broker_id == broker_id)


def usage_of(quotas: SqlTopicQuotas, topic: str, broker_id: int = 1) -> TopicUsage:
    return next(usage for usage in broker_of(quotas, broker_id).topics if usage.topic == topic)


def bytes_of(usage: BrokerUsage | TopicUsage) -> dict[MeterKind, int]:
    return {kind: meter.bytes.count for kind, meter in usage.meters.kinds.items()}


def is_refused(quotas: SqlTopicQuotas, topic: str, size_bytes: int = 1, *, broker_id: int = 1) -> bool:
    try:
        quotas.failed(quotas.admit(broker_id, topic, size_bytes=size_bytes, records=1))
    except QuotaExceededError:
        return True
    return False


def test_every_end_of_a_segment_has_its_meter_and_all_add_up(quotas, now):
    quotas.failed(quotas.admit(1, "orders", size_bytes=300, records=3))
    copy(quotas, "clicks", 7)
    copy(quotas, "orders", 10_000)
    now.advance(TICK_MS)
    refused = (
        r"topic orders on broker 1 brings in 2000 bytes a second \(threshold 500\) while all topics bring in 2001 "
        r"\(threshold 1000\)"
    )
    with pytest.raises(QuotaExceededError, match=refused):
        quotas.admit(1, "orders", size_bytes=50, records=5)
    orders, clicks = usage_of(quotas, "orders"), usage_of(quotas, "clicks")
    assert bytes_of(orders) == {
        MeterKind.IO: 10_350,
        MeterKind.ACCEPTED: 10_000,
        MeterKind.ERROR: 300,
        MeterKind.THROTTLED: 50,
    }
    assert orders.meters.kinds[MeterKind.IO].records.count == 100 + 3 + 5
    whole = bytes_of(broker_of(quotas))
    assert whole == {kind: bytes_of(orders)[kind] + bytes_of(clicks)[kind] for kind in MeterKind}
    assert whole[MeterKind.IO] == sum(whole.values()) - whole[MeterKind.IO]


def test_what_a_dead_worker_had_in_flight_stays_in_io_alone(quotas):
    quotas.admit(1, "orders", size_bytes=10, records=1)
    counted = bytes_of(usage_of(quotas, "orders"))
    assert (counted.pop(MeterKind.IO), set(counted.values())) == (10, {0})


def test_the_first_tick_admits_its_threshold_and_one_segment(quotas, now):
    copy(quotas, "orders", 1_000 * 5)
    assert not is_refused(quotas, "orders", 10**9), "no more than the total of 5 s was admitted yet"
    copy(quotas, "orders", 10**6)
    assert is_refused(quotas, "orders")
    now.advance(TICK_MS - 1)
    assert is_refused(quotas, "orders")
    now.advance(1)
    assert is_refused(quotas, "orders")


def test_every_tick_admits_its_threshold_and_one_segment(quotas, now):
    """Five minutes of a topic that asks for 100 times the total: it gets the total, and one segment in each tick."""
    admitted = 0
    for _ in range(60):
        for _ in range(500):
            try:
                quotas.accepted(quotas.admit(1, "orders", size_bytes=1_000, records=1))
                admitted += 1_000
            except QuotaExceededError:
                break
        now.advance(TICK_MS)
    assert 0.9 * 300_000 <= admitted <= 300_000 + 60 * 1_000


def test_what_failed_did_not_get_in(quotas, now, store):
    """A topic whose copies fail at four times the total does not hold up one that stays below it."""
    store.alter(ConfigEntity(EntityType.TOPICS, "orders"), {TOPIC_THRESHOLD: "1"}, author="test")
    for _ in range(12):
        for _ in range(5):
            quotas.failed(quotas.admit(1, "broken", size_bytes=4_000, records=1))
            copy(quotas, "orders", 600)
            now.advance(TICK_MS // 5)
    assert broker_of(quotas).meters.bytes_in_per_second == pytest.approx(600)
    assert usage_of(quotas, "broken").meters.bytes_in_per_second == 0
    assert bytes_of(usage_of(quotas, "broken"))[MeterKind.ERROR] == 60 * 4_000


def test_a_topic_with_a_threshold_of_zero_gives_way_always(quotas, now, store):
    store.alter(ConfigEntity(EntityType.TOPICS, "backfill"), {TOPIC_THRESHOLD: "0"}, author="test")
    copy(quotas, "orders", 2_000 * 5)
    now.advance(TICK_MS)
    assert is_refused(quotas, "backfill"), "it has brought in nothing, and waits nevertheless"
    assert not is_refused(quotas, "new")


def test_below_the_total_a_topic_may_exceed_its_threshold(quotas, now, store):
    store.alter(ConfigEntity(EntityType.TOPICS, "orders"), {TOPIC_THRESHOLD: "1"}, author="test")
    copy(quotas, "orders", 1_000 * 5)
    now.advance(TICK_MS)
    assert broker_of(quotas).meters.bytes_in_per_second == 1_000
    assert not is_refused(quotas, "orders")


def test_of_many_topics_those_above_their_thresholds_are_refused(quotas, now, store):
    store.alter(ConfigEntity(EntityType.TOPICS, "orders"), {TOPIC_THRESHOLD: "600"}, author="test")
    for topic, rate in {"orders": 599, "clicks": 201, "audit": 199, "logs": 300}.items():
        copy(quotas, topic, rate * 5)
    now.advance(TICK_MS)
    refused = {topic: is_refused(quotas, topic) for topic in ("orders", "clicks", "audit", "logs", "new")}
    # 400 are left for clicks, audit and logs, from its first segment on also for new.
    assert refused == {"orders": False, "clicks": True, "audit": True, "logs": True, "new": False}
    assert [usage_of(quotas, topic).threshold for topic in ("orders", "audit")] == [600, 100]


def test_a_new_topic_takes_its_share_at_once(quotas, now):
    copy(quotas, "orders", 700 * 5)
    copy(quotas, "clicks", 400 * 5)
    now.advance(TICK_MS)
    assert usage_of(quotas, "clicks").threshold == 500
    assert not is_refused(quotas, "clicks")
    copy(quotas, "audit", 1)
    assert usage_of(quotas, "clicks").threshold == Fraction(1000, 3)
    assert is_refused(quotas, "clicks")


def test_a_topic_that_is_silent_keeps_its_share_until_it_is_gone(quotas, now, clock, gone):
    copy(quotas, "old", 5_000)
    now.advance(86_400_000)
    copy(quotas, "orders", 700 * 5)
    now.advance(TICK_MS)
    copy(quotas, "orders", 700 * 5)
    assert [usage_of(quotas, topic).threshold for topic in ("orders", "old")] == [500, 500]
    gone.add("old")
    clock.advance(0.5)
    assert usage_of(quotas, "orders").threshold == 1000
    old = usage_of(quotas, "old")
    assert (old.threshold, bytes_of(old)[MeterKind.ACCEPTED]) == (None, 5_000)
    gone.clear()
    clock.advance(0.5)
    assert usage_of(quotas, "orders").threshold == 500


def test_the_threshold_of_a_topic_that_is_gone_frees_its_part(quotas, now, clock, store, gone):
    store.alter(ConfigEntity(EntityType.TOPICS, "old"), {TOPIC_THRESHOLD: "900"}, author="test")
    copy(quotas, "orders", 1_001 * 5)
    now.advance(TICK_MS)
    assert usage_of(quotas, "orders").threshold == 100
    gone.add("old")
    clock.advance(0.5)
    assert usage_of(quotas, "orders").threshold == 1000
    with pytest.raises(QuotaExceededError, match=r"topic orders .* \(threshold 1000\) while"):
        quotas.admit(1, "orders", size_bytes=1, records=1)


def test_a_refused_topic_recovers_however_often_it_asks(quotas, now):
    copy(quotas, "orders", 6_000 * 5)
    now.advance(TICK_MS)
    asked = 0
    while is_refused(quotas, "orders", 10**9):
        asked += 1
        now.advance(TICK_MS)
    # 6000 x 0.92^n is at most 1000 after 22 ticks.
    assert asked == 22


def test_brokers_have_meters_and_totals_of_their_own(quotas, now, store):
    store.alter(ConfigEntity(EntityType.BROKERS, "2"), {TOTAL_THRESHOLD: "5000"}, author="test")
    for broker_id in (1, 2, 3):
        copy(quotas, "orders", 2_000 * 5, broker_id=broker_id)
    now.advance(TICK_MS)
    assert [is_refused(quotas, "orders", broker_id=broker_id) for broker_id in (1, 2, 3, 4)] == [
        True,
        False,
        True,
        False,
    ]
    assert [usage.threshold for usage in quotas.report().brokers] == [1000, 5000, 1000, 1000]


def test_a_change_is_seen_after_half_a_second(quotas, now, store, clock):
    copy(quotas, "orders", 2_000 * 5)
    now.advance(TICK_MS)
    assert is_refused(quotas, "orders")
    store.alter(ALL_BROKERS, {TOTAL_THRESHOLD: "9000"}, author="test")
    assert is_refused(quotas, "orders")
    clock.advance(0.5)
    assert not is_refused(quotas, "orders")
    store.alter(ALL_BROKERS, {TOTAL_THRESHOLD: "1000"}, author="test")
    clock.advance(0.5)
    assert is_refused(quotas, "orders")
    store.alter(ALL_BROKERS, {TOTAL_THRESHOLD: None}, author="test")
    clock.advance(0.5)
    assert not is_refused(quotas, "orders")


def test_nothing_is_counted_while_they_are_off(quotas, store, clock, engine):
    admitted_before = quotas.admit(1, "orders", size_bytes=10, records=1)
    store.alter(ALL_BROKERS, {TOPIC_QUOTAS_ENABLE: None}, author="test")
    clock.advance(0.5)
    admitted_after = quotas.admit(1, "orders", size_bytes=7, records=1)
    for admission in (admitted_before, admitted_after):
        quotas.accepted(admission)
    counted = bytes_of(usage_of(quotas, "orders"))
    assert (counted[MeterKind.IO], counted[MeterKind.ACCEPTED]) == (10, 10)
    assert not quotas.report().enabled
    with engine.connect() as connection:
        assert len(connection.execute(select(topic_meters)).all()) == 2 * len(MeterKind)


def test_a_clock_that_steps_back_loses_no_count_and_ticks_on(quotas, now):
    copy(quotas, "orders", 500)
    now.advance(TICK_MS)
    copy(quotas, "orders", 1_000)
    now.advance(-3_600_000)
    copy(quotas, "orders", 250)
    assert usage_of(quotas, "orders").meters.bytes_in_per_second == 100
    now.advance(TICK_MS)
    usage = usage_of(quotas, "orders")
    assert usage.meters.bytes_in_per_second == pytest.approx(100 + ALPHA * (250 - 100))
    assert bytes_of(usage)[MeterKind.ACCEPTED] == 1_750


def test_an_idle_year_leaves_the_counts_and_no_rate(quotas, now):
    copy(quotas, "orders", 10**12)
    now.advance(365 * 86_400_000)
    copy(quotas, "orders", 1)
    usage = usage_of(quotas, "orders")
    assert usage.meters.bytes_in_per_second == 0
    assert bytes_of(usage)[MeterKind.ACCEPTED] == 10**12 + 1


def test_clusters_do_not_see_each_other(quotas, engine, store, clock, now):
    copy(quotas, "orders", 5_000)
    other = SqlTopicQuotas(engine, "another-cluster", FreshTopicQuotaConfigs(store, clock, enabled=True), now_ms=now)
    assert other.report().brokers == ()
