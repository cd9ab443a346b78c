"""What other runs of the expiration DAG have in their hands, so that no two runs work on one topic.

A run that waits for a person holds nobody up: the next one begins on time and leaves out the topics that the question
is about. Of a run that deletes it leaves out all topics. Which runs there are is in the platform's database, which of
them live only Airflow knows: a run that was rejected, or marked as failed, has nothing in its hands.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from include.tiering.model.ids import Uuid
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.operators import PLAN_TASK_ID, PLANNED_RUN_KEY

if TYPE_CHECKING:
    from airflow.sdk import Context

    from include.tiering.app import App

PREFIX: Final = "expire-"
BRAKE_TASK_ID: Final = "brake"
APPROVAL_TASK_ID: Final = "approval"
OUTCOME_TASK_ID: Final = "outcome"
QUESTION_KEY: Final = "tiering_question"
_DAY_MS: Final = 24 * 60 * 60 * 1000
ENDED: Final = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
WAITS_FOR_A_PERSON: Final = "awaiting_input"


def topics_in_hand(app: "App", dag_id: str, context: "Context") -> dict[Uuid, str]:
    """Topics that this run has to leave alone, each with a sentence why. Raises TieringError."""
    ti: Any = context["ti"]
    wait_ms = int(configuration.expiration_approval_wait().total_seconds() * 1000)
    planned = app.adapters.stores.deletions.runs_with_work(
        since_ms=app.adapters.stores.deletions.now_ms() - wait_ms - _DAY_MS
    )
    candidates = sorted(set(_dag_runs(planned)) - {context["run_id"]})
    if not candidates:
        return {}
    states: Mapping[str, Mapping[str, str | None]] = ti.get_task_states(
        dag_id=dag_id, task_ids=[APPROVAL_TASK_ID, OUTCOME_TASK_ID], run_ids=candidates
    )
    found: dict[Uuid, str] = {}
    for dag_run, tasks in sorted(states.items()):
        if tasks.get(OUTCOME_TASK_ID) in ENDED:
            continue
        if tasks.get(APPROVAL_TASK_ID) == WAITS_FOR_A_PERSON:
            question = ti.xcom_pull(task_ids=BRAKE_TASK_ID, key=QUESTION_KEY, run_id=dag_run)
            found |= dict.fromkeys(map(Uuid.parse, question["topic_ids"]), f"{dag_run} asks whether it may go")
        elif planned_run := ti.xcom_pull(task_ids=PLAN_TASK_ID, key=PLANNED_RUN_KEY, run_id=dag_run):
            topic_ids = {one.topic_id_partition.topic_id for one in app.adapters.stores.deletions.plan(planned_run)}
            found |= dict.fromkeys(topic_ids, f"{dag_run} deletes it now")
    return found


def _dag_runs(planned: Iterable[str]) -> Iterator[str]:
    """DAG runs that these plans may be of: a plan of a later try has its number behind the name."""
    for run_id in planned:
        if run_id.startswith(PREFIX):
            dag_run = run_id.removeprefix(PREFIX)
            yield dag_run
            first, dot, number = dag_run.rpartition(".")
            if dot and number.isdecimal():
                yield first
