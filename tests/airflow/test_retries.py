"""Which failures Airflow tries again."""

import pytest
from airflow.sdk.definitions.retry_policy import RetryAction

from include.tiering import errors
from plugins.tiering_airflow.errors import NotReadyError, QualityGateError, SparkJobError, SparkJobRetriableError
from plugins.tiering_airflow.shared import RETRY_DELAY, RetryRetriableErrors
from plugins.tiering_airflow.spark import job_error


@pytest.mark.parametrize(
    "error", [errors.MetadataUnavailableError("away"), SparkJobRetriableError("again"), errors.LeaseLostError("taken")]
)
def test_retriable_errors_are_tried_again(error: Exception) -> None:
    decision = RetryRetriableErrors().evaluate(error, 1, 3)
    assert (decision.action, decision.retry_delay) == (RetryAction.RETRY, RETRY_DELAY)


@pytest.mark.parametrize(
    "error",
    [
        errors.SettingError("bad"),
        NotReadyError("no"),
        QualityGateError("1 finding"),
        SparkJobError("x"),
        KeyError("bug"),
    ],
)
def test_all_others_fail_at_once(error: Exception) -> None:
    assert RetryRetriableErrors().evaluate(error, 1, 3).action is RetryAction.FAIL


@pytest.mark.parametrize(
    ("exit_code", "retriable", "says"),
    [
        (1, False, "findings"),
        (2, False, "settings"),
        (3, True, "another try"),
        (137, True, "signal 9"),
        (-15, True, "signal 15"),
        (70, False, "exit code 70"),
    ],
)
def test_exit_codes_of_a_job_say_what_to_do(exit_code: int, retriable: bool, says: str) -> None:
    error = job_error("copying.py", exit_code)
    assert error.retriable is retriable
    assert says in str(error)
    assert "copying.py" in str(error)
