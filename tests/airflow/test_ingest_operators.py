"""The tasks of `tiering_ingest` over the real library; the metadata topic is in memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.app.adapters import Adapters
from include.tiering.errors import MetadataTopicUnavailableError
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from plugins.tiering_airflow.errors import IngestFindingsError, IngestIncompleteError
from plugins.tiering_airflow.metadata_sync import (
    FINDINGS_KEY,
    FROM_BEGINNING,
    RECORDS_KEY,
    IngestedOperator,
    IngestOperator,
    IngestOutcomeOperator,
)
from plugins.tiering_airflow.shared import REMOTE_LOG
from tests.doubles.airflow_home import TaskInstance
from tests.doubles.tiny_deployment import ObservedCluster

pytestmark = pytest.mark.airflow


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
    assert again.pushed[RECORDS_KEY] == 164


def test_without_brokers_it_is_skipped(observed: ObservedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIERING_CLUSTER__BOOTSTRAP_SERVERS")
    with pytest.raises(AirflowSkipException, match="bootstrap_servers"):
        ingest(TaskInstance())
