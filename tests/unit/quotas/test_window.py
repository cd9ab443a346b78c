"""The window's vectors, and what Kafka's own classes answered to random histories."""

import gzip
import json
import math
from pathlib import Path

import pytest

from include.tiering.quotas.contract import UNLIMITED
from include.tiering.quotas.window import INACTIVE_MS, QuotaWindow

HISTORIES = Path(__file__).parents[2] / "data" / "quota_windows.jsonl.gz"
KIP_956_COPY = (61, 1_000)
SHIPPED = (11, 1_000)


def throttles(window: tuple[int, int], quota: int, *steps: tuple[int, int | None, int]) -> None:
    """Each step is a time, what is recorded then (None: nothing) and the throttle time after it."""
    made = QuotaWindow(*window)
    for now_ms, value, throttle_ms in steps:
        if value is not None:
            made.record(value, now_ms)
        assert made.throttle_ms(quota, now_ms) == throttle_ms, f"at {now_ms} ms"


def test_one_burst_is_waited_for_as_time_passes():
    throttles(
        SHIPPED,
        50,
        (0, 500, 9_000),
        (500, None, 9_000),
        (999, None, 9_000),
        (1_000, None, 9_000),
        (2_000, None, 8_000),
        (5_000, None, 5_000),
        (9_999, None, 1),
        (10_000, None, 0),
    )


def test_small_records_of_several_samples():
    throttles(
        SHIPPED,
        50,
        (0, 30, 0),
        (200, 30, 200),
        (1_000, None, 200),
        (1_200, None, 0),
        (1_300, 60, 1_100),
        (2_400, None, 0),
    )


def test_segments_of_four_quotas():
    segment = 4_194_304
    throttles(
        SHIPPED,
        1_048_576,
        (0, segment, 3_000),
        (4_000, segment, 4_000),
        (8_000, None, 0),
        (8_000, segment, 4_000),
        (12_000, None, 0),
    )


def test_a_window_of_one_sample():
    throttles((1, 1_000), 100, (0, 150, 500), (999, None, 500), (1_000, None, 0))


@pytest.mark.parametrize(("window", "silence_ms"), [(SHIPPED, 11_000), (KIP_956_COPY, 61_000)])
def test_a_segment_larger_than_quota_times_window_overshoots(window, silence_ms):
    """The sample is wiped one window after its last event: what is left to wait for is forgotten."""
    made = QuotaWindow(*window)
    made.record(1_000_000, 0)
    assert made.throttle_ms(1_000, silence_ms - 1) == 1_000_000 - (silence_ms - 1)
    assert made.throttle_ms(1_000, silence_ms) == 0
    assert made.rate(silence_ms) == 0.0


def test_a_rate_that_equals_the_quota_is_within():
    window = QuotaWindow(*SHIPPED)
    window.record(50, 0)
    assert (window.rate(0), window.throttle_ms(50, 0)) == (50.0, 0)
    window.record(1, 0)
    assert (window.rate(0), window.throttle_ms(50, 0)) == (51.0, 20)


def test_the_wait_of_a_young_window_is_up_to_one_sample_short():
    window = QuotaWindow(*SHIPPED)
    window.record(500, 0)
    assert (window.throttle_ms(50, 0), window.throttle_ms(50, 9_000), window.throttle_ms(50, 10_000)) == (
        9_000,
        1_000,
        0,
    )


def test_the_rate_jumps_when_an_old_sample_is_wiped():
    window = QuotaWindow(*SHIPPED)
    window.record(1, 0)
    window.record(1_000, 10_900)
    assert window.rate(10_999) == pytest.approx(1_001 / 10.999)
    assert window.rate(11_000) == 1_000.0


@pytest.mark.parametrize("no_limit", [None, UNLIMITED])
def test_without_a_limit_nothing_is_exceeded_and_all_is_measured(no_limit):
    window = QuotaWindow(*SHIPPED)
    window.record(2**50, 0)
    assert window.throttle_ms(no_limit, 0) == 0
    assert window.rate(0) == 2.0**50


def test_a_quota_may_change_between_two_questions():
    window = QuotaWindow(*SHIPPED)
    window.record(1_000, 0)
    assert [window.throttle_ms(quota, 0) for quota in (100, 1_000, 10)] == [9_000, 0, 99_000]


def test_the_first_question_begins_the_window():
    asked, silent = QuotaWindow(*SHIPPED), QuotaWindow(*SHIPPED)
    assert asked.rate(0) == 0.0
    for window in (asked, silent):
        window.record(500, 5_000)
    assert (asked.rate(5_000), silent.rate(5_000)) == (100.0, 500.0)


def test_a_window_without_a_record_for_an_hour_begins_anew():
    long_window = QuotaWindow(samples=10_000, sample_ms=1_000)
    long_window.record(7_200, 0)
    assert long_window.rate(INACTIVE_MS) == 2.0
    assert long_window.rate(INACTIVE_MS + 1) == 0.0
    long_window.record(1_000, INACTIVE_MS + 2)
    assert long_window.rate(INACTIVE_MS + 2) == 1_000.0


def test_a_clock_that_steps_back_goes_on_in_the_same_sample():
    window = QuotaWindow(*SHIPPED)
    window.record(1_000, 100_000)
    window.record(1_000, 40_000)
    assert window.rate(40_000) == 2_000.0
    assert window.rate(50_999) == 2_000.0
    assert window.rate(51_000) == 0.0


@pytest.mark.parametrize(("samples", "sample_ms"), [(0, 1_000), (1, 0), (-1, -1)])
def test_a_window_has_a_length(samples, sample_ms):
    with pytest.raises(ValueError, match="at least 1 sample of 1 ms"):
        QuotaWindow(samples, sample_ms)


@pytest.mark.parametrize("quota", [0, -1])
def test_a_quota_of_nothing_is_not_a_quota(quota):
    window = QuotaWindow(*SHIPPED)
    with pytest.raises(ValueError, match="at least 1 byte a second"):
        window.throttle_ms(quota, 0)


def test_every_answer_of_kafkas_own_classes_is_ours():
    """Kafka 4.3.1 answered these (tests/data/regenerate/QuotaWindows.java): clock steps both ways, expired sensors."""
    answers = 0
    for line in gzip.decompress(HISTORIES.read_bytes()).splitlines():
        history = json.loads(line)
        samples, sample_ms, quota = history["samples"], history["sample_ms"], history["quota"]
        window = QuotaWindow(samples, sample_ms)
        for now_ms, value, throttle_ms, rate, *_ in history["events"]:
            if value >= 0:
                window.record(value, now_ms)
            assert window.throttle_ms(quota, now_ms) == throttle_ms
            assert math.isclose(window.rate(now_ms), rate, rel_tol=1e-15)
            answers += 1
    assert answers == 3_600
