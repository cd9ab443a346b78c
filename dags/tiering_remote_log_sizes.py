"""### Recount the remote log size

    ready -> sizes -> summary -> outcome

Runs when `tiering_copy` has copied something (asset `tiering_remote_log`), on a schedule of its own, or when asked.

* **ready** waits in the triggerer until the schema, the store, the log dirs and the pool are as they must be; a pause
  of all topics holds nothing up. After half an hour it fails: **summary** still runs, so that what waits to be copied
  is known while nothing can be, and the next run looks again.
* **sizes**, a Spark job, counts bytes and segments per topic, partition, leader epoch and state from the segment rows,
  compares them with the counters that every state change keeps, lets Great Expectations judge, and adds the result to
  the history (`sizes.history_path`). With *compare with the store* it also compares the rows with the store's listing,
  or with every manifest. Differences are in its log.
* **summary** logs sizes, what waits to be copied or deleted, what is stored twice and what it costs, and publishes all
  of it as metrics.
* **outcome** fails the run if counters, rows and store do not agree: a finding, never corrected here.

Several events may start one run: it reads what is there now, not what the events said.
"""

from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable, Param, TriggerRule

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.pools import READER_POOL
from plugins.tiering_airflow.readiness import SIZES_WAIT_SECONDS, TieringReadySensor
from plugins.tiering_airflow.shared import REMOTE_LOG, RETRY_ARGUMENTS
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
    description_md="`listing`: every object's name and size. `manifests`: also read every manifest, one request each.",
)
CRON = configuration.sizes_schedule()
TIMES = CronTriggerTimetable(CRON, timezone="UTC") if CRON else None

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
    default_args=RETRY_ARGUMENTS | {"owner": "tiering"},
    tags=["tiering", "sizes"],
):
    ready = TieringReadySensor(task_id="ready", slot_pool=READER_POOL, wait_seconds=SIZES_WAIT_SECONDS)
    sizes = RemoteLogSizesOperator(task_id=SIZES_TASK_ID, pool=READER_POOL, pool_slots=1)
    # What waits is worth knowing when the recount could not finish, too.
    summary = SizeSummaryOperator(task_id="summary", trigger_rule=TriggerRule.ALL_DONE)
    outcome = SizeOutcomeOperator(task_id="outcome")
    ready >> sizes >> summary >> outcome
    sizes >> outcome
