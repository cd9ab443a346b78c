"""The tasks of `tiering_quality` over the real library; what Spark would measure is measured in this process."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred
from airflow.sdk.timezone import utcnow

from include.tiering.app import App
from include.tiering.configs.pools import READER_POOL
from include.tiering.configs.service import ConfigService
from include.tiering.errors import SegmentKeyError, StoreInDoubtError
from include.tiering.model.segments import Depth, Verdict
from include.tiering.segments.values import SegmentRow
from include.tiering.verification import plan as plan_module
from include.tiering.verification import verify_segments
from include.tiering.verification.measure_segment import measure_segment
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.plan import PlanShare, VerificationOutcome, VerificationSample
from plugins.tiering_airflow.data_docs import report_url
from plugins.tiering_airflow.errors import (
    QualityGateError,
    SparkJobError,
    SparkJobRetriableError,
    SparkJobSurplusError,
)
from plugins.tiering_airflow.shared import PLANNED_RUN_KEY, VERDICTS
from plugins.tiering_airflow.verification import (
    BEGAN_KEY,
    COUNTED_KEY,
    DEPTH_KEY,
    RESULTS_KEY,
    ConcludeMissingOperator,
    PlanVerificationOperator,
    VerificationOutcomeOperator,
    VerificationSummaryOperator,
    VerifyBatchOperator,
    together,
)
from tests.doubles.airflow_home import Deployment, TaskInstance, deployed_for, deployment
from tests.doubles.present import present
from tests.doubles.recorded_metrics import stored_value
from tests.unit.verification.data_docs.test_pages import FINDING

RUN_ID = "manual__2026-01-01"
FORM = {"topics": None, "depth": "deep", "which": "due", "share": None, "limit_bytes": None, "dry_run": False}


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    """Two topics copied, nothing verified."""
    made = deployed_for(monkeypatch, deployment(tmp_path))
    monkeypatch.setenv("TIERING_DATA_DOCS__PATH", str(tmp_path / "docs"))
    monkeypatch.setenv("AIRFLOW__TIERING__WORK_DIR", str(tmp_path / "work"))
    made.copied("payments*", "audit_log", run_id="copy-1")
    return made


class Run:
    """One DAG run, task by task."""

    def __init__(self, **form: Any) -> None:
        self.instance = TaskInstance()
        self.context: Any = {"params": {**FORM, **form}, "run_id": RUN_ID, "ti": self.instance}

    def plan(self) -> dict[str, Any]:
        self.batches = PlanVerificationOperator(task_id="plan").execute(self.context)
        return self.instance.pushed[COUNTED_KEY]

    def verify(self, monkeypatch: pytest.MonkeyPatch, job: Any) -> VerifyBatchOperator:
        monkeypatch.setattr(VerifyBatchOperator, "_hook_for", lambda self, scratch: None)
        monkeypatch.setattr(SparkSubmitOperator, "execute", lambda self, context: job(self))
        operators = [
            VerifyBatchOperator(task_id="verify", planned_run_id=self.planned_run, **each) for each in self.batches
        ]
        for operator in operators:
            operator.execute(self.context)
        return operators[-1]

    def missing(self) -> None:
        operator = ConcludeMissingOperator(
            task_id="missing", planned_run_id=self.planned_run, results_dir=self.instance.pushed.get(RESULTS_KEY, "")
        )
        operator.execute(self.context)

    def summary(self) -> list[Any]:
        pushed = self.instance.pushed
        operator = VerificationSummaryOperator(
            task_id="summary",
            planned_run_id=self.planned_run,
            results_dir=pushed[RESULTS_KEY],
            began_at_ms=str(pushed[BEGAN_KEY]),
            depth=pushed[DEPTH_KEY],
            outlets=[VERDICTS],
        )
        self.event = SimpleNamespace(extra={})
        context: Any = {**self.context, "outlet_events": {VERDICTS: self.event}}
        return operator.execute(context)

    def outcome(self) -> None:
        VerificationOutcomeOperator(task_id="outcome", planned_run_id=self.planned_run).execute(self.context)

    @property
    def planned_run(self) -> str:
        return self.instance.pushed.get(PLANNED_RUN_KEY, "")


@pytest.fixture(autouse=True)
def dag_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of a test belong to no DAG."""
    for operator in (PlanVerificationOperator, VerificationSummaryOperator, VerificationOutcomeOperator):
        monkeypatch.setattr(operator, "dag_id", "tiering_quality", raising=False)


