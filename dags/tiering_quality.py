"""### Verify what is stored, again and again

    ready -> plan -> verify -> summary -> failed_segment (mapped, one task per segment that failed)
                                     \\-> outcome

A verdict says what the store held when it was asked. Here it is asked again: whatever needs a verdict, and a share of
everything else, so that over time each segment has its turn.

* **ready** waits in the triggerer until the schema, the store, the log dirs and the pool are as they must be; a pause
  of all topics holds nothing up.
* **plan** first lets verdicts expire that are older than `tiering.verdict.max.age.ms`: their segments are served still
  and no longer counted as safe. Then it chooses, and its log says what that will cost, in bytes, requests and time at
  the fetch quota in force. With nothing to verify the run ends here, successfully; a dry run ends here too.
* **verify** is one Spark job in the pool `remote_log_reader`: its tasks share the segments by their bytes, and each
  charges the fetch quota for what it reads. Verdicts are stored as it goes; a try that died is carried on by the next.
* **summary** judges the partitions as a whole, and says what failed in one line per segment, with the address of its
  line in the report.
* **failed_segment** and **outcome** fail the run if a segment failed. It is kept and no longer served, and stops its
  partition: the next run of `tiering_copy` copies it anew if a broker has it still.

Nothing is changed here but verdicts: a run may be stopped at any time.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, Param, TriggerRule

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.data_docs import FailedSegmentOperator
from plugins.tiering_airflow.pools import READER_POOL
from plugins.tiering_airflow.readiness import TieringReadySensor
from plugins.tiering_airflow.shared import PLAN_TASK_ID, RETRY_ARGUMENTS
from plugins.tiering_airflow.verification import (
    ALL,
    DUE,
    FAILED,
    VERIFY_TASK_ID,
    PlanVerificationOperator,
    VerificationOutcomeOperator,
    VerificationSummaryOperator,
    VerifySegmentsOperator,
)

TOPICS = Param(
    None,
    type=["null", "array"],
    items={"type": "string", "minLength": 1, "maxLength": 249},
    title="Topics",
    description_md="Names or patterns such as `orders*`, one per line. Empty: all that have remote segments.",
)
DEPTH = Param(
    "deep",
    type="string",
    enum=["deep", "shallow"],
    title="Depth",
    description_md="`deep` reads every byte, under the fetch quota. `shallow` asks for lengths and checksums, "
    "and reads manifests, indexes and both ends of each log: a few KiB for each segment.",
)
WHICH = Param(
    DUE,
    type="string",
    enum=[DUE, FAILED, ALL],
    title="Which segments",
    description_md="`due`: never verified, failed before, a verdict that has expired or is about to, and those whose "
    "turn it is. `failed`: only those that failed before. `all`: every one, whatever its verdict.",
)
SHARE = Param(
    None,
    type=["null", "number"],
    minimum=0,
    maximum=1,
    title="Share whose turn it is",
    description_md="Of all bytes, such as 0.05; goes with `due`. Empty: `tiering.verify.share`.",
)
LIMIT_BYTES = Param(
    None,
    type=["null", "integer"],
    minimum=1,
    title="Limit in bytes",
    description_md="Read about this much at most, the most urgent first. Empty: `tiering.verify.max.bytes`.",
)
DRY_RUN = Param(False, type="boolean", title="Dry run", description_md="Choose and say the cost, read nothing.")

with DAG(
    dag_id="tiering_quality",
    description="Verify remote segments whose verdict is due, and a share of all others",
    doc_md=__doc__,
    schedule=configuration.quality_schedule(),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
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
    default_args=RETRY_ARGUMENTS | {"owner": "tiering"},
    tags=["tiering", "quality"],
):
    ready = TieringReadySensor(task_id="ready", slot_pool=READER_POOL)
    plan = PlanVerificationOperator(task_id=PLAN_TASK_ID)
    verify = VerifySegmentsOperator(task_id=VERIFY_TASK_ID, pool=READER_POOL, pool_slots=1)
    # Also runs after a job that failed: what was verified is reported all the same.
    summary = VerificationSummaryOperator(task_id="summary", trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS)
    failed = FailedSegmentOperator.partial(
        task_id="failed_segment", map_index_template="{{ task.line }}"
    ).expand_kwargs(summary.output)
    # The last task decides the state of the run: a failed job or segment fails it, skipped tasks do not.
    outcome = VerificationOutcomeOperator(task_id="outcome", trigger_rule=TriggerRule.NONE_FAILED)

    ready >> plan >> verify
    [plan, verify] >> summary >> failed
    [verify, summary] >> outcome
