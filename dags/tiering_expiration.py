"""### Delete remote segments that expire

    ready -> plan -> brake -> release -> delete (mapped, one Spark job per batch) -> summary -> asset tiering_remote_log
                       \\-> approval -^

Only topics that the platform owns, by our own log start, leader epochs and retention. Unset retention keeps for ever.

* **ready** waits in the triggerer until the schema, the store, the log dirs and the pool are as they must be.
* **plan** decides what goes and why, unfinished deletes first, and stores it. With nothing to delete the run ends after
  the brake, successfully. What another run deletes, or asks about, is left to that run. Its log names partitions that
  wait, and why.
* **brake** lists topics with bytes and share, after a second computation of the totals. A dry run ends here.
* **approval**: if more of a topic would go within 24 hours than `tiering.expiration.max.share`, if more of small topics
  goes in all than `tiering.expiration.total.max.bytes`, if several lose everything, if the totals do not agree, or if a
  topic goes because it was deleted, a person is asked (*Required actions*). *Reject*, or no answer in time, deletes
  nothing. Other topics do not wait for the answer: the next run begins on time and leaves out only those
  that the question is about.
* **release** records who approved which plan, and refuses if part of it would stay by the settings of now.
* **delete**: each batch takes one slot of the pool `remote_log_expiration` and pulls partitions until no work is left.
  When it takes one, and when it comes out of a pause, it keeps what nobody would plan any more.
  It never waits for the copy quota; `tiering.delete.max.requests.per.second` is its own.
* **summary** prints the table and wakes `tiering_remote_log_sizes`.
* **outcome** forgets old tombstones, and fails the run if something needs a person: a segment that could not be
  deleted, or a missing answer.

A batch that dies is resumed first: by its next try, or by the next run, whose plan begins with what was left undone.
See the crash table of `include/tiering/expiration/delete_segments.py`.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, Param, TriggerRule

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.approval import PlanApprovalOperator
from plugins.tiering_airflow.expiration import (
    BrakeOperator,
    DeleteBatchOperator,
    ExpirationOutcomeOperator,
    ExpirationSummaryOperator,
    PlanExpirationOperator,
    ReleaseOperator,
)
from plugins.tiering_airflow.pools import EXPIRATION_POOL
from plugins.tiering_airflow.readiness import TieringReadySensor
from plugins.tiering_airflow.shared import (
    APPROVAL_TASK_ID,
    BRAKE_TASK_ID,
    OUTCOME_TASK_ID,
    PLAN_TASK_ID,
    RELEASE_TASK_ID,
    REMOTE_LOG,
    RETRY_ARGUMENTS,
)

TOPICS = Param(
    None,
    type=["null", "array"],
    items={"type": "string", "minLength": 1, "maxLength": 249},
    title="Topics",
    description_md="Names or patterns such as `orders*`, one per line. Empty: all topics that the platform owns.",
)
DRY_RUN = Param(False, type="boolean", title="Dry run", description_md="Plan and show what would go, delete nothing.")

with DAG(
    dag_id="tiering_expiration",
    description="Delete remote log segments that expire; ask first if much would go at once",
    doc_md=__doc__,
    schedule=configuration.expiration_schedule(),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    # Runs that wait for a person, each about other topics, hold up none that has something to delete.
    max_active_runs=16,
    max_active_tasks=64,
    params={"topics": TOPICS, "dry_run": DRY_RUN},
    default_args=RETRY_ARGUMENTS | {"owner": "tiering"},
    tags=["tiering", "expiration"],
):
    ready = TieringReadySensor(task_id="ready", slot_pool=EXPIRATION_POOL)
    # One at a time: each plan leaves out what the plans before it took.
    plan = PlanExpirationOperator(task_id=PLAN_TASK_ID, max_active_tis_per_dag=1)
    brake = BrakeOperator(task_id=BRAKE_TASK_ID)
    approval = PlanApprovalOperator(task_id=APPROVAL_TASK_ID)
    # The brake skips the approval, or the approval skips this: batches exist only once this has succeeded.
    release = ReleaseOperator(task_id=RELEASE_TASK_ID, trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    delete = DeleteBatchOperator.partial(
        task_id="delete", pool=EXPIRATION_POOL, pool_slots=1, map_index_template="batch {{ task.batch }}"
    ).expand_kwargs(release.output)
    # Also runs after batches that failed: what was deleted is reported all the same.
    summary = ExpirationSummaryOperator(
        task_id="summary", outlet=REMOTE_LOG, trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    )
    # The last task decides the state of the run: a failed batch or release fails it, skipped tasks do not.
    outcome = ExpirationOutcomeOperator(task_id=OUTCOME_TASK_ID, trigger_rule=TriggerRule.NONE_FAILED)

    ready >> plan >> brake >> [approval, release]
    approval >> release >> delete
    [plan, delete] >> summary
    [release, delete, summary] >> outcome
