"""Operators that ingest metadata and count sizes."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.app.adapters import Adapters
from include.tiering.copying.run_scope import RunScope
from include.tiering.errors import MetadataTopicUnavailableError, SettingError
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from plugins.tiering_airflow.errors import (
    IngestFindingsError,
    IngestIncompleteError,
    SizeDifferenceError,
    SparkJobError,
    SparkJobRetriableError,
)
from plugins.tiering_airflow.metadata_sync import (
    FINDINGS_KEY,
    FROM_BEGINNING,
    RECORDS_KEY,
    IngestedOperator,
    IngestOperator,
    IngestOutcomeOperator,
)
from plugins.tiering_airflow.shared import REMOTE_LOG
from plugins.tiering_airflow.sizes import (
    COUNTED_KEY,
    FROM_STORAGE,
    RemoteLogSizesOperator,
    SizeOutcomeOperator,
    SizeSummaryOperator,
    finding_lines,
)
from tests.doubles.airflow_home import Deployment, TaskInstance
from tests.doubles.present import present
from tests.doubles.recorded_metrics import stored_value
from tests.doubles.tiny_deployment import ObservedCluster

# The tasks of `tiering_ingest` over the real library; the metadata topic is in memory.


@pytest.fixture
def observed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObservedCluster:
    cluster = ObservedCluster(tmp_path)
    monkeypatch.setenv("TIERING_CONFIG", str(cluster.config))
    monkeypatch.setenv("TIERING_CLUSTER__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(ClusterLogDirs, "require_cluster", lambda _self: None)
    monkeypatch.setattr(Adapters, "metadata_topic_reader", property(lambda _self: cluster.topic))
    return cluster


def context(ti: TaskInstance, **params: Any) -> Any:
    events = {REMOTE_LOG: SimpleNamespace(extra={})}
    return {"ti": ti, "run_id": "manual", "params": {FROM_BEGINNING: False, **params}, "outlet_events": events}


def ingest(ti: TaskInstance, **params: Any) -> None:
    IngestOperator(task_id="ingest").execute(context(ti, **params))


def test_what_came_wakes_the_sizes(observed: ObservedCluster) -> None:
    ti = TaskInstance()
    ingest(ti)
    assert ti.pushed == {RECORDS_KEY: 164 + 4, FINDINGS_KEY: []}, "records, and owners that changed"
    told = context(ti)
    IngestedOperator(task_id="changed", outlet=REMOTE_LOG, records=str(ti.pushed[RECORDS_KEY])).execute(told)
    assert told["outlet_events"][REMOTE_LOG].extra == {"records": 168}
    IngestOutcomeOperator(task_id="outcome").execute(told)


def test_where_nothing_came_nobody_is_woken(observed: ObservedCluster) -> None:
    ingest(TaskInstance())
    again = TaskInstance()
    ingest(again)
    assert again.pushed[RECORDS_KEY] == 0
    for records in ("0", ""):
        with pytest.raises(AirflowSkipException):
            IngestedOperator(task_id="changed", outlet=REMOTE_LOG, records=records).execute(context(again))


def test_a_record_that_stops_brokers_fails_the_run_and_not_the_reading(observed: ObservedCluster) -> None:
    observed.topic.append(0, b"no record")
    ti = TaskInstance()
    ingest(ti)
    assert ti.pushed[RECORDS_KEY] == 168
    with pytest.raises(IngestFindingsError, match="__remote_log_metadata-0 is stopped at offset 30"):
        IngestOutcomeOperator(task_id="outcome").execute(context(ti))


def test_a_partition_without_a_leader_is_tried_again_and_what_came_before_is_remembered(
    observed: ObservedCluster,
) -> None:
    ti = TaskInstance()
    calls = iter([True])

    def away(call: str) -> None:
        if call == "read" and next(calls, False):
            raise MetadataTopicUnavailableError("no leader")

    observed.topic.fault = away
    with pytest.raises(IngestIncompleteError, match="no leader"):
        ingest(ti)
    assert 0 < ti.pushed[RECORDS_KEY] < 164
    ingest(ti)
    assert ti.pushed[RECORDS_KEY] == 168
    assert IngestIncompleteError.retriable


def test_the_form_may_ask_to_read_everything_again(observed: ObservedCluster) -> None:
    ingest(TaskInstance())
    again = TaskInstance()
    ingest(again, **{FROM_BEGINNING: True})
    assert again.pushed[RECORDS_KEY] == 164 + 1, "records, and the guard that is cleared when all are read again"


def test_without_brokers_it_is_skipped(observed: ObservedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIERING_CLUSTER__BOOTSTRAP_SERVERS")
    with pytest.raises(AirflowSkipException, match="bootstrap_servers"):
        ingest(TaskInstance())


# The tasks of `tiering_remote_log_sizes` over the real library; a stub writes the summary of the Spark job.

RUN_ID = "run-1"
NOTHING_FOUND: dict[str, Any] = {
    "differences": [],
    "overlaps": [],
    "stored": None,
    "computation_ms": 1500,
    "segments": 3,
    "bytes": 300,
}
DIFFERENCE = {
    "topic": "orders",
    "partition": 0,
    "state": "COPY_SEGMENT_FINISHED",
    "rules": [{"rule": "S101", "message": "The counter of bytes is what the rows add up to."}],
    "counters": {"bytes": 11, "segments": 1, "leader_epochs": []},
    "recounted": {"bytes": 10, "segments": 1, "leader_epochs": []},
}
STORED = {
    "topic": "orders",
    "partition": 1,
    "rules": [{"rule": "S201", "message": ""}],
    "segments": [{"segment_id": "AAECAwQFBgcICQoLDA0ODw", "kind": "missing"}],
}


class _Job:
    """Stands for spark-submit: what it was asked for, and what it leaves."""

    def __init__(self, summary: dict[str, Any] | None, error: Exception | None = None) -> None:
        self.summary = summary
        self.error = error
        self.arguments: list[str] = []

    def run(self, operator: RemoteLogSizesOperator) -> None:
        self.arguments = list(operator.application_args or ())
        if self.summary is not None:
            operator.output_dir.mkdir(parents=True, exist_ok=True)
            (operator.output_dir / "summary.json").write_text(json.dumps(self.summary))
        if self.error is not None:
            raise self.error


def _run(job: _Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, from_storage: str | None = None) -> dict[str, Any]:
    monkeypatch.setenv("AIRFLOW__TIERING__SIZES_DIR", str(tmp_path / "sizes"))
    monkeypatch.setenv("AIRFLOW__TIERING__WORK_DIR", str(tmp_path / "work"))
    monkeypatch.setattr(RemoteLogSizesOperator, "_hook_for", lambda self, scratch: None)
    monkeypatch.setattr(SparkSubmitOperator, "execute", lambda self, context: job.run(self))
    instance = TaskInstance()
    context: Any = {"ti": instance, "params": {FROM_STORAGE: from_storage}}
    RemoteLogSizesOperator(task_id="sizes").execute(context)
    return dict(instance.pushed[COUNTED_KEY])


@pytest.mark.usefixtures("observed")
def test_a_recount_without_findings_leaves_numbers(monkeypatch, tmp_path) -> None:
    overlaps = [{"topic": "orders", "partition": n, "bytes": 5} for n in range(2)]
    job = _Job({**NOTHING_FOUND, "overlaps": overlaps})
    assert _run(job, monkeypatch, tmp_path) == {
        "findings": 0,
        "computation_ms": 1500,
        "segments": 3,
        "bytes": 300,
        "duplicates": {"orders": 10},
    }
    assert "--from-storage" not in job.arguments


@pytest.mark.usefixtures("observed")
def test_a_size_job_has_the_ranges_of_the_airflow_option(monkeypatch, tmp_path) -> None:
    assert RemoteLogSizesOperator.repeats_tasks
    job = _Job(NOTHING_FOUND)
    for ranges in ("8", "64"):
        _run(job, monkeypatch, tmp_path)
        assert job.arguments[job.arguments.index("--ranges") + 1] == ranges
        monkeypatch.setenv("AIRFLOW__TIERING__SIZES_RANGES", "64")
    for wrong in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("AIRFLOW__TIERING__SIZES_RANGES", wrong)
        with pytest.raises(SettingError, match=r"sizes_ranges is '.*': give a number of 1 or more"):
            _run(job, monkeypatch, tmp_path)


@pytest.mark.usefixtures("observed")
def test_findings_are_logged_and_counted_and_fail_the_last_task(monkeypatch, tmp_path, capfd) -> None:
    summary = {**NOTHING_FOUND, "differences": [DIFFERENCE], "stored": {"differences": [STORED], "unsettled": 0}}
    job = _Job(summary, SparkJobError("exit code 1"))
    assert _run(job, monkeypatch, tmp_path, "listing")["findings"] == 2
    assert job.arguments[-2:] == ["--from-storage", "listing"]
    said = capfd.readouterr().out
    assert "the counters say 11 bytes in 1 segments, the rows 10 bytes in 1" in said
    assert "AAECAwQFBgcICQoLDA0ODw missing" in said
    with pytest.raises(SizeDifferenceError, match="2 findings"):
        SizeOutcomeOperator(task_id="outcome", findings="2").execute({})
    SizeOutcomeOperator(task_id="outcome", findings="0").execute({})


@pytest.mark.usefixtures("observed")
def test_a_warning_is_logged_and_is_no_finding(monkeypatch, tmp_path, capfd) -> None:
    warning = {**STORED, "rules": [{"rule": "S202", "severity": "warning", "message": ""}]}
    summary = {**NOTHING_FOUND, "stored": {"differences": [warning], "unsettled": 0}}
    assert _run(_Job(summary), monkeypatch, tmp_path, "listing")["findings"] == 0
    assert "the store and the rows differ (S202)" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("summary", "error"),
    [(None, SparkJobError("a setting")), (NOTHING_FOUND, SparkJobRetriableError("killed"))],
)
@pytest.mark.usefixtures("observed")
def test_a_job_that_could_not_finish_fails_its_own_task(monkeypatch, tmp_path, summary, error) -> None:
    with pytest.raises(type(error)):
        _run(_Job(summary, error), monkeypatch, tmp_path)


def test_suspects_beyond_what_was_asked_about_again_are_a_finding() -> None:
    summary = {**NOTHING_FOUND, "stored": {"differences": [], "unsettled": 7}}
    assert [line.partition(" more segments")[0] for line in finding_lines(summary)] == ["at least 7"]


def test_the_summary_says_what_waits_and_publishes_it(deployed: Deployment, capfd) -> None:
    with deployed.open() as app:
        app.copying.plan(RUN_ID, scope=RunScope(("bigrecs", "audit_log")))
        waiting = app.sizes.report().tiers.copy_lags
        assert sum(lag.segments for lag in waiting if lag.topic_id_partition.topic == "audit_log") > 0
        app.copying.run_batch(RUN_ID, "0.1")
    counted = {"findings": 1, "computation_ms": 250.0, "duplicates": {"bigrecs": 7}}
    SizeSummaryOperator(task_id="summary").execute({"ti": TaskInstance(**{COUNTED_KEY: counted})})
    said = capfd.readouterr().out
    assert "remote log size" in said
    assert "local and remote" in said
    with deployed.open() as app:
        value = partial(stored_value, app.adapters.metrics_writer.series)
        assert value("RemoteLogSizeComputationTime") == 250
        assert value("tiering_remote_log_size_differences") == 1
        assert value("tiering_duplicate_bytes", {"topic": "bigrecs", "held": "remote"}) == 7
        assert value("tiering_duplicate_bytes", {"topic": "audit_log", "held": "remote"}) == 0
        copied = {"topic": "audit_log"}
        assert value("RemoteCopyLagSegments", copied) == 0
        assert present(value("RemoteLogSizeBytes", copied)) > 0
        assert present(value("RemoteLogMetadataCount", copied)) > 0


def test_the_summary_of_a_recount_that_failed_still_says_what_waits(deployed: Deployment, capfd) -> None:
    SizeSummaryOperator(task_id="summary").execute({"ti": TaskInstance()})
    assert "remote log size" in capfd.readouterr().out
