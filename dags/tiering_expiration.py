"""### Delete remote segments that expire

    ready -> plan -> safety_limit -> release -> delete (mapped, one Spark job per batch) -> summary -> asset
                             \\-> approval -^                                          \\-> outcome  tiering_remote_log

This DAG deletes segments from the remote store by retention. It deletes only segments of topics that the platform owns,
by the log start offset, the leader epochs and the retention that the platform stores. No segment of a topic without a
retention expires by age or size.

* **ready** waits in the triggerer, without a worker or a pool slot, until the run can start: the schema, the store and
  the quota ledger (if a quota is set) are usable, no pause of all topics is in force, and the size of the pool
  `remote_log_expiration` is not 0. It does not wait for log dirs or cluster metadata; without log dirs less is deleted.
  It fails at once if waiting cannot help.
* **plan** decides which segments are deleted and why, and stores the plan. Deletions that an earlier run began come
  first. Topics from which another run deletes, or about which another run asks a person, are left out, except in a dry
  run. Its log names partitions that wait, and why.
* **safety_limit** checks the deletion limits. It has the database compute the totals of the plan a second time, and
  lists the topics with bytes and share. If there is nothing to delete, or in a dry run, no later task except `outcome`
  does anything, and the run succeeds.
* **approval** asks a person (*Required actions*) if a limit is exceeded: if within 24 hours a topic would lose more
  than the share `tiering.expiration.max.share` and more than `tiering.expiration.min.bytes`, if topics that lose more
  than this share, but no more than these bytes each, would together lose more than
  `tiering.expiration.total.max.bytes`, or if more topics than `tiering.expiration.max.whole.topics` would lose
  everything. It also asks if the two totals differ, or if segments would be deleted because their topic was deleted in
  the cluster. *Reject*, or no answer in time, deletes nothing.
  Other topics do not wait for the answer: the next run starts on time and leaves out only the topics that the question
  is about.
* **release** records who approved which plan. It fails if part of an approved plan would not be planned any more.
* **delete** is mapped over the batches. Each batch takes one slot of the pool `remote_log_expiration` and deletes from
  one partition after another until none is left or its time is over. When it takes a partition, it checks the plan
  again and keeps segments that would not be planned now. It does so once more whenever it continues with a partition
  after `./tiering pause` had stopped it. It does not use the copy quota: its own limit is
  `tiering.delete.max.requests.per.second`.
* **summary** logs the table of the run and updates the asset, which starts `tiering_remote_log_sizes`. It is skipped
  if no segment was deleted.
* **outcome** removes old tombstones (rows of deleted segments). It fails the run if a segment could not be deleted, if
  a superseded segment is kept because its replacement is not verified, if the question was not answered in time, or if
  the plan was withdrawn.

The next try of a batch that died, or the next run, continues its work: see the crash table of
`include/tiering/expiration/delete_segments.py`. What can fail, and what to do then, is in `docs/failure-modes.md` and
`docs/runbook.md`.

Unless Airflow's `dags_are_paused_at_creation` is off, this DAG is paused when Airflow first finds it, and deletes
nothing until a person switches it on: `airflow dags unpause tiering_expiration`.
"""

from airflow.sdk import DAG, Param, TriggerRule

from plugins.tiering_airflow import alerts, configuration
from plugins.tiering_airflow.approval import PlanApprovalOperator
from plugins.tiering_airflow.expiration import (
    DeleteBatchOperator,
    ExpirationOutcomeOperator,
    ExpirationSummaryOperator,
    PlanExpirationOperator,
    ReleaseOperator,
    SafetyLimitOperator,
)
from plugins.tiering_airflow.pools import EXPIRATION_POOL
from plugins.tiering_airflow.readiness import TieringReadySensor
from plugins.tiering_airflow.shared import (
    APPROVAL_TASK_ID,
    OUTCOME_TASK_ID,
    PLAN_TASK_ID,
    RELEASE_TASK_ID,
    REMOTE_LOG,
    SAFETY_LIMIT_TASK_ID,
    task_arguments,
)

TOPICS = Param(
    None,
    type=["null", "array"],
    items={"type": "string", "minLength": 1, "maxLength": 249},
    title="Topics",
    description_md="Names or patterns such as `orders*`, one per line. Empty: all topics that the platform owns.",
)
DRY_RUN = Param(
    False,
    type="boolean",
    title="Dry run",
    description_md="Only plan and show what would be deleted; nothing is deleted.",
)

with DAG(
    dag_id="tiering_expiration",
    description="Delete remote log segments that expire; ask a person first if a deletion limit is exceeded",
    doc_md=__doc__,
    schedule=configuration.expiration_schedule(),
    start_date=configuration.start_date(),
    catchup=False,
    # Runs that wait for an approval, each about other topics, must not block runs that delete.
    max_active_runs=16,
    max_active_tasks=64,
    params={"topics": TOPICS, "dry_run": DRY_RUN},
    default_args=task_arguments(),
    tags=["tiering", "expiration"],
    **alerts.dag_arguments("tiering_expiration"),
):
    ready = TieringReadySensor(task_id="ready", slot_pool=EXPIRATION_POOL)
    # Only one run plans at a time, as each plan leaves out the topics of earlier plans.
    plan = PlanExpirationOperator(task_id=PLAN_TASK_ID, max_active_tis_per_dag=1)
    safety_limit = SafetyLimitOperator(task_id=SAFETY_LIMIT_TASK_ID)
    approval = PlanApprovalOperator(task_id=APPROVAL_TASK_ID)
    # `safety_limit` may skip the approval; a rejection skips `release`. Batches exist only after `release` succeeded.
    release = ReleaseOperator(task_id=RELEASE_TASK_ID, trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    delete = DeleteBatchOperator.partial(
        task_id="delete", pool=EXPIRATION_POOL, pool_slots=1, map_index_template="batch {{ task.batch }}"
    ).expand_kwargs(release.output)
    # Also runs after failed batches, to report what was deleted.
    summary = ExpirationSummaryOperator(
        task_id="summary", outlet=REMOTE_LOG, trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    )
    # The last task decides the state of the run: a failed batch or release fails it, skipped tasks do not.
    outcome = ExpirationOutcomeOperator(task_id=OUTCOME_TASK_ID, trigger_rule=TriggerRule.NONE_FAILED)

    ready >> plan >> safety_limit >> [approval, release]
    approval >> release >> delete
    [plan, delete] >> summary
    [release, delete, summary] >> outcome
