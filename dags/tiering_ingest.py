"""### Read what brokers tell of their segments

    ingest -> changed (asset: wakes tiering_remote_log_sizes)
          \\-> outcome

For topics that brokers tier by themselves, `__remote_log_metadata` says which segments there are. Here it is read into
the metadata, from where the last run came to, to the ends that the topic has when this run begins.

* **ingest** applies every record as a broker does, page by page, each page in one transaction with the position behind
  it: whenever it dies, the next run goes on where it was. Topics that brokers tier become the brokers': nothing of them
  is copied or deleted here. A partition of the topic without a leader is tried again. Without
  `cluster.bootstrap_servers` there is nothing to read: skipped.
* **changed** tells `tiering_remote_log_sizes` that there is something to count; skipped if no record came.
* **outcome** fails the run if a person has to look: a record that stops brokers, records that were removed before they
  were read, a segment of ours that brokers know otherwise. The runbook has each of them.

While a partition of the topic is not read to its end, sizes, quality runs and audits leave out what it tells of.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, Param, TriggerRule

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.metadata_sync import (
    FROM_BEGINNING,
    INGEST_TASK_ID,
    IngestedOperator,
    IngestOperator,
    IngestOutcomeOperator,
)
from plugins.tiering_airflow.shared import REMOTE_LOG, RETRY_ARGUMENTS

READ_AGAIN = Param(
    False,
    type="boolean",
    title="Read the whole topic again",
    description_md="After it was created anew, or lost records that were not read: what it tells now becomes what is "
    "known, as in a broker that starts. Segments of brokers that it tells of no more are removed from the metadata.",
)

with DAG(
    dag_id="tiering_ingest",
    description="Read what brokers tell of their segments, from where the last run came to",
    doc_md=__doc__,
    schedule=configuration.ingest_schedule(),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,
    is_paused_upon_creation=False,
    params={FROM_BEGINNING: READ_AGAIN},
    default_args=RETRY_ARGUMENTS | {"owner": "tiering"},
    tags=["tiering", "brokers"],
):
    ingest = IngestOperator(task_id=INGEST_TASK_ID)
    changed = IngestedOperator(task_id="changed", outlet=REMOTE_LOG)
    # Of a run that is skipped, or in which nothing came, nothing has to be looked at.
    outcome = IngestOutcomeOperator(task_id="outcome", trigger_rule=TriggerRule.NONE_FAILED)
    ingest >> [changed, outcome]
