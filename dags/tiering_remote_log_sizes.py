"""### Recount the remote log size

Runs when `tiering_copy` has copied something (asset `tiering_remote_log`), or when asked. A Spark job counts bytes and
segments per partition and leader epoch from the segment rows, and compares them with the counters that every state
change keeps. The table is in the log of **sizes**. A difference fails the run: it is a finding, never corrected here.

Several events may start one run: it reads what is there now, not what the events said.
"""

from airflow.sdk import DAG

from plugins.tiering_airflow.assets import REMOTE_LOG
from plugins.tiering_airflow.pools import READER_POOL
from plugins.tiering_airflow.retries import RETRY_ARGUMENTS
from plugins.tiering_airflow.size_operator import RemoteLogSizesOperator

with DAG(
    dag_id="tiering_remote_log_sizes",
    description="Recount remote log sizes per partition and leader epoch, compare with the counters",
    doc_md=__doc__,
    schedule=[REMOTE_LOG],
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,
    is_paused_upon_creation=False,
    default_args=RETRY_ARGUMENTS | {"owner": "tiering"},
    tags=["tiering", "sizes"],
):
    RemoteLogSizesOperator(task_id="sizes", pool=READER_POOL, pool_slots=1)
