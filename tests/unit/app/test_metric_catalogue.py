"""The app's recorder has every declared metric, and nothing else."""

import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from include.tiering.app.metrics import METRICS
from include.tiering.copying.service import count_copied, count_failed
from include.tiering.quotas.metrics import count_brought_in
from include.tiering.sizes.metrics import LOG_SIZE_BYTES
from include.tiering.telemetry.metrics import MetricKind, PrometheusRecorder
from tests.doubles.source_tree import ROOT


def test_values_after_a_copy_a_failure_and_a_size_run() -> None:
    registry = CollectorRegistry()
    recorder = PrometheusRecorder(registry)
    recorder.register(METRICS)
    count_copied(recorder, "orders", log_bytes=100, sent_bytes=130)
    count_copied(recorder, "orders", log_bytes=50, sent_bytes=60)
    count_failed(recorder, "orders", "CorruptFileError")
    count_brought_in(recorder, "orders", "io", 150, 30)
    count_brought_in(recorder, "orders", "throttled", 50, 10)
    recorder.show(LOG_SIZE_BYTES, {("orders",): 150})
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created") and sample.labels
    }
    assert values == {
        ("RemoteCopyBytesPerSec_total", "orders"): 150,
        ("RemoteCopyRequestsPerSec_total", "orders"): 3,
        ("RemoteCopyErrorsPerSec_total", "orders"): 1,
        ("tiering_copy_errors_total", "orders", "CorruptFileError"): 1,
        ("tiering_copy_sent_bytes_total", "orders"): 190,
        ("RemoteLogSizeBytes", "orders"): 150,
        ("tiering_topic_bytes_in_total", "orders", "io"): 150,
        ("tiering_topic_bytes_in_total", "orders", "throttled"): 50,
        ("tiering_topic_records_in_total", "orders", "io"): 30,
        ("tiering_topic_records_in_total", "orders", "throttled"): 10,
    }


def test_every_declared_metric_is_registered() -> None:
    registry = CollectorRegistry()
    PrometheusRecorder(registry).register(METRICS)
    kinds = {(family.name, family.type) for family in registry.collect()}
    assert kinds == {(metric.name, str(metric.kind)) for metric in METRICS}
    assert {metric.kind for metric in METRICS} == set(MetricKind)


OPEN_AN_APP = """
import sys
from pathlib import Path
from prometheus_client import REGISTRY
from include.tiering.app import open_app
from include.tiering.settings import load_settings
from include.tiering.telemetry.metrics import process_recorder
files = Path(sys.argv[1])
with open_app(load_settings(environ={})):
    assert not list(files.iterdir()), "a process that records nothing leaves nothing"
    process_recorder()
print(*(f"{family.name}:{family.type}" for family in REGISTRY.collect()))
"""


def test_the_recorder_of_an_app_has_every_metric_from_its_start(tmp_path: Path) -> None:
    """Over several processes too: each metric without labels is in a file of this process before it is recorded."""
    done = subprocess.run(
        [sys.executable, "-c", OPEN_AN_APP, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
    )
    assert {f"{metric.name}:{metric.kind}" for metric in METRICS} <= set(done.stdout.split())
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))
    shown = {family.name for family in registry.collect()}
    assert shown == {metric.name for metric in METRICS if not metric.labels}
