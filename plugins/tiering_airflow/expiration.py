"""The tasks of `tiering_expiration`.

Each task opens the library (`TieringHook`: settings, database, services), and logs or checks what services or stores
return. XCom carries ids and counts; plans, questions, approvals and outcomes are in the platform's own database.

Two runs never delete from the same topic. A run that waits for an approval does not delay others: the next run starts
on time and leaves out the topics because of which a person is asked. It also leaves out all topics from which a run
deletes. The platform's database has the plans, and Airflow has the states of the runs: a run that was rejected, or
marked as failed, keeps no topics from others.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.standard.operators.branch import BaseBranchOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.errors import SettingError, printable
from include.tiering.expiration.report import ExpireRun, planned_sentence, present_expire
from include.tiering.model.segments import Uuid
from include.tiering.presentation import as_text, count
from include.tiering.runs.approval import approval_question
from include.tiering.runs.deletion_run import DeletionOutcome
from include.tiering.units import format_bytes, format_utc
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.approval import approved_by, is_unanswered, put_question
from plugins.tiering_airflow.errors import ApprovalMissingError, DeletionFailedError, PlanWithdrawnError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.pools import EXPIRATION_POOL, mirrored_pools
from plugins.tiering_airflow.shared import (
    APPROVAL_TASK_ID,
    EXPIRATION_PREFIX,
    OUTCOME_TASK_ID,
    PLAN_TASK_ID,
    PLANNED_RUN,
    PLANNED_RUN_KEY,
    RELEASE_TASK_ID,
    SAFETY_LIMIT_TASK_ID,
    planned_run_id,
)
from plugins.tiering_airflow.spark import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context

    from include.tiering.app import App


class PlanExpirationOperator(BaseOperator):
    """Plans what expires now, stores the plan, and, if it deletes anything, pushes the id of the planned run.

    Topics from which another run of the DAG deletes, or about which another run waits for an approval, are left out,
    except in a dry run.
    """

    def execute(self, context: "Context") -> dict[str, int]:
        """Plan, and return counts: partitions, segments and bytes to delete, waiting partitions, topics left out.

        Raises:
            TieringError: the plan could not be made or stored.
        """
        # Runs of all DAGs share a table, and two DAGs may start in the same second.
        run_id = f"{EXPIRATION_PREFIX}{planned_run_id(context['run_id'], context['ti'].try_number)}"
        topics, dry_run = tuple(context["params"]["topics"] or ()), context["params"]["dry_run"]
        with TieringHook().open() as app:
            max_batches = app.effective_configs.settings().expiration.max_batches
            configuration.require_mappable("tiering.expiration.max.batches", max_batches)
            # A dry run shows all topics.
            in_hand = {} if dry_run else topics_in_hand(app, self.dag_id, context)
            plan = app.expiration.plan(run_id, topics=topics, leave_out=in_hand, dry_run=dry_run)
            if dry_run and (objection := app.guards.objection()) is not None:
                self.log.warning("%s", objection)
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
        self.log.info(
            "%s of %s (%s) expire: the log of the task safety_limit shows the plan",
            count(plan.segments, "segment"),
            count(len(plan.expirations), "partition"),
            format_bytes(plan.size_bytes),
        )
        if plan.expirations:
            context["ti"].xcom_push(key=PLANNED_RUN_KEY, value=run_id)
        counts = {"partitions": len(plan.expirations), "segments": plan.segments, "bytes": plan.size_bytes}
        waiting = len({waits.topic_id_partition for waits in plan.waiting})
        return {**counts, "waiting": waiting, "topics_left_out": len(in_hand)}


class SafetyLimitOperator(BaseBranchOperator):
    """Logs what the plan deletes, of which topics and why, and chooses the next task by the deletion limits.

    A deletion limit says how much a run may delete without an approval (`runs/deletion_limits.py`).

    The next task is `RELEASE_TASK_ID` if no limit is exceeded, and `APPROVAL_TASK_ID` otherwise. Neither of them runs
    if nothing is planned, nor in a dry run.
    """

    template_fields: Sequence[str] = ("planned_run_id",)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def choose_branch(self, context: "Context") -> str | None:
        """Apply the limits, put the question if an approval is needed, and return the next task; None for neither.

        Raises:
            TieringError: the plan could not be read, or the limits could not be applied.
        """
        if not self.planned_run_id:
            self.log.info("Nothing expires")
            return None
        dry_run = context["params"]["dry_run"]
        with TieringHook().open() as app:
            limit_report = app.expiration.apply_limits(self.planned_run_id, dry_run=dry_run)
            expirations, items = (
                app.adapters.stores.deletions.plan(limit_report.run_id),
                app.adapters.stores.deletions.items(limit_report.run_id),
            )
            run = ExpireRun(
                app.adapters.stores.deletions.run(limit_report.run_id),
                expirations,
                items,
                limit_report,
                shared_names=app.topic_lifecycle.shared_names(),
            )
            asks = limit_report.needs_approval and not dry_run
            if asks:
                question = approval_question(
                    limit_report, expirations, run.shared_names, app.questions.loosened_since_approval()
                )
                put_question(app, context, question, subject=limit_report.run_id, plan_hash=limit_report.plan_hash)
        for line in as_text(present_expire(run)).splitlines():
            self.log.info("%s", line)
        if dry_run:
            self.log.info("Dry run: nothing is deleted")
            return None
        if not asks:
            return RELEASE_TASK_ID
        # Other runs of the DAG leave out these topics. The question itself is in the database.
        context["ti"].xcom_push(key=QUESTION_KEY, value={"topic_ids": sorted(map(str, limit_report.topic_ids))})
        return APPROVAL_TASK_ID


class ReleaseOperator(BaseOperator):
    """Records who approved which plan, if an approval is needed, and returns the batches to start.

    An approval counts only for the plan that was shown, only if its author is still allowed to approve, and only if the
    whole plan would still be planned.
    """

    template_fields: Sequence[str] = ("planned_run_id",)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> list[dict[str, int]]:
        """Check and release the plan; return the arguments of each batch to start.

        Raises:
            RunWithdrawnError: a person withdrew the run.
            DatabaseSetBackError: an objection of a guard is active (see `audit.record`): nothing may be deleted.
            PlanWithdrawnError: some of the approved deletions would not be planned any more.
            ApprovalRequiredError: there is no approval of exactly this plan.
            AnswerRefusedError: the user who answered may not, or not any more, approve plans.
        """
        with TieringHook().open() as app:
            run = app.adapters.stores.deletions.run(self.planned_run_id)
            run.require_not_withdrawn()
            app.guards.require_deletion_allowed()
            if not run.is_released:
                self._approve(app, run.plan_hash, context)
            max_batches = app.effective_configs.settings().expiration.max_batches
            partitions = len(app.adapters.stores.deletions.plan(self.planned_run_id))
        return [{"batch": number} for number in range(min(partitions, max_batches))]

    def _approve(self, app: "App", plan_hash: str, context: "Context") -> None:
        author = approved_by(app, context, subject=self.planned_run_id, plan_hash=plan_hash)
        if kept := app.expiration.withdrawn(self.planned_run_id):
            first = kept[0]
            raise PlanWithdrawnError(
                f"{len(kept)} segments of plan {plan_hash} would stay now; the first is {first.segment_id} with "
                f"offsets {first.start_offset}..{first.end_offset}. Nothing was deleted. The next run plans and asks "
                "again"
            )
        app.expiration.approve(self.planned_run_id, plan_hash, author=author)
        self.log.info("Plan %s was approved by %s", plan_hash, author)


class DeleteBatchOperator(SparkJobOperator):
    """One batch: a Spark job that claims partitions of the released run and deletes their planned segments.

    A batch for which no work is left, or only in partitions that other batches hold, ends without starting Spark.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "planned_run_id")

    def __init__(self, *, batch: int, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        # `batch` comes from XCom, which other users may write, and becomes part of a template that Airflow renders.
        if type(batch) is not int:
            raise SettingError(f"a batch is a number, not {printable(repr(batch)[:100])}")
        # The id is the same in every try, so that a retry takes over the lease of a killed try at once.
        arguments = ["--run-id", planned_run_id, "--batch-id", f"{planned_run_id}/{batch}", "--pool", EXPIRATION_POOL]
        super().__init__(job="expiration.py", arguments=arguments, **kwargs)
        self.batch = batch
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> None:
        with TieringHook().open() as app:
            no_work = app.expiration.why_no_work(self.planned_run_id, f"{self.planned_run_id}/{self.batch}")
        if no_work is not None:
            self.log.info("No work left for this batch: %s. Spark is not started", no_work)
            return
        with mirrored_pools():
            super().execute(context)


class ExpirationSummaryOperator(BaseOperator):
    """Logs the outcome of the plan and updates the asset `outlet`; skipped, without either, if nothing was deleted."""

    template_fields: Sequence[str] = ("planned_run_id",)

    def __init__(self, *, outlet: "Asset", planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(outlets=[outlet], **kwargs)
        self.planned_run_id = planned_run_id
        self.outlet = outlet

    def execute(self, context: "Context") -> dict[str, Any]:
        if not self.planned_run_id:
            raise AirflowSkipException("nothing expires")
        with TieringHook().open() as app:
            store = app.adapters.stores.deletions
            expirations, items = store.plan(self.planned_run_id), store.items(self.planned_run_id)
            run = ExpireRun(
                store.run(self.planned_run_id), expirations, items, shared_names=app.topic_lifecycle.shared_names()
            )
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
    """The last task of a run. It first removes tombstones that are older than `tiering.tombstone.ms`.

    Then it fails, and the run with it, if a question got no answer in time, if the plan was withdrawn, or if segments
    could not be deleted. A rejected plan is an answer.
    """

    template_fields: Sequence[str] = ("planned_run_id",)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> None:
        """Log what was kept or is left.

        Raises:
            ApprovalMissingError: the question got no answer in time.
            PlanWithdrawnError: a person withdrew the plan.
            DeletionFailedError: segments could not be deleted, or a copy that has to replace them is not proved whole.
        """
        with TieringHook().open() as app:
            self.log.info("Tombstones forgotten: %d", app.expiration.forget_tombstones())
            unanswered = is_unanswered(app, context)
        if unanswered:
            raise ApprovalMissingError(
                f"{self.planned_run_id} got no answer in time and deleted nothing: the next run asks again"
            )
        if not self.planned_run_id:
            return
        with TieringHook().open() as app:
            run, items = (
                app.adapters.stores.deletions.run(self.planned_run_id),
                app.adapters.stores.deletions.items(self.planned_run_id),
            )
        if run.withdrawal is not None:
            gone = sum(item.outcome is DeletionOutcome.DELETED for item in items)
            raise PlanWithdrawnError(
                f"{self.planned_run_id} was withdrawn by {run.withdrawal.author}: {gone} of {len(items)} segments were"
                " deleted already. The next run plans again"
            )
        for (partition, why), segments in Counter(
            (item.planned.segment_id.topic_id_partition, item.message)
            for item in items
            if item.outcome is DeletionOutcome.SKIPPED
        ).items():
            self.log.warning("%s: %d planned segments were kept: %s", partition, segments, why)
        left = sum(item.outcome is DeletionOutcome.PLANNED for item in items)
        if left:
            self.log.info("%d planned segments are left; the next run plans again", left)
        unproved = ExpireRun(run, (), items).unproved
        if unproved:
            raise DeletionFailedError(
                f"{len(unproved)} superseded segments or abandoned copies are kept until the copy that replaces them is"
                f" verified, such as: {unproved[0].message}"
            )
        failed = [item for item in items if item.outcome is DeletionOutcome.FAILED]
        if failed:
            raise DeletionFailedError(
                f"{len(failed)} segments could not be deleted; the first is {failed[0].planned.segment_id}: "
                f"{failed[0].message}. The next run tries again"
            )


QUESTION_KEY: Final = "tiering_question"
_DAY_MS: Final = 24 * 60 * 60 * 1000
ENDED: Final = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
WAITS_FOR_A_PERSON: Final = "awaiting_input"


def topics_in_hand(app: "App", dag_id: str, context: "Context") -> dict[Uuid, str]:
    """Return the topics that this run must leave out, each with a text that says why."""
    ti: Any = context["ti"]
    wait_ms = int(configuration.expiration_approval_wait().total_seconds() * 1000)
    planned = app.adapters.stores.deletions.runs_with_work(
        since_ms=app.adapters.stores.deletions.now_ms() - wait_ms - _DAY_MS
    )
    candidates = sorted(set(_dag_runs(planned)) - {context["run_id"]})
    if not candidates:
        return {}
    states: Mapping[str, Mapping[str, str | None]] = ti.get_task_states(
        dag_id=dag_id, task_ids=[APPROVAL_TASK_ID, OUTCOME_TASK_ID], run_ids=candidates
    )
    found: dict[Uuid, str] = {}
    for dag_run, tasks in sorted(states.items()):
        if tasks.get(OUTCOME_TASK_ID) in ENDED:
            continue
        if tasks.get(APPROVAL_TASK_ID) == WAITS_FOR_A_PERSON:
            question = ti.xcom_pull(task_ids=SAFETY_LIMIT_TASK_ID, key=QUESTION_KEY, run_id=dag_run)
            found |= dict.fromkeys(map(Uuid.parse, question["topic_ids"]), f"{dag_run} waits for an approval")
        elif planned_run := ti.xcom_pull(task_ids=PLAN_TASK_ID, key=PLANNED_RUN_KEY, run_id=dag_run):
            topic_ids = {
                deletion.topic_id_partition.topic_id for deletion in app.adapters.stores.deletions.plan(planned_run)
            }
            found |= dict.fromkeys(topic_ids, f"{dag_run} deletes it now")
    return found


def _dag_runs(planned: Iterable[str]) -> Iterator[str]:
    """Yield the ids of the DAG runs to which these plans may belong.

    The id of a plan is that of its DAG run, followed by a dot and a number if the task `plan` was tried again. A DAG
    run's own id may end so too, so both readings are yielded.
    """
    for run_id in planned:
        if run_id.startswith(EXPIRATION_PREFIX):
            dag_run = run_id.removeprefix(EXPIRATION_PREFIX)
            yield dag_run
            first, dot, number = dag_run.rpartition(".")
            if dot and number.isdecimal():
                yield first
