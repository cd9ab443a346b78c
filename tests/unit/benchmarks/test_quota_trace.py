"""Figures of traces that were made by hand, so that every one of them can be counted on fingers."""

import pytest

from benchmarks.quota_trace import (
    Trace,
    farthest_ahead_bytes,
    largest_tenth,
    last_byte_after_s,
    longest_burst_s,
    longest_silence_s,
    minute_averages,
    quota_at,
    reached_after_s,
    settled_after_s,
    slowest_second,
    worst_second,
)

EVEN = Trace.of([10] * 300, begun_s=7.0)


def test_an_even_trace_has_one_rate() -> None:
    assert EVEN.total_bytes == 3000
    assert EVEN.average == pytest.approx(1000)
    assert (worst_second(EVEN), slowest_second(EVEN), largest_tenth(EVEN)) == (1000, 1000, 100)
    assert (longest_silence_s(EVEN), longest_burst_s(EVEN, 1000)) == (0.0, 0.0)


def test_the_first_second_counts() -> None:
    assert worst_second(Trace.of([*[20] * 50, *[10] * 500])) == 1500


def test_a_peak_across_two_whole_seconds_is_seen() -> None:
    trace = Trace.of([*[10] * 95, *[90] * 10, *[10] * 95])
    assert worst_second(trace) == 90 * 10 + 10 * 90
    assert largest_tenth(trace) == 900


def test_a_trace_of_less_than_a_second_is_its_own_worst() -> None:
    assert worst_second(Trace.of([5, 6])) == slowest_second(Trace.of([5, 6])) == largest_tenth(Trace.of([5, 6])) == 11


def test_an_empty_trace_has_no_rate() -> None:
    assert (Trace.of([]).average, worst_second(Trace.of([])), longest_silence_s(Trace.of([]))) == (0.0, 0, 0.0)


def test_a_part_is_filled_with_silence() -> None:
    part = EVEN.part(6.5, 7.5)
    assert part.total_bytes == 500
    assert (part.begun_s, part.ended_s, part.seconds) == (6.5, 7.5, 1.0)
    assert longest_silence_s(part) == 0.5
    assert EVEN.part(9.9, 12.0).total_bytes == 100
    assert EVEN.part(20.0, 21.0).total_bytes == 0
    assert EVEN.checked(1.0).total_bytes == 1000


def test_full_minutes_alone_have_an_average() -> None:
    trace = Trace.of([*[10] * 6000, *[20] * 6000, *[90] * 5999])
    assert minute_averages(trace) == pytest.approx([1000, 2000])


def test_silence_is_the_longest_and_counts_at_the_ends() -> None:
    assert longest_silence_s(Trace.of([*[0] * 5, 1, *[0] * 30, 1, *[0] * 7])) == 0.3
    assert longest_silence_s(Trace.of([1, *[0] * 40])) == 0.4


def test_a_burst_is_the_stretch_above_the_rate() -> None:
    trace = Trace.of([*[10] * 100, *[20] * 40, *[10] * 100])
    # A window of 100 ms sees 110 % with one of its ten buckets doubled, and more with two: it reaches 8 buckets far.
    assert longest_burst_s(trace, 1000) == pytest.approx(0.4 + 2 * 0.08)
    assert longest_burst_s(trace, 2000) == 0.0


@pytest.mark.parametrize(("silent_buckets", "settled_s"), [(0, 0.0), (20, 0.15), (100, 0.95)])
def test_settled_is_when_every_later_window_holds(silent_buckets: int, settled_s: float) -> None:
    # A window of 50 buckets with 5 silent ones is at 90 %: within.
    assert settled_after_s(Trace.of([*[0] * silent_buckets, *[10] * 400]), 1000) == settled_s


def test_settled_for_a_while_is_not_settled() -> None:
    # One bucket with 300 % makes 4 % in a window, with 900 % it makes 16 %.
    assert settled_after_s(Trace.of([*[10] * 200, 30, *[10] * 200]), 1000) == 0.0
    assert settled_after_s(Trace.of([*[10] * 200, 90, *[10] * 200]), 1000) == 2.01


def test_never_settled_is_none() -> None:
    assert settled_after_s(Trace.of([9] * 400), 1050) is None
    assert settled_after_s(Trace.of([10] * 10), 1000) is None


def test_a_rate_is_reached_by_the_first_full_window() -> None:
    assert reached_after_s(Trace.of([*[5] * 30, *[10] * 400]), 1000) == 0.3
    assert reached_after_s(Trace.of([5] * 400), 1000) is None


def test_the_last_byte_is_placed() -> None:
    assert last_byte_after_s(Trace.of([0, 3, 0, 4, 0, 0])) == 0.04
    assert last_byte_after_s(Trace.of([0, 0])) == 0.0


def test_bytes_are_ahead_of_a_quota_by_what_came_too_early_and_never_by_what_came_late() -> None:
    steady = [(7.0, 1000)]
    assert farthest_ahead_bytes(EVEN, steady) == pytest.approx(0, abs=1e-6)
    assert farthest_ahead_bytes(Trace.of([*[0] * 100, 1000, *[10] * 200], begun_s=7.0), steady) == pytest.approx(
        0, abs=1e-6
    )
    assert farthest_ahead_bytes(Trace.of([*[30] * 100, *[0] * 200], begun_s=7.0), steady) == pytest.approx(2000)


def test_after_a_change_the_quota_allows_at_its_new_rate() -> None:
    assert farthest_ahead_bytes(EVEN, [(7.0, 1000), (8.0, 0)]) == pytest.approx(2000)
    assert farthest_ahead_bytes(EVEN, [(7.0, 1000), (8.0, 0), (9.0, 3000)]) == pytest.approx(1000)
    assert farthest_ahead_bytes(EVEN, [(6.0, 500), (7.0, 2000)]) == pytest.approx(0, abs=1e-6)


def test_the_quota_in_force_is_the_last_before() -> None:
    quotas = [(1.0, 100), (2.0, 10), (3.0, 50)]
    assert [quota_at(quotas, at) for at in (0.0, 1.0, 1.9, 2.0, 9.0)] == [100, 100, 100, 10, 50]


def test_a_trace_survives_json() -> None:
    again = Trace.from_json(EVEN.to_json())
    assert (again.first_bucket, again.counts.tolist()) == (EVEN.first_bucket, EVEN.counts.tolist())
