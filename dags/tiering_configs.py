"""### Change a quota or a dynamic config

This DAG is the form of `./tiering configs --alter`. A run sets or removes configs of one entity: one, or several at
once. The changes are checked together and with all other values, and stored with the name of the user who triggered
the run: all of them or none. Running copies apply new quotas within a second.

* **Entity type** is `brokers`, `topics` or `clients`. **Entity name** names one of them: a broker id, a topic or a
  client id, with **Default** off, as the form opens. With **Default** on, the value holds for all entities of the
  type that have no value of their own. A topic or broker that exists nowhere is refused with the nearest name,
  unless **Allow unknown** is on.
* **Name**: quotas are in bytes per second. `remote.log.manager.copy.max.bytes.per.second` on the default of `brokers`
  limits each broker separately; `tiering.copy.total.max.bytes.per.second` limits all of them together.
* **Value**: the new value. To remove a value, leave this field empty and switch on **Remove**.
* **Set several** and **Remove several**: for example to raise two quotas in one step, or for Spark's configuration,
  as `tiering.spark.conf.tiering_copy.spark.executor.memory=1g`.

If a rule refuses the change, the task **alter** fails with the numbers and nothing is changed. If a running worker has
not applied the change within 5 seconds, the task is retried; to repeat a change is harmless. If the Airflow option
`[tiering] expiration_approvers` is set, only the users in it may change a config so that more is deleted without an
approval. All names of configs are in `docs/settings.md`.
"""

from airflow.sdk import DAG, Param

from include.tiering.configs.config_catalogue import accepted_names, config_names
from include.tiering.configs.config_store import EntityType
from plugins.tiering_airflow import alerts, configuration
from plugins.tiering_airflow.configs import ALLOW_UNKNOWN, AlterConfigOperator
from plugins.tiering_airflow.shared import task_arguments

ENTITY_TYPE = Param(
    "brokers", type="string", enum=[str(kind) for kind in EntityType], title="Entity type", section="Entity"
)
ENTITY_DEFAULT = Param(
    False,
    type="boolean",
    title="Default",
    description_md="The value holds for all brokers, topics or clients that have no value of their own. "
    "Switch it on, or name one below.",
    section="Entity",
)
ENTITY_NAME = Param(
    None,
    type=["null", "string"],
    maxLength=255,
    title="Entity name",
    description_md="A broker id, a topic or a client id. Leave it empty with **Default**.",
    section="Entity",
)
NAME = Param(config_names()[0], type="string", enum=list(accepted_names()), title="Name", section="Change")
VALUE = Param(
    None,
    type=["null", "string"],
    maxLength=100,
    title="Value",
    description_md="For example `50MiB` or `52428800` for 50 MiB per second, `7d`, `true` or `false`. Leave it empty "
    "with **Remove**, and with the fields for several changes.",
    section="Change",
)
DELETE = Param(
    False, type="boolean", title="Remove", description_md="Remove the value instead of setting one.", section="Change"
)
SET = Param(
    None,
    type=["null", "array"],
    items={"type": "string", "minLength": 3, "maxLength": 350},
    title="Set several",
    description_md="`NAME=VALUE`, one per line.",
    section="Several changes at once",
)
REMOVE = Param(
    None,
    type=["null", "array"],
    items={"type": "string", "minLength": 1, "maxLength": 249},
    title="Remove several",
    description_md="Names, one per line.",
    section="Several changes at once",
)

UNKNOWN = Param(
    False,
    type="boolean",
    title="Allow unknown",
    description_md="Accept the name of a topic or broker that does not exist yet.",
    section="Entity",
)

with DAG(
    dag_id="tiering_configs",
    description="Change a quota or a dynamic config while jobs run",
    doc_md=__doc__,
    schedule=None,
    start_date=configuration.start_date(),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,
    is_paused_upon_creation=False,
    params={
        "entity_type": ENTITY_TYPE,
        "entity_default": ENTITY_DEFAULT,
        "entity_name": ENTITY_NAME,
        ALLOW_UNKNOWN: UNKNOWN,
        "name": NAME,
        "value": VALUE,
        "delete": DELETE,
        "set": SET,
        "remove": REMOVE,
    },
    default_args=task_arguments(),
    tags=["tiering", "configs"],
    **alerts.dag_arguments("tiering_configs"),
):
    AlterConfigOperator(task_id="alter")
