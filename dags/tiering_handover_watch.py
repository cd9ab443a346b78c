"""### Find handovers that have stopped

    forgotten

This task fails, and so raises an alarm, while a handover suspends the retention or the copies of a topic (its retention
overrides are in force, or it is parked) and is not continued: it has had no driver for more than five minutes, or it
has waited for a person or been parked for more than a day. The message names the topic, the step and the command to
call: `./tiering handover TOPIC --resume`, or, unless the handover is parked, `--undo`. To trigger `tiering_handover`
for the topic again does the same as `--resume`.

The task restores nothing by itself. Right after the switch, a limited `retention.bytes` can make brokers delete
records. So before retention is restored, it must be certain that the brokers have read the metadata of the remote
segments. A resumed handover checks this.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.handover import ForgottenHandoversOperator
from plugins.tiering_airflow.shared import RETRY_ARGUMENTS

with DAG(
    dag_id="tiering_handover_watch",
    description="Fail if a handover has stopped before its end and is not continued",
    doc_md=__doc__,
    schedule=configuration.handover_watch_schedule(),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,
    default_args=RETRY_ARGUMENTS | {"owner": "tiering"},
    tags=["tiering", "handover"],
):
    ForgottenHandoversOperator(task_id="forgotten")
