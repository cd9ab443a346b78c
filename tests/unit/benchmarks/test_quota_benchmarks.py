"""Benchmarks of quotas, and how all are run."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.airflow_scene import Change, Sample
from benchmarks.batches_panel import with_batches
from benchmarks.machine import IdleMeter, machine_description
from benchmarks.plot_trace import LEFT, TOP, WIDTH, main, plot
from benchmarks.quota_in_airflow import BY_COMMAND, BY_FORM, FIRST, Observed, Phase, checked, picture
from benchmarks.quota_trace import (
    BUCKETS_PER_SECOND,
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
from benchmarks.quota_worker import CountingLimiter, RepeatedBlock
from benchmarks.run_all import last_json
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES
from include.tiering.units import KIB, MIB

# The plot is well-formed and puts rates, quotas and events where they belong.

SVG = "{http://www.w3.org/2000/svg}"
TRACE = Trace.of([*[10_000] * 300, *[1_000] * 300], begun_s=50.0)
QUOTAS = [(49.9, 1_000_000), (53.0, 100_000)]


def lines(text: str) -> list[list[tuple[float, float]]]:
    """Points of the shade, the quota and the rate, in this order."""
    found = ET.fromstring(text).iter(f"{SVG}polyline")  # noqa: S314
    return [[point_of(point) for point in line.attrib["points"].split()] for line in found]


def point_of(text: str) -> tuple[float, float]:
    x, y = map(float, text.split(","))
    return x, y


def test_quota_and_rate_lie_on_each_other() -> None:
    _, quota, rate = lines(plot(TRACE, QUOTAS))
    assert quota[0][0] == pytest.approx(LEFT)
    assert [y for _, y in quota] == pytest.approx([quota[0][1], quota[0][1], quota[2][1], quota[2][1]])
    assert quota[0][1] < quota[2][1], "less is lower"
    assert rate[0][1] == pytest.approx(quota[0][1], abs=0.2)
    assert rate[-1][1] == pytest.approx(quota[-1][1], abs=0.2)
    assert rate[-1][0] <= WIDTH
    assert min(y for _, y in rate) >= TOP


def test_words_are_escaped() -> None:
    text = plot(TRACE, QUOTAS, [(53.0, "a < b")], title="x & y")
    texts = [element.text for element in ET.fromstring(text).iter(f"{SVG}text")]  # noqa: S314
    assert {"a < b", "x & y", "quota in force"} <= set(texts)


def test_a_file_is_drawn(tmp_path: Path) -> None:
    document = {"trace": TRACE.to_json(), "quotas": QUOTAS, "events": [[53.0, "changed"]]}
    (tmp_path / "trace.json").write_text(json.dumps(document))
    main([str(tmp_path / "trace.json"), str(tmp_path / "plot.svg"), "--title", "Live"])
    assert "changed" in (tmp_path / "plot.svg").read_text()


# Figures of traces that were made by hand, so that every one of them can be counted on fingers.

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


# What workers send is what they say they send.


@pytest.mark.parametrize("size_bytes", [1, 4 * KIB, MIB, MIB + 1, 8 * MIB, 9 * MIB + 5, 16 * MIB])
def test_the_checksums_of_a_repeated_block_are_those_of_its_bytes(size_bytes: int) -> None:
    body = RepeatedBlock(size_bytes)
    content = bytearray(size_bytes)
    position = 0
    while position < size_bytes:
        position += body.read_into(position, memoryview(content)[position : position + 700 * KIB])
    assert body.read_into(size_bytes, memoryview(bytearray(1))) == 0
    ends = [*range(RUNNING_CRC32C_STEP_BYTES, size_bytes, RUNNING_CRC32C_STEP_BYTES), size_bytes]
    assert body.running_crc32c == [extend_crc32c(0, memoryview(content)[:end]) for end in ends]
    assert body.crc32c == body.running_crc32c[-1]


class Half:
    waited_seconds = 1.5
    waits_for = None

    def take(self, wanted_bytes: int) -> int:
        return wanted_bytes // 2


def test_what_was_granted_is_counted_and_not_what_was_wanted() -> None:
    limiter = CountingLimiter(Half())
    assert (limiter.take(100), limiter.take(40)) == (50, 20)
    assert limiter.charged_bytes == 70
    assert limiter.waited_seconds == 1.5
    assert limiter.longest_wait_s > 0


# What is said of a run in Airflow is said by its trace: one that keeps to the quota passes, others fail by name.

SECONDS = 10
AIRFLOW_QUOTAS = (FIRST, FIRST, BY_COMMAND, BY_FORM, BY_FORM)
BATCHES = (2, 3, 3, 3, 1)


def observed(rates: tuple[int, ...] = AIRFLOW_QUOTAS, batches: tuple[int, ...] = BATCHES) -> Observed:
    """Five phases of ten seconds, each with one rate and one number of batches all the time."""
    counts = [rate // BUCKETS_PER_SECOND for rate in rates for _ in range(SECONDS * BUCKETS_PER_SECOND)]
    starts = [float(number * SECONDS) for number in range(len(AIRFLOW_QUOTAS) + 1)]
    phases = tuple(
        Phase(f"phase {number}", quota, starts[number], starts[number + 1])
        for number, quota in enumerate(AIRFLOW_QUOTAS)
    )
    samples = tuple(
        Sample(second + 0.5, tuple("abc"[: batches[second // SECONDS]]), batches[second // SECONDS], 3)
        for second in range(SECONDS * len(AIRFLOW_QUOTAS))
    )
    changes = (Change(BY_COMMAND, 19.0, 20.0, 20.0), Change(BY_FORM, 29.0, 30.0, 30.0))
    events = ((10.0, "pool 2 → 3"), (20.0, "configs"), (40.0, "pool 3 → 1"))
    return Observed(Trace.of(counts), 0.0, 50.0, changes, phases, events, samples, 8.0, 3.0, 0.5)


def failed(seen: Observed) -> set[str]:
    return {check.name for check in checked(seen) if not check.passed}


def test_what_keeps_to_quota_and_pool_passes() -> None:
    assert failed(observed()) == set()


@pytest.mark.parametrize(
    ("phase", "share", "names"),
    [
        (1, 1.06, {"average", "worst second"}),
        (2, 0.85, {"first 2 s", "first 5 s", "average"}),
        (4, 0.0, {"first 5 s", "average", "silence"}),
        (3, 1.2, {"first 2 s", "first 5 s", "average", "worst second", "burst"}),
    ],
)
def test_a_rate_off_the_quota_fails_in_its_phase(phase: int, share: float, names: set[str]) -> None:
    rates = tuple(round(quota * (share if number == phase else 1.0)) for number, quota in enumerate(AIRFLOW_QUOTAS))
    assert failed(observed(rates)) == {f"phase {phase}: {name}" for name in names}


def test_concurrency_that_does_not_follow_the_pool_fails() -> None:
    assert failed(observed(batches=(3, 3, 3, 3, 2))) == {"tasks before the pool grew", "batches from then on"}
    late = replace(observed(), started_after_s=31.0, surplus_s=20.0)
    assert failed(late) >= {"seconds until the waiting batch worked", "seconds until surplus batches had ended"}


def test_the_picture_has_a_step_for_each_change_of_the_batches() -> None:
    svg = picture(observed())
    assert svg.count("<svg") == svg.count("</svg>") == 2
    seen = observed()
    counts = [(0.0, 2), (10.0, 3), (40.0, 1)]
    panel = with_batches(plot(seen.trace, seen.quotas), seen.trace, counts, counts).partition("<g ")[2]
    pool, batches = re.findall(r'points="([^"]+)"', panel)
    assert pool == batches
    assert len({point.split(",")[1] for point in batches.split()}) == 3


# The harness finds the JSON at the end of a benchmark's output, and knows the machine.


@pytest.mark.parametrize("output", ['{"rate": 3}\n', 'warming up\nround 1\n{"rate": 3}\n', '{\n  "rate": 3\n}\n'])
def test_the_last_document_counts(output: str) -> None:
    assert last_json(output) == {"rate": 3}


def test_output_without_a_result_is_an_error() -> None:
    with pytest.raises(json.JSONDecodeError):
        last_json("warming up\n")


def test_the_machine_is_described() -> None:
    machine = machine_description()
    assert machine["cores"] >= 1
    assert machine["memory_bytes"] > machine["memory_available_bytes"] > 0
    assert all(machine["packages"].values())
    json.dumps(machine)


def test_the_idle_share_is_one() -> None:
    meter = IdleMeter()
    sum(range(2_000_000))
    assert 0.0 <= meter.share() < 1.0
