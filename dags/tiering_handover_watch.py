"""### Watch over hand-overs

    forgotten

Fails, and so alarms, while a hand-over holds a topic's retention back and nobody carries it on: its driver died more
than five minutes ago, or it has waited for a person for more than a day. The message names the topic, the step, and
what to do: trigger `tiering_handover` for it again (or `./tiering handover TOPIC --resume`), or `--undo`.

It restores nothing by itself: just behind the switch a limited `retention.bytes` is what loses records, so whoever puts
it back has to look first whether the brokers know what is remote. That is what going on does.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.handover import ForgottenHandoversOperator
from plugins.tiering_airflow.shared import RETRY_ARGUMENTS

with DAG(
    dag_id="tiering_handover_watch",
    description="Alarm if a hand-over is forgotten half-way",
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
