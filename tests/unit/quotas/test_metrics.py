"""Metrics of quotas and of deletions."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from include.tiering.quotas.contract import UNITS_PER_REQUEST, UNLIMITED, QuotaKind, QuotaLevel, QuotaObserver, Scope
from include.tiering.quotas.metrics import QuotaMetrics
from include.tiering.telemetry.metrics import PrometheusRecorder, remove_files_of_ended_processes
from tests.doubles.manual_clock import ManualClock
from tests.doubles.patience import PATIENCE_SECONDS
from tests.doubles.present import present

# Quota metrics: what limiters report, as Prometheus sees it, in one process and over several.

COPY, FETCH = QuotaKind.COPY, QuotaKind.FETCH
ROOT = Path(__file__).parents[3]


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    clock = ManualClock()
    yield clock
    clock.advance(3_600)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry, clock: ManualClock) -> QuotaMetrics:
    return QuotaMetrics(PrometheusRecorder(registry), clock)


def values(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """By metric and the values of its labels, in the alphabetical order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        for sample in family.samples
        if "RLM" in sample.name or "throttle" in sample.name or "quota" in sample.name
        if not sample.name.endswith("_created")
    }


IDLE = {
    ("RLMCopy_byte_rate",): 0.0,
    ("RLMFetch_byte_rate",): 0.0,
    ("remote_copy_throttle_time_avg",): 0.0,
    ("remote_copy_throttle_time_max",): 0.0,
    ("remote_fetch_throttle_time_avg",): 0.0,
    ("remote_fetch_throttle_time_max",): 0.0,
}
PACING = ("tiering_fetch_pacing_time_avg", "tiering_fetch_pacing_time_max")


def test_grants_and_throttles_by_topic_and_kind(metrics, registry, clock):
    metrics.publisher.now()
    clock.advance(2)
    metrics.granted(COPY, "orders", 3_000)
    metrics.granted(COPY, "orders", 1_000)
    metrics.throttled(COPY, "orders", 1_000, 0.25)
    metrics.granted(COPY, "payments", 4_000)
    metrics.throttled(COPY, "payments", 4_000, 0.75)
    metrics.held_back(COPY, 0.25)
    metrics.held_back(COPY, 0.75)
    metrics.granted(FETCH, "orders", 10)
    metrics.publisher.now()
    assert values(registry) == IDLE | {
        ("RLMCopy_byte_rate",): 4_000.0,
        ("RLMFetch_byte_rate",): 5.0,
        ("remote_copy_throttle_time_avg",): 500.0,
        ("remote_copy_throttle_time_max",): 750.0,
        ("tiering_quota_granted_bytes_total", "copy", "orders"): 4_000,
        ("tiering_quota_granted_bytes_total", "copy", "payments"): 4_000,
        ("tiering_quota_granted_bytes_total", "fetch", "orders"): 10,
        ("tiering_quota_throttled_bytes_total", "copy", "orders"): 1_000,
        ("tiering_quota_throttled_bytes_total", "copy", "payments"): 4_000,
        ("tiering_quota_throttled_seconds_total", "copy", "orders"): 0.25,
        ("tiering_quota_throttled_seconds_total", "copy", "payments"): 0.75,
        ("tiering_quota_throttles_total", "copy", "orders"): 1,
        ("tiering_quota_throttles_total", "copy", "payments"): 1,
    }


def test_slices_say_nothing_about_throttle_times_and_refusals_are_apart(metrics, registry):
    """Ten slices that waited 20 ms each are one answer that was held back for 200 ms; two others were refused."""
    for _ in range(10):
        metrics.throttled(FETCH, "orders", 100, 0.02)
    metrics.held_back(FETCH, 0.2)
    metrics.refused("orders", 5_000, 0.5)
    metrics.refused("orders", 3_000, 1.5)
    metrics.publisher.now()
    seen = values(registry)
    assert [seen[f"remote_fetch_throttle_time_{what}",] for what in ("avg", "max")] == [1_000.0, 1_500.0]
    assert [registry.get_sample_value(name) for name in PACING] == [200.0, 200.0]
    assert seen["tiering_quota_throttled_seconds_total", "fetch", "orders"] == pytest.approx(0.2)
    assert seen["tiering_quota_refused_seconds_total", "orders"] == 2.0
    assert (seen["tiering_quota_refused_bytes_total", "orders"], seen["tiering_quota_refusals_total", "orders"]) == (
        8_000,
        2,
    )


