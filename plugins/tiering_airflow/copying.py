"""The tasks of `tiering_copy` that run in Airflow itself. Each opens the library, asks it one thing, says the result.

XCom carries ids and counts; work, progress and results live in the platform's own database. `QualityGateOperator` is
the run's gate: what it copied is verified before anybody is told of it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.model.segments import Depth
from include.tiering.presentation import as_text
from include.tiering.runs.contract import Placement, SegmentOutcome, WorkItem
from include.tiering.units import format_bytes
from include.tiering.verification.quality_run import QualityRun
from plugins.tiering_airflow.data_docs import QualityReportLink, data_docs, error_of, publish, report_url
from plugins.tiering_airflow.errors import PlanFindingsError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.pools import COPIER_POOL, mirrored_pools
from plugins.tiering_airflow.shared import PLAN_TASK_ID, PLANNED_RUN, PLANNED_RUN_KEY, planned_run_id
from plugins.tiering_airflow.spark import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context


FINDINGS_KEY: Final = "tiering_findings"
FINDINGS: Final = f"{{{{ ti.xcom_pull(task_ids='{PLAN_TASK_ID}', key='{FINDINGS_KEY}') }}}}"
QUEUED_BATCHES_KEY: Final = "tiering_queued_batches"
COPY_TASK_ID: Final = "copy"

_MOST_NAMED: Final = 20

Batch = dict[str, Any]
"""What `CopyBatchOperator` is mapped over: `batch`, its number in the run, and `spark_resource`, a name or None."""


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """What the form of `tiering_copy` asks for. No topics means those that the settings include."""

    topics: tuple[str, ...] | None
    limit_bytes: int | None
    dry_run: bool

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Self:
        return cls(tuple(params["topics"] or ()) or None, params["limit_bytes"], params["dry_run"])


class PlanCopyOperator(BaseOperator):
    """Plans a run and returns the batches to start on any worker; those of a queue are for `QueuedBatchesOperator`.

    With nothing to copy there are none, and no planned run.
    """

    def execute(self, context: "Context") -> list[Batch]:
        """Raises TieringError."""
        from include.tiering.copying.plan_copy import placed_batches
        from include.tiering.copying.report import needs_a_person

        request = CopyRequest.from_params(context["params"])
        run_id = planned_run_id(context["run_id"], context["ti"].try_number)
        with TieringHook().open() as app:
            max_batches = app.effective_configs.settings().copier.max_batches
            plan = app.copying.plan(
                run_id, topics=request.topics, limit_bytes=request.limit_bytes, dry_run=request.dry_run
            )
        for error in plan.errors:
            self.log.warning("Not readable: %s: %s", error.path, error.message)
        for note in plan.notes:
            self.log.info("Damaged, and not needed by any copy: %s: %s", note.path, note.message)
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
                "Queue %s: this run has no task for it, its partitions wait. The DAG processor must read the same"
                " log_dirs as this task, and parse the DAG again after they change",
                queue,
            )
        context["ti"].xcom_push(key=FINDINGS_KEY, value=findings)
        work = f"{plan.segments} segments of {len(plan.partitions)} partitions, {format_bytes(plan.size_bytes)}"
        if request.dry_run:
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

    def _without_task(self, batches: Iterable[Placement], context: "Context") -> list[str]:
        """Queues of `batches` for which the scheduler made no task in this run: it read other settings."""
        return [
            queue
            for queue in sorted({placement.queue for placement in batches if placement.queue})
            if not context["ti"].get_ti_count(
                dag_id=self.dag_id, task_ids=[copy_task_id(queue)], run_ids=[context["run_id"]]
            )
        ]


class QueuedBatchesOperator(BaseOperator):
    """The batches that the plan has for one queue: Airflow maps a task over the return value of one task alone."""

    def __init__(self, *, batches_of: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.batches_of = batches_of

    def execute(self, context: "Context") -> list[Batch]:
        by_queue = context["ti"].xcom_pull(task_ids=PLAN_TASK_ID, key=QUEUED_BATCHES_KEY) or {}
        batches: list[Batch] = by_queue.get(self.batches_of, [])
        return batches


class CopyBatchOperator(SparkJobOperator):
    """One batch: a Spark job that pulls partitions of the planned run until none is left or its time is over.

    It pulls those of its own placement: `reads_queue`, which whoever builds the DAG also gives Airflow as `queue`, and
    `spark_resource`. None = partitions that can be read anywhere.

    Batches that get their slot when the others have done all the work end without starting Spark.
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
        # The same id in every try: a batch that is started again takes over the lease of its dead self at once.
        arguments = ["--run-id", planned_run_id, "--batch-id", f"{planned_run_id}/{batch}", "--pool", COPIER_POOL]
        placement = {"--queue": reads_queue, "--spark-resource": spark_resource}
        arguments += [text for option, name in placement.items() if name for text in (option, name)]
        super().__init__(job="copying.py", arguments=arguments, spark_resource=spark_resource, **kwargs)
        self.batch = batch
        self.reads_queue = reads_queue
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> None:
        with TieringHook().open() as app:
            placement = Placement(self.reads_queue, self.spark_resource)
            has_work = app.adapters.stores.work.has_work(self.planned_run_id, placement)
        if not has_work:
            self.log.info("No work left for this batch")
            return
        with mirrored_pools():
            super().execute(context)


class CopySummaryOperator(BaseOperator):
    """Prints what the run did and tells `outlet` about it; skipped, and the asset not told, if nothing was copied."""

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
    """The last task of a run, whose state is the run's: it fails if the plan met what needs a person, or if work was
    left and nothing says why."""

    template_fields: Sequence[str] = ("findings", "planned_run_id")

    def __init__(self, *, findings: str = FINDINGS, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.findings = findings
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> None:
        """Raises PlanFindingsError."""
        if int(self.findings):
            raise PlanFindingsError(f"{self.findings} items need a person: see the warnings of the task {PLAN_TASK_ID}")
        if not self.planned_run_id:
            return
        with TieringHook().open() as app:
            unexplained = app.copying.run_report(self.planned_run_id).unexplained
        if unexplained:
            where = ", ".join(str(segment.topic_id_partition) for segment in unexplained[:_MOST_NAMED])
            raise PlanFindingsError(
                f"segments of {len(unexplained)} partitions were left, {unexplained[0].reason}: {where}"
            )


def copy_task_id(queue: str | None) -> str:
    return COPY_TASK_ID if queue is None else f"{COPY_TASK_ID}_{queue}"


def batches_by_queue(placements: Iterable[Placement]) -> dict[str | None, list[Batch]]:
    """Batches, numbered in order, by the queue that they are for; None = any worker."""
    batches: dict[str | None, list[Batch]] = {}
    for number, placement in enumerate(placements):
        batch = {"batch": number, "spark_resource": placement.spark_resource}
        batches.setdefault(placement.queue, []).append(batch)
    return batches


_DEPTH: Final = Depth.SHALLOW


class QualityGateOperator(BaseOperator):
    """Verifies every segment that this run copied, publishes its report, and fails with one line per segment that is
    not as it must be.

    Skipped if nothing was planned.
    """

    template_fields: Sequence[str] = ("planned_run_id",)
    operator_extra_links = (QualityReportLink(),)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> dict[str, int]:
        """Raises QualityGateError."""
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
