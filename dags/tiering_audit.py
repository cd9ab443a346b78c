"""### Compare the store with the metadata

    ready -> audit (Spark job) -> findings -> alarm
                                      \\-> plan -> safety_limit -> approval -> release -> remove -> outcome

This DAG compares all objects in the remote store with the segments in the database. If the form asks for it, it removes
orphan objects (objects that the database does not know) by a plan that a person has approved.

* **ready** waits in the triggerer, without a worker or a pool slot, until the run can start: the schema, the store, the
  suite files, the quota ledger (if a quota is set) and at least one log dir (if any are set) are usable, and Airflow
  has the pool `remote_log_reader`. It does not wait for cluster metadata, nor for a pause of all topics to end; while
  the pool has 0 slots, the Spark task waits for a slot. It fails at once if waiting cannot help.
* **audit** lists all objects of the store, or reads an S3 Inventory of it, and then reads every segment of the
  database. It reports orphan objects, adoptable copies, abandoned copies, dangling references, objects of another size,
  duplicates, objects in a wrong place, foreign objects, open multipart uploads, old versions and delete markers.
  Objects of segment ids without metadata, open uploads and unfinished copies are left out while they are younger than
  `tiering.audit.min.age.ms`; complete copies are reported at any age. Each finding is a row with an id, the times at
  which it was first and last seen, and a state; at most 100,000 findings of an audit become rows.
* **findings** logs one line for each of the first 200 findings, and how many objects were left out for which reason.
  It updates the asset `tiering_audit_findings`.
* **alarm** fails, and the run with it, if an object of a segment is missing or has another length, or if there is an
  orphan object, unless a person accepted that finding. Orphans do not fail a run that is asked to delete them, and fail
  no run if `tiering.audit.orphans.fail.enable` is false. The task also fails if a guard forbids removals: the database
  is empty or was restored from a backup, the database's clock contradicts another clock, the metadata was read too
  early, the listing is not complete, or the store has another marker.
* **plan** is skipped unless the form asks to delete orphans. It plans nothing while a guard forbids removals, and it
  never plans a complete copy: `./tiering adopt` takes such copies into the database.
* **safety_limit** logs what would be removed, with the share of each topic. If anything is planned, **approval** asks a
  person (*Required actions*), even within the deletion limits; *Reject*, or no answer in time, removes nothing.
  **release** records who approved which plan, by the hash of the plan.
* **remove** checks the objects of each segment id again. It marks the id for deletion, so that no copy can begin with
  this id, and then removes the objects. It never removes objects of a segment that has a row in the database, unless
  the row is a tombstone; so a copy under way is safe.
* **outcome** fails the run if something could not be removed, or if the question was not answered in time. It is
  skipped if nothing was planned.

The crash table of `include/tiering/audit/remove_orphans.py` says what a crash of the removal leaves. What each finding
means is in `docs/runbook.md`, *An audit has findings*.

Unless Airflow's `dags_are_paused_at_creation` is off, this DAG is paused when Airflow first finds it, and compares
nothing until a person switches it on: `airflow dags unpause tiering_audit`.
"""

from airflow.sdk import DAG, Param, TriggerRule

from plugins.tiering_airflow import alerts, configuration
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
    RemovalReleaseOperator,
    RemovalSafetyLimitOperator,
    RemoveOrphansOperator,
)
from plugins.tiering_airflow.pools import EXPIRATION_POOL, READER_POOL
from plugins.tiering_airflow.readiness import TieringReadySensor
from plugins.tiering_airflow.shared import (
    APPROVAL_TASK_ID,
    AUDIT_FINDINGS,
    OUTCOME_TASK_ID,
    PLAN_TASK_ID,
    RELEASE_TASK_ID,
    SAFETY_LIMIT_TASK_ID,
    task_arguments,
)

FORM = {
    INVENTORY: Param(
        None,
        type=["null", "string"],
        minLength=1,
        maxLength=2_000,
        title="Inventory",
        description_md="`manifest.json` of an S3 Inventory: a path or `s3://bucket/key`. Empty: the store is listed.",
    ),
    DELETE_ORPHANS: Param(
        False,
        type="boolean",
        title="Delete orphans",
        description_md="Plan to remove objects and open uploads that the database does not know, "
        "and ask a person to approve the plan.",
    ),
    OLD_VERSIONS: Param(
        False,
        type="boolean",
        title="Delete old versions too",
        description_md="With **Delete orphans**: also remove old versions and delete markers of the same "
        "segment ids, for good.",
    ),
}

with DAG(
    dag_id="tiering_audit",
    description="Compare all objects in the store with the metadata; remove orphan objects only by an approved plan",
    doc_md=__doc__,
    schedule=configuration.audit_schedule(),
    start_date=configuration.start_date(),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=2,
    params=FORM,
    default_args=task_arguments(),
    tags=["tiering", "audit"],
    **alerts.dag_arguments("tiering_audit"),
):
    ready = TieringReadySensor(task_id="ready", slot_pool=READER_POOL)
    audit = AuditOperator(task_id=AUDIT_TASK_ID, pool=READER_POOL, pool_slots=1)
    findings = AuditFindingsOperator(task_id="findings", outlets=[AUDIT_FINDINGS])
    alarm = AuditAlarmOperator(task_id="alarm")
    plan = PlanRemovalsOperator(task_id=PLAN_TASK_ID)
    safety_limit = RemovalSafetyLimitOperator(task_id=SAFETY_LIMIT_TASK_ID)
    approval = PlanApprovalOperator(task_id=APPROVAL_TASK_ID)
    release = RemovalReleaseOperator(task_id=RELEASE_TASK_ID)
    remove = RemoveOrphansOperator(task_id="remove", pool=EXPIRATION_POOL, pool_slots=1)
    # A failed removal fails the run. The run does not fail if no removal was requested, or a person rejected it.
    outcome = AuditOutcomeOperator(task_id=OUTCOME_TASK_ID, trigger_rule=TriggerRule.NONE_FAILED)

    ready >> audit >> findings >> [alarm, plan]
    plan >> safety_limit >> approval >> release >> remove >> outcome
