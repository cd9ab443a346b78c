"""Processes under nested quotas, a minute of them in time that only the test moves, against a plain model.

With demand the average of a minute is at least 0.99 of the quota and never above it, and no second carries more than
1.05. Under several quotas this holds for those that limit anybody: a sender that waits, waits for a quota that is used
up. The model divides quotas as water would: all senders get more at the same rate, until something stops them.
"""

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.quota_trace import Trace, reached_after_s, worst_second
from include.tiering.quotas.contract import QuotaKind, QuotaLevel, Scope, copy_scopes, fetch_scopes
from include.tiering.quotas.shares import FILL
from tests.doubles.quota_world import Sender, World

TOTAL: Final = Scope(QuotaKind.COPY, QuotaLevel.TOTAL)
QUOTA: Final = 10_000_000
MINUTE_S: Final = 60.0
BEGINS_S: Final = 1.0
"""Processes are there, and have asked the ledger, before they have something to send: as batches do."""

SETTLED_S: Final = 1.0
"""How long a process may wait for its first share."""


def broker(number: int) -> Scope:
    return Scope(QuotaKind.COPY, QuotaLevel.BROKER, str(number))


def topic(name: str) -> Scope:
    return Scope(QuotaKind.COPY, QuotaLevel.TOPIC, name)


def sender(process: int, broker_id: int = 1, topic: str = "orders", pause_seconds: float = 0.002) -> Sender:
    return Sender(process, copy_scopes(broker_id, topic), pause_seconds, begins_s=BEGINS_S)


class Minute:
    """A minute of senders that begin together, with what came before and after it."""

    def __init__(self, senders: Sequence[Sender], quotas: dict[Scope, int], seed: int = 0) -> None:
        self.quotas = quotas
        self._world = World(senders, quotas, seed)
        self._world.run(BEGINS_S + MINUTE_S + 6.0)

    def rate(self, one: Sender) -> float:
        return self._world.rate(one, BEGINS_S + 3.0, BEGINS_S + MINUTE_S)

    def trace(self, scope: Scope, settled_s: float = 0.0) -> Trace:
        """A minute from the first byte in this scope on, or that many seconds later."""
        begun = self._world.trace(scope, 0.0, BEGINS_S + 3.0)
        first_s = begun.begun_s + reached(begun) + settled_s
        return self._world.trace(scope, first_s, first_s + MINUTE_S)

    def require_at_most(self, scope: Scope) -> None:
        trace, quota = self.trace(scope), self.quotas[scope]
        assert trace.average <= quota
        assert worst_second(trace) <= 1.05 * quota

    def require_used(self, scope: Scope) -> None:
        """From the first byte of all; a narrower scope also waits until its senders have shares of the wider ones."""
        assert self.trace(scope, 0.0 if scope == TOTAL else SETTLED_S).average >= 0.99 * self.quotas[scope]


def reached(trace: Trace) -> float:
    return reached_after_s(trace, 1.0, window_s=0.01) or 0.0


FREE = sender(99, broker_id=2, topic="free")
CASES = {
    "no narrower quota": ([sender(0), FREE], {}),
    "topic 0.05 x 3 processes": ([sender(0), sender(1), sender(2), FREE], {topic("orders"): 0.15}),
    "topic 0.09": ([sender(0), FREE], {topic("orders"): 0.09}),
    "topic 0.12": ([sender(0), FREE], {topic("orders"): 0.12}),
    "topic 0.30": ([sender(0), FREE], {topic("orders"): 0.30}),
    "topic 0.30 on 3 processes": ([sender(0), sender(1), sender(2), FREE], {topic("orders"): 0.30}),
    "broker 1 0.20 on 2 processes": ([sender(0), sender(1), FREE], {broker(1): 0.20}),
    "two topics of one process": ([sender(0), sender(0, topic="b"), FREE], {topic("orders"): 0.1, topic("b"): 0.2}),
    "broker within topic": ([sender(0), sender(1, 2), FREE], {broker(1): 0.1, topic("orders"): 0.4}),
}


@pytest.mark.parametrize(("senders", "parts"), CASES.values(), ids=CASES.keys())
def test_what_a_narrower_quota_leaves_goes_to_others(senders: list[Sender], parts: dict[Scope, float]) -> None:
    minute = Minute(senders, {TOTAL: QUOTA, **{scope: round(part * QUOTA) for scope, part in parts.items()}})
    for scope in minute.quotas:
        minute.require_at_most(scope)
        minute.require_used(scope)
    expected = model(senders, minute.quotas)
    for one in senders:
        assert minute.rate(one) == pytest.approx(expected[one], rel=0.02)


