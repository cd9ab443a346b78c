"""### Recount the remote log size

    ready -> sizes -> summary -> outcome

This DAG runs after `tiering_copy`, `tiering_expiration` or `tiering_ingest` has changed the remote log (asset
`tiering_remote_log`), on a schedule of its own, and when it is triggered.

* **ready** waits in the triggerer, without a worker or a pool slot, until the run can start: the schema, the store, the
  suite files, the quota ledger (if a quota is set) and at least one log dir (if any are set) are usable, and Airflow
  has the pool `remote_log_reader`. It does not wait for cluster metadata, for the end of a pause of all topics, or for
  a slot of the pool: while no slot is free, or the pool has 0, the task **sizes** waits for one, without a time limit.
  If waiting cannot help, **ready** fails at once, otherwise after half an hour. Then **sizes** does not run, but
  **summary** does, and counts what waits to be copied. The next run tries **ready** again.
* **sizes** is a Spark job. From the segment rows it counts bytes and segments of each partition, by state and leader
  epoch, and compares them with the counters that every state change updates; the rules are evaluated by Great
  Expectations. It adds the result to the history (`sizes.history_path`). With *Compare with the store* it also compares
  the rows with a listing of the store and, if `manifests` is chosen, with every manifest. Its log has the differences.
* **summary** logs sizes, what waits to be copied or deleted, how many bytes are both local and remote, and what the
  storage costs, and publishes metrics.
* **outcome** fails the run if counters, rows and store differ so that a critical rule is broken. This DAG corrects
  nothing.

Several events may start one run together. A run counts the rows that exist when it runs.
"""

from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable, Param, TriggerRule

from plugins.tiering_airflow import alerts, configuration
from plugins.tiering_airflow.pools import READER_POOL
from plugins.tiering_airflow.readiness import SIZES_WAIT_SECONDS, TieringReadySensor
from plugins.tiering_airflow.shared import REMOTE_LOG, task_arguments
from plugins.tiering_airflow.sizes import (
    FROM_STORAGE,
    SIZES_TASK_ID,
    RemoteLogSizesOperator,
    SizeOutcomeOperator,
    SizeSummaryOperator,
)

COMPARE_WITH_STORE = Param(
    None,
    type=["null", "string"],
    enum=[None, "listing", "manifests"],
    title="Compare with the store",
    description_md="`listing`: compare name and size of every object. `manifests`: also read every manifest, "
    "with one request each.",
)
CRON = configuration.sizes_schedule()
TIMES = CronTriggerTimetable(CRON, timezone=configuration.timezone()) if CRON else None

with DAG(
    dag_id="tiering_remote_log_sizes",
    description="Recount remote log sizes per partition, leader epoch and state, compare with the counters",
    doc_md=__doc__,
    schedule=AssetOrTimeSchedule(timetable=TIMES, assets=[REMOTE_LOG]) if TIMES else [REMOTE_LOG],
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,
    is_paused_upon_creation=False,
    params={FROM_STORAGE: COMPARE_WITH_STORE},
    default_args=task_arguments(),
    tags=["tiering", "sizes"],
    **alerts.dag_arguments("tiering_remote_log_sizes"),
):
    ready = TieringReadySensor(task_id="ready", slot_pool=READER_POOL, wait_seconds=SIZES_WAIT_SECONDS)
    sizes = RemoteLogSizesOperator(task_id=SIZES_TASK_ID, pool=READER_POOL, pool_slots=1)
    # `summary` also runs if the recount did not finish: what waits to be copied is reported in any case.
    summary = SizeSummaryOperator(task_id="summary", trigger_rule=TriggerRule.ALL_DONE)
    outcome = SizeOutcomeOperator(task_id="outcome")
    ready >> sizes >> summary >> outcome
    sizes >> outcome
