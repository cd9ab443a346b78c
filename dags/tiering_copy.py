"""### Copy rolled segments to remote storage

    ready -> plan -> copy (mapped, one Spark job per batch) -> quality_gate -> summary -> asset tiering_remote_log
                                                                                  \\-> outcome

With queues: ready -> scan_<queue>, for which plan waits, and plan -> batches_<queue> -> copy_<queue> -> quality_gate.

This DAG copies rolled segments of Kafka topics from the brokers' log dirs, or from leaders whose brokers have none in
the settings, to the remote store, and checks the copies. Log dirs and leaders are only read.

* **ready** waits in the triggerer, without a worker or a pool slot, until the run can start: the schema, the store, the
  suite files, the quota ledger (if a quota is set), at least one log dir (if any are set) and the cluster metadata are
  usable, no pause of all topics is in force, and the size of the pool `remote_log_copier` is not 0. The run does not
  start either while every partition waits for one of these causes: its metadata is incomplete, cluster metadata is
  unknown or contradicts its files, its leader's replica is not found, or its topic is paused. The log of this task says
  what it waits for. It fails at once if waiting cannot help.
* **scan_&lt;queue&gt;**: one task for each `queue` that settings of log dirs name, on a worker of that queue. It
  reports what is in these log dirs, so that neither `ready` nor `plan` needs to read them.
* **plan** decides for each partition which segments may be copied now, and how many batches to start. It logs each
  partition that has to wait, with the reason. If there is nothing to copy, no batch starts. It waits up to three
  minutes for the scans of queues whose log dirs it cannot read. A log dir that was not scanned by then, because no
  worker of its queue runs, is not planned: the log names it and its queue, and `outcome` fails the run. Such a run
  stays open until Airflow fails the scan, after half an hour by default: see the runbook, "A partition waits for a
  queue".
* **copy** is mapped over the batches. Each batch takes one slot of the pool `remote_log_copier` and copies one
  partition after another until none is left or its time is over. A batch that gets its slot when no partition is left
  for it ends without starting Spark, and its log says so. The pool can be resized while batches run;
  `./tiering pause` stops all sending within a second. For each `queue` that settings of log dirs name there are the
  tasks **batches_&lt;queue&gt;** and **copy_&lt;queue&gt;**, whose batches run on the workers of that queue.
* **quality_gate** verifies the segments that this run copied, and those that earlier runs left without a verdict: it
  compares them in the store with what was read from the source. A segment that fails is kept and stops its partition;
  the log of this task names the first 50. The task also fails if the outcome of a planned segment is *failed*. An error
  that may pass leaves the segment planned, and does not fail this task.
* **summary** logs the table of the run and updates the asset, which starts `tiering_remote_log_sizes`. If no segment
  was copied, it logs the table and is skipped.
* **outcome** fails the run if a batch or the quality check failed, if the plan found something that a person has to
  repair or decide, or if nothing explains why planned segments of a partition were left: no error and no refusal by a
  quota is recorded for the partition, no other run copied them, no batch holds the partition, its topic is not paused,
  and no batch of the run ended early.

The next run cleans up what a crash leaves: see the crash table of `include/tiering/copying/copy_segment.py`. What can
fail, and what to do then, is in `docs/failure-modes.md` and `docs/runbook.md`.

Unless Airflow's `dags_are_paused_at_creation` is off, this DAG is paused when Airflow first finds it, and copies
nothing until a person switches it on: `airflow dags unpause tiering_copy`.
"""

from airflow.sdk import DAG, Param, TriggerRule

from plugins.tiering_airflow import alerts, configuration
from plugins.tiering_airflow.copying import (
    CopyBatchOperator,
    CopySummaryOperator,
    PlanCopyOperator,
    QualityGateOperator,
    QueuedBatchesOperator,
    RunOutcomeOperator,
    ScanQueueOperator,
    copy_task_id,
    scan_task_id,
)
from plugins.tiering_airflow.pools import COPIER_POOL
from plugins.tiering_airflow.readiness import TieringReadySensor
from plugins.tiering_airflow.shared import BYTES_SCHEMA, PLAN_TASK_ID, REMOTE_LOG, task_arguments

TOPICS = Param(
    None,
    type=["null", "array"],
    items={"type": "string", "minLength": 1, "maxLength": 249},
    title="Topics",
    description_md="Names or patterns such as `orders*`, one per line. Empty: the topics that the settings include.",
)
LIMIT_BYTES = Param(
    None,
    **BYTES_SCHEMA,
    minimum=1,
    title="Limit in bytes",
    description_md="The run copies whole segments up to this many bytes, but at least one segment. `50GiB` is "
    "accepted, too. Empty: no limit.",
)
DRY_RUN = Param(False, type="boolean", title="Dry run", description_md="Only plan and report; nothing is copied.")

with DAG(
    dag_id="tiering_copy",
    description="Copy rolled Kafka log segments to remote storage, verify them and report",
    doc_md=__doc__,
    schedule=configuration.copy_schedule(),
    start_date=configuration.start_date(),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=64,
    params={"topics": TOPICS, "limit_bytes": LIMIT_BYTES, "dry_run": DRY_RUN},
    default_args=task_arguments(),
    tags=["tiering", "copy"],
    **alerts.dag_arguments("tiering_copy"),
):
    ready = TieringReadySensor(task_id="ready")
    plan = PlanCopyOperator(task_id=PLAN_TASK_ID)
    in_pool = {"pool": COPIER_POOL, "pool_slots": 1, "map_index_template": "batch {{ task.batch }}"}
    copies = [CopyBatchOperator.partial(task_id=copy_task_id(None), **in_pool).expand_kwargs(plan.output)]
    # All batches of a mapped task run on its queue, so each queue needs a task of its own.
    for queue in configuration.copy_queues():
        # No edge to `plan`: without a worker the task stays queued, and must not hold up what others can read.
        ready >> ScanQueueOperator(task_id=scan_task_id(queue), queue=queue, reads_queue=queue)
        batches = QueuedBatchesOperator(task_id=f"batches_{queue}", batches_of=queue)
        placed = CopyBatchOperator.partial(
            task_id=copy_task_id(queue), queue=queue, reads_queue=queue, **in_pool
        ).expand_kwargs(batches.output)
        plan >> batches >> placed
        copies.append(placed)
    # `quality_gate` and `summary` also run after failed batches, to check and report what was copied. `quality_gate`
    # skips itself if nothing was planned, as Airflow has no rule "all done, and at least one of them not skipped".
    quality_gate = QualityGateOperator(task_id="quality_gate", trigger_rule=TriggerRule.ALL_DONE)
    summary = CopySummaryOperator(
        task_id="summary", outlet=REMOTE_LOG, trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    )
    # The last task decides the state of the run: a failed batch or check fails it, skipped tasks do not.
    outcome = RunOutcomeOperator(task_id="outcome", trigger_rule=TriggerRule.NONE_FAILED)

    ready >> plan >> copies[0]
    [plan, *copies] >> quality_gate
    [plan, quality_gate] >> summary
    [*copies, quality_gate, summary] >> outcome
