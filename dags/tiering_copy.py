"""### Copy rolled segments to remote storage

    ready -> plan -> copy (mapped, one Spark job per batch) -> quality_gate -> summary -> asset tiering_remote_log

* **ready** waits in the triggerer until the schema, the store, the log dirs and the pool are as they must be.
* **plan** decides what may be copied now, per partition, and how many batches to start. With nothing to copy the run
  ends here, successfully.
* **copy**: each batch takes one slot of the pool `remote_log_copier` and pulls partitions until no work is left.
  Resize the pool at any time; `./tiering pause` stops all sending within a second. Log dirs whose settings name a
  `queue` have a task of their own, **copy_&lt;queue&gt;**, whose batches run on the workers of that queue.
* **quality_gate** compares what the store has with the source. A failed segment is kept, named in the gate's log, and
  stops its partition.
* **summary** prints the table and wakes `tiering_remote_log_sizes`.
* **outcome** fails the run if something needs a person: a failed segment, or damage that the plan met.

What a crash leaves is cleaned up by the next run: see the crash table of `include/tiering/copying/copy_segment.py`.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, Param, TriggerRule

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.copying import (
    CopyBatchOperator,
    CopySummaryOperator,
    PlanCopyOperator,
    QualityGateOperator,
    QueuedBatchesOperator,
    RunOutcomeOperator,
    copy_task_id,
)
from plugins.tiering_airflow.pools import COPIER_POOL
from plugins.tiering_airflow.readiness import TieringReadySensor
from plugins.tiering_airflow.shared import PLAN_TASK_ID, REMOTE_LOG, RETRY_ARGUMENTS

TOPICS = Param(
    None,
    type=["null", "array"],
    items={"type": "string", "minLength": 1, "maxLength": 249},
    title="Topics",
    description_md="Names or patterns such as `orders*`, one per line. Empty: the topics that the settings include.",
)
LIMIT_BYTES = Param(
    None,
    type=["null", "integer"],
    minimum=1,
    title="Limit in bytes",
    description_md="Copy at most this much in this run, in whole segments. Empty: no limit.",
)
DRY_RUN = Param(False, type="boolean", title="Dry run", description_md="Plan and report, copy nothing.")

with DAG(
    dag_id="tiering_copy",
    description="Copy rolled Kafka log segments to remote storage, check them, report",
    doc_md=__doc__,
    schedule=configuration.copy_schedule(),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=64,
    params={"topics": TOPICS, "limit_bytes": LIMIT_BYTES, "dry_run": DRY_RUN},
    default_args=RETRY_ARGUMENTS | {"owner": "tiering"},
    tags=["tiering", "copy"],
):
    ready = TieringReadySensor(task_id="ready")
    plan = PlanCopyOperator(task_id=PLAN_TASK_ID)
    in_pool = {"pool": COPIER_POOL, "pool_slots": 1, "map_index_template": "batch {{ task.batch }}"}
    copies = [CopyBatchOperator.partial(task_id=copy_task_id(None), **in_pool).expand_kwargs(plan.output)]
    # All batches of one mapped task have its queue: each queue needs a task of its own.
    for queue in configuration.copy_queues():
        batches = QueuedBatchesOperator(task_id=f"batches_{queue}", batches_of=queue)
        placed = CopyBatchOperator.partial(
            task_id=copy_task_id(queue), queue=queue, reads_queue=queue, **in_pool
        ).expand_kwargs(batches.output)
        plan >> batches >> placed
        copies.append(placed)
    # Both also run after batches that failed: what was copied is judged and reported all the same. The gate skips
    # itself where nothing was planned; no rule of Airflow's says "all done, of which some were not skipped".
    quality_gate = QualityGateOperator(task_id="quality_gate", trigger_rule=TriggerRule.ALL_DONE)
    summary = CopySummaryOperator(
        task_id="summary", outlet=REMOTE_LOG, trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    )
    # The last task decides the state of the run: a failed batch or gate fails it, skipped tasks do not.
    outcome = RunOutcomeOperator(task_id="outcome", trigger_rule=TriggerRule.NONE_FAILED)

    ready >> plan >> copies[0]
    [plan, *copies] >> quality_gate
    [plan, quality_gate] >> summary
    [*copies, quality_gate, summary] >> outcome
