"""Shared by the DAGs: ids of tasks and of planned runs, XCom keys, who triggered a run, the assets, and retries.

The error classes of the library say whether a failed task is retried; after other exceptions it is not. A task whose
process was killed (host lost, out of memory) is retried, too, as Airflow does not call the policy then. The
first delay is as long as a batch's lease is by default, so that the lease of a dead batch expires meanwhile; each
further delay is twice as long, up to `MAX_RETRY_DELAY`.
"""

from datetime import timedelta
from typing import Any, Final

from airflow.sdk import Asset
from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy

from include.tiering.errors import SettingError, TieringError
from include.tiering.runs.deletion_run import id_of_try
from include.tiering.units import accepted_suffixes, without_suffix
from plugins.tiering_airflow import configuration

PLAN_TASK_ID: Final = "plan"


PLANNED_RUN_KEY: Final = "tiering_run_id"


PLANNED_RUN: Final = f"{{{{ ti.xcom_pull(task_ids='{PLAN_TASK_ID}', key='{PLANNED_RUN_KEY}') or '' }}}}"


def planned_run_id(dag_run_id: str, try_number: int) -> str:
    """Return an id for the plan of this try: each try has its own plan, because a stored plan is never replaced."""
    return id_of_try(dag_run_id, try_number)


EXPIRATION_PREFIX: Final = "expire-"


SAFETY_LIMIT_TASK_ID: Final = "safety_limit"


APPROVAL_TASK_ID: Final = "approval"


OUTCOME_TASK_ID: Final = "outcome"


RELEASE_TASK_ID: Final = "release"


UNKNOWN_AUTHOR: Final = "Airflow"


def author(dag_run: Any) -> str:
    """Return the user who triggered the run, by Airflow's record, else `Airflow`; with the ids of DAG and run."""
    return f"{getattr(dag_run, 'triggering_user_name', None) or UNKNOWN_AUTHOR} ({dag_run.dag_id} {dag_run.run_id})"


def _amount_schema(suffixes: str) -> dict[str, Any]:
    pattern = rf"^([0-9]{{1,19}}(\.[0-9]{{1,9}} ?({suffixes})| ?({suffixes}))?)?$"
    return {"type": ["null", "string", "integer"], "pattern": pattern}


BYTES_SCHEMA: Final = _amount_schema("KiB|MiB|GiB|TiB")
DURATION_SCHEMA: Final = _amount_schema("ms|s|m|h|d")
"""Schemas of fields: text such as `50MiB` or `7d` from the form, or a number."""


def amount(name: str, value: str | int | None, unit: str, *, at_least: int = 0) -> int | None:
    """Return the amount of a form's field in `unit`; None if it is empty. Raises SettingError if it is no amount."""
    if value is None or value == "":
        return None
    try:
        found = int(without_suffix(str(value), unit))
    except ValueError:
        found = at_least - 1
    if found < at_least:
        raise SettingError(f"{name} is {value!r}: accepted: {at_least} or more ({unit}){accepted_suffixes(unit)}")
    return found


REMOTE_LOG: Final = Asset("tiering_remote_log", uri="x-tiering://remote-log")
"""Updated when segments were copied or deleted, or when metadata of segments that brokers copied was read."""
VERDICTS: Final = Asset("tiering_verdicts", uri="x-tiering://verdicts")
"""Updated by each quality run that verified segments."""
AUDIT_FINDINGS: Final = Asset("tiering_audit_findings", uri="x-tiering://audit-findings")
"""Updated by each audit that ended, also if it has no findings."""


RETRIES: Final = 3
RETRY_DELAY: Final = timedelta(seconds=30)
MAX_RETRY_DELAY: Final = timedelta(minutes=10)


def delay_before_retry(try_number: int) -> timedelta:
    """Return the delay after the failed try of this number, from 1 on."""
    return min(RETRY_DELAY * (1 << min(max(try_number, 1) - 1, 10)), MAX_RETRY_DELAY)


class RetryRetriableErrors(RetryPolicy):
    """Retry what `TieringError.retriable` allows; fail at once on all other errors."""

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Any | None = None
    ) -> RetryDecision:
        name = type(exception).__name__
        if isinstance(exception, TieringError) and exception.retriable:
            return RetryDecision.retry(delay_before_retry(try_number), reason=f"{name} is worth retrying")
        return RetryDecision.fail(reason=f"{name} is not worth retrying")


RETRY_ARGUMENTS: Final[dict[str, Any]] = {
    "retries": RETRIES,
    "retry_delay": RETRY_DELAY,
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": MAX_RETRY_DELAY,
    "retry_policy": RetryRetriableErrors(),
}
"""For the default arguments of every DAG. The policy sets the delay; the others hold for tasks that were killed."""


def task_arguments() -> dict[str, Any]:
    """Return the default arguments of every DAG.

    A task that runs longer than `[tiering] task_timeout` fails without a retry; a Spark job ends with its task. Time
    that a task waits in the triggerer, or for a person, does not count.

    Raises:
        SettingError: the option `task_timeout` is wrong.
    """
    return {**RETRY_ARGUMENTS, "owner": "tiering", "execution_timeout": configuration.task_timeout()}
