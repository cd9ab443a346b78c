"""### Change a quota or a dynamic setting

The form of `./tiering configs --alter`: one name on one entity, set or removed. The change is checked against all other
values, stored with the name of whoever triggered the run, and taken by running copies within half a second.

* **Entity**: `brokers`, `topics` or `clients`, and either the default, which holds for all that have no value of their
  own, or one of them by name: a broker id, a topic, a client id.
* **Name**: quotas are bytes a second. `remote.log.manager.copy.max.bytes.per.second` on the default of `brokers` holds
  for each broker by itself; `tiering.copy.total.max.bytes.per.second` holds them all together.
* **Value**: empty with **Remove** switched on takes the value away.

What breaks a rule is refused with the numbers, and the task fails: nothing was changed then. If a running worker has
not taken the change, the task is tried again, which is harmless. See `docs/settings.md` for every name.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from include.tiering.configs.config_catalogue import config_names
from include.tiering.configs.config_store import EntityType
from plugins.tiering_airflow.configs import AlterConfigOperator
from plugins.tiering_airflow.shared import RETRY_ARGUMENTS

ENTITY_TYPE = Param(
    "brokers", type="string", enum=[str(kind) for kind in EntityType], title="Entity type", section="What it holds for"
)
ENTITY_DEFAULT = Param(
    False,
    type="boolean",
    title="Default",
    description_md="For all brokers, topics or clients that have no value of their own.",
    section="What it holds for",
)
ENTITY_NAME = Param(
    None,
    type=["null", "string"],
    maxLength=255,
    title="Entity name",
    description_md="Broker id, topic or client id. Empty with **Default**.",
    section="What it holds for",
)
NAME = Param(config_names()[0], type="string", enum=list(config_names()), title="Name", section="Change")
VALUE = Param(
    None,
    type=["null", "string"],
    maxLength=100,
    title="Value",
    description_md="Such as `52428800` for 50 MiB a second, `true` or `false`. Empty with **Remove**.",
    section="Change",
)
DELETE = Param(
    False, type="boolean", title="Remove", description_md="Take the value away instead of setting it.", section="Change"
)

with DAG(
    dag_id="tiering_configs",
    description="Change a quota or a dynamic setting while jobs run",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,
    is_paused_upon_creation=False,
    params={
        "entity_type": ENTITY_TYPE,
        "entity_default": ENTITY_DEFAULT,
        "entity_name": ENTITY_NAME,
        "name": NAME,
        "value": VALUE,
        "delete": DELETE,
    },
    default_args=RETRY_ARGUMENTS | {"owner": "tiering"},
    tags=["tiering", "configs"],
):
    AlterConfigOperator(task_id="alter")
