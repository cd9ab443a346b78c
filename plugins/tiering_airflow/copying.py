"""The tasks of `tiering_copy`. Each opens the library, and logs, returns or checks what its services return.

XCom carries ids and counts; work, progress and results are in the platform's own database. `QualityGateOperator`
verifies what the run copied before the asset is updated.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.model.segments import Depth
from include.tiering.presentation import as_text
from include.tiering.runs.contract import Placement, SegmentOutcome, WorkItem
from include.tiering.units import format_bytes
from include.tiering.verification.quality_run import QualityRun
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.data_docs import QualityReportLink, data_docs, error_of, publish, report_url
from plugins.tiering_airflow.errors import PlanFindingsError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.pools import COPIER_POOL, mirrored_pools
from plugins.tiering_airflow.run_form import form_of, scope_of
from plugins.tiering_airflow.shared import PLAN_TASK_ID, PLANNED_RUN, PLANNED_RUN_KEY, amount, planned_run_id
from plugins.tiering_airflow.spark import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context

    from include.tiering.app import App


FINDINGS_KEY: Final = "tiering_findings"
FINDINGS: Final = f"{{{{ ti.xcom_pull(task_ids='{PLAN_TASK_ID}', key='{FINDINGS_KEY}') }}}}"
QUEUED_BATCHES_KEY: Final = "tiering_queued_batches"
COPY_TASK_ID: Final = "copy"
SCAN_WAIT_SECONDS: Final = 180.0
_SCAN_POLL_SECONDS: Final = 1.0

_MOST_NAMED: Final = 20

Batch = dict[str, Any]
"""Arguments of one `CopyBatchOperator`: `batch`, its number in the run, and `spark_resource`, a name or None."""


class ScanQueueOperator(BaseOperator):
    """Scans the log dirs of a queue on a worker of this queue, for plans of hosts that cannot read them.

    The DAG also passes the queue to Airflow as `queue`.
    """

    def __init__(self, *, reads_queue: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reads_queue = reads_queue

    def execute(self, context: "Context") -> dict[str, int]:
        """Return how many replicas were found, and how many items cannot be read. Raise TieringError."""
        with TieringHook().open() as app:
            report = app.copying.report_queue(self.reads_queue, context["run_id"], scope=scope_of(form_of(context)))
        for error in report.errors:
            self.log.warning("Not readable: %s: %s", error.path, error.message)
        return {"replicas": len(report.replicas), "errors": len(report.errors)}


class PlanCopyOperator(BaseOperator):
    """Plans a run and returns the batches that any worker can run; `QueuedBatchesOperator` returns those of a queue.

    Before that it waits for the scans of log dirs that it cannot read, while their tasks may still end, but not longer
    than `SCAN_WAIT_SECONDS`. Then what workers reported in an earlier run counts, if that is not long ago.

    If there is nothing to copy, or in a dry run, it returns no batches, and pushes no id of a planned run.
    """

    def execute(self, context: "Context") -> list[Batch]:
        """Plan. Raises TieringError if the plan cannot be made or stored."""
        from include.tiering.copying.plan_copy import placed_batches
        from include.tiering.copying.report import needs_a_person

        limit_bytes = amount("limit_bytes", context["params"]["limit_bytes"], "bytes", at_least=1)
        dry_run = context["params"]["dry_run"]
        run_id = planned_run_id(context["run_id"], context["ti"].try_number)
        with TieringHook().open() as app:
            max_batches = app.effective_configs.settings().copier.max_batches
            configuration.require_mappable("tiering.copier.max.batches", max_batches)
            self._wait_for_scans(app, context)
            plan = app.copying.plan(run_id, scope=scope_of(form_of(context)), limit_bytes=limit_bytes, dry_run=dry_run)
        for error in plan.errors:
            self.log.warning("Not readable: %s: %s", error.path, error.message)
        for note in plan.notes:
            self.log.info("Damaged, but no copy needs it: %s: %s", note.path, note.message)
        for waiting in plan.held_back:
            level = logging.WARNING if needs_a_person([waiting]) else logging.INFO
            where = waiting.topic_id_partition
            why = f"{waiting.reason}: {waiting.detail}"
            self.log.log(level, "%s waits at offset %d: %s", where, waiting.next_offset, why)
        findings = len(plan.errors) + sum(needs_a_person([waiting]) for waiting in plan.held_back)
        batches = placed_batches(plan.partitions, max_batches)
        for queue in self._without_task(batches, context):
            findings += 1
            self.log.warning(
                "Queue %s: this run has no task for it, so its partitions are not copied. The DAG processor must read"
                " the same log_dirs as this task, and parse the DAG again after they change",
                queue,
            )
        context["ti"].xcom_push(key=FINDINGS_KEY, value=findings)
        work = f"{plan.segments} segments of {len(plan.partitions)} partitions, {format_bytes(plan.size_bytes)}"
        if dry_run:
            self.log.info("Dry run: %s would be copied", work)
            return []
        if not plan.partitions:
            self.log.info("Nothing to copy")
            return []
        self.log.info("To copy: %s", work)
        context["ti"].xcom_push(key=PLANNED_RUN_KEY, value=run_id)
        by_queue = batches_by_queue(batches)
        anywhere = by_queue.pop(None, [])
        if by_queue:
            context["ti"].xcom_push(key=QUEUED_BATCHES_KEY, value=by_queue)
        return anywhere

    def _wait_for_scans(self, app: "App", context: "Context") -> None:
        clock = app.adapters.clock
        deadline = clock.monotonic() + SCAN_WAIT_SECONDS
        while queues := app.log_dirs.not_scanned_in(context["run_id"]):
            ended = context["ti"].get_ti_count(
                dag_id=self.dag_id,
                task_ids=[scan_task_id(queue) for queue in queues],
                run_ids=[context["run_id"]],
                states=["failed", "upstream_failed", "skipped", "removed"],
            )
            if ended == len(queues) or clock.monotonic() >= deadline:
                self.log.warning(
                    "Not scanned in this run: queue %s. Does a worker of it run? Start one, or take the queue out of"
                    " log_dirs. Without one this run stays open until Airflow fails the task of the scan",
                    ", ".join(queues),
                )
                return
            clock.sleep(_SCAN_POLL_SECONDS)

    def _without_task(self, batches: Iterable[Placement], context: "Context") -> list[str]:
        """Return queues of `batches` for which this run has no task, because the DAG was parsed with other settings."""
        return [
            queue
            for queue in sorted({placement.queue for placement in batches if placement.queue})
            if not context["ti"].get_ti_count(
                dag_id=self.dag_id, task_ids=[copy_task_id(queue)], run_ids=[context["run_id"]]
            )
        ]


class QueuedBatchesOperator(BaseOperator):
    """Returns the batches of one queue, as Airflow can map a task only over the return value of one task."""

    def __init__(self, *, batches_of: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.batches_of = batches_of

    def execute(self, context: "Context") -> list[Batch]:
        by_queue = context["ti"].xcom_pull(task_ids=PLAN_TASK_ID, key=QUEUED_BATCHES_KEY) or {}
        batches: list[Batch] = by_queue.get(self.batches_of, [])
        return batches


class CopyBatchOperator(SparkJobOperator):
    """One batch: a Spark job that claims partitions of the planned run until none is left or its time is over.

    It claims only partitions of its own placement: `reads_queue`, which the DAG also passes to Airflow as `queue`, and
    `spark_resource`. If both are None, these are the partitions that every worker can read.

    A batch for which no work is left, or only in partitions that other batches hold, ends without starting Spark.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "planned_run_id")

    def __init__(
        self,
        *,
        batch: int,
        reads_queue: str | None = None,
        spark_resource: str | None = None,
        planned_run_id: str = PLANNED_RUN,
        **kwargs: Any,
    ) -> None:
        # The id is the same in every try, so that a retry takes over the lease of a killed try at once.
        arguments = ["--run-id", planned_run_id, "--batch-id", f"{planned_run_id}/{batch}", "--pool", COPIER_POOL]
        placement = {"--queue": reads_queue, "--spark-resource": spark_resource}
        arguments += [text for option, name in placement.items() if name for text in (option, name)]
        super().__init__(job="copying.py", arguments=arguments, spark_resource=spark_resource, **kwargs)
        self.batch = batch
        self.reads_queue = reads_queue
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> None:
        run_id, placement = self.planned_run_id, Placement(self.reads_queue, self.spark_resource)
        with TieringHook().open() as app:
            no_work = app.copying.why_no_work(run_id, f"{run_id}/{self.batch}", placement)
        if no_work is not None:
            self.log.info("No work left for this batch: %s. Spark is not started", no_work)
            return
        with mirrored_pools():
            super().execute(context)


