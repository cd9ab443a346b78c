"""### Read the segment metadata that brokers publish

    ingest -> changed -> asset tiering_remote_log
          \\-> outcome

Brokers that tier a topic by themselves publish its segments in `__remote_log_metadata`. This DAG reads that topic into
the database, from the position at which the last run ended, up to the end offsets that the topic has when the run
begins. Sizes, quality runs and audits then include these segments.

* **ingest** applies every record as a broker does. Each page of records is stored in one transaction with the position
  after the page, so a run after a crash continues where the last one ended. The brokers become the owner of the topics
  that they tier: this platform neither copies nor deletes anything of these topics. If a partition of
  `__remote_log_metadata` has no leader, the task is retried. Without `cluster.bootstrap_servers` there is nothing to
  read, and the task is skipped.
* **changed** updates the asset, which starts `tiering_remote_log_sizes`. It is skipped if there are no new records.
* **outcome** fails the run if a person has to decide, for example about a record at which brokers stop, about records
  that were removed before they were read, or about a segment of this platform that brokers describe otherwise.
  `docs/runbook.md`, *The brokers' metadata are not read*, says what to do.

While a partition of `__remote_log_metadata` is not read to its end, sizes, quality runs and audits leave out the
segments that it describes.
"""

from airflow.sdk import DAG, Param, TriggerRule

from plugins.tiering_airflow import alerts, configuration
from plugins.tiering_airflow.metadata_sync import (
    FROM_BEGINNING,
    INGEST_TASK_ID,
    IngestedOperator,
    IngestOperator,
    IngestOutcomeOperator,
)
from plugins.tiering_airflow.shared import REMOTE_LOG, task_arguments

READ_AGAIN = Param(
    False,
    type="boolean",
    title="Read the whole topic again",
    description_md="For a metadata topic that was created again, or that lost records before they were read. The "
    "topic's present content replaces the brokers' segments in the database, as when a broker starts: segments of "
    "brokers that the topic does not contain are removed from the database.",
)

with DAG(
    dag_id="tiering_ingest",
    description="Read the segment metadata that brokers publish, from the position of the last run on",
    doc_md=__doc__,
    schedule=configuration.ingest_schedule(),
    start_date=configuration.start_date(),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,
    is_paused_upon_creation=False,
    params={FROM_BEGINNING: READ_AGAIN},
    default_args=task_arguments(),
    tags=["tiering", "brokers"],
    **alerts.dag_arguments("tiering_ingest"),
):
    ingest = IngestOperator(task_id=INGEST_TASK_ID)
    changed = IngestedOperator(task_id="changed", outlet=REMOTE_LOG)
    # `outcome` also runs after a skipped `ingest`, and then finds nothing.
    outcome = IngestOutcomeOperator(task_id="outcome", trigger_rule=TriggerRule.NONE_FAILED)
    ingest >> [changed, outcome]
