"""### Compare the store with the metadata

    ready -> audit (Spark job) -> findings -> alarm
                                      \\-> plan -> brake -> approval -> release -> remove -> outcome

* **ready** waits in the triggerer until the schema, the store, the log dirs and the pool are as they must be.
* **audit** lists everything that the store holds, or reads an S3 Inventory of it, then every segment of the metadata,
  and compares them: orphans, adoptable copies, abandoned copies, dangling references, other sizes, duplicates, wrong
  places, foreign objects, open uploads, old versions and delete markers. What is younger than
  `tiering.audit.min.age.ms` is left alone. Findings are rows with an id, first and last seen, and a state.
* **findings** says them, one line each, and what was not judged and why.
* **alarm** fails the run at once if a segment's object is missing or has another length, and if a guard objects: an
  empty or restored database, metadata that were read too early, a listing that is not complete.
* **plan** is skipped unless the form asks to delete orphans. It plans nothing while a guard objects. A complete copy is
  never planned: `./tiering adopt` takes it in.
* **brake** shows what would go, with each topic's share, and **approval** asks a person, always. *Reject*, or no answer
  in time, removes nothing. **release** records who approved which plan, by its hash.
* **remove** looks at each object again, condemns its id so that no segment can begin under it, and removes it. Whatever
  metadata knows in any state but a tombstone is untouchable, so a copy under way cannot be hit.
* **outcome** fails the run if something could not be removed, or nobody answered.

Where it dies, and what that leaves: the crash table of `include/tiering/audit/remove_orphans.py`.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, Param, TriggerRule

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.approval import PlanApprovalOperator
from plugins.tiering_airflow.audit import (
    AUDIT_TASK_ID,
    DELETE_ORPHANS,
    INVENTORY,
    OLD_VERSIONS,
    AuditAlarmOperator,
    AuditFindingsOperator,
    AuditOperator,
    AuditOutcomeOperator,
    PlanRemovalsOperator,
    RemovalBrakeOperator,
    RemovalReleaseOperator,
    RemoveStraysOperator,
)
from plugins.tiering_airflow.pools import EXPIRATION_POOL, READER_POOL
from plugins.tiering_airflow.readiness import TieringReadySensor
from plugins.tiering_airflow.shared import (
    APPROVAL_TASK_ID,
    BRAKE_TASK_ID,
    OUTCOME_TASK_ID,
    PLAN_TASK_ID,
    RELEASE_TASK_ID,
    RETRY_ARGUMENTS,
)

FORM = {
    INVENTORY: Param(
        None,
        type=["null", "string"],
        minLength=1,
        maxLength=2_000,
        title="Inventory",
        description_md="`manifest.json` of an S3 Inventory, a path or `s3://bucket/key`. Empty: the store is listed.",
    ),
    DELETE_ORPHANS: Param(
        False,
        type="boolean",
        title="Delete orphans",
        description_md="Plan to remove objects and open uploads that no metadata knows, and ask a person.",
    ),
    OLD_VERSIONS: Param(
        False,
        type="boolean",
        title="Old versions too",
        description_md="Of the same segment ids, and their delete markers, for good.",
    ),
}

with DAG(
    dag_id="tiering_audit",
    description="Compare everything in the store with the metadata; remove orphans only by an approved plan",
    doc_md=__doc__,
    schedule=configuration.audit_schedule(),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=2,
    params=FORM,
    default_args=RETRY_ARGUMENTS | {"owner": "tiering"},
    tags=["tiering", "audit"],
):
    ready = TieringReadySensor(task_id="ready", slot_pool=READER_POOL)
    audit = AuditOperator(task_id=AUDIT_TASK_ID, pool=READER_POOL, pool_slots=1)
    findings = AuditFindingsOperator(task_id="findings")
    alarm = AuditAlarmOperator(task_id="alarm")
    plan = PlanRemovalsOperator(task_id=PLAN_TASK_ID)
    brake = RemovalBrakeOperator(task_id=BRAKE_TASK_ID)
    approval = PlanApprovalOperator(task_id=APPROVAL_TASK_ID)
    release = RemovalReleaseOperator(task_id=RELEASE_TASK_ID)
    remove = RemoveStraysOperator(task_id="remove", pool=EXPIRATION_POOL, pool_slots=1)
    # A failed removal fails the run; one that was not asked for, or was rejected, does not.
    outcome = AuditOutcomeOperator(task_id=OUTCOME_TASK_ID, trigger_rule=TriggerRule.NONE_FAILED)

    ready >> audit >> findings >> [alarm, plan]
    plan >> brake >> approval >> release >> remove >> outcome