def test_counters_go_on_and_gauges_go_back_to_zero(metrics, registry, clock):
    for _ in range(3):
        metrics.granted(COPY, "orders", 100)
        metrics.held_back(COPY, 0.1)
        metrics.publisher.now()
    clock.advance(60)
    metrics.publisher.now()
    assert values(registry)["remote_copy_throttle_time_max",] == 0
    assert values(registry)["RLMCopy_byte_rate",] == 5.0
    clock.advance(1)
    metrics.publisher.now()
    assert IDLE.items() <= values(registry).items()
    assert values(registry)["tiering_quota_granted_bytes_total", "copy", "orders"] == 300


def test_a_process_that_ends_says_so(metrics, registry):
    metrics.granted(FETCH, "orders", 100)
    metrics.throttled(FETCH, "orders", 100, 0.1)
    metrics.held_back(FETCH, 0.1)
    metrics.refused("orders", 100, 0.1)
    metrics.settle()
    assert IDLE.items() <= values(registry).items()
    assert values(registry)["tiering_quota_throttled_seconds_total", "fetch", "orders"] == 0.1


def test_rates_are_measured_in_the_windows_that_were_set(metrics, registry, clock):
    metrics.tally.measure_over({COPY: (2, 10_000), FETCH: (11, 1_000)})
    metrics.granted(COPY, "orders", 1_000)
    metrics.granted(FETCH, "orders", 1_000)
    metrics.publisher.now()
    assert (values(registry)["RLMCopy_byte_rate",], values(registry)["RLMFetch_byte_rate",]) == (100.0, 1_000.0)


def test_quotas_in_force_by_scope(metrics, registry):
    metrics.in_force(Scope(COPY, QuotaLevel.TOTAL), 1_000)
    metrics.in_force(Scope(COPY, QuotaLevel.BROKER), 500)
    metrics.in_force(Scope(COPY, QuotaLevel.BROKER, "2"), 50)
    metrics.in_force(Scope(FETCH, QuotaLevel.CLIENT, "default"), 5)
    metrics.in_force(Scope(COPY, QuotaLevel.BROKER, "2"), None)
    metrics.in_force(Scope(FETCH, QuotaLevel.CLIENT, "free"), UNLIMITED)
    assert values(registry) == IDLE | {
        ("tiering_quota_bytes_per_second", "", "copy", "total"): 1_000,
        ("tiering_quota_bytes_per_second", "<default>", "copy", "broker"): 500,
        ("tiering_quota_bytes_per_second", "2", "copy", "broker"): float("inf"),
        ("tiering_quota_bytes_per_second", "default", "fetch", "client"): 5,
        ("tiering_quota_bytes_per_second", "free", "fetch", "client"): float("inf"),
    }


def test_a_thread_publishes_until_nothing_has_moved_for_a_window(registry, monkeypatch):
    monkeypatch.setattr("include.tiering.telemetry.metrics.PERIOD_SECONDS", 0.05)
    clock, before = ManualClock(), set(threading.enumerate())
    observer: QuotaObserver = QuotaMetrics(PrometheusRecorder(registry), clock)
    for reported_bytes in (7, 14):
        observer.granted(COPY, "orders", 7)
        (thread,) = set(threading.enumerate()) - before
        clock.advance(3_600)
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
        assert IDLE.items() <= values(registry).items()
        assert values(registry)["tiering_quota_granted_bytes_total", "copy", "orders"] == reported_bytes


