"""Shares of quotas, and the demand behind them."""

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from include.tiering.clock import SystemClock
from include.tiering.errors import RemoteMetadataError, SettingError
from include.tiering.quotas.contract import QuotasInForce, Scope, copy_scopes, fetch_scopes
from include.tiering.quotas.pacing import ProcessPacing
from include.tiering.quotas.shared_quotas import ledger_row_from_text, ledger_row_to_text, open_ledger_engine
from include.tiering.quotas.shares import FILL, UNLIMITED_DEMAND, Demand, LedgerRow, fair_part, renewed, usable_rates
from include.tiering.quotas.topic_quotas import check_thresholds, is_refused, shared_threshold, thresholds
from include.tiering.units import MIB
from tests.doubles.patience import PATIENCE_SECONDS

# The rule by which a process renews its entry in the ledger row.

TOTAL, BROKER, TOPIC = copy_scopes(1, "orders")
QUOTA = 1_000_000


def row(version: int = 1, **quotas: int) -> LedgerRow:
    by_name = {"total": TOTAL, "broker": BROKER, "broker_default": BROKER.default, "topic": TOPIC}
    return LedgerRow(QuotasInForce(version, {by_name[name]: quota for name, quota in quotas.items()}))


def after_rounds(start: LedgerRow, demands: Mapping[str, float], rounds: int = 3) -> LedgerRow:
    for heartbeat in range(1, rounds + 1):
        for worker_id, demand in demands.items():
            start = renewed(start, worker_id, [Demand((TOTAL,), demand)], heartbeat)
    return start


def shares(of: LedgerRow) -> dict[str, float]:
    return {name: entry.allocations[TOTAL].share for name, entry in of.workers.items()}


def test_a_lone_worker_gets_all_of_it_whatever_it_uses() -> None:
    assert shares(after_rounds(row(total=QUOTA), {"a": 5.0})) == {"a": QUOTA * FILL}


def test_busy_workers_get_equal_parts() -> None:
    found = shares(after_rounds(row(total=QUOTA), dict.fromkeys("abcd", UNLIMITED_DEMAND)))
    assert found == {name: pytest.approx(QUOTA * FILL / 4) for name in "abcd"}


def test_a_slow_worker_keeps_what_it_wants_and_the_busy_one_gets_the_rest() -> None:
    """The slow one may use a tenth more, to show that it needs more."""
    found = shares(after_rounds(row(total=QUOTA), {"slow": 1000.0, "idle": 0.0, "busy": UNLIMITED_DEMAND}))
    assert found == {"slow": 1100.0, "idle": 0.0, "busy": QUOTA * FILL - 1100.0}


def test_who_joins_waits_until_somebody_has_made_room() -> None:
    full = after_rounds(row(total=QUOTA), {"a": UNLIMITED_DEMAND})
    joined = renewed(full, "b", [Demand((TOTAL,))], 1)
    assert shares(joined)["b"] == 0.0
    assert shares(after_rounds(joined, {"a": UNLIMITED_DEMAND, "b": UNLIMITED_DEMAND}, 2)) == {
        "a": pytest.approx(QUOTA * FILL / 2),
        "b": pytest.approx(QUOTA * FILL / 2),
    }


