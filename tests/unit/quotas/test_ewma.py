"""Golden vectors of the one-minute meter, worked out by hand, and clocks that misbehave."""

import math

import pytest

from include.tiering.quotas.topic_quotas import ALPHA, EwmaMeter

START = 1_700_000_000_000


def test_alpha_is_that_of_one_minute_in_ticks_of_five_seconds():
    assert pytest.approx(1 - math.e ** (-5 / 60), rel=1e-15) == ALPHA
    assert round(ALPHA, 12) == 0.079955585371


# (seconds since the meter was made, events marked then, rate after that)
# 300 in the first 5 s are 60/s. e^(-1/12) = 0.920044414629: 60 x it = 55.202664877759; idle for 11 more ticks, one
# minute after the first tick, e^-1 of 60 is left.
COLD_START_AND_IDLE = [
    (0.0, 300, 0.0),
    (4.999, 0, 0.0),
    (5.0, 0, 60.0),
    (9.999, 0, 60.0),
    (10.0, 0, 55.202664877759),
    (65.0, 0, 22.072766470287),
    (125.0, 0, 8.120116994197),
]
# A steady 100/s stays 100/s. At 600 in the tick that ends at 15 s: 100 + 0.079955585371 x (120 - 100).
# Then one idle tick: 101.599111707421 x 0.920044414629.
STEADY_AND_A_PEAK = [
    (0.0, 500, 0.0),
    (5.0, 500, 100.0),
    (10.0, 600, 100.0),
    (15.0, 0, 101.599111707421),
    (20.0, 0, 93.475695257),
]
# The mark in the millisecond of a tick belongs to the next: 0 in the first tick, 50 in the second.
MARK_ON_THE_TICK = [(0.0, 0, 0.0), (5.0, 50, 0.0), (10.0, 0, 0.799555853707)]


@pytest.mark.parametrize("vector", [COLD_START_AND_IDLE, STEADY_AND_A_PEAK, MARK_ON_THE_TICK])
def test_vectors(vector):
    meter = EwmaMeter(START)
    for seconds, events, rate in vector:
        meter = meter.mark(events, START + round(seconds * 1000))
        assert meter.per_second == pytest.approx(rate, rel=1e-11)
    assert meter.count == sum(events for _, events, _ in vector)


def test_a_gap_of_a_thousand_years_costs_nothing_and_leaves_nothing():
    meter = EwmaMeter(START).mark(10**15, START).at(START + 1_000 * 365 * 86_400_000)
    assert (meter.per_second, meter.count, meter.uncounted) == (0.0, 10**15, 0)


def test_a_clock_that_steps_back_loses_no_count_and_goes_on_from_there():
    meter = EwmaMeter(START).mark(500, START).mark(500, START + 5_000)
    stepped = meter.mark(250, START - 3_600_000)
    assert (stepped.count, stepped.uncounted, stepped.per_second) == (1_250, 750, 100.0)
    assert stepped.at(START - 3_600_000 + 4_999).per_second == 100.0
    assert stepped.at(START - 3_600_000 + 5_000).per_second == pytest.approx(100 + ALPHA * (150 - 100))


def test_looking_changes_nothing_that_a_later_look_sees():
    meter = EwmaMeter(START).mark(777, START)
    assert meter.at(START + 5_000).at(START + 47_000) == meter.at(START + 5_000).at(START + 21_000).at(START + 47_000)


def test_nothing_is_uncounted():
    with pytest.raises(ValueError, match="-1"):
        EwmaMeter(START).mark(-1, START)
