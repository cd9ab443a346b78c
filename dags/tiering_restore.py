"""### Restore a topic from remote storage

    ready -> restore

This DAG is the form of `./tiering restore`: it reads a topic back, without a broker, and writes a directory of Kafka's
segment files that a broker can load, or of Parquet files by date, or copies the segments into another remote storage.

* **ready** waits in the triggerer until the run can start: the schema, the store, the suite files and the quota ledger
  (if a quota is set) are usable, and Airflow has the pool `remote_log_reader`. It needs no log directory, because a
  restore may follow the loss of all of them.
* **restore** first logs what it will read and what that costs, then reads at the pace of the fetch quota, with a line
  of progress and time left every ten seconds. Every batch and every segment is checked against its checksum. The files
  are written below the setting `restore.directory`, into the directory that the form names (without one: the topic's
  name), on the worker that runs the task. A task that is killed continues where it was: a segment that is restored is
  not read again. Nothing is overwritten: the directory must be absent, empty, or of the same restore. With the form
  `storage` the segments go into the storage that the setting `restore.into` names, and the directory has the manifest.

The task fails if some of the wanted offsets cannot be restored. It names them, and all others are restored.
*Dry run* only logs what would be read. `docs/restore.md` says what is written, and how a broker loads it.
"""

from airflow.sdk import DAG, Param

from plugins.tiering_airflow import alerts, configuration
from plugins.tiering_airflow.pools import READER_POOL
from plugins.tiering_airflow.readiness import SIZES_WAIT_SECONDS, TieringReadySensor
from plugins.tiering_airflow.restoring import RESTORE_TASK_ID, RestoreOperator
from plugins.tiering_airflow.shared import task_arguments

MOST_LONG = 2**63 - 1
_TIME = "milliseconds since 1970, or a time such as `2026-11-27T03:12:05Z`"

FORM = {
    "topic": Param(None, type=["null", "string"], maxLength=249, title="Topic", section="What"),
    "partitions": Param(
        None,
        type=["null", "array"],
        items={"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        title="Partitions",
        description_md="Numbers, one per line. Empty: all that are in remote storage.",
        section="What",
    ),
    "topic_id": Param(
        None,
        type=["null", "string"],
        maxLength=22,
        title="Topic id",
        description_md="Only if several topics have had this name.",
        section="What",
    ),
    "from_offset": Param(
        None, type=["null", "integer"], minimum=0, maximum=MOST_LONG, title="From offset", section="From and to"
    ),
    "to_offset": Param(
        None,
        type=["null", "integer"],
        minimum=0,
        maximum=MOST_LONG,
        title="To offset",
        description_md="This offset itself is not restored.",
        section="From and to",
    ),
    "from_time": Param(
        None,
        type=["null", "string"],
        maxLength=40,
        title="From time",
        description_md=f"Begins with the first record that is not older than this: {_TIME}.",
        section="From and to",
    ),
    "to_time": Param(
        None,
        type=["null", "string"],
        maxLength=40,
        title="To time",
        description_md=f"Ends before the first record that is not older than this: {_TIME}.",
        section="From and to",
    ),
    "form": Param(
        "segments",
        type="string",
        enum=["segments", "parquet", "storage"],
        title="Form",
        description_md="`segments`: files that a broker can load. `parquet`: Parquet files, by date. `storage`: a copy "
        "in the remote storage that the setting `restore.into` names.",
        section="Where",
    ),
    "read_committed": Param(
        False,
        type="boolean",
        title="Read committed",
        description_md="With `parquet`: leave out records of aborted transactions.",
        section="Where",
    ),
    "directory": Param(
        None,
        type=["null", "string"],
        maxLength=200,
        title="Directory",
        description_md="A name below `restore.directory`. Empty: the name of the topic.",
        section="Where",
    ),
    "dry_run": Param(
        False, type="boolean", title="Dry run", description_md="Only say what would be read.", section="Where"
    ),
}

with DAG(
    dag_id="tiering_restore",
    description="Restore a topic from remote storage into files, or into another remote storage",
    doc_md=__doc__,
    schedule=None,
    start_date=configuration.start_date(),
    catchup=False,
    max_active_tasks=1,
    is_paused_upon_creation=False,
    params=FORM,
    default_args=task_arguments(),
    tags=["tiering", "restore"],
    **alerts.dag_arguments("tiering_restore"),
):
    ready = TieringReadySensor(
        task_id="ready", slot_pool=READER_POOL, store_alone=True, wait_seconds=SIZES_WAIT_SECONDS
    )
    restore = RestoreOperator(task_id=RESTORE_TASK_ID, pool=READER_POOL, pool_slots=1)
    ready >> restore