def test_a_fallen_quota_is_reached_in_one_round_of_each_without_a_silence() -> None:
    busy = dict.fromkeys("abcd", UNLIMITED_DEMAND)
    fallen = after_rounds(row(total=QUOTA), busy).with_quotas(QuotasInForce(2, {TOTAL: QUOTA // 10}))
    once = after_rounds(fallen, busy, 1)
    assert shares(once) == {name: pytest.approx(QUOTA / 10 * FILL / 4) for name in "abcd"}
    assert {entry.version for entry in once.workers.values()} == {2}


def test_the_first_to_hear_of_a_new_quota_leaves_room_for_those_who_have_not() -> None:
    free = after_rounds(row(version=1), dict.fromkeys("abcd", UNLIMITED_DEMAND))
    limited = renewed(free.with_quotas(QuotasInForce(2, {TOTAL: QUOTA})), "a", [Demand((TOTAL,))], 9)
    assert limited.workers["a"].allocations[TOTAL].share == pytest.approx(QUOTA * FILL / 4)
    for name in "bcd":
        limited = renewed(limited, name, [], 9)
    alone = renewed(limited, "a", [Demand((TOTAL,))], 10)
    assert alone.workers["a"].allocations[TOTAL].share == QUOTA * FILL


def test_scopes_without_a_quota_have_no_entry_and_defaults_apply_to_each_broker() -> None:
    default = row(broker_default=QUOTA)
    demands = [Demand(copy_scopes(1, "orders")), Demand(copy_scopes(2, "orders"))]
    allocations = renewed(default, "a", demands, 1).workers["a"].allocations
    assert {str(scope): held.share for scope, held in allocations.items()} == {
        "copy/broker/1": QUOTA * FILL,
        "copy/broker/2": QUOTA * FILL,
    }


def test_an_older_version_is_never_put_in_force() -> None:
    newer = row(2, total=5)
    assert newer.with_quotas(QuotasInForce(1, {TOTAL: 9})) is newer
    assert newer.with_quotas(QuotasInForce(3, {})).quotas.of(TOTAL) is None


ROUND = st.tuples(
    st.sampled_from("abcde"),
    st.one_of(st.just(UNLIMITED_DEMAND), st.just(0.0), st.floats(1, 2 * QUOTA)),
    st.one_of(st.none(), st.integers(1, 10)),
)


@given(st.lists(ROUND, max_size=60))
def test_the_sum_never_grows_beyond_the_quota(rounds: list[tuple[str, float, int | None]]) -> None:
    current = row(total=QUOTA)
    for heartbeat, (worker_id, demand, tenths) in enumerate(rounds):
        if tenths is not None:
            quotas = QuotasInForce(current.quotas.version + 1, {TOTAL: QUOTA * tenths // 10})
            current = current.with_quotas(quotas)
        before = sum(shares(current).values())
        current = renewed(current, worker_id, [Demand((TOTAL,), demand)], heartbeat)
        quota = current.quotas.of(TOTAL)
        assert quota is not None
        assert sum(shares(current).values()) <= max(quota * FILL, before) + 0.001
        assert min(shares(current).values()) >= 0


@given(st.lists(st.one_of(st.just(UNLIMITED_DEMAND), st.floats(0, 3000)), min_size=1, max_size=8), st.floats(1, 5000))
def test_fair_parts_are_those_of_filling_water_into_unequal_vessels(demands: list[float], total: float) -> None:
    parts = [fair_part(total, demand, demands[:at] + demands[at + 1 :]) for at, demand in enumerate(demands)]
    level = _water_level(demands, total)
    assert parts == [pytest.approx(min(demand, level), abs=0.01) for demand in demands]


def _water_level(demands: list[float], total: float) -> float:
    """By bisection: the level at which what is poured in is used up, or above all vessels."""
    low, high = 0.0, total
    if sum(min(demand, high) for demand in demands) <= total:
        return high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(min(demand, middle) for demand in demands) <= total else (low, middle)
    return low


def test_the_text_of_a_row_is_read_back() -> None:
    scopes = fetch_scopes(1, "orders", "team/a b")
    full = renewed(
        LedgerRow(QuotasInForce(7, dict.fromkeys(scopes, 1000))),
        "host:1:ab",
        [Demand(scopes)],
        3,
    )
    assert ledger_row_from_text(ledger_row_to_text(full)) == full


@example("[" * 100_000)
@example('{"version": Infinity, "quotas": {}, "workers": {}}')
@given(st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=9).map(str)))
def test_what_is_no_row_is_refused(text: str) -> None:
    with pytest.raises(RemoteMetadataError, match="no valid row"):
        ledger_row_from_text(text)


# Opening the ledger of SQLite disturbs nobody and is disturbed by nobody.


def test_an_existing_ledger_opens_while_another_process_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'metadata.sqlite'}"
    first = open_ledger_engine(url, SystemClock())
    with closing(sqlite3.connect(str(first.url.database), isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        second = open_ledger_engine(url, SystemClock())
        writer.execute("ROLLBACK")
    assert second.url == first.url
    assert first.url.database == str(tmp_path / "metadata-quota.sqlite")
    first.dispose()
    second.dispose()


# Nested quotas: a process requests of each scope what its streams can use of it.

PAYMENTS = copy_scopes(1, "payments")[2]
ORDERS_STREAM, PAYMENTS_STREAM = Demand((TOTAL, BROKER, TOPIC)), Demand((TOTAL, BROKER, PAYMENTS))


def requests(of: LedgerRow, worker_id: str = "a") -> dict[Scope, float]:
    return {scope: held.wanted for scope, held in of.workers[worker_id].allocations.items()}


def test_a_process_that_a_narrow_quota_holds_leaves_the_rest_of_the_wide_one() -> None:
    narrow = renewed(row(total=QUOTA, topic=QUOTA // 10), "a", [ORDERS_STREAM], 1)
    assert requests(narrow) == {TOTAL: QUOTA / 10 * FILL, TOPIC: UNLIMITED_DEMAND}
    both = renewed(narrow, "b", [Demand((TOTAL,))], 1)
    assert shares(both) == {"a": QUOTA / 10 * FILL, "b": pytest.approx(0.9 * QUOTA * FILL)}


def test_the_narrow_quota_may_be_any_of_the_levels() -> None:
    wide_topic = renewed(row(broker=QUOTA // 10, topic=QUOTA), "a", [ORDERS_STREAM], 1)
    assert requests(wide_topic) == {BROKER: UNLIMITED_DEMAND, TOPIC: QUOTA / 10 * FILL}


def test_streams_of_one_process_share_what_holds_them_together() -> None:
    """Two topics within the quota of their broker can use no more of the total than this quota."""
    found = requests(renewed(row(total=QUOTA, broker=QUOTA // 10), "a", [ORDERS_STREAM, PAYMENTS_STREAM], 1))
    assert found == {TOTAL: pytest.approx(QUOTA / 10 * FILL), BROKER: UNLIMITED_DEMAND}


def test_a_stream_without_a_narrow_quota_asks_for_all_of_the_wide_one() -> None:
    found = requests(renewed(row(total=QUOTA, topic=QUOTA // 10), "a", [ORDERS_STREAM, PAYMENTS_STREAM], 1))
    assert found == {TOTAL: UNLIMITED_DEMAND, TOPIC: UNLIMITED_DEMAND}


def test_a_part_that_others_need_narrows_what_is_asked_of_the_rest() -> None:
    """Of the topic there is a third for each of three processes, so none of them asks for more of the total."""
    found = row(total=QUOTA, topic=QUOTA * 3 // 10)
    for heartbeat in range(1, 4):
        for worker_id in "abc":
            found = renewed(found, worker_id, [ORDERS_STREAM], heartbeat)
    assert shares(found) == dict.fromkeys("abc", pytest.approx(QUOTA / 10 * FILL))


def test_a_slow_stream_may_grow_a_little_and_a_held_one_not() -> None:
    demands = [ORDERS_STREAM, Demand((TOTAL, BROKER, PAYMENTS), 1000.0)]
    others = renewed(row(total=QUOTA, topic=QUOTA // 10), "b", [Demand((TOTAL,))], 1)
    assert requests(renewed(others, "a", demands, 1))[TOTAL] == pytest.approx(QUOTA / 10 * FILL + 1100)


PARTS = st.dictionaries(st.sampled_from([TOTAL, BROKER, TOPIC, PAYMENTS]), st.floats(0, QUOTA))
DEMANDS = st.lists(
    st.builds(
        Demand,
        st.sampled_from([(TOTAL,), (TOTAL, BROKER, TOPIC), (TOTAL, BROKER, PAYMENTS), (TOTAL, TOPIC), (PAYMENTS,)]),
        st.one_of(st.just(UNLIMITED_DEMAND), st.floats(0, 2 * QUOTA)),
    ),
    max_size=6,
)


@given(DEMANDS, PARTS)
def test_usable_rates_are_max_min_fair(demands: list[Demand], parts: dict[Scope, float]) -> None:
    """By the definition: whoever has less than it wants is in a scope that is used up, where nobody has more."""
    found = usable_rates(demands, parts)
    used = {scope: _sum_of(demands, found.rates, scope) for scope in parts}
    for scope, part in parts.items():
        assert used[scope] <= part + 0.001
        assert found.left[scope] == pytest.approx(part - used[scope], abs=0.001)
    for demand, rate in zip(demands, found.rates, strict=True):
        assert 0 <= rate <= demand.wanted
        limits = [scope for scope in demand.scopes if scope in found.limiting]
        for scope in limits:
            assert used[scope] == pytest.approx(parts[scope], abs=0.001)
        if rate < demand.wanted:
            largest = [_largest_in(demands, found.rates, scope) for scope in limits]
            assert any(rate >= most - 0.001 for most in largest)


def _sum_of(demands: Sequence[Demand], rates: Sequence[float], scope: Scope) -> float:
    return sum(rate for demand, rate in zip(demands, rates, strict=True) if scope in demand.scopes)


def _largest_in(demands: Sequence[Demand], rates: Sequence[float], scope: Scope) -> float:
    return max(rate for demand, rate in zip(demands, rates, strict=True) if scope in demand.scopes)


# A sender that waits for a scope of which its process has nothing wants all that its scopes give.

SCOPES = copy_scopes(1, "orders")
ALL, OF_BROKER, OF_TOPIC = SCOPES


@contextmanager
def a_sender_waits(pacing: ProcessPacing) -> Iterator[None]:
    sender = threading.Thread(target=pacing.take, args=(pacing.stream(SCOPES), MIB, 600.0, 0))
    sender.start()
    assert pacing.starved.wait(PATIENCE_SECONDS)
    try:
        yield
    finally:
        pacing.hold(dict.fromkeys(SCOPES), SystemClock().monotonic() + 600)
        sender.join()


def demand_of(pacing: ProcessPacing) -> float:
    return {demand.scopes: demand.wanted for demand in pacing.demands()}[SCOPES]


@pytest.fixture
def pacing() -> ProcessPacing:
    return ProcessPacing(SystemClock())


@pytest.mark.parametrize("held", [{ALL: 0.0, OF_BROKER: 700.0, OF_TOPIC: None}, {OF_BROKER: 700.0, OF_TOPIC: None}])
def test_who_has_nothing_of_one_scope_wants_all(pacing: ProcessPacing, held: dict[Scope, float | None]) -> None:
    pacing.hold(held, SystemClock().monotonic() + 600)
    with a_sender_waits(pacing):
        for _ in range(3):
            assert demand_of(pacing) == UNLIMITED_DEMAND


def test_who_no_longer_waits_wants_what_it_used(pacing: ProcessPacing) -> None:
    pacing.hold({ALL: 0.0, OF_BROKER: 700.0, OF_TOPIC: None}, SystemClock().monotonic() + 600)
    pacing.take(pacing.stream(SCOPES), MIB, 0.0, pacing.next_turn())
    assert demand_of(pacing) == UNLIMITED_DEMAND, "it waited in this period"
    assert demand_of(pacing) == 0.0


# Thresholds: what fits, who shares what, who is refused.

TOPICS = st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 10**12), max_size=6)


def test_topics_without_a_threshold_share_what_is_left_equally():
    found = thresholds(100, {"orders": 40, "clicks": 20}, ["orders", "audit", "logs", "mails"])
    share = Fraction(40, 3)
    assert found == {"orders": 40, "audit": share, "logs": share, "mails": share}


def test_a_new_topic_takes_a_share_and_an_explicit_one_gives_its_share_back():
    assert thresholds(100, {}, ["a"]) == {"a": 100}
    assert thresholds(100, {}, ["a", "b"]) == {"a": 50, "b": 50}
    assert thresholds(100, {"b": 10}, ["a", "b"]) == {"a": 90, "b": 10}


def test_nothing_is_shared_without_a_total_or_when_the_explicit_ones_took_it_all():
    assert thresholds(None, {"a": 7}, ["a", "b"]) == {"a": 7}
    assert thresholds(10, {"a": 10}, ["a", "b"]) == {"a": 10, "b": 0}
    assert shared_threshold(10, {"a": 30}, 2) == 0


def test_what_fits_exactly_is_accepted():
    check_thresholds(100, {"a": 60, "b": 40})
    check_thresholds(None, {"a": 10**18})
    check_thresholds(0, {})


@pytest.mark.parametrize(
    ("change", "total", "explicit"),
    [
        ("the total is lowered", 99, {"a": 60, "b": 40}),
        ("one is raised", 100, {"a": 61, "b": 40}),
        ("a new topic brings its own", 100, {"a": 60, "b": 40, "c": 1}),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(change, total, explicit):
    with pytest.raises(SettingError) as refused:
        check_thresholds(total, explicit)
    for number in (sum(explicit.values()), total, sum(explicit.values()) - total, *explicit.values()):
        assert str(number) in str(refused.value)


def test_of_many_topics_the_largest_are_named():
    with pytest.raises(SettingError, match=r"topic-99 199, .* and 95 more"):
        check_thresholds(1, {f"topic-{number}": 100 + number for number in range(100)})


@pytest.mark.parametrize(("total", "explicit"), [(-1, {}), (10, {"a": -1}), (None, {"a": -1})])
def test_negative_thresholds_are_refused(total, explicit):
    with pytest.raises(SettingError, match="negative"):
        check_thresholds(total, explicit)


@given(total=st.integers(0, 10**12), explicit=TOPICS, others=st.sets(st.text(min_size=4, max_size=5), max_size=6))
def test_all_thresholds_together_are_the_total_to_the_byte(total, explicit, others):
    if sum(explicit.values()) > total:
        with pytest.raises(SettingError):
            check_thresholds(total, explicit)
        return
    check_thresholds(total, explicit)
    found = thresholds(total, explicit, [*explicit, *others])
    assert sum(found.values()) == (total if others else sum(explicit.values()))


@pytest.mark.parametrize(
    ("total_rate", "total", "topic_rate", "topic", "refused"),
    [
        (100.1, 100, 50.1, 50, True),
        (100.0, 100, 50.1, 50, False),
        (100.1, 100, 50.0, 50, False),
        (99.0, 100, 80.0, 50, False),
        (100.1, None, 50.1, 50, False),
        (100.1, 100, 50.1, None, False),
        (0.0, 0, 0.0, 0, False),
        (10.0, 9, 3.4, Fraction(10, 3), True),
    ],
)
def test_refused_only_if_both_are_exceeded(total_rate, total, topic_rate, topic, refused):
    assert is_refused(total_rate, total, topic_rate, topic) is refused