class CopySummaryOperator(BaseOperator):
    """Logs what the run did, and updates the asset `outlet`; if nothing was copied, it is skipped after the log."""

    template_fields: Sequence[str] = ("planned_run_id",)

    def __init__(self, *, outlet: "Asset", planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(outlets=[outlet], **kwargs)
        self.planned_run_id = planned_run_id
        self.outlet = outlet

    def execute(self, context: "Context") -> dict[str, Any]:
        from include.tiering.copying.report import present_copy

        with TieringHook().open() as app:
            run = app.copying.run_report(self.planned_run_id)
        copied, failed = run.of(SegmentOutcome.COPIED), run.of(SegmentOutcome.FAILED)
        for line in as_text(present_copy(run)).splitlines():
            self.log.info("%s", line)
        if not copied:
            raise AirflowSkipException("nothing was copied")
        counts = {"segments": len(copied), "failed": len(failed), "bytes": run.copied_bytes}
        context["outlet_events"][self.outlet].extra = {"run_id": self.planned_run_id, **counts}
        return counts


class RunOutcomeOperator(BaseOperator):
    """The last task of a run: if it fails, the run fails.

    It fails if the plan has findings that a person must act on, or if nothing explains why work was left.
    """

    template_fields: Sequence[str] = ("findings", "planned_run_id")

    def __init__(self, *, findings: str = FINDINGS, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.findings = findings
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> None:
        """Raise PlanFindingsError if the plan has findings for a person, or a segment was left for no known reason."""
        if int(self.findings):
            raise PlanFindingsError(f"{self.findings} findings need a person: see the warnings of {PLAN_TASK_ID}")
        if not self.planned_run_id:
            return
        with TieringHook().open() as app:
            unexplained = app.copying.run_report(self.planned_run_id).unexplained
        if unexplained:
            where = ", ".join(str(segment.topic_id_partition) for segment in unexplained[:_MOST_NAMED])
            raise PlanFindingsError(
                f"segments of {len(unexplained)} partitions were not copied, {unexplained[0].reason}: {where}"
            )


def scan_task_id(queue: str) -> str:
    return f"scan_{queue}"


def copy_task_id(queue: str | None) -> str:
    return COPY_TASK_ID if queue is None else f"{COPY_TASK_ID}_{queue}"


def batches_by_queue(placements: Iterable[Placement]) -> dict[str | None, list[Batch]]:
    """Number the batches from 0 in their order, and group them by queue; the key None has those for any worker."""
    batches: dict[str | None, list[Batch]] = {}
    for number, placement in enumerate(placements):
        batch = {"batch": number, "spark_resource": placement.spark_resource}
        batches.setdefault(placement.queue, []).append(batch)
    return batches


_DEPTH: Final = Depth.SHALLOW


class QualityGateOperator(BaseOperator):
    """Verifies every segment that this run copied, and segments that earlier runs left without a verdict.

    Publishes the report. Fails with lines about the segments that failed a rule (at most 50) and about those that could
    not be copied. Skipped if nothing was planned.
    """

    template_fields: Sequence[str] = ("planned_run_id",)
    operator_extra_links = (QualityReportLink(),)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> dict[str, int]:
        """Verify what the run copied. Raises QualityGateError if a copy or its verification failed."""
        if not self.planned_run_id:
            raise AirflowSkipException("nothing was planned")
        run_id = context["run_id"]
        with TieringHook().open() as app:
            docs, began_at_ms = data_docs(app.settings), app.adapters.clock.now_ms()
            results = docs.begin(self.dag_id, run_id)
            verified = app.verification.verify_run(self.planned_run_id, depth=_DEPTH, results_dir=results)
            not_copied = [_line(item) for item in app.copying.run_report(self.planned_run_id).of(SegmentOutcome.FAILED)]
            run = QualityRun(
                origin=self.dag_id,
                run_id=run_id,
                depth=_DEPTH,
                began_at_ms=began_at_ms,
                ended_at_ms=app.adapters.clock.now_ms(),
                segments=verified.segments,
                bytes_read=verified.bytes_read,
                failed=verified.failed,
                warnings=verified.warnings,
                remarks=not_copied,
            )
        summary = publish(docs, run)
        if not summary.is_right:
            raise error_of(summary, not_copied)
        self.log.info("%s. Report: %s", summary.sentence, report_url(self.dag_id, run_id))
        return {"segments": verified.segments}


def _line(item: WorkItem) -> str:
    return f"{item.topic_id_partition} from offset {item.segment.base_offset}: not copied: {item.message}"
