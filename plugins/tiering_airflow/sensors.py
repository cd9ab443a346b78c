"""Sensors of the platform's DAGs."""

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseSensorOperator

from plugins.tiering_airflow.errors import NotReadyError
from plugins.tiering_airflow.triggers import ReadinessTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

POLL_SECONDS: Final = 10.0
WAIT_SECONDS: Final = 10 * 60.0
_MARGIN: Final = timedelta(minutes=2)


class TieringReadySensor(BaseSensorOperator):
    """Waits in the triggerer until a run may start.

    Ready means: the schema is at head, the store can be reached and written, has space and carries our marker, the
    log dirs can be read, the pool has a slot. What waiting cannot mend, such as a foreign marker, fails at once.
    """

    def __init__(
        self, *, poll_seconds: float = POLL_SECONDS, wait_seconds: float = WAIT_SECONDS, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.poll_seconds = poll_seconds
        self.wait_seconds = wait_seconds

    def execute(self, context: "Context") -> None:
        deadline_ms = time.time_ns() // 1_000_000 + int(self.wait_seconds * 1000)
        self.defer(
            trigger=ReadinessTrigger(poll_seconds=self.poll_seconds, deadline_ms=deadline_ms),
            method_name="on_answer",
            # The trigger keeps the deadline itself, and says what is missing; this is for a triggerer that is away.
            timeout=timedelta(seconds=self.wait_seconds) + _MARGIN,
        )

    def on_answer(self, context: "Context", event: dict[str, Any]) -> None:
        """Raises NotReadyError with one line per failed check."""
        if not event["ready"]:
            raise NotReadyError("not ready to copy:\n" + "\n".join(event["messages"]))
        self.log.info("Ready: every check passed")
