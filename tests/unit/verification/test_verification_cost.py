"""The time that a verification takes at the quota in force."""

import dataclasses

import pytest

from include.tiering.model.depth import Depth
from include.tiering.quotas.contract import UNLIMITED, QuotasInForce
from include.tiering.quotas.scopes import QuotaKind, QuotaLevel, Scope
from include.tiering.verification.verification_cost import CostOfReading, bytes_to_read
from tests.doubles.segments import partition_of, segment_of

TOTAL = Scope(QuotaKind.FETCH, QuotaLevel.TOTAL)
EACH_TOPIC = Scope(QuotaKind.FETCH, QuotaLevel.TOPIC)
ORDERS = Scope(QuotaKind.FETCH, QuotaLevel.TOPIC, "orders")
EACH_BROKER = Scope(QuotaKind.FETCH, QuotaLevel.BROKER)
OF_COPIES = Scope(QuotaKind.COPY, QuotaLevel.TOTAL)

ON_ONE = segment_of(partition_of("orders"), 1, 0, 9, size_bytes=10_000_000)
ON_TWO = dataclasses.replace(segment_of(partition_of("audit"), 2, 0, 9, size_bytes=30_000_000), broker_id=2)
ONE, TWO = bytes_to_read(ON_ONE, Depth.DEEP), bytes_to_read(ON_TWO, Depth.DEEP)


@pytest.mark.parametrize(
    ("quotas", "seconds"),
    [
        ({}, None),
        ({OF_COPIES: 1}, None),
        ({TOTAL: UNLIMITED}, None),
        ({TOTAL: 1_000_000}, (ONE + TWO) / 1_000_000),
        # Two brokers read side by side: the one with more bytes takes longer.
        ({EACH_BROKER: 1_000_000}, TWO / 1_000_000),
        ({EACH_TOPIC: 1_000_000, ORDERS: 100_000}, ONE / 100_000),
        ({EACH_TOPIC: 1_000_000, ORDERS: UNLIMITED}, TWO / 1_000_000),
        ({TOTAL: 10_000_000, ORDERS: 1_000_000}, ONE / 1_000_000),
    ],
)
def test_the_slowest_scope_decides(quotas: dict[Scope, int], seconds: float | None) -> None:
    cost = CostOfReading()
    for segment in (ON_ONE, ON_TWO):
        cost.add(segment, Depth.DEEP)
    total = cost.total(QuotasInForce(1, quotas))
    assert total.read_bytes == ONE + TWO
    assert total.seconds == (None if seconds is None else pytest.approx(seconds))
