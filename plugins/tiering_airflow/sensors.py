"""Sensors of the platform's DAGs."""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowSkipException

from plugins.tiering_airflow.errors import NotReadyError
from plugins.tiering_airflow.pools import COPIER_POOL
from plugins.tiering_airflow.triggers import MISSING_KEY, WAITS, ReadinessTrigger, shown, what_is_missing

if TYPE_CHECKING:
    from airflow.sdk import Context

POLL_SECONDS: Final = 10.0
WAIT_SECONDS: Final = 24 * 60 * 60.0
SIZES_WAIT_SECONDS: Final = 30 * 60.0
_MARGIN: Final = timedelta(minutes=2)
_MOST_IN_TITLE: Final = 3


class TieringReadySensor(BaseSensorOperator):
    """Looks whether a run may start; if not, waits in the triggerer until it may.

    Ready means: the schema is at head, the store can be reached and written, has space and carries our marker, a log
    dir can be read, topic facts are there, nothing is paused, the pool has a slot, and a partition is ready. What
    waiting cannot mend, such as a foreign marker, fails at once. Single partitions that are not ready hold nobody up:
    the log names them and says why.

    `slot_pool` is the pool whose size is looked at, that of the work behind the sensor; it takes no slot of it. Work
    that does without some of it (see `OperationsService.ready`) is not held up by that: the log says so.

    What is missing now is in the first lines of the log, and the XCom `MISSING_KEY`.
    """

    def __init__(
        self,
        *,
        slot_pool: str = COPIER_POOL,
        poll_seconds: float = POLL_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.slot_pool = slot_pool
        self.poll_seconds = poll_seconds
        self.wait_seconds = wait_seconds

    def execute(self, context: "Context") -> dict[str, Any]:
        """As `on_answer`, unless something has to be waited for. Skipped if an earlier run does that."""
        event, waitable = what_is_missing(self.slot_pool, topics_of(context))
        if waitable and not event["ready"]:
            self._wait(context, event["messages"])
        return self.on_answer(context, event)

    def _wait(self, context: "Context", missing: list[str]) -> NoReturn:
        # Where runs go side by side, one that waits is enough: the schedule would add another one every time.
        if context["dag_run"].run_type == "scheduled" and context["ti"].get_ti_count(
            dag_id=self.dag_id, task_ids=[self.task_id], states=["deferred"]
        ):
            raise AirflowSkipException(f"an earlier run waits already: {shown(missing)}")
        for line in missing:
            self.log.info(WAITS, line)
        context["ti"].xcom_push(key=MISSING_KEY, value=shown(missing))
        self.defer(
            trigger=ReadinessTrigger(
                poll_seconds=self.poll_seconds,
                deadline_ms=time.time_ns() // 1_000_000 + int(self.wait_seconds * 1000),
                slot_pool=self.slot_pool,
                topics=topics_of(context),
                said=missing,
            ),
            method_name="on_answer",
            # The trigger keeps the deadline itself, and says what is missing; this is for a triggerer that is away.
            timeout=timedelta(seconds=self.wait_seconds) + _MARGIN,
        )

    def on_answer(self, context: "Context", event: dict[str, Any]) -> dict[str, Any]:
        """What goes, what waits and what is done without, for XCom.

        Raises NotReadyError with one line per thing that is missing.
        """
        context["ti"].xcom_push(key=MISSING_KEY, value=shown(event["messages"]))
        if not event["ready"]:
            raise NotReadyError("not ready:\n" + "\n".join(event["messages"]))
        waiting: Sequence[str] = event["waiting"]
        named = "; ".join(waiting[:_MOST_IN_TITLE]) + ("; ..." if len(waiting) > _MOST_IN_TITLE else "")
        self.log.info("%s", f"{event['summary']}, waiting: {named}" if waiting else event["summary"])
        for line in event["remarks"]:
            self.log.warning("%s", line)
        for line in waiting[_MOST_IN_TITLE:]:
            self.log.info("Waiting: %s", line)
        return {"summary": event["summary"], "waiting": waiting, "remarks": event["remarks"]}


def topics_of(context: "Context") -> list[str] | None:
    """Those that the form of the run asks for, if it has such a field."""
    return list((context.get("params") or {}).get("topics") or ()) or None
