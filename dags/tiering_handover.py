"""### Hand a topic over to its brokers

    ready -> begin -> preconditions -> guards -> copy -> gate -> ask -> agreed -> fence -> recheck -> publish
                                                                   \\-> approval -^
        -> switch -> watch -> take-over -> retention -> local-retention -> outcome

The brokers serve, copy and expire the topic afterwards, with all that was copied here. Each task is one step; its log
is the checklist. A run that died, waits or was refused is followed by triggering another one for the same topic: it
goes on where the one before ended. So does `./tiering handover TOPIC --resume`; `--undo` goes back.

* **preconditions** makes every check that can be made before anything is changed.
* **guards** stores the old values of the topic's retention and holds it back. Nothing of the topic expires meanwhile.
* **copy** copies from the broker's log start on until only active segments are left; it holds one slot of the pool
  `remote_log_copier` and obeys the copy quota.
* **gate** verifies every segment and looks for every pitfall of seeding, see `docs/handover-checks.md`.
* **approval** asks a person for exactly this plan (*Required actions*). *Reject*, or no answer in time, leaves the
  guards: another run asks again.
* **fence** makes the topic nobody's and waits until no batch works on it. **recheck** looks at everything once more.
* **publish** sends the remote log metadata and reads them back; **switch** sets `remote.storage.enable=true`.
* **watch** waits until the brokers know everything that was published and their log start is what it was.
* **take-over**, **retention**: the topic is the brokers', its retention what it was.
* **local-retention** lowers it in steps; after each, what is remote only is consumed and compared with what was copied.

Whoever switches by hand meanwhile is noticed: nothing more is copied or published, the run goes on at **watch**.
Where it dies, and what that leaves: the tables in `include/tiering/handover/`.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, Param, TriggerRule

from include.tiering.handover.rules import HandoverStep
from plugins.tiering_airflow.approval import PlanApprovalOperator
from plugins.tiering_airflow.handover import (
    AGREED_TASK_ID,
    ASK_TASK_ID,
    BEGIN_TASK_ID,
    AskApprovalOperator,
    BeginHandoverOperator,
    HandoverAgreedOperator,
    HandoverOutcomeOperator,
    HandoverStepOperator,
)
from plugins.tiering_airflow.pools import COPIER_POOL, READER_POOL
from plugins.tiering_airflow.readiness import TieringReadySensor
from plugins.tiering_airflow.shared import APPROVAL_TASK_ID, OUTCOME_TASK_ID, RETRY_ARGUMENTS

TOPIC = Param(
    None,
    type=["null", "string"],
    minLength=1,
    maxLength=249,
    title="Topic",
    description_md="Name of one topic, no pattern. Needed.",
)
LOCAL_MS = Param(
    None,
    type=["null", "integer"],
    minimum=0,
    title="local.retention.ms",
    description_md="What it becomes at the end. Empty: as it is now.",
    section="Local retention",
)
LOCAL_BYTES = Param(
    None,
    type=["null", "integer"],
    minimum=0,
    title="local.retention.bytes",
    description_md="What it becomes at the end. Empty: as it is now.",
    section="Local retention",
)
BEFORE_APPROVAL = (HandoverStep.PRECONDITIONS, HandoverStep.GUARDS, HandoverStep.COPY, HandoverStep.GATE)
AFTER_APPROVAL = (
    HandoverStep.FENCE,
    HandoverStep.RECHECK,
    HandoverStep.PUBLISH,
    HandoverStep.SWITCH,
    HandoverStep.WATCH,
    HandoverStep.TAKE_OVER,
    HandoverStep.RETENTION,
    HandoverStep.LOCAL_RETENTION,
)


def _step(step: HandoverStep) -> HandoverStepOperator:
    if step is HandoverStep.COPY:
        return HandoverStepOperator(task_id=step.value, step=step, pool=COPIER_POOL)
    return HandoverStepOperator(task_id=step.value, step=step)


with DAG(
    dag_id="tiering_handover",
    description="Give a topic to its brokers, step by step",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=16,
    max_active_tasks=16,
    is_paused_upon_creation=False,
    params={"topic": TOPIC, "local_retention_ms": LOCAL_MS, "local_retention_bytes": LOCAL_BYTES},
    default_args=RETRY_ARGUMENTS | {"owner": "tiering"},
    tags=["tiering", "handover"],
):
    ready = TieringReadySensor(task_id="ready", slot_pool=READER_POOL)
    begin = BeginHandoverOperator(task_id=BEGIN_TASK_ID)
    ask = AskApprovalOperator(task_id=ASK_TASK_ID)
    approval = PlanApprovalOperator(task_id=APPROVAL_TASK_ID)
    # The question skips the approval where it was given before, or a Reject skips this.
    agreed = HandoverAgreedOperator(task_id=AGREED_TASK_ID, trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    # The last task decides the state of the run: a Reject skips what is between, and is no success.
    outcome = HandoverOutcomeOperator(task_id=OUTCOME_TASK_ID, trigger_rule=TriggerRule.NONE_FAILED)

    last = ready >> begin
    for each in map(_step, BEFORE_APPROVAL):
        last = last >> each
    last >> ask >> [approval, agreed]
    last = approval >> agreed
    for each in map(_step, AFTER_APPROVAL):
        last = last >> each
    last >> outcome
