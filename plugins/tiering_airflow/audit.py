"""The tasks of `tiering_audit`. `audit` is a Spark job; each other task calls services or the database in its worker.

XCom carries ids and counts; audits, findings, plans, questions, approvals and outcomes are in the platform's own
database, and the listing that the Spark job made is in the job's output directory.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.standard.operators.branch import BaseBranchOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.plan_removals import RemovalOutcome
from include.tiering.audit.record import FindingState
from include.tiering.audit.report import AuditRun, RemovalRun, present_audit, removal_question, removal_sentence
from include.tiering.errors import printable
from include.tiering.presentation import as_text
from include.tiering.runs.batch import BatchEnd
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.approval import approved_by, is_unanswered, put_question
from plugins.tiering_airflow.errors import (
    ApprovalMissingError,
    AuditAlarmError,
    DeletionFailedError,
    RemovalIncompleteError,
    SparkJobError,
)
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.pools import EXPIRATION_POOL, mirrored_pools
from plugins.tiering_airflow.shared import APPROVAL_TASK_ID, PLANNED_RUN, PLANNED_RUN_KEY, planned_run_id
from plugins.tiering_airflow.spark import ReaderJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

AUDIT_TASK_ID: Final = "audit"
AUDIT_RUN_KEY: Final = "tiering_audit_run"
AUDIT_RUN: Final = f"{{{{ ti.xcom_pull(task_ids='{AUDIT_TASK_ID}', key='{AUDIT_RUN_KEY}') or '' }}}}"
DELETE_ORPHANS: Final = "delete_orphans"
OLD_VERSIONS: Final = "old_versions"
INVENTORY: Final = "inventory"
PREFIX: Final = "audit-"
ALARMING: Final = (FindingKind.DANGLING_REFERENCE, FindingKind.SIZE_MISMATCH)
"""Kinds of findings that fail the task `alarm`: fetches may be unable to read the segments that such findings name."""
_MOST_LINES: Final = 50


class AuditOperator(ReaderJobOperator):
    """Lists the store, or reads an inventory of it, and joins it with the metadata in Spark.

    Findings are stored in the database under an audit id of this try, and do not fail this task.
    """

    repeats_tasks = True

    def __init__(self, **kwargs: Any) -> None:
        audit_run_id = "{{ task.audit_run_id(run_id, ti.try_number) }}"
        arguments = ["--output", "{{ task.output_dir }}", "--record", audit_run_id]
        super().__init__(job="audit.py", arguments=arguments, batch_id=audit_run_id, **kwargs)

    @property
    def output_dir(self) -> Path:
        return configuration.audit_dir()

    def audit_run_id(self, dag_run_id: str, try_number: int) -> str:
        return PREFIX + planned_run_id(dag_run_id, try_number)

    def execute(self, context: "Context") -> None:
        """Run the task. Raises SparkJobError, SparkJobRetriableError or SettingError."""
        run_id = self.audit_run_id(context["run_id"], context["ti"].try_number)
        inventory = context["params"][INVENTORY]
        shares = ["--parts", str(configuration.audit_parts()), "--ranges", str(configuration.audit_ranges())]
        self.application_args = [*(self.application_args or ()), *shares]
        if inventory:
            self.application_args += ["--inventory", inventory]
        try:
            super().execute(context)
        except SparkJobError as error:
            if error.retriable or not _ended(run_id):
                raise
        context["ti"].xcom_push(key=AUDIT_RUN_KEY, value=run_id)


class AuditFindingsOperator(BaseOperator):
    """Logs the findings of the audit that are open or accepted, at most 200 in total.

    Returns the numbers of compared objects and rows, and of the findings of each kind, in any state.
    """

    template_fields: Sequence[str] = ("audit_run_id",)

    def __init__(self, *, audit_run_id: str = AUDIT_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.audit_run_id = audit_run_id

    def execute(self, context: "Context") -> dict[str, int]:
        """Run the task. Raises StateConflictError if a later audit has ended since."""
        with TieringHook().open() as app:
            run = AuditRun(app.adapters.stores.audits.audit(self.audit_run_id), app.audit.findings(self.audit_run_id))
        for line in as_text(present_audit(run)).splitlines():
            self.log.info("%s", line)
        for refusal in run.record.refusals:
            self.log.warning("%s: %s", refusal.guard, refusal.sentence)
        counts = {kind.value: sum(recorded.finding.kind is kind for recorded in run.findings) for kind in FindingKind}
        found = {"objects": run.record.objects, "rows": run.record.rows, **{k: n for k, n in counts.items() if n}}
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = {"run_id": self.audit_run_id, **found}
        return found


class AuditAlarmOperator(BaseOperator):
    """Fails, and the run with it, if an open finding is of a kind in `ALARMING`, or if a guard forbids removals.

    An open orphan fails it too, unless `tiering.audit.orphans.fail.enable` is false or the form asks to delete orphans.
    Findings that a person accepted do not fail the task. The tasks that remove orphans do not wait for it.
    """

    template_fields: Sequence[str] = ("audit_run_id",)

    def __init__(self, *, audit_run_id: str = AUDIT_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.audit_run_id = audit_run_id

    def execute(self, context: "Context") -> None:
        """Run the task.

        Raises AuditAlarmError with a line for each guard, then one for each finding. Lines beyond `_MOST_LINES` are
        left out, and a last line says how many.
        """
        with TieringHook().open() as app:
            audit = app.adapters.stores.audits.audit(self.audit_run_id)
            found = app.adapters.stores.audits.findings((FindingState.OPEN,))
            orphans_fail = app.effective_configs.settings().audit.orphans_fail_enable
        # If the form asks to delete orphans, they raise no alarm: a person is asked to approve their removal.
        with_orphans = orphans_fail and not context["params"][DELETE_ORPHANS]
        alarming = {*ALARMING, FindingKind.ORPHAN} if with_orphans else set(ALARMING)
        lines = [f"{refusal.guard}: {refusal.sentence}" for refusal in audit.refusals]
        lines += [
            f"{recorded.finding.kind} {printable(recorded.finding.key)}: {recorded.finding.message}"
            f" (finding {recorded.finding_id})"
            for recorded in found
            if recorded.finding.kind in alarming
        ]
        if lines:
            more = [f"and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
            raise AuditAlarmError("\n".join(["store and metadata disagree:", *lines[:_MOST_LINES], *more]))


class PlanRemovalsOperator(BaseOperator):
    """Plans the removal of objects, uploads and versions that findings name, stores the plan, and pushes its run id.

    Skipped unless the form asks for removals. If there is nothing to remove, it pushes no id.
    """

    template_fields: Sequence[str] = ("audit_run_id",)

    def __init__(self, *, audit_run_id: str = AUDIT_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.audit_run_id = audit_run_id

    def execute(self, context: "Context") -> dict[str, int]:
        """Run the task. Raises what `AuditService.plan_removals` raises.

        Returns:
            Numbers of the planned `objects`, of their `bytes`, and of the `guards` that forbid removals.
        """
        params = context["params"]
        if not params[DELETE_ORPHANS]:
            raise AirflowSkipException("a dry run: the form does not ask for removals")
        run_id = f"{PREFIX}remove-{planned_run_id(context['run_id'], context['ti'].try_number)}"
        with TieringHook().open() as app:
            plan = app.audit.plan_removals(run_id, self.audit_run_id, with_versions=params[OLD_VERSIONS])
        for refusal in plan.refusals:
            self.log.warning("Removals are refused, %s: %s", refusal.guard, refusal.sentence)
        for why, number in plan.spared.items():
            self.log.info("%d findings are not planned: %s", number, why)
        if plan.removals:
            context["ti"].xcom_push(key=PLANNED_RUN_KEY, value=run_id)
        return {"objects": len(plan.removals), "bytes": plan.size_bytes, "guards": len(plan.refusals)}


class RemovalSafetyLimitOperator(BaseBranchOperator):
    """Logs the planned removals, and branches to `APPROVAL_TASK_ID` even if no deletion limit is exceeded.

    If nothing is planned, it skips the tasks after it.
    """

    template_fields: Sequence[str] = ("planned_run_id", "audit_run_id")

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, audit_run_id: str = AUDIT_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id
        self.audit_run_id = audit_run_id

    def choose_branch(self, context: "Context") -> str | None:
        """Return the id of the next task, which asks for an approval; None if there is nothing to remove."""
        if not self.planned_run_id:
            self.log.info("There is nothing to remove")
            return None
        with TieringHook().open() as app:
            plan = app.audit.stored_removals(self.planned_run_id, self.audit_run_id)
            limit_report = app.audit.apply_removal_limits(self.planned_run_id)
            question = removal_question(plan, limit_report, app.questions.loosened_since_approval())
            put_question(app, context, question, subject=limit_report.run_id, plan_hash=limit_report.plan_hash)
        for line in question.body.splitlines():
            self.log.info("%s", line)
        return APPROVAL_TASK_ID


class RemovalReleaseOperator(BaseOperator):
    """Records who approved which plan.

    An approval counts only for the plan that was shown, and only if its author is still allowed to approve.
    """

    template_fields: Sequence[str] = ("planned_run_id",)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> None:
        """Run the task. Raises ApprovalRequiredError, AnswerRefusedError, RunWithdrawnError or DatabaseSetBackError."""
        with TieringHook().open() as app:
            plan_hash = app.adapters.stores.removals.run(self.planned_run_id).plan_hash
            author = approved_by(app, context, subject=self.planned_run_id, plan_hash=plan_hash)
            app.audit.approve_removals(self.planned_run_id, plan_hash, author=author)
        self.log.info("Plan %s was approved by %s", plan_hash, author)


class RemoveOrphansOperator(BaseOperator):
    """Checks the approved objects again, and removes them. A retry continues with the rest."""

    template_fields: Sequence[str] = ("planned_run_id",)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> dict[str, int]:
        """Run the task. Raises RemovalIncompleteError, which is retriable."""
        counts = dict.fromkeys((outcome.value for outcome in RemovalOutcome), 0)
        # The id is the same in every try, so that a retry takes over the lease of a killed try at once.
        batch_id = f"{self.planned_run_id}/0"
        ended, waiting = BatchEnd.TIME_OVER, 0
        with TieringHook().open() as app, mirrored_pools():
            while ended is BatchEnd.TIME_OVER and not waiting:
                result = app.audit.run_removal_batch(self.planned_run_id, batch_id, pool=EXPIRATION_POOL)
                ended, waiting = result.ended, len(result.waiting)
                for item in result.items:
                    counts[item.outcome.value] += 1
        self.log.info("Removed: %s", counts)
        if waiting:
            raise RemovalIncompleteError(f"{waiting} objects of {self.planned_run_id} could not be removed this time")
        return counts


class AuditOutcomeOperator(BaseOperator):
    """The last task of a removal, which says how the removal ended.

    It fails, and the run with it, if no person answered in time, or if an object could not be removed. It does not fail
    if a person rejected the plan. It is skipped if nothing was planned.
    """

    template_fields: Sequence[str] = ("planned_run_id", "audit_run_id")

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, audit_run_id: str = AUDIT_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id
        self.audit_run_id = audit_run_id

    def execute(self, context: "Context") -> None:
        """Run the task. Raises ApprovalMissingError or DeletionFailedError."""
        with TieringHook().open() as app:
            unanswered = is_unanswered(app, context)
        if unanswered:
            raise ApprovalMissingError(
                f"{self.planned_run_id} got no answer in time and removed nothing: another run has to ask again"
            )
        if not self.planned_run_id:
            raise AirflowSkipException("nothing was planned")
        with TieringHook().open() as app:
            plan = app.audit.stored_removals(self.planned_run_id, self.audit_run_id)
            items, limit_report = (
                app.adapters.stores.removals.items(self.planned_run_id),
                app.audit.apply_removal_limits(self.planned_run_id),
            )
            record = app.adapters.stores.audits.audit(self.audit_run_id)
            findings = app.audit.findings(self.audit_run_id)
        run = RemovalRun(plan, limit_report, items)
        for line in as_text(present_audit(AuditRun(record, findings, removal=run))).splitlines():
            self.log.info("%s", line)
        failed = run.of(RemovalOutcome.FAILED)
        if failed:
            what = removal_sentence(len(failed), sum(item.planned.size_bytes for item in failed))
            raise DeletionFailedError(
                f"{what} could not be removed; the first is {failed[0].planned.key}: {failed[0].message}"
            )


def _ended(run_id: str) -> bool:
    """Return whether the job recorded this audit, and none was recorded after it.

    A job that ends with an error code because of findings has recorded its audit. A job that could not run has recorded
    none.
    """
    with TieringHook().open() as app:
        last = app.adapters.stores.audits.last_audit()
    return last is not None and last.run_id == run_id
