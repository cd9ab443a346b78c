"""The tasks of `tiering_copy` over the real library: plan, gate, summary; the batch itself runs in this process."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.copying.run_scope import RunScope
from include.tiering.errors import SettingError
from plugins.tiering_airflow import copying
from plugins.tiering_airflow.copying import (
    FINDINGS_KEY,
    QUEUED_BATCHES_KEY,
    CopyBatchOperator,
    CopySummaryOperator,
    PlanCopyOperator,
    QualityGateOperator,
    QueuedBatchesOperator,
    RunOutcomeOperator,
    ScanQueueOperator,
)
from plugins.tiering_airflow.errors import PlanFindingsError, QualityGateError
from plugins.tiering_airflow.shared import PLANNED_RUN_KEY, planned_run_id
from plugins.tiering_airflow.spark import SparkJobOperator
from tests.doubles.airflow_home import Deployment, TaskInstance, deployed_for, deployment
from tests.doubles.broker_data import broker_data
from tests.doubles.present import present
from tests.doubles.self_contained import parsed

RUN_ID = "manual__2026-01-01"
OUTLET = Asset("tiering_remote_log")
FORM = {"topics": None, "limit_bytes": None, "dry_run": False}


class _TaskInstance(TaskInstance):
    """Knows how often each task of the run started."""

    def __init__(self, try_number: int = 1, tasks: frozenset[str] = frozenset()) -> None:
        super().__init__(try_number)
        self._tasks = tasks

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        assert task_ids == "plan"
        return super().xcom_pull(task_ids, key)

    def get_ti_count(
        self, *, dag_id: str, task_ids: list[str], run_ids: list[str], states: Sequence[str] | None = None
    ) -> int:
        assert run_ids == [RUN_ID]
        if states is not None:
            return self.ended_scans(task_ids)
        return len(self._tasks.intersection(task_ids))

    def ended_scans(self, task_ids: list[str]) -> int:
        raise AssertionError(f"the plan asks about {task_ids}")


class _Event:
    extra: dict[str, Any]


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    made = deployment(tmp_path)
    monkeypatch.setenv("TIERING_DATA_DOCS__PATH", str(tmp_path / "docs"))
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def _batch(number: int, spark_resource: str | None = None) -> dict[str, Any]:
    return {"batch": number, "spark_resource": spark_resource}


def _plan(instance: _TaskInstance | None = None, **form: Any) -> tuple[list[dict[str, Any]], _TaskInstance]:
    instance = instance or _TaskInstance()
    context: Any = {"params": {**FORM, **form}, "run_id": RUN_ID, "ti": instance}
    return PlanCopyOperator(task_id="plan").execute(context), instance


def _copy_inline(deployed: Deployment) -> None:
    with deployed.open() as app:
        app.copying.run_batch(RUN_ID, "0.1")


def _gate() -> dict[str, int]:
    context: Any = {"run_id": RUN_ID}
    return QualityGateOperator(task_id="gate", planned_run_id=RUN_ID).execute(context)


def test_as_many_batches_as_partitions_with_work(deployed: Deployment) -> None:
    batches, instance = _plan()
    assert batches == [_batch(number) for number in range(11)]
    assert instance.pushed == {PLANNED_RUN_KEY: RUN_ID, FINDINGS_KEY: 0}


def test_what_the_plan_met_decides_the_outcome() -> None:
    RunOutcomeOperator(task_id="outcome", findings="0", planned_run_id="").execute({})
    with pytest.raises(PlanFindingsError, match="2 findings need a person"):
        RunOutcomeOperator(task_id="outcome", findings="2").execute({})


def test_work_that_was_left_without_a_reason_decides_it_too(deployed: Deployment) -> None:
    outcome = RunOutcomeOperator(task_id="outcome", findings="0", planned_run_id=RUN_ID)
    _plan(topics=["audit_log"])
    with pytest.raises(PlanFindingsError, match=r"segments of 2 partitions were not copied, unexplained.*: audit_log-"):
        outcome.execute({})
    with deployed.open() as app:
        app.copying.plan("another", scope=RunScope(("audit_log",)))
        leases = [
            app.adapters.stores.work.claim("another", f"another/{number}", lease_ms=60_000) for number in range(2)
        ]
        outcome.execute({})
        for lease in leases:
            assert lease is not None
            app.adapters.stores.work.release(lease)
    _copy_inline(deployed)
    outcome.execute({})


def test_no_more_batches_than_the_setting_allows(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERING_COPIER__MAX__BATCHES", "3")
    assert _plan()[0] == [_batch(0), _batch(1), _batch(2)]


def test_more_batches_than_airflow_maps_are_refused_before_anything_is_planned(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "15")
    with pytest.raises(SettingError, match=r"tiering\.copier\.max\.batches is 16, .* at most 15 batches"):
        _plan()
    with deployed.open() as app:
        assert not app.adapters.stores.work.items(RUN_ID)
    monkeypatch.setenv("TIERING_COPIER__MAX__BATCHES", "15")
    assert _plan()[0]


def test_the_form_chooses_topics_and_a_limit(deployed: Deployment) -> None:
    assert len(_plan(topics=["audit_log", "orders*"])[0]) == 4


def test_a_limit_takes_whole_segments(deployed: Deployment, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(_plan(limit_bytes=1)[0]) == 1
    assert "To copy: 1 segments of 1 partitions" in capfd.readouterr().out


def test_a_dry_run_plans_and_starts_nothing(deployed: Deployment, capfd: pytest.CaptureFixture[str]) -> None:
    assert _plan(dry_run=True)[0] == []
    assert "Dry run: 43 segments of 11 partitions" in capfd.readouterr().out
    with deployed.open() as app:
        assert app.adapters.stores.work.items(RUN_ID) == []


def test_with_nothing_left_the_plan_says_so(deployed: Deployment, capfd: pytest.CaptureFixture[str]) -> None:
    assert _plan(topics=["no-such-topic"])[0] == []
    assert "Nothing to copy" in capfd.readouterr().out


RACKS = {1: "queue = 'rack-a'", 2: "queue = 'rack-b'\nspark_resource = 'local_disk'"}


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    return deployed_for(monkeypatch, deployment(tmp_path, placements=RACKS))


def test_batches_of_a_queue_are_for_its_task(placed: Deployment) -> None:
    anywhere, instance = _plan(_TaskInstance(tasks=frozenset({"copy_rack-a", "copy_rack-b"})))
    assert anywhere == []
    context: Any = {"ti": instance}
    rack_a, rack_b, unknown = (
        QueuedBatchesOperator(task_id="batches", batches_of=queue).execute(context)
        for queue in ("rack-a", "rack-b", "rack-c")
    )
    assert {batch["spark_resource"] for batch in rack_a} == {None}
    assert {batch["spark_resource"] for batch in rack_b} == {"local_disk"}
    assert unknown == []
    assert sorted(batch["batch"] for batch in rack_a + rack_b) == list(range(11))
    assert instance.pushed[FINDINGS_KEY] == 0


def test_a_queue_that_the_scheduler_does_not_know_is_a_finding(
    placed: Deployment, capfd: pytest.CaptureFixture[str]
) -> None:
    _, instance = _plan(_TaskInstance(tasks=frozenset({"copy_rack-a"})))
    assert instance.pushed[FINDINGS_KEY] == 1
    assert "Queue rack-b: this run has no task for it" in capfd.readouterr().out


class OtherHost:
    """The log dir of broker 2, which exists only while a worker of rack-b runs."""

    def __init__(self, made: Deployment) -> None:
        self._away, self._here = made.directory / "on another host", made.directory / "broker-2"
        shutil.copytree(broker_data("public") / "stopped" / "broker-2", self._away)
        text = made.config.read_text()
        made.config.write_text(text.replace(str(broker_data("public") / "stopped" / "broker-2"), str(self._here)))
        self.made = made

    def scan(self) -> dict[str, int]:
        self._away.rename(self._here)
        try:
            context: Any = {"params": FORM, "run_id": RUN_ID}
            return ScanQueueOperator(task_id="scan_rack-b", reads_queue="rack-b").execute(context)
        finally:
            self._here.rename(self._away)


@pytest.fixture
def other_host(placed: Deployment) -> OtherHost:
    return OtherHost(placed)


def _queues(instance: _TaskInstance) -> dict[str, int]:
    return {queue: len(batches) for queue, batches in instance.pushed[QUEUED_BATCHES_KEY].items()}


class _Scanning(_TaskInstance):
    """Each look at the task of a scan does something."""

    def __init__(self, look: Callable[[], int]) -> None:
        super().__init__(tasks=frozenset({"copy_rack-a", "copy_rack-b"}))
        self._look = look

    def ended_scans(self, task_ids: list[str]) -> int:
        assert task_ids == ["scan_rack-b"]
        return self._look()


def test_a_plan_takes_what_a_worker_of_the_queue_reported(other_host: OtherHost) -> None:
    found = other_host.scan()
    assert found["replicas"] > 0
    _, instance = _plan(_TaskInstance(tasks=frozenset({"copy_rack-a", "copy_rack-b"})))
    # All brokers were stopped: of the three partitions with a replica on each no host can say which one is ahead.
    assert _queues(instance) == {"rack-a": 5, "rack-b": 3}
    assert instance.pushed[FINDINGS_KEY] == 3


def test_a_plan_waits_for_a_scan_that_is_under_way(
    other_host: OtherHost, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(copying, "_SCAN_POLL_SECONDS", 0.01)
    looks: list[int] = []

    def look() -> int:
        looks.append(1)
        if len(looks) == 3:
            other_host.scan()
        return 0

    _, instance = _plan(_Scanning(look))
    assert (len(looks), set(_queues(instance))) == (3, {"rack-a", "rack-b"})
    assert "Not scanned" not in capfd.readouterr().out


@pytest.mark.parametrize(("ended", "seconds"), [(1, 600.0), (0, 0.0)], ids=["the scan failed", "no worker came"])
def test_a_queue_without_a_scan_holds_up_nobody_else(
    other_host: OtherHost,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    ended: int,
    seconds: float,
) -> None:
    monkeypatch.setattr(copying, "SCAN_WAIT_SECONDS", seconds)
    _, instance = _plan(_Scanning(lambda: ended))
    assert set(_queues(instance)) == {"rack-a"}
    assert instance.pushed[FINDINGS_KEY] > 0
    said = capfd.readouterr().out
    assert "Not scanned in this run: queue rack-b. Does a worker of it run?" in said
    assert "no worker of queue rack-b has reported it" in said


def test_a_plan_that_reads_all_log_dirs_waits_for_no_scan(placed: Deployment) -> None:
    _, instance = _plan(_TaskInstance(tasks=frozenset({"copy_rack-a", "copy_rack-b"})))
    assert set(_queues(instance)) == {"rack-a", "rack-b"}


def test_a_gate_without_a_plan_is_skipped() -> None:
    with pytest.raises(AirflowSkipException, match="nothing was planned"):
        QualityGateOperator(task_id="gate", planned_run_id="").execute({})


def test_a_plan_that_is_made_again_has_an_id_of_its_own() -> None:
    assert [planned_run_id(RUN_ID, n) for n in (1, 2)] == [RUN_ID, f"{RUN_ID}.2"]
    assert planned_run_id(f"{RUN_ID}.2", 1) != planned_run_id(RUN_ID, 2)


def test_gate_and_summary_of_a_good_run(deployed: Deployment, capfd: pytest.CaptureFixture[str]) -> None:
    _plan(topics=["audit_log"])
    _copy_inline(deployed)
    assert _gate() == {"segments": 3}
    event = _Event()
    context: Any = {"outlet_events": {OUTLET: event}}
    counts = CopySummaryOperator(task_id="summary", outlet=OUTLET, planned_run_id=RUN_ID).execute(context)
    assert counts == {"segments": 3, "failed": 0, "bytes": 23935}
    assert event.extra == {"run_id": RUN_ID, **counts}
    assert "audit_log-0" in capfd.readouterr().out


def test_the_gate_names_each_segment_that_differs_from_its_source(deployed: Deployment) -> None:
    _plan(topics=["audit_log"])
    _copy_inline(deployed)
    damaged = max(deployed.remote.rglob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.chmod(0o644)
    damaged.write_bytes(content)
    with pytest.raises(QualityGateError) as refused:
        _gate()
    first, line = str(refused.value).splitlines()
    assert first.startswith("1 of 3 segments failed. Report: http://localhost:8080/tiering/quality/dags/")
    assert line.startswith("audit_log-")
    assert ", segment " in line
    assert "Q102" in line
    assert not refused.value.retriable
    (page,) = (deployed.directory / "docs").glob("*/*/index.html")
    report = parsed(page.read_bytes())
    (anchor,) = report.ids
    assert line.endswith(f"#{anchor}")
    assert "1 of 3 segments failed" in report.text
    assert report.faults == []


def test_a_run_that_copied_nothing_wakes_nobody(deployed: Deployment) -> None:
    _plan(topics=["audit_log"])
    with pytest.raises(AirflowSkipException):
        CopySummaryOperator(task_id="summary", outlet=OUTLET, planned_run_id=RUN_ID).execute({})


def test_a_batch_without_work_ends_before_spark_starts(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _plan(topics=["audit_log"])
    _copy_inline(deployed)
    monkeypatch.setenv("PATH", "")  # spark-submit would not be found
    CopyBatchOperator(task_id="copy", batch=1, planned_run_id=RUN_ID).execute({})
    assert "No work left for this batch" in capfd.readouterr().out


def test_a_batch_ends_before_spark_starts_while_others_hold_all_that_is_left(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _plan(topics=["audit_log"])
    with deployed.open() as app:
        work = app.adapters.stores.work
        for partition in {item.topic_id_partition for item in work.items(RUN_ID)}:
            others = {item.topic_id_partition for item in work.items(RUN_ID)} - {partition}
            assert work.claim(RUN_ID, f"{RUN_ID}/0", lease_ms=60_000, exclude=others) is not None
    monkeypatch.setenv("PATH", "")  # spark-submit would not be found
    second = CopyBatchOperator(task_id="copy", batch=1, planned_run_id=RUN_ID)
    second.execute({})
    assert "No work left for this batch: other batches hold the partitions that are left" in capfd.readouterr().out
    started: list[int] = []
    monkeypatch.setattr(SparkJobOperator, "execute", lambda self, context: started.append(self.batch))
    # A batch waits for the end of a pause, and a retry of a batch takes over its own lease.
    CopyBatchOperator(task_id="copy", batch=0, planned_run_id=RUN_ID).execute({})
    with deployed.open() as app:
        app.adapters.stores.work.pause("audit_log", author="ops")
    second.execute({})
    assert started == [0, 1]


def test_a_batch_looks_for_work_of_its_own_placement(
    placed: Deployment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _plan(_TaskInstance(tasks=frozenset({"copy_rack-a", "copy_rack-b"})))
    monkeypatch.setenv("PATH", "")  # spark-submit would not be found
    CopyBatchOperator(task_id="copy_rack-b", batch=1, reads_queue="rack-b", planned_run_id=RUN_ID).execute({})
    assert "No work left for this batch" in capfd.readouterr().out


def test_a_batch_tells_its_job_its_placement() -> None:
    operator = CopyBatchOperator(
        task_id="copy_rack-b", batch=4, reads_queue="rack-b", spark_resource="local_disk", planned_run_id=RUN_ID
    )
    assert present(operator.application_args)[-4:] == ["--queue", "rack-b", "--spark-resource", "local_disk"]


def test_a_batch_tells_its_job_run_batch_and_pool() -> None:
    operator = CopyBatchOperator(task_id="copy", batch=4, planned_run_id=RUN_ID)
    assert operator.application_args == [
        "--run-id", RUN_ID, "--batch-id", f"{RUN_ID}/4", "--pool", "remote_log_copier",
    ]  # fmt: skip
