"""### Find handovers that have stopped

    forgotten

**forgotten** fails while a handover suspends the retention or the copies of a topic (its retention overrides are in
force, or it is parked) and is not continued: it has had no driver for more than five minutes, or it has waited for a
person or been parked for more than a day. The message names the topic, the step and the command to call: `./tiering
handover TOPIC --resume`, or, unless the handover is parked, `--undo`. To trigger `tiering_handover` for the topic again
does the same as `--resume`.

The message goes to the notifiers in `[tiering] notifiers` of airflow.cfg, in every run until the handover is continued;
without them it is only in Airflow. If that option is wrong, so that nobody would be told, the task fails, too. This DAG
is not paused when Airflow first finds it, as a handover must not run without its watch.

The task restores nothing by itself. Right after the switch, a limited `retention.bytes` can make brokers delete
records. So before retention is restored, it must be certain that the brokers have read the metadata of the remote
segments. A resumed handover checks this.
"""

from airflow.sdk import DAG

from plugins.tiering_airflow import alerts, configuration
from plugins.tiering_airflow.handover import ForgottenHandoversOperator
from plugins.tiering_airflow.shared import task_arguments

ALERTS, TASK_ALERTS = alerts.watch_arguments("tiering_handover_watch")

with DAG(
    dag_id="tiering_handover_watch",
    description="Fail if a handover has stopped before its end and is not continued",
    doc_md=__doc__,
    schedule=configuration.handover_watch_schedule(),
    start_date=configuration.start_date(),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,
    is_paused_upon_creation=False,
    default_args=task_arguments(),
    tags=["tiering", "handover"],
    **ALERTS,
):
    ForgottenHandoversOperator(task_id="forgotten", **TASK_ALERTS)
