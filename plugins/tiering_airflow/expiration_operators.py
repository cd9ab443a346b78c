"""The tasks of `tiering_expiration`. Each opens the library, asks it one thing, says the result.

XCom carries ids, counts and the question to a person; plans, approvals and outcomes are in the platform's own database.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.standard.operators.branch import BaseBranchOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.reports.approval import approval_question
from include.tiering.reports.expire import ExpireRun, planned_sentence, present_expire
from include.tiering.reports.text import as_text
from include.tiering.units import format_bytes, format_utc
from include.tiering.work.deletion_contract import DeletionOutcome
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.errors import ApprovalMissingError, DeletionFailedError, PlanWithdrawnError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.operators import PLANNED_RUN, PLANNED_RUN_KEY, planned_run_id
from plugins.tiering_airflow.other_runs import (
    APPROVAL_TASK_ID,
    BRAKE_TASK_ID,
    PREFIX,
    QUESTION_KEY,
    topics_in_hand,
)
from plugins.tiering_airflow.pools import EXPIRATION_POOL, mirrored_pools
from plugins.tiering_airflow.spark import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context

    from include.tiering.wiring import Tiering

RELEASE_TASK_ID: Final = "release"
SHOWN_PLAN_KEY: Final = "tiering_shown_plan"
ANSWER_KEY: Final = "tiering_answer"


class PlanExpirationOperator(BaseOperator):
    """Plans and stores what expires now; with nothing to delete there is no planned run.

    Topics that another run of the DAG deletes from, or asks a person about, are left out.
    """

    def execute(self, context: "Context") -> dict[str, int]:
        """Raises TieringError."""
        # Runs of all DAGs share one table, and two DAGs may start at the same second.
        run_id = f"{PREFIX}{planned_run_id(context['run_id'], context['ti'].try_number)}"
        params = context["params"]
        with TieringHook().open() as tiering:
            # What a dry run shows is all there is.
            in_hand = {} if params["dry_run"] else topics_in_hand(tiering, self.dag_id, context)
            plan = tiering.plan_expiration(run_id, topics=tuple(params["topics"] or ()), leave_out=in_hand)
        for topic_id, why in in_hand.items():
            self.log.info("Topic %s is left out: %s", topic_id, why)
        for unknown in plan.unknowns:
            self.log.warning("%s: %s", unknown.topic_id_partition, unknown.sentence)
        for waits in plan.waiting:
            self.log.info("%s waits: %s: %s", waits.topic_id_partition, waits.reason, waits.detail)
        for held in plan.held:
            self.log.info(
                "%s: %d superseded segments are held until %s",
                held.topic_id_partition,
                held.segments,
                format_utc(held.until_ms),
            )
        if plan.expirations:
            context["ti"].xcom_push(key=PLANNED_RUN_KEY, value=run_id)
        counts = {"partitions": len(plan.expirations), "segments": plan.segments, "bytes": plan.size_bytes}
        waiting = len({waits.topic_id_partition for waits in plan.waiting})
        return {**counts, "waiting": waiting, "topics_left_out": len(in_hand)}


class BrakeOperator(BaseBranchOperator):
    """Shows what would go, of which topic and why, and decides who has the next word.

    Nothing planned, or a dry run: the run ends here. Within the limits: `RELEASE_TASK_ID`. Else a person is asked:
    `APPROVAL_TASK_ID`.
    """

    template_fields: Sequence[str] = ("planned_run_id",)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def choose_branch(self, context: "Context") -> str | None:
        """Raises TieringError."""
        if not self.planned_run_id:
            self.log.info("Nothing expires")
            return None
        with TieringHook().open() as tiering:
            brake = tiering.brake(self.planned_run_id)
            expirations, items = tiering.deletions.plan(brake.run_id), tiering.deletions.items(brake.run_id)
            run = ExpireRun(tiering.deletions.run(brake.run_id), expirations, items, brake)
        for line in as_text(present_expire(run)).splitlines():
            self.log.info("%s", line)
        if context["params"]["dry_run"]:
            self.log.info("Dry run: nothing is deleted")
            return None
        if not brake.needs_approval:
            return RELEASE_TASK_ID
        question = approval_question(brake, expirations)
        value = {
            "plan_hash": brake.plan_hash,
            "subject": question.subject,
            "body": question.body,
            "topic_ids": sorted(map(str, brake.topic_ids)),
        }
        context["ti"].xcom_push(key=QUESTION_KEY, value=value)
        return APPROVAL_TASK_ID


def _of_the_question(name: str) -> str:
    return f"{{{{ (ti.xcom_pull(task_ids='{BRAKE_TASK_ID}', key='{QUESTION_KEY}') or {{}}).get('{name}', '') }}}}"


class PlanApprovalOperator(ApprovalOperator):
    """Asks a person for one plan; without an answer in time it is a Reject. Waits without worker, slot or trigger.

    What was shown is kept with the task before it begins to wait: another plan that is made meanwhile is not what the
    answer is about. So is the answer, who gave it (None: nobody) and when; of a Reject, Airflow's operator returns
    nothing.
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "plan_hash")

    def __init__(
        self,
        *,
        subject: str = _of_the_question("subject"),
        body: str = _of_the_question("body"),
        plan_hash: str = _of_the_question("plan_hash"),
        **kwargs: Any,
    ) -> None:
        approvers = [{"id": name, "name": name} for name in configuration.expiration_approvers()]
        super().__init__(
            subject=subject,
            body=body,
            defaults=self.REJECT,
            assigned_users=approvers or None,
            response_timeout=configuration.expiration_approval_wait(),
            **kwargs,
        )
        self.plan_hash = plan_hash

    def execute(self, context: "Context") -> Any:
        context["ti"].xcom_push(key=SHOWN_PLAN_KEY, value=self.plan_hash)
        return super().execute(context)

    def execute_complete(self, context: "Context", event: dict[str, Any]) -> Any:
        user = event["responded_by_user"]
        answer = {"user": user and user["name"], "answered_at": event["responded_at"].isoformat(timespec="seconds")}
        context["ti"].xcom_push(key=ANSWER_KEY, value=answer)
        return super().execute_complete(context, event)