def in_this_process(made: Deployment, error: Exception | None = None) -> Any:
    def job(operator: VerifyBatchOperator) -> None:
        share = PlanShare(operator.batch, operator.batches)
        with made.open() as app:
            app.verification.run_planned(operator.planned_run_id, share=share)
        if error is not None:
            raise error

    return job


def verdicts(app: App) -> set[Verdict]:
    return {total.verdict for total in app.adapters.stores.metadata.verdict_totals() if total.segments}


def test_the_plan_says_what_it_costs_and_how_old_verdicts_are(deployed: Deployment, capfd) -> None:
    run = Run(share=0)
    counts = run.plan()
    said = capfd.readouterr().out
    assert f"{counts['segments']} of {counts['segments']} segments, deep: about" in said
    assert "no fetch quota" in said
    assert counts["seconds"] is None
    assert run.planned_run == f"verify-{RUN_ID}"
    assert Path(run.instance.pushed[RESULTS_KEY]).is_dir()
    with deployed.open() as app:
        none = stored_value(app.adapters.metrics_writer.series, "tiering_verdict_segments", {"verdict": "none"})
    assert none == counts["segments"]


def test_a_dry_run_plans_nothing_and_the_form_narrows_what_is_chosen(deployed: Deployment, capfd) -> None:
    run = Run(which="all", dry_run=True)
    whole = run.plan()["segments"]
    assert "Dry run: nothing is read" in capfd.readouterr().out
    assert (run.batches, run.planned_run) == ([], "")
    run.outcome()
    assert 0 < Run(which="all", topics=["audit*"], dry_run=True).plan()["segments"] < whole
    counts = Run(which="all", limit_bytes=1, dry_run=True).plan()
    assert (counts["segments"], counts["left_out"]) == (1, whole - 1)