def test_a_narrower_quota_of_fetches_leaves_the_rest_to_other_clients() -> None:
    total, client = fetch_scopes(1, "orders", "reports")[0], fetch_scopes(1, "orders", "reports")[-1]
    limited = [Sender(number, fetch_scopes(1, "orders", "reports"), begins_s=BEGINS_S) for number in range(3)]
    free = Sender(9, fetch_scopes(1, "orders", "other"), begins_s=BEGINS_S)
    minute = Minute([*limited, free], {total: QUOTA, client: QUOTA * 3 // 10})
    for scope in (total, client):
        minute.require_at_most(scope)
        assert minute.trace(scope, SETTLED_S).average >= 0.99 * minute.quotas[scope]


def test_a_slow_neighbour_in_the_same_process_costs_nobody_a_share() -> None:
    """A slow stream waits now and then beside a held one; that says nothing about what either could use."""
    slow = Sender(0, copy_scopes(1, "slow"), bytes_per_second=QUOTA / 20, begins_s=BEGINS_S)
    minute = Minute([sender(0), slow, FREE], {TOTAL: QUOTA, topic("orders"): QUOTA * 3 // 10})
    assert minute.trace(TOTAL, 3.0).average >= 0.985 * QUOTA
    assert minute.rate(slow) == pytest.approx(QUOTA / 20, rel=0.01)


def test_both_quotas_grow_when_others_end() -> None:
    """Held by both at once, a process that grew in one at a time would lose the other again, round for round."""
    others = [Sender(number, copy_scopes(2, "orders"), begins_s=BEGINS_S, ends_s=20.0) for number in range(2, 10)]
    two = [sender(0), sender(1)]
    quotas = {TOTAL: QUOTA, topic("orders"): QUOTA * 6 // 10}
    world = World([*two, FREE, *others], quotas)
    world.run(61.0)
    for one in two:
        assert world.rate(one, 10.0, 20.0) == pytest.approx(0.06 * QUOTA * FILL, rel=0.02)
        assert world.rate(one, 23.0, 60.0) == pytest.approx(0.3 * QUOTA * FILL, rel=0.02)
    assert world.trace(TOTAL, 23.0, 60.0).average >= 0.99 * QUOTA


SENDERS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["orders", "b", "c"]), st.sampled_from([0.0, 0.002, 0.02])),
    min_size=1,
    max_size=16,
)
PARTS = st.dictionaries(
    st.sampled_from([broker(1), broker(2), topic("orders"), topic("b")]), st.floats(0.02, 1.2), max_size=4
)


@settings(max_examples=25, deadline=None)
@given(SENDERS, PARTS, st.integers(0, 2**32))
def test_any_nesting_wastes_nothing(places: list[tuple[int, str, float]], parts: dict[Scope, float], seed: int) -> None:
    senders = [sender(number, *place) for number, place in enumerate(places)]
    minute = Minute(senders, {TOTAL: QUOTA, **{scope: round(part * QUOTA) for scope, part in parts.items()}}, seed)
    expected = model(senders, minute.quotas)
    for scope, quota in minute.quotas.items():
        minute.require_at_most(scope)
        if sum(expected[one] for one in senders if scope in one.scopes) >= quota * FILL * (1 - 1e-6):
            minute.require_used(scope)
    for one in senders:
        assert minute.rate(one) == pytest.approx(expected[one], rel=0.03)


def model(senders: Sequence[Sender], quotas: dict[Scope, int]) -> dict[Sender, float]:
    """Raise the rates of all senders in small steps; who is in a scope that is full stays where it is."""
    rates = dict.fromkeys(senders, 0.0)
    growing = set(senders)
    while growing:
        room = {}
        for scope, quota in quotas.items():
            members = [one for one in senders if scope in one.scopes]
            if active := [one for one in members if one in growing]:
                room[scope] = (quota * FILL - sum(rates[one] for one in members)) / len(active)
        step = min(room.values())
        full = {scope for scope, left in room.items() if left <= step * (1 + 1e-9)}
        for one in growing:
            rates[one] += step
        growing = {one for one in growing if full.isdisjoint(one.scopes)}
    return rates