class ReleaseOperator(BaseOperator):
    """Records who approved which plan, if somebody had to, and returns the batches to start.

    An approval counts for the plan that was shown, and only if all of it would still be planned.
    """

    template_fields: Sequence[str] = ("planned_run_id",)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> list[dict[str, int]]:
        """Raises PlanWithdrawnError, and StateConflictError for an approval of another plan."""
        with TieringHook().open() as tiering:
            if answer := context["ti"].xcom_pull(task_ids=APPROVAL_TASK_ID, key=ANSWER_KEY):
                self._approve(tiering, answer, context)
            max_batches = tiering.effective_settings().expiration.max_batches
            partitions = len(tiering.deletions.plan(self.planned_run_id))
        return [{"batch": number} for number in range(min(partitions, max_batches))]

    def _approve(self, tiering: "Tiering", answer: dict[str, Any], context: "Context") -> None:
        shown = context["ti"].xcom_pull(task_ids=APPROVAL_TASK_ID, key=SHOWN_PLAN_KEY)
        if kept := tiering.withdrawn(self.planned_run_id):
            first = kept[0]
            raise PlanWithdrawnError(
                f"{len(kept)} segments of plan {shown} would stay now, such as {first.segment_id} with offsets "
                f"{first.start_offset}..{first.end_offset}: nothing was deleted. The next run plans and asks again"
            )
        author = f"{answer['user']} ({self.dag_id} {context['run_id']}, answered {answer['answered_at']})"
        tiering.approve(self.planned_run_id, shown, author=author)
        self.log.info("Plan %s was approved by %s", shown, author)


class DeleteBatchOperator(SparkJobOperator):
    """One batch: a Spark job that pulls partitions of the released run and deletes what is planned of them.

    Batches that get their slot when the others have done all the work end without starting Spark.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "planned_run_id")

    def __init__(self, *, batch: int, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        # The same id in every try: a batch that is started again takes over the lease of its dead self at once.
        arguments = ["--run-id", planned_run_id, "--batch-id", f"{planned_run_id}/{batch}", "--pool", EXPIRATION_POOL]
        super().__init__(job="delete_segments_job.py", arguments=arguments, **kwargs)
        self.batch = batch
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> None:
        with TieringHook().open() as tiering:
            has_work = tiering.deletions.has_work(self.planned_run_id)
        if not has_work:
            self.log.info("No work left for this batch")
            return
        with mirrored_pools():
            super().execute(context)


class ExpirationSummaryOperator(BaseOperator):
    """Prints what became of the plan and tells `outlet` about it; skipped, and the asset not told, if nothing went."""

    template_fields: Sequence[str] = ("planned_run_id",)

    def __init__(self, *, outlet: "Asset", planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(outlets=[outlet], **kwargs)
        self.planned_run_id = planned_run_id
        self.outlet = outlet

    def execute(self, context: "Context") -> dict[str, Any]:
        if not self.planned_run_id:
            raise AirflowSkipException("nothing expires")
        with TieringHook().open() as tiering:
            store = tiering.deletions
            expirations, items = store.plan(self.planned_run_id), store.items(self.planned_run_id)
            run = ExpireRun(store.run(self.planned_run_id), expirations, items)
        deleted = run.of(DeletionOutcome.DELETED)
        if not deleted:
            raise AirflowSkipException(f"nothing was deleted of {planned_sentence(run)}")
        for line in as_text(present_expire(run)).splitlines():
            self.log.info("%s", line)
        size_bytes = sum(item.planned.size_bytes for item in deleted)
        counts = {"segments": len(deleted), "failed": len(run.of(DeletionOutcome.FAILED)), "bytes": size_bytes}
        self.log.info("Deleted %s", format_bytes(size_bytes))
        context["outlet_events"][self.outlet].extra = {"run_id": self.planned_run_id, **counts}
        return counts


class ExpirationOutcomeOperator(BaseOperator):
    """The last task of a run, whose state is the run's: it fails if a person did not answer, or has to look.

    Before that it forgets the tombstones that are old enough.
    """

    template_fields: Sequence[str] = ("planned_run_id",)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> None:
        """Raises ApprovalMissingError, DeletionFailedError."""
        with TieringHook().open() as tiering:
            self.log.info("Tombstones forgotten: %d", tiering.forget_tombstones())
        answer = context["ti"].xcom_pull(task_ids=APPROVAL_TASK_ID, key=ANSWER_KEY)
        if answer and answer["user"] is None:
            raise ApprovalMissingError(
                f"nobody said whether {self.planned_run_id} may delete: nothing was deleted, the next run asks again"
            )
        if not self.planned_run_id:
            return
        with TieringHook().open() as tiering:
            items = tiering.deletions.items(self.planned_run_id)
        left = sum(item.outcome is DeletionOutcome.PLANNED for item in items)
        if left:
            self.log.info("%d planned segments are left; the next run plans anew", left)
        failed = [item for item in items if item.outcome is DeletionOutcome.FAILED]
        if failed:
            raise DeletionFailedError(
                f"{len(failed)} segments could not be deleted, such as {failed[0].planned.segment_id}: "
                f"{failed[0].message}. The next run tries again"
            )
