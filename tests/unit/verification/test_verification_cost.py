"""What a verification costs, as a person is told before it starts: bytes, requests, and time at the quota in force."""

import dataclasses
from typing import Any

import pytest

from include.tiering.model.segments import Depth
from include.tiering.quotas.contract import UNLIMITED, QuotaKind, QuotaLevel, QuotasInForce, Scope
from include.tiering.verification.plan import CostOfReading, ReadCost, bytes_to_read
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
    ("log_bytes", "depth", "read_bytes"),
    [
        # 20 bytes of indexes for every 4 KiB of a log; 17 KiB of the rest and of the log's beginning and end.
        (0, Depth.SHALLOW, 17_408),
        (4_095, Depth.SHALLOW, 17_408),
        (4_096, Depth.SHALLOW, 17_428),
        (1_048_576, Depth.SHALLOW, 22_528),
        # The whole log, its indexes, and 1 KiB of the rest.
        (0, Depth.DEEP, 1_024),
        (4_096, Depth.DEEP, 5_140),
        (1_048_576, Depth.DEEP, 1_054_720),
    ],
)
def test_what_is_read_of_a_segment(log_bytes: int, depth: Depth, read_bytes: int) -> None:
    assert bytes_to_read(dataclasses.replace(ON_ONE, segment_size_bytes=log_bytes), depth) == read_bytes


def test_segments_add_up() -> None:
    cost = CostOfReading()
    assert cost.total(QuotasInForce(1, {})) == ReadCost(read_bytes=0, requests=0, seconds=None)
    for depth in (Depth.SHALLOW, Depth.DEEP, Depth.DEEP):
        cost.add(dataclasses.replace(ON_ONE, segment_size_bytes=4_096), depth)
    seconds: Any = pytest.approx(27.708)
    total = cost.total(QuotasInForce(1, {TOTAL: 1_000}))
    assert total == ReadCost(read_bytes=17_428 + 5_140 + 5_140, requests=8 + 6 + 6, seconds=seconds)


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
    assert (total.read_bytes, total.requests) == (ONE + TWO, 12)
    assert total.seconds == (None if seconds is None else pytest.approx(seconds))
