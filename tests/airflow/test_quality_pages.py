"""What leads from a DAG run to its quality report: note, error, button, a task per failed segment."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.settings import load_settings
from include.tiering.verification.data_docs import DataDocs
from include.tiering.verification.quality_run import QualityRun, RunSummary
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.data_docs import (
    MAX_FAILED_SEGMENT_TASKS,
    FailedSegmentOperator,
    QualityReportLink,
    data_docs,
    error_of,
    failed_segments,
    publish,
    report_path,
    report_url,
)
from plugins.tiering_airflow.errors import QualityGateError
from tests.unit.verification.data_docs.test_pages import FINDING, RUN

SERVER = "http://localhost:8080"
REPORT = f"{SERVER}/tiering/quality/dags/tiering_quality/runs/scheduled__2026-11-21T20%3A00%3A00%2B00%3A00"
LINE = "segment-ERITFBUWFxgZGhscHR4fIA"


def failing(segments: int) -> QualityRun:
    return replace(
        RUN,
        segments=9_999,
        failed=tuple(replace(FINDING, segment_id=f"{n:022d}") for n in range(segments)),
        warnings=(),
    )


def test_an_address_leads_to_a_run_and_to_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_url(RUN.origin, RUN.run_id) == REPORT
    assert report_url(RUN.origin, RUN.run_id, FINDING.segment_id) == f"{REPORT}#{LINE}"
    assert report_url("d", "a/b?c#d e").endswith("/dags/d/runs/a%2Fb%3Fc%23d%20e")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/x/")
    assert report_url("d", "r") == "https://airflow.example/x/tiering/quality/dags/d/runs/r"
    assert report_path("d", "r") == "/x/tiering/quality/dags/d/runs/r"


def test_an_error_has_a_line_per_segment_with_its_address() -> None:
    error = error_of(RunSummary.of(RUN), ["orders-1 from offset 5: not copied: gone"])
    first, not_copied, segment = str(error).splitlines()
    assert first == f"1 of 14 segments failed, 1 with warnings. Report: {REPORT}"
    assert not_copied == "orders-1 from offset 5: not copied: gone"
    assert segment.startswith("orders-3 from offset 12300, segment ERITFBUWFxgZGhscHR4fIA: Q102, Q301: The checksum")
    assert segment.endswith(f" {REPORT}#{LINE}")
    assert not error.retriable
    assert str(error_of(RunSummary.of(failing(60)), [])).splitlines()[-1] == f"and 10 more segments: {REPORT}"


def test_a_failed_segment_is_a_task_whose_name_is_its_line() -> None:
    (mapped,) = failed_segments(RunSummary.of(RUN))
    assert mapped == {"line": "orders-3 from 12300: Q102, Q301", "segment_id": FINDING.segment_id}
    task = FailedSegmentOperator(task_id="failed_segment", **mapped)
    assert len(failed_segments(RunSummary.of(failing(60)))) == MAX_FAILED_SEGMENT_TASKS
    with pytest.raises(QualityGateError, match="orders-3 from 12300: Q102, Q301, segment ERITFBUWFxgZGhscHR4fIA"):
        task.execute({"run_id": RUN.run_id})
    ti: Any = SimpleNamespace(dag_id=RUN.origin, run_id=RUN.run_id)
    (link,) = task.operator_extra_links
    assert SERVER + link.get_link(task, ti_key=ti) == f"{REPORT}#{LINE}"


def test_the_button_of_another_task_leads_to_the_page() -> None:
    ti: Any = SimpleNamespace(dag_id=RUN.origin, run_id=RUN.run_id)
    other: Any = object()
    assert SERVER + QualityReportLink().get_link(other, ti_key=ti) == REPORT


def test_a_run_is_published(tmp_path: Path) -> None:
    docs = DataDocs(tmp_path)
    assert docs.summary(RUN.origin, RUN.run_id) is None
    summary = publish(docs, RUN)
    assert docs.summary(RUN.origin, RUN.run_id) == summary == RunSummary.of(RUN)


def test_where_the_pages_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_docs(load_settings()).root == configuration.work_dir() / "data-docs"
    for name, value in (("PATH", "/srv/docs"), ("KEEP_RUNS", "7"), ("KEEP_DAYS", "8")):
        monkeypatch.setenv(f"TIERING_DATA_DOCS__{name}", value)
    assert data_docs(load_settings()) == DataDocs(Path("/srv/docs"), keep_runs=7, keep_days=8)
