"""What a restore says while it runs."""

from decimal import Decimal

from include.tiering.restoring.plan import ReadingCost
from include.tiering.restoring.report import ByteProgress, said_of_cost
from include.tiering.units import MIB
from tests.doubles.manual_clock import ManualClock


def test_a_line_every_ten_seconds_with_the_time_left() -> None:
    clock, lines = ManualClock(), list[str]()
    progress = ByteProgress(clock, lines.append)
    progress.begin(100 * MIB)
    for _ in range(21):
        clock.advance(1)
        progress.advance(MIB)
    assert lines == [
        "10.0 MiB of 100.0 MiB, 1.0 MiB/s, 1m 30s left",
        "20.0 MiB of 100.0 MiB, 1.0 MiB/s, 1m 20s left",
    ]


def test_what_it_costs_is_one_sentence() -> None:
    cost = ReadingCost(3, 30 * MIB, 9, 0.0, None, "USD")
    assert said_of_cost(cost) == "reads 3 segments, 30.0 MiB, in about 9 requests"
    priced = ReadingCost(3, 30 * MIB, 9, 12.0, Decimal("0.0036"), "USD")
    assert said_of_cost(priced) == (
        "reads 3 segments, 30.0 MiB, in about 9 requests, which cost about 0.0036 USD; the fetch quota holds it for"
        " 12.0s at least"
    )
