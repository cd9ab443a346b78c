"""When a failed task is tried again: each error of the library says so itself, and nothing else is retried.

A task whose process was killed (host gone, out of memory) never gets to ask: it is tried again too. The delay gives
the lease of a dead batch time to run out.
"""

from datetime import timedelta
from typing import Any, Final

from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy

from include.tiering.errors import TieringError

RETRIES: Final = 3
RETRY_DELAY: Final = timedelta(seconds=30)


class RetryRetriableErrors(RetryPolicy):
    """Retry what `TieringError.retriable` allows; fail at once on all other errors."""

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Any | None = None
    ) -> RetryDecision:
        name = type(exception).__name__
        if isinstance(exception, TieringError) and exception.retriable:
            return RetryDecision.retry(RETRY_DELAY, reason=f"{name} is worth retrying")
        return RetryDecision.fail(reason=f"{name} does not go away by retrying")


RETRY_ARGUMENTS: Final[dict[str, Any]] = {
    "retries": RETRIES,
    "retry_delay": RETRY_DELAY,
    "retry_policy": RetryRetriableErrors(),
}
"""For the default arguments of every DAG."""
