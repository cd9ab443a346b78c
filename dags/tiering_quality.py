"""### Verify stored segments again

    ready -> plan -> verify (mapped) -> missing -> summary -> failed_segment (mapped, one per segment that failed)
                                                          \\-> outcome

A verdict says what the store held at the time of a verification. This DAG verifies segments that need a new verdict,
and a rolling sample of all others, so that over time every segment is verified again.

* **ready** waits in the triggerer, without a worker or a pool slot, until the run can start: the schema, the store, the
  suite files, the quota ledger (if a quota is set) and at least one log dir (if any are set) are usable, and Airflow
  has the pool `remote_log_reader`. It does not wait for cluster metadata, nor for a pause of all topics to end; while
  the pool has 0 slots, the Spark task waits for a slot. It fails at once if waiting cannot help.
* **plan** first changes each verdict PASSED that is older than `tiering.verdict.max.age.ms` to EXPIRED, except in a dry
  run: these segments are still served, but do not count as safe any more. Then it chooses the segments, and logs the
  cost in bytes, requests and time at the fetch quota in force. If there is nothing to verify, or in a dry run, no
  segment is read.
* **verify**: each batch is a Spark job with a part of the plan, in a slot of the pool `remote_log_reader`; at most
  `tiering.verify.max.batches`. Its Spark tasks share its segments, and what they read is charged to the fetch quota.
  Verdicts are stored as the job goes on; a retry continues where the failed try ended. If the pool is made too small
  for a batch, or 0, the batch ends after the group of segments that it reads, and waits for a slot to continue.
* **missing** decides about segments that lack objects in the store. A batch only notes them: whether so many can be
  lost, or the store is the wrong one, is decided for the whole plan. If a batch did not finish, nothing is recorded
  about them.
* **summary** evaluates the rules about whole partitions, and logs one line for each of the first 50 segments that
  failed, with a link to its line in the report. It updates the asset `tiering_verdicts`.
* **failed_segment** (for the first 20 segments that failed) and **outcome** fail if a segment failed. Such a segment is
  kept, is not served, and stops its partition: no new segment of it is copied, and its retention by time and size
  waits, until the failed segment is copied again or given up. The next run of `tiering_copy` copies it again if a
  broker still has it. **outcome** also fails if segments of the plan were left without a verdict.

Of what the platform stores about segments, this DAG changes only verdicts: a run may be stopped at any time.

Unless Airflow's `dags_are_paused_at_creation` is off, this DAG is paused when Airflow first finds it, and verifies
nothing until a person switches it on: `airflow dags unpause tiering_quality`.
"""

from airflow.sdk import DAG, Param, TriggerRule

from plugins.tiering_airflow import alerts, configuration
from plugins.tiering_airflow.data_docs import FailedSegmentOperator
from plugins.tiering_airflow.pools import READER_POOL
from plugins.tiering_airflow.readiness import TieringReadySensor
from plugins.tiering_airflow.shared import BYTES_SCHEMA, PLAN_TASK_ID, VERDICTS, task_arguments
from plugins.tiering_airflow.verification import (
    ALL,
    DUE,
    FAILED,
    VERIFY_TASK_ID,
    ConcludeMissingOperator,
    PlanVerificationOperator,
    VerificationOutcomeOperator,
    VerificationSummaryOperator,
    VerifyBatchOperator,
)

TOPICS = Param(
    None,
    type=["null", "array"],
    items={"type": "string", "minLength": 1, "maxLength": 249},
    title="Topics",
    description_md="Names or patterns such as `orders*`, one per line. Empty: all topics that have remote segments.",
)
DEPTH = Param(
    "deep",
    type="string",
    enum=["deep", "shallow"],
    title="Depth",
    description_md="`deep` reads every byte, under the fetch quota. `shallow` checks lengths and "
    "checksums, and reads manifests, indexes and both ends of each log: about 17 KiB a segment, and its indexes.",
)
WHICH = Param(
    DUE,
    type="string",
    enum=[DUE, FAILED, ALL],
    title="Which segments",
    description_md="`due`: segments without a verdict, segments that failed before, segments whose verdict has expired "
    "or expires soon, and the rolling sample. `failed`: only segments that failed before. `all`: every segment, "
    "with any verdict.",
)
SHARE = Param(
    None,
    type=["null", "number"],
    minimum=0,
    maximum=1,
    title="Share of the rolling sample",
    description_md="Share of all segments that is sampled in each `tiering.verify.period.ms`, for example 0.05; used "
    "with `due`. Empty: `tiering.verify.share`.",
)
LIMIT_BYTES = Param(
    None,
    **BYTES_SCHEMA,
    minimum=1,
    title="Limit in bytes",
    description_md="The run reads about this many bytes at most (but at least one segment), the most urgent first. "
    "`50GiB` is accepted, too. Empty: `tiering.verify.max.bytes`.",
)
DRY_RUN = Param(
    False, type="boolean", title="Dry run", description_md="Only choose segments and show the cost; nothing is read."
)

with DAG(
    dag_id="tiering_quality",
    description="Verify remote segments that need a verdict, and a rolling sample of all others",
    doc_md=__doc__,
    schedule=configuration.quality_schedule(),
    start_date=configuration.start_date(),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=64,
    params={
        "topics": TOPICS,
        "depth": DEPTH,
        "which": WHICH,
        "share": SHARE,
        "limit_bytes": LIMIT_BYTES,
        "dry_run": DRY_RUN,
    },
    default_args=task_arguments(),
    tags=["tiering", "quality"],
    **alerts.dag_arguments("tiering_quality"),
):
    ready = TieringReadySensor(task_id="ready", slot_pool=READER_POOL)
    plan = PlanVerificationOperator(task_id=PLAN_TASK_ID)
    verify = VerifyBatchOperator.partial(
        task_id=VERIFY_TASK_ID, pool=READER_POOL, pool_slots=1, map_index_template="batch {{ task.batch }}"
    ).expand_kwargs(plan.output)
    # `missing` and `summary` also run after failed batches: `missing` records nothing then, if anything is unread.
    missing = ConcludeMissingOperator(task_id="missing", trigger_rule=TriggerRule.ALL_DONE)
    summary = VerificationSummaryOperator(
        task_id="summary", outlets=[VERDICTS], trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    )
    failed = FailedSegmentOperator.partial(
        task_id="failed_segment", map_index_template="{{ task.line }}"
    ).expand_kwargs(summary.output)
    # The last task decides the state of the run: a failed job or segment fails it, skipped tasks do not.
    outcome = VerificationOutcomeOperator(task_id="outcome", trigger_rule=TriggerRule.NONE_FAILED)

    ready >> plan >> verify >> missing
    [plan, missing] >> summary >> failed
    [verify, missing, summary] >> outcome
