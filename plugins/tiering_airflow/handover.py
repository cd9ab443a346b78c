"""The tasks of `tiering_handover` and `tiering_handover_watch`.

The task of a step runs the handover up to and including that step, and logs the checklist. The other tasks begin the
handover, ask for an approval, record the approval, report the outcome, or look for forgotten handovers.

Tasks read only the id of the handover from XCom. The question to the person, steps, old values, checks and approvals
are in the platform's own database, so a later run, or `./tiering handover`, can continue after a run that died.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.standard.operators.branch import BaseBranchOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowRuntimeError

from include.tiering.errors import HandoverForgottenError, SettingError
from include.tiering.handover.contract import WATCH_DAG_ID, Handover, LocalRetention
from include.tiering.handover.report import HandoverView, handover_question, latest_checks, present_handover, step_line
from include.tiering.handover.rules import HandoverState, HandoverStep, is_before
from include.tiering.model.segments import Uuid
from include.tiering.presentation import as_text
from plugins.tiering_airflow import alerts
from plugins.tiering_airflow.approval import approved_by, is_unanswered, put_question
from plugins.tiering_airflow.errors import (
    ApprovalMissingError,
    HandoverRefusedError,
    HandoverWaitsError,
    NotReadyError,
)
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.shared import APPROVAL_TASK_ID, amount, author

if TYPE_CHECKING:
    from airflow.sdk import Context

    from include.tiering.app import App

BEGIN_TASK_ID: Final = "begin"
ASK_TASK_ID: Final = "ask"
AGREED_TASK_ID: Final = "agreed"
HANDOVER_KEY: Final = "tiering_handover"
HANDOVER_ID: Final = f"{{{{ ti.xcom_pull(task_ids='{BEGIN_TASK_ID}', key='{HANDOVER_KEY}') }}}}"


class BeginHandoverOperator(BaseOperator):
    """Begins the handover of the topic in the form, or resumes a handover of this topic that has not ended."""

    def execute(self, context: "Context") -> dict[str, str]:
        """Begin or resume the handover.

        Raises:
            NotReadyError: the DAG that watches handovers is paused.
            UnknownTopicError, SettingError: the form is wrong.
            LeaseLostError: another process drives the handover now.
        """
        self._require_watch(context)
        params = context["params"]
        topic = params["topic"]
        if topic is None:
            raise SettingError("name the topic to hand over")
        wanted = LocalRetention(
            amount("local.retention.ms", params["local_retention_ms"], "milliseconds"),
            amount("local.retention.bytes", params["local_retention_bytes"], "bytes"),
        )
        with TieringHook().open() as app:
            found = app.handover.latest_of(topic)
            if found is None or found.state.has_ended:
                found = app.handover.begin(topic, wanted, author=author(context["dag_run"]))
            else:
                self.log.info("A handover is %s at %s: it is continued", found.state, found.step)
                found = app.handover.carry_on(
                    found.handover_id, until=HandoverStep.PRECONDITIONS, resume=True, driver=driver(context)
                )
        context["ti"].xcom_push(key=HANDOVER_KEY, value=str(found.handover_id))
        return {"handover_id": str(found.handover_id), "step": found.step.value, "state": found.state.value}

    def _require_watch(self, context: "Context") -> None:
        try:
            watch = context["ti"].get_dag(WATCH_DAG_ID)
        except AirflowRuntimeError as error:
            self.log.warning("Whether %s is paused is unknown: %s", WATCH_DAG_ID, error)
            return
        if watch.is_paused:
            raise NotReadyError(
                f"{WATCH_DAG_ID} is paused, so nobody would be told if this handover stopped while it suspends the"
                f" topic's retention. Nothing was changed: call `airflow dags unpause {WATCH_DAG_ID}`, and trigger"
                " another run"
            )


class HandoverStepOperator(BaseOperator):
    """Runs the handover up to and including `step`, and logs the checklist. Steps that are done are not repeated."""

    template_fields: Sequence[str] = ("handover_id",)

    def __init__(self, *, step: HandoverStep, handover_id: str = HANDOVER_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.handover_id = handover_id

    def execute(self, context: "Context") -> dict[str, str]:
        """Run the task. Raises HandoverRefusedError, HandoverWaitsError (retriable), or LeaseLostError (retriable)."""
        with TieringHook().open() as app:
            done = app.handover.carry_on(
                Uuid.parse(self.handover_id),
                until=self.step,
                driver=driver(context),
                on_step=lambda step: self.log.info("%s", step_line(step)),
                on_message=lambda line: self.log.info("    %s", line),
            )
            view = view_of(app, done)
        for line in as_text(present_handover(view)).splitlines():
            self.log.info("%s", line)
        _require_done(done, self.step)
        return {"step": done.step.value, "state": done.state.value}


class AskApprovalOperator(BaseBranchOperator):
    """Branches to `APPROVAL_TASK_ID`, where a person decides about the plan; to `AGREED_TASK_ID` if one has already."""

    template_fields: Sequence[str] = ("handover_id",)

    def __init__(self, *, handover_id: str = HANDOVER_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.handover_id = handover_id

    def choose_branch(self, context: "Context") -> str:
        """Return the task that is next. Raises HandoverRefusedError or HandoverWaitsError."""
        with TieringHook().open() as app:
            handover_id = Uuid.parse(self.handover_id)
            found = app.handover.carry_on(handover_id, until=HandoverStep.APPROVAL, driver=driver(context))
            waits = found.state is HandoverState.ACTIVE and found.step is HandoverStep.APPROVAL
            if waits and found.plan_hash is not None:
                question = handover_question(view_of(app, found))
                put_question(app, context, question, subject=self.handover_id, plan_hash=found.plan_hash)
                return APPROVAL_TASK_ID
        _require_done(found, HandoverStep.APPROVAL)
        return AGREED_TASK_ID


class HandoverAgreedOperator(BaseOperator):
    """Records who approved which plan, unless the plan was approved before.

    An approval counts only for the plan that was shown, and only if its author is still allowed to approve.
    """

    template_fields: Sequence[str] = ("handover_id",)

    def __init__(self, *, handover_id: str = HANDOVER_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.handover_id = handover_id

    def execute(self, context: "Context") -> None:
        """Run the task. Raises ApprovalRequiredError or AnswerRefusedError."""
        handover_id = Uuid.parse(self.handover_id)
        with TieringHook().open() as app:
            found = app.adapters.stores.handovers.handover(handover_id)
            if found.approval is not None or is_before(HandoverStep.APPROVAL, found.step):
                self.log.info("Approved before")
                return
            who = approved_by(app, context, subject=self.handover_id, plan_hash=found.plan_hash)
            app.handover.approve(handover_id, str(found.plan_hash), author=who)
        self.log.info("Plan %s was approved by %s", found.plan_hash, who)


class HandoverOutcomeOperator(BaseOperator):
    """The last task: it fails, and the run with it, if the topic is not handed over."""

    template_fields: Sequence[str] = ("handover_id",)

    def __init__(self, *, handover_id: str = HANDOVER_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.handover_id = handover_id

    def execute(self, context: "Context") -> dict[str, str]:
        """Run the task. Raises ApprovalMissingError or HandoverRefusedError."""
        with TieringHook().open() as app:
            found = app.adapters.stores.handovers.handover(Uuid.parse(self.handover_id))
            unanswered = is_unanswered(app, context)
        if found.state is HandoverState.DONE:
            self.log.info("%s is handed over", found.topic)
            return {"topic": found.topic, "state": found.state.value}
        if unanswered:
            raise ApprovalMissingError(
                f"the handover of {found.topic} was neither approved nor rejected in time. Retention overrides that "
                f"are in force stay. Another run asks again, ./tiering handover {found.topic} --undo restores the "
                f"topic's configs"
            )
        raise HandoverRefusedError(
            f"{found.topic} is not handed over: {found.state} at {found.step}: {found.detail or 'rejected'}. "
            f"Retention overrides that are in force stay until another run continues the handover, or until "
            f"./tiering handover {found.topic} --undo restores the topic's configs"
        )


class ForgottenHandoversOperator(BaseOperator):
    """Fails if an open handover makes no progress while it suspends the topic's retention or copies.

    A handover suspends them while its retention overrides are in force, or while it is parked. The task sets the
    metrics `tiering_handovers` and `tiering_handovers_forgotten` in any case. It also fails if the options about who is
    told are wrong, because then only who looks at Airflow would learn of such a handover.
    """

    def execute(self, context: "Context") -> dict[str, int]:
        """Run the task. Raises HandoverForgottenError with one line for each handover, or SettingError."""
        with TieringHook().open() as app:
            under_way = app.adapters.stores.handovers.open_handovers()
            forgotten = app.handover.forgotten()
        if forgotten:
            raise HandoverForgottenError("\n".join(forgotten_handover.message for forgotten_handover in forgotten))
        if problems := alerts.problems():
            raise SettingError("\n".join(problems))
        return {"under_way": len(under_way)}


def driver(context: "Context") -> str:
    """Return the owner of the lease, which is the same in every try: a retry takes over the lease of a killed try."""
    return f"{context['dag_run'].dag_id} {context['run_id']}"


def view_of(app: "App", handover: Handover) -> HandoverView:
    """Return a handover with its latest checks, retention overrides and seeded partitions."""
    store, handover_id = app.adapters.stores.handovers, handover.handover_id
    checks = latest_checks(store, handover)
    return HandoverView(handover, checks, store.overrides(handover_id), store.seed(handover_id))


def _require_done(handover: Handover, step: HandoverStep) -> None:
    if handover.state.has_ended or is_before(step, handover.step):
        return
    if handover.state is HandoverState.ACTIVE:
        raise HandoverWaitsError(f"{handover.topic} waits at {handover.step}: {handover.detail}")
    raise HandoverRefusedError(
        f"{handover.topic} is {handover.state} at {handover.step}: {handover.detail}. "
        f"Fix the cause and trigger a run again, or ./tiering handover {handover.topic} --undo"
    )
