"""The tasks of `tiering_quality`: plan a verification, run it in batches, report it, and fail if a segment failed.

Each batch is a Spark job. XCom carries only small values, such as ids, counts and the lines of the first failed
segments; plans, outcomes, verdicts and failed rules are in the platform's own database, results of Great Expectations
in the data docs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.model.segments import Depth
from include.tiering.presentation import as_text, listed
from include.tiering.units import format_bytes
from include.tiering.verification.plan import PlanShare, VerificationOutcome, batches_for
from include.tiering.verification.quality_run import QualityRun
from include.tiering.verification.rules import Severity
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.data_docs import (
    FailedSegment,
    QualityReportLink,
    data_docs,
    error_of,
    failed_segments,
    publish,
    report_url,
)
from plugins.tiering_airflow.errors import QualityGateError, SparkJobError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.shared import PLAN_TASK_ID, PLANNED_RUN, PLANNED_RUN_KEY, amount, planned_run_id
from plugins.tiering_airflow.spark import ReaderJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from include.tiering.app import App
    from include.tiering.model.segments import TopicIdPartition
    from include.tiering.verification.plan import PlannedVerification, VerificationSample
    from include.tiering.verification.quality_run import RunSummary
    from include.tiering.verification.rules import QualityFinding
    from include.tiering.verification.verify_partitions import PartitionReport

VERIFY_TASK_ID: Final = "verify"
PREFIX: Final = "verify-"
BEGAN_KEY: Final = "tiering_began_at_ms"
DEPTH_KEY: Final = "tiering_depth"
RESULTS_KEY: Final = "tiering_results_dir"
COUNTED_KEY: Final = "tiering_counted"

_NAMED_LOCKED: Final = 5
_WITHOUT_VERDICT: Final = (VerificationOutcome.PLANNED, VerificationOutcome.MISSING, VerificationOutcome.LOCKED)

Batch = dict[str, int]
"""Arguments of one `VerifyBatchOperator`: its number in the run, from 0, and how many batches the run has."""


def _planned(key: str) -> str:
    return f"{{{{ ti.xcom_pull(task_ids='{PLAN_TASK_ID}', key='{key}') or '' }}}}"


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """Fields of the form of `tiering_quality`. If `share` or `limit_bytes` is None, the settings have the value."""

    topics: tuple[str, ...]
    depth: Depth
    which: str
    share: float | None
    limit_bytes: int | None
    dry_run: bool

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Self:
        return cls(
            tuple(params["topics"] or ()),
            Depth(params["depth"]),
            params["which"],
            params["share"],
            amount("limit_bytes", params["limit_bytes"], "bytes", at_least=1),
            params["dry_run"],
        )

    def sample(self, app: "App", share: float) -> "VerificationSample":
        from include.tiering.verification.plan import VerificationSample

        if self.which == ALL:
            return VerificationSample(everything=True, topics=self.topics)
        if self.which == FAILED:
            return VerificationSample(failed=True, topics=self.topics)
        wanted = share if self.share is None else self.share
        return VerificationSample(
            due=True, rolling_sample=app.verification.current_rolling_sample(wanted), topics=self.topics
        )


DUE, FAILED, ALL = "due", "failed", "all"


class PlanVerificationOperator(BaseOperator):
    """Expires verdicts (not in a dry run), chooses the segments to verify, and logs the cost before anything is read.

    Returns the arguments of the batches, and pushes the id of the planned run and what later tasks need. If there is
    nothing to verify, or in a dry run, it returns no batches, and pushes no id. It always pushes the plan's counts.
    """

    def execute(self, context: "Context") -> list[Batch]:
        """Run the task. Raises TieringError if the plan cannot be made or stored."""
        from include.tiering.verification.report import present_plan

        # The prefix, because runs of all DAGs share a table, and two DAGs may start in the same second.
        run_id = f"{PREFIX}{planned_run_id(context['run_id'], context['ti'].try_number)}"
        request = VerificationRequest.from_params(context["params"])
        with TieringHook().open() as app:
            settings = app.effective_configs.settings().verify
            configuration.require_mappable("tiering.verify.max.batches", settings.max_batches)
            plan = app.verification.plan(
                run_id,
                request.sample(app, settings.share),
                depth=request.depth,
                limit_bytes=request.limit_bytes or settings.max_bytes,
                dry_run=request.dry_run,
            )
            docs, began_at_ms = data_docs(app.settings), app.adapters.clock.now_ms()
            app.verification.publish_verdicts()
        for line in as_text(present_plan(plan)).splitlines():
            self.log.info("%s", line)
        if request.dry_run:
            self.log.info("Dry run: nothing is read")
        elif plan.planned:
            results = docs.begin(self.dag_id, context["run_id"])
            for key, value in (
                (PLANNED_RUN_KEY, run_id),
                (RESULTS_KEY, str(results)),
                (BEGAN_KEY, began_at_ms),
                (DEPTH_KEY, str(plan.depth)),
            ):
                context["ti"].xcom_push(key=key, value=value)
        cost = plan.cost
        counts = {"segments": len(plan.planned), "bytes": cost.read_bytes, "requests": cost.requests}
        counted = {**counts, "seconds": cost.seconds, "left_out": plan.left_out}
        context["ti"].xcom_push(key=COUNTED_KEY, value=counted)
        if request.dry_run or not plan.planned:
            return []
        batches = batches_for(len(plan.planned), cost.read_bytes, at_most=settings.max_batches)
        return [{"batch": number, "batches": batches} for number in range(batches)]


class VerifyBatchOperator(ReaderJobOperator):
    """One batch: a Spark job that verifies the rest of its part of the planned run.

    A retry continues where the previous try ended. If the pool becomes too small for the batch, the job ends after its
    group of segments, and the task continues once the pool has a slot for it; that is no retry. Failed segments do not
    fail this task; the summary reports them. Nor do segments that it cannot decrypt: the last task of the run names
    them. `ConcludeMissingOperator` decides about those that it finds missing.
    """

    repeats_tasks = True  # The Spark tasks only return measures, which the driver records.
    template_fields: Sequence[str] = (*ReaderJobOperator.template_fields, "planned_run_id")

    def __init__(self, *, batch: int, batches: int, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        arguments = ["--run-id", planned_run_id, "--share", f"{batch}/{batches}"]
        arguments += ["--results-dir", _planned(RESULTS_KEY)]
        super().__init__(job="verification.py", arguments=arguments, batch_id=f"{planned_run_id}/{batch}", **kwargs)
        self.batch = batch
        self.batches = batches
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> None:
        """Run the task. Raises SparkJobError or SparkJobRetriableError."""
        tasks = self._tasks_for_the_rest()
        if tasks is None:
            self.log.info("All of this batch has been verified")
            return
        self.application_args = [*(self.application_args or ()), "--tasks", str(tasks)]
        try:
            super().execute(context)
        except SparkJobError as error:
            if error.retriable or self._tasks_for_the_rest() is not None:
                raise

    def _tasks_for_the_rest(self) -> int | None:
        """Return the number of Spark tasks for the rest of this batch; None if nothing is left."""
        share = PlanShare(self.batch, self.batches)
        with TieringHook().open() as app:
            pending = app.adapters.stores.verifications.pending(self.planned_run_id, at_most=1, share=share)
            return app.effective_configs.settings().verify.tasks if pending else None


class ConcludeMissingOperator(BaseOperator):
    """Decides, after all batches, which segments that they found missing are lost; skipped if nothing was planned.

    The limits on missing segments hold for the whole plan. If a batch did not finish, nothing missing is recorded.
    """

    template_fields: Sequence[str] = ("planned_run_id", "results_dir")

    def __init__(
        self, *, planned_run_id: str = PLANNED_RUN, results_dir: str = _planned(RESULTS_KEY), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id
        self.results_dir = results_dir

    def execute(self, context: "Context") -> None:
        """Run the task.

        Raises:
            StoreInDoubtError: what is missing cannot be taken for lost, as the store may be the wrong one.
            TieringError: the missing segments cannot be measured or recorded.
        """
        if not self.planned_run_id:
            raise AirflowSkipException("nothing to verify")
        with TieringHook().open() as app:
            report = app.verification.conclude_missing(self.planned_run_id, results_dir=Path(self.results_dir))
            undecided = _with_outcome(app, self.planned_run_id, VerificationOutcome.MISSING)
            left = _with_outcome(app, self.planned_run_id, VerificationOutcome.PLANNED)
        if undecided:
            self.log.warning(
                "%d segments lack objects in the store. Nothing is recorded about them, because %d segments of the"
                " plan were not read; the next run that finds them due decides",
                undecided,
                left,
            )
        else:
            self.log.info("Segments found missing by batches, and measured again: %d", report.segments + report.gone)


class VerificationSummaryOperator(BaseOperator):
    """Verifies each partition of the run as a whole, writes the run's page, and logs a line for each failed segment.

    At most 50 segments get a line. Returns the arguments of `FailedSegmentOperator` for the first 20 failed segments.
    Skipped if nothing was planned.
    """

    template_fields: Sequence[str] = ("planned_run_id", "results_dir", "began_at_ms", "depth")
    operator_extra_links = (QualityReportLink(),)

    def __init__(
        self,
        *,
        planned_run_id: str = PLANNED_RUN,
        results_dir: str = _planned(RESULTS_KEY),
        began_at_ms: str = _planned(BEGAN_KEY),
        depth: str = _planned(DEPTH_KEY),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id
        self.results_dir = results_dir
        self.began_at_ms = began_at_ms
        self.depth = depth

    def execute(self, context: "Context") -> list[FailedSegment]:
        """Run the task. Raises TieringError if the partitions cannot be verified."""
        if not self.planned_run_id:
            raise AirflowSkipException("nothing to verify")
        with TieringHook().open() as app:
            partitions = app.verification.verify_partitions(self._partitions(app), results_dir=Path(self.results_dir))
            run = self._run(app, partitions, context["run_id"])
            left = _left(app, self.planned_run_id)
            summary = publish(data_docs(app.settings), run)
            app.verification.publish_verdicts()
        for line in lines_of_summary(summary):
            self.log.info("%s", line)
        self.log.info("Read %s. Report: %s", format_bytes(run.bytes_read), report_url(run.origin, run.run_id))
        if left:
            self.log.warning("%d segments of the plan are left; the next run verifies those that are due", left)
        for outlet in self.outlets:
            counts = {"segments": run.segments, "findings": len(run.failed), "left": left, "bytes": run.bytes_read}
            context["outlet_events"][outlet].extra = {"run_id": self.planned_run_id, **counts}
        return failed_segments(summary)

    def _partitions(self, app: "App") -> list["TopicIdPartition"]:
        planned = (
            verification
            for outcome in VerificationOutcome
            for verification in app.adapters.stores.verifications.planned(self.planned_run_id, outcome)
        )
        return sorted(
            {verification.segment_id.topic_id_partition for verification in planned},
            key=lambda each: (each.topic, each.partition),
        )

    def _run(self, app: "App", partitions: "PartitionReport", run_id: str) -> QualityRun:
        totals = {total.outcome: total for total in app.adapters.stores.verifications.totals(self.planned_run_id)}
        verified = [totals[VerificationOutcome.PASSED], totals[VerificationOutcome.FAILED]]
        found = app.verification.findings_of(self.planned_run_id)
        failed = [finding for severity, finding in found if severity is Severity.CRITICAL]
        warnings = [finding for severity, finding in found if severity is Severity.WARNING]
        return QualityRun(
            origin=self.dag_id,
            run_id=run_id,
            depth=self.depth,
            began_at_ms=int(self.began_at_ms),
            ended_at_ms=app.adapters.clock.now_ms(),
            segments=sum(total.segments for total in verified),
            bytes_read=sum(total.read_bytes for total in totals.values()),
            failed=together(failed, partitions.failed),
            warnings=together(warnings, partitions.warnings),
            partitions=partitions.partitions,
        )


class VerificationOutcomeOperator(BaseOperator):
    """The last task of a run: if a segment failed, it fails with the lines of the summary, and so the run fails.

    It also fails if segments of the plan are left without a verdict, for example because a person marked a batch as
    successful, or because a private key is missing.
    """

    template_fields: Sequence[str] = ("planned_run_id",)
    operator_extra_links = (QualityReportLink(),)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> None:
        """Raise QualityGateError if a segment failed, could not be decrypted, or got no verdict."""
        if not self.planned_run_id:
            return
        summary = data_docs(TieringHook().settings()).summary(self.dag_id, context["run_id"])
        with TieringHook().open() as app:
            locked = app.adapters.stores.verifications.planned(self.planned_run_id, VerificationOutcome.LOCKED)
            left = _left(app, self.planned_run_id) - len(locked)
        lines = [line_of_locked(locked)] if locked else []
        if summary is not None and not summary.is_right:
            raise error_of(summary, lines)
        if left:
            lines.append(
                f"{left} segments of {self.planned_run_id} got no verdict: clear the task {VERIFY_TASK_ID} of this run,"
                " with the tasks after it"
            )
        if lines:
            raise QualityGateError("\n".join(lines))


def line_of_locked(locked: Sequence["PlannedVerification"]) -> str:
    """Return a line that names the first segments that could not be decrypted, and what to do."""
    named = [
        f"{each.segment_id.topic_id_partition} from offset {each.start_offset}, segment {each.segment_id.id}"
        for each in locked
    ]
    return (
        f"{len(locked)} segments were not verified, because a private key is missing where the task {VERIFY_TASK_ID}"
        f" ran: {listed(named, _NAMED_LOCKED)}."
        " Its log names the key. Once the key is there, the next run verifies them"
    )


def lines_of_summary(summary: "RunSummary") -> list[str]:
    """Return the summary's sentence, and its lines of failed segments, each with the URL of its line in the report."""
    lines = [f"{line} {report_url(summary.origin, summary.run_id, line.segment_id)}" for line in summary.first_lines]
    return [summary.sentence, *lines]


def together(found: Iterable["QualityFinding"], of_partitions: Iterable["QualityFinding"]) -> list["QualityFinding"]:
    """Merge findings so that each rule of each segment occurs once: `found` may have those about partitions, too."""
    by_rule = {
        (finding.topic_id, finding.partition, finding.segment_id, finding.rule): finding
        for finding in (*of_partitions, *found)
    }
    return sorted(
        by_rule.values(), key=lambda finding: (finding.topic, finding.partition, finding.start_offset, finding.rule)
    )


def _with_outcome(app: "App", run_id: str, outcome: VerificationOutcome) -> int:
    totals = app.adapters.stores.verifications.totals(run_id)
    return next(total.segments for total in totals if total.outcome is outcome)


def _left(app: "App", run_id: str) -> int:
    """Return how many segments have no verdict of this run: not read, not decrypted, or missing and not decided."""
    return sum(_with_outcome(app, run_id, each) for each in _WITHOUT_VERDICT)