def test_reports_of_many_threads_add_up(metrics, registry):
    def report() -> None:
        for _ in range(500):
            metrics.granted(COPY, "orders", 3)
            metrics.throttled(COPY, "orders", 3, 0.5)

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    metrics.publisher.now()
    seen = values(registry)
    assert seen["tiering_quota_granted_bytes_total", "copy", "orders"] == 6_000
    assert seen["tiering_quota_throttled_bytes_total", "copy", "orders"] == 6_000
    assert seen["tiering_quota_throttled_seconds_total", "copy", "orders"] == 1_000.0


REPORT = """
import sys
from include.tiering.clock import SystemClock
from include.tiering.quotas.metrics import process_quota_metrics
from include.tiering.quotas.contract import QuotaKind, QuotaLevel, Scope
SystemClock.monotonic = lambda _: 1_000.0  # no rate falls while other processes start
metrics = process_quota_metrics()
size_bytes, seconds, quota, ends = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "ends"
metrics.granted(QuotaKind.COPY, "orders", size_bytes)
metrics.held_back(QuotaKind.COPY, seconds)
metrics.in_force(Scope(QuotaKind.COPY, QuotaLevel.TOTAL), quota)
metrics.publisher.now()
if ends:
    metrics.settle()
sys.stdout.write("reported\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def test_several_processes_add_up_and_the_dead_are_forgotten(tmp_path):
    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", REPORT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "reported\n"
        return process

    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))
    processes = [start("1000", "0.1", "5000", "runs"), start("500", "0.3", "6000", "runs")]
    try:
        processes.append(start("90000", "9.0", "7000", "ends"))
        seen = values(registry)
        assert seen["RLMCopy_byte_rate",] == 1_500.0
        assert seen["remote_copy_throttle_time_avg",] == pytest.approx(300.0)
        assert seen["remote_copy_throttle_time_max",] == pytest.approx(300.0)
        assert seen["tiering_quota_bytes_per_second", "", "copy", "total"] == 7_000
        assert seen["tiering_quota_granted_bytes_total", "copy", "orders"] == 91_500
        processes[1].kill()
        processes[1].wait()
        assert values(registry)["RLMCopy_byte_rate",] == 1_500.0
        remove_files_of_ended_processes(tmp_path)
        seen = values(registry)
        assert seen["RLMCopy_byte_rate",] == 1_000.0
        assert seen["remote_copy_throttle_time_max",] == pytest.approx(100.0)
        assert seen["tiering_quota_granted_bytes_total", "copy", "orders"] == 91_500
    finally:
        for process in processes:
            process.kill()
            process.communicate()


# Metrics of the rate at which requests delete objects.

DELETE = QuotaKind.DELETE
TOTAL = Scope(DELETE, QuotaLevel.TOTAL)


@pytest.fixture
def delete_metrics(registry: CollectorRegistry) -> QuotaMetrics:
    return QuotaMetrics(PrometheusRecorder(registry), ManualClock())


def test_requests_are_counted_as_requests(delete_metrics: QuotaMetrics, registry: CollectorRegistry) -> None:
    for _ in range(4):
        delete_metrics.granted(DELETE, "orders", UNITS_PER_REQUEST // 2)
    delete_metrics.throttled(DELETE, "orders", UNITS_PER_REQUEST // 2, 0.25)
    delete_metrics.publisher.now()
    assert registry.get_sample_value("tiering_delete_requests_total", {"topic": "orders"}) == 2
    assert registry.get_sample_value("tiering_delete_throttled_seconds_total", {"topic": "orders"}) == 0.25
    assert present(registry.get_sample_value("tiering_delete_request_rate")) > 0
    labels = {"kind": "delete", "topic": "orders"}
    assert registry.get_sample_value("tiering_quota_granted_bytes_total", labels) is None


@pytest.mark.parametrize(
    ("units", "shown"), [(5 * UNITS_PER_REQUEST, 5.0), (None, float("inf")), (UNLIMITED, float("inf"))]
)
def test_the_rate_in_force(
    delete_metrics: QuotaMetrics, registry: CollectorRegistry, units: int | None, shown: float
) -> None:
    delete_metrics.in_force(TOTAL, units)
    assert registry.get_sample_value("tiering_delete_max_requests_per_second") == shown
