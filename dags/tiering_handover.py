"""### Hand a topic over to its brokers

    ready -> begin -> preconditions -> guards -> copy -> gate -> ask -> agreed -> fence -> recheck -> publish
                                                                   \\-> approval -^
        -> switch -> watch -> take-over -> retention -> local-retention -> outcome

After a handover the brokers serve, copy and expire the topic (Kafka's tiered storage), including segments that this
platform has copied. Each task runs one step, except **ready**, **begin**, **ask**, **approval**,
**agreed** and **outcome**; the log of a step's task shows the checklist. If a run died, waits or was refused, trigger
another run for the same topic: it continues where the last one ended. `./tiering handover TOPIC --resume` does the
same, and `--undo` goes back as far as possible.

* **ready** waits in the triggerer until the schema, the store, the suite files, the quota ledger (if a quota is set)
  and a log dir (if any is set) are usable and Airflow has the pool `remote_log_reader`. **begin** starts the handover,
  or resumes the handover of this topic that has not ended. It fails, and changes nothing, while
  `tiering_handover_watch` is paused.
* **preconditions** makes all checks that are possible before anything is changed.
* **guards** stores the topic's retention configs and sets retention overrides: on the brokers, nothing of the topic
  expires until the step **retention**.
* **copy** copies from the broker's log start offset on, until no rolled segment is left that can be copied; segments
  above the high watermark or the last stable offset are left to the broker. The task holds one slot of the pool
  `remote_log_copier` and obeys the copy quota.
* **gate** verifies every segment, and checks whether anything is left that brokers could not take over. The checks are
  in `docs/handover-checks.md`.
* **ask** stores the question about the plan, unless the plan was approved before, and **approval** asks a person to
  approve exactly this plan (*Required actions*). *Reject*, or no answer in time, leaves the retention overrides in
  place; another run asks again. **agreed** records who approved.
* **fence** takes the topic from this platform, so that no new batch copies or deletes it, and waits until the running
  batches have released the topic's partitions. **recheck** repeats the checks.
* **publish** writes the segment metadata to `__remote_log_metadata` and reads it back. **switch** sets
  `remote.storage.enable=true`.
* **watch** waits until the brokers have read all published metadata, and checks that their log start offset is
  unchanged.
* **take-over** makes the brokers the owner of the topic. **retention** restores its total retention.
* **local-retention** lowers the local retention level by level. At each level, records that are only remote now are
  consumed and compared with what was copied.
* **outcome** fails the run if the topic is not handed over.

If a person switches remote storage on during the handover, the run detects that, copies and publishes nothing more, and
continues at **watch**. For each step, a table at the head of its module in `include/tiering/handover/` says what a
crash leaves, and what cleans that up; the procedure with its output is in `docs/handover.md`.
"""

from airflow.sdk import DAG, Param, TriggerRule

from include.tiering.handover.rules import HandoverStep
from plugins.tiering_airflow import alerts, configuration
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
from plugins.tiering_airflow.shared import (
    APPROVAL_TASK_ID,
    BYTES_SCHEMA,
    DURATION_SCHEMA,
    OUTCOME_TASK_ID,
    task_arguments,
)

TOPIC = Param(
    type="string",
    minLength=1,
    maxLength=249,
    title="Topic",
    description_md="The name of one topic, no pattern. Required.",
)
AT_THE_END = (
    "The value at the end of the handover that this run begins. Empty: the topic keeps its present value. A run that"
    " continues a handover ignores this field and uses the value with which the handover was begun."
)
LOCAL_MS = Param(
    None,
    **DURATION_SCHEMA,
    minimum=0,
    title="local.retention.ms",
    description_md=f"In milliseconds, or a duration such as `7d`. {AT_THE_END}",
    section="Local retention",
)
LOCAL_BYTES = Param(
    None,
    **BYTES_SCHEMA,
    minimum=0,
    title="local.retention.bytes",
    description_md=f"In bytes, or as `50GiB`. {AT_THE_END}",
    section="Local retention",
)
BEFORE_APPROVAL = (HandoverStep.PRECONDITIONS, HandoverStep.OVERRIDES, HandoverStep.COPY, HandoverStep.QUALITY_CHECK)
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


# A whole topic is copied, or read back, at the pace of its quotas.
WHOLE_TOPIC_TIMEOUT = 7 * configuration.task_timeout()


def _step(step: HandoverStep) -> HandoverStepOperator:
    if step is HandoverStep.COPY:
        return HandoverStepOperator(
            task_id=step.value, step=step, pool=COPIER_POOL, execution_timeout=WHOLE_TOPIC_TIMEOUT
        )
    if step is HandoverStep.QUALITY_CHECK:
        return HandoverStepOperator(task_id=step.value, step=step, execution_timeout=WHOLE_TOPIC_TIMEOUT)
    return HandoverStepOperator(task_id=step.value, step=step)


with DAG(
    dag_id="tiering_handover",
    description="Hand a topic over to its brokers, step by step",
    doc_md=__doc__,
    schedule=None,
    start_date=configuration.start_date(),
    catchup=False,
    max_active_runs=16,
    max_active_tasks=16,
    is_paused_upon_creation=False,
    params={"topic": TOPIC, "local_retention_ms": LOCAL_MS, "local_retention_bytes": LOCAL_BYTES},
    default_args=task_arguments(),
    tags=["tiering", "handover"],
    **alerts.dag_arguments("tiering_handover"),
):
    ready = TieringReadySensor(task_id="ready", slot_pool=READER_POOL)
    begin = BeginHandoverOperator(task_id=BEGIN_TASK_ID)
    ask = AskApprovalOperator(task_id=ASK_TASK_ID)
    approval = PlanApprovalOperator(task_id=APPROVAL_TASK_ID)
    # `ask` skips the approval if it was given before; a rejection skips this task.
    agreed = HandoverAgreedOperator(task_id=AGREED_TASK_ID, trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    # The last task decides the state of the run: a rejection skips the tasks from `agreed` on, and fails `outcome`.
    outcome = HandoverOutcomeOperator(task_id=OUTCOME_TASK_ID, trigger_rule=TriggerRule.NONE_FAILED)

    last = ready >> begin
    for each in map(_step, BEFORE_APPROVAL):
        last = last >> each
    last >> ask >> [approval, agreed]
    last = approval >> agreed
    for each in map(_step, AFTER_APPROVAL):
        last = last >> each
    last >> outcome