def test_without_a_plan_nothing_is_read_and_nothing_fails(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(which="failed")
    assert run.plan()["segments"] == 0
    assert run.batches == []
    with pytest.raises(AirflowSkipException):
        run.missing()
    with pytest.raises(AirflowSkipException):
        VerificationSummaryOperator(task_id="summary", planned_run_id="").execute(run.context)
    run.outcome()


def test_a_run_that_finds_nothing(deployed: Deployment, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    run = Run()
    planned = run.plan()["segments"]
    verified = run.verify(monkeypatch, in_this_process(deployed))
    arguments = present(verified.application_args)
    assert arguments[arguments.index("--tasks") + 1] == "8"
    assert arguments[:4] == ["--run-id", run.planned_run, "--share", f"{run.batches[-1]['batch']}/{len(run.batches)}"]
    assert arguments[arguments.index("--batch-id") + 1] == f"{run.planned_run}/{len(run.batches) - 1}"
    assert arguments[arguments.index("--pool") + 1] == "remote_log_reader"
    run.missing()
    assert run.summary() == []
    assert run.event.extra["run_id"] == run.planned_run
    assert (run.event.extra["segments"], run.event.extra["findings"], run.event.extra["left"]) == (planned, 0, 0)
    assert f"All {planned} segments passed" in capfd.readouterr().out
    run.outcome()
    with deployed.open() as app:
        assert verdicts(app) == {Verdict.PASSED}
    # All of the plan is done: another try starts no job.
    run.verify(monkeypatch, None)


def test_the_first_screen_names_each_failed_segment_with_its_address(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    log = sorted(deployed.remote.rglob("*.log"))[3]
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    segment_id = log.stem[21:]
    run = Run()
    planned = run.plan()["segments"]
    run.verify(monkeypatch, in_this_process(deployed, SparkJobError("ended with findings (exit code 1)")))
    run.missing()
    (failed,) = run.summary()
    assert failed["segment_id"] == segment_id
    assert run.event.extra["findings"] == 2  # Q102 and Q262
    address = report_url("tiering_quality", RUN_ID, segment_id)
    said = capfd.readouterr().out
    (line,) = (line for line in said.splitlines() if address in line)
    assert f"segment {segment_id}: Q102" in line
    assert f"1 of {planned} segments failed" in said
    with pytest.raises(QualityGateError, match=segment_id):
        run.outcome()
    with deployed.open() as app:
        assert verdicts(app) == {Verdict.PASSED, Verdict.FAILED}


def test_a_job_that_did_not_finish_fails_its_task(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    run.plan()
    for error in (SparkJobRetriableError("killed"), SparkJobError("a setting")):

        def fails(_: VerifyBatchOperator, error: SparkJobError = error) -> None:
            raise error

        with pytest.raises(type(error)):
            run.verify(monkeypatch, fails)


def test_batches_divide_the_plan_and_one_task_decides_what_they_miss(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    """Each batch misses one segment, which is within the limits; together they miss too many."""
    monkeypatch.setattr(plan_module, "SEGMENTS_OF_A_BATCH", 2)
    monkeypatch.setenv("TIERING_VERIFY__MAX__MISSING__TOTAL", "3")
    run = Run()
    planned = run.plan()["segments"]
    assert run.batches == [{"batch": number, "batches": 4} for number in range(4)]
    with deployed.open() as app:
        for share in (PlanShare(number, 4) for number in range(4)):
            victim = app.adapters.stores.verifications.pending(run.planned_run, at_most=1, share=share)[0]
            next(deployed.remote.rglob(f"*{victim.segment_id.id}.log")).unlink()
    run.verify(monkeypatch, in_this_process(deployed))
    with pytest.raises(StoreInDoubtError, match=f"4 of {planned} segments"):
        run.missing()
    with deployed.open() as app:
        totals = {each.outcome: each.segments for each in app.adapters.stores.verifications.totals(run.planned_run)}
        assert verdicts(app) == {Verdict.NONE, Verdict.PASSED}
    assert totals[VerificationOutcome.MISSING] == 4
    assert run.summary() == []
    assert run.event.extra["left"] == 4, "who reads the run's report or event learns that these are undecided"
    assert "4 segments of the plan are left" in capfd.readouterr().out
    with pytest.raises(QualityGateError, match=r"4 segments of .* got no verdict"):
        run.outcome()
    monkeypatch.setenv("TIERING_VERIFY__MAX__MISSING__TOTAL", "4")
    monkeypatch.setenv("TIERING_VERIFY__MAX__MISSING__SEGMENTS", "4")
    run.missing()
    with deployed.open() as app:
        assert verdicts(app) == {Verdict.FAILED, Verdict.PASSED}
    assert len(run.summary()) == 4


def test_segments_without_a_private_key_are_named_and_hold_up_no_conclusion(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run()
    run.plan()
    with deployed.open() as app:
        victim, lost = app.adapters.stores.verifications.pending(run.planned_run, at_most=2)
    next(deployed.remote.rglob(f"*{lost.segment_id.id}.log")).unlink()

    def without_a_key(row: SegmentRow, **rest: Any) -> SegmentMeasure:
        if row.metadata.remote_log_segment_id == victim.segment_id:
            raise SegmentKeyError("encrypted for key pair 'nobody'")
        return measure_segment(row, **rest)

    monkeypatch.setattr(verify_segments, "measure_segment", without_a_key)

    def job(operator: VerifyBatchOperator) -> None:
        with pytest.raises(SegmentKeyError, match="'nobody'"):
            in_this_process(deployed)(operator)
        raise SparkJobError("exit code 1")

    run.verify(monkeypatch, job)
    run.missing()
    with deployed.open() as app:
        totals = {each.outcome: each.segments for each in app.adapters.stores.verifications.totals(run.planned_run)}
    assert (totals[VerificationOutcome.FAILED], totals[VerificationOutcome.LOCKED]) == (1, 1)
    run.summary()
    with pytest.raises(QualityGateError, match=f"private key.* {victim.segment_id.topic_id_partition} from offset"):
        run.outcome()
    with deployed.open() as app:
        again = app.verification.plan(
            "verify-again", VerificationSample(due=True), depth=Depth.SHALLOW, limit_bytes=None
        )
    assert victim.segment_id in {each.segment_id for each in again.planned}


def test_if_a_batch_did_not_finish_nothing_missing_is_recorded(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    monkeypatch.setattr(plan_module, "SEGMENTS_OF_A_BATCH", 2)
    run = Run()
    run.plan()
    with deployed.open() as app:
        first = app.adapters.stores.verifications.pending(run.planned_run, at_most=1)[0]
        next(deployed.remote.rglob(f"*{first.segment_id.id}.log")).unlink()
        app.verification.run_planned(run.planned_run, share=PlanShare(0, 4))
    run.missing()
    assert "Nothing is recorded about them" in capfd.readouterr().out
    with deployed.open() as app:
        assert verdicts(app) == {Verdict.NONE, Verdict.PASSED}
    run.verify(monkeypatch, in_this_process(deployed))
    run.missing()
    with deployed.open() as app:
        assert verdicts(app) == {Verdict.FAILED, Verdict.PASSED}


def test_a_batch_whose_pool_became_too_small_waits_for_a_slot(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run()
    run.plan()

    def is_surplus(_: VerifyBatchOperator) -> None:
        raise SparkJobSurplusError("its pool became too small")

    with pytest.raises(TaskDeferred) as deferred:
        run.verify(monkeypatch, is_surplus)
    assert deferred.value.method_name == "execute_again"
    monkeypatch.setattr(SparkSubmitOperator, "execute", lambda self, context: in_this_process(deployed)(self))
    operator = VerifyBatchOperator(task_id="verify", planned_run_id=run.planned_run, **run.batches[0])
    operator.execute_again(run.context, {})
    with deployed.open() as app:
        assert verdicts(app) == {Verdict.PASSED}


def test_while_airflow_does_not_answer_a_pool_without_slots_is_asked_less_and_less(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirrored size is 0 and cannot be read again: no job begins, only to end at once."""
    run = Run()
    run.plan()
    with deployed.open() as app:
        app.adapters.stores.pool_mirror.record(READER_POOL, 0, seen=None, author="test")

    def begins(_: Any) -> None:
        pytest.fail("a job begins")

    with pytest.raises(TaskDeferred) as first:
        run.verify(monkeypatch, begins)
    operator = VerifyBatchOperator(task_id="verify", planned_run_id=run.planned_run, **run.batches[0])

    def goes_on(deferred: TaskDeferred) -> TaskDeferred:
        with pytest.raises(TaskDeferred) as again:
            operator.execute_again(run.context, {}, **present(deferred.kwargs))
        return again.value

    def wait_of(deferred: TaskDeferred) -> int:
        return 5 * round((deferred.trigger.moment - utcnow()).total_seconds() / 5)

    waits, deferred = [wait_of(first.value)], first.value
    for _ in range(9):
        deferred = goes_on(deferred)
        waits.append(wait_of(deferred))
    assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]

    # Airflow answers again: its size counts, and the next wait is short.
    monkeypatch.setattr(ConfigService, "mirror_pools", lambda _: {})

    def is_surplus(_: Any) -> None:
        raise SparkJobSurplusError("its pool became too small")

    monkeypatch.setattr(SparkSubmitOperator, "execute", lambda self, context: is_surplus(self))
    deferred = goes_on(deferred)
    assert wait_of(deferred) == 5
    assert wait_of(goes_on(deferred)) == 5


def test_a_finding_that_is_told_twice_is_one() -> None:
    other = dataclasses.replace(FINDING, rule="Q401")
    assert together([FINDING, other], [FINDING]) == [FINDING, other]
    assert together([], [other]) == [other]
