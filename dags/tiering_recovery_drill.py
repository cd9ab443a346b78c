"""### Try the recovery of a topic

    ready -> drill

This DAG does to one topic what a recovery would do after the database and all brokers were lost, beside the deployment,
which it does not change. The DAG is paused when Airflow first finds it: `airflow dags unpause tiering_recovery_drill`.

* **ready** waits in the triggerer until the run can start: the schema, the store, the suite files and the quota ledger
  (if a quota is set) are usable, and Airflow has the pool `remote_log_reader`. No log directory is needed.
* **drill** rebuilds the topic's metadata from the store alone, in a database of its own, verifies them, restores the
  topic into a temporary directory, starts a throw-away broker on it, and reads everything as consumers do in both
  isolation levels. It logs how long each step took, how many records are equal, and what a recovery of all topics would
  need. All bytes count in the fetch quota. The worker needs Java, a Kafka distribution (`KAFKA_HOME`) or Maven, and
  space for the topic in its TMPDIR.

The task fails if something cannot be recovered, and names it. `./tiering doctor`, the metrics, the event log and the
alarms have the result of the last drill. Without a topic in the form, a run takes the one whose last drill is the
longest ago; `docs/runbook.md`, *A recovery drill failed*, says what to do.
"""

from airflow.sdk import DAG, Param

from plugins.tiering_airflow import alerts, configuration
from plugins.tiering_airflow.pools import READER_POOL
from plugins.tiering_airflow.readiness import SIZES_WAIT_SECONDS, TieringReadySensor
from plugins.tiering_airflow.recovery import DRILL_TASK_ID, RecoveryDrillOperator
from plugins.tiering_airflow.shared import task_arguments

TOPIC = Param(
    None,
    type=["null", "string"],
    maxLength=249,
    title="Topic",
    description_md="Empty: the topic whose last drill is the longest ago.",
)

with DAG(
    dag_id="tiering_recovery_drill",
    description="Recover a topic from the store alone, on a throw-away broker, and compare every record",
    doc_md=__doc__,
    schedule=configuration.drill_schedule(),
    start_date=configuration.start_date(),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,
    is_paused_upon_creation=True,
    params={"topic": TOPIC},
    default_args=task_arguments(),
    tags=["tiering", "restore"],
    **alerts.dag_arguments("tiering_recovery_drill"),
):
    ready = TieringReadySensor(
        task_id="ready", slot_pool=READER_POOL, store_alone=True, wait_seconds=SIZES_WAIT_SECONDS
    )
    drill = RecoveryDrillOperator(task_id=DRILL_TASK_ID, pool=READER_POOL, pool_slots=1)
    ready >> drill
