"""Waiting until a run may start: the sensor of the DAGs, and the trigger that waits for it.

The trigger runs in the triggerer: a wait holds no worker and no pool slot.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowRuntimeError, AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from include.tiering.errors import AirflowApiError, MetadataUnavailableError, TieringError
from plugins.tiering_airflow.errors import NotReadyError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.pools import COPIER_POOL

if TYPE_CHECKING:
    from airflow.sdk import Context


MISSING_KEY: Final = "tiering_missing"
"""XCom of a task that waits: what is missing now, as one text, since Airflow's page folds lists."""
WAITS: Final = "Waiting, not ready: %s"
"""One line for each thing that is missing: Airflow's page does not wrap them."""
_WITH_DIGITS: Final = re.compile(r"\w*\d\w*")


class ReadinessTrigger(BaseTrigger):
    """Fires when a run may start, when something is missing that waiting cannot mend, or at the deadline.

    The event is as `what_is_missing` gives it. Until then each new picture of what is missing is one line of the task's
    log, and its XCom `MISSING_KEY`; `said` is the picture that the task has shown itself. `deadline_ms` is UTC
    milliseconds, so a trigger that moves to another triggerer keeps it. `topics` are patterns; None: those of the
    settings. The checks are synchronous and run in a thread.
    """

    def __init__(
        self,
        *,
        poll_seconds: float,
        deadline_ms: int,
        slot_pool: str = COPIER_POOL,
        topics: list[str] | None = None,
        said: Sequence[str] = (),
    ) -> None:
        BaseTrigger.__init__(self)
        self.poll_seconds = poll_seconds
        self.deadline_ms = deadline_ms
        self.slot_pool = slot_pool
        self.topics = topics
        self.said = list(said)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("poll_seconds", "deadline_ms", "slot_pool", "topics", "said")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        while True:
            event, waitable = await asyncio.to_thread(what_is_missing, self.slot_pool, self.topics)
            if event["ready"] or not waitable or time.time_ns() // 1_000_000 >= self.deadline_ms:
                yield TriggerEvent(event)
                return
            # Once for each picture, however long it lasts.
            if _picture(event["messages"]) != _picture(self.said):
                self.said = event["messages"]
                for line in self.said:
                    self.log.info(WAITS, line)
                await self._show(shown(self.said))
            await asyncio.sleep(self.poll_seconds)

    async def _show(self, missing: str) -> None:
        """An Airflow that cannot take it now is no reason to end the wait: the log has it, too."""
        if self.task_instance is None:
            return
        from airflow.sdk.execution_time.xcom import XCom

        ti = self.task_instance
        try:
            await XCom.aset(
                MISSING_KEY, missing, dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id, map_index=ti.map_index
            )
        except AirflowRuntimeError as error:
            self.log.warning("What is missing cannot be shown as XCom: %s", error)


def shown(missing: Sequence[str]) -> str:
    """The value of `MISSING_KEY`."""
    return "; ".join(missing) or "nothing"


def _picture(missing: list[str]) -> list[str]:
    """Without free bytes, names of probes and whatever else differs from look to look."""
    return [_WITH_DIGITS.sub("", line) for line in missing]


def what_is_missing(slot_pool: str, topics: list[str] | None) -> tuple[dict[str, Any], bool]:
    """What holds a run of the work behind `slot_pool` up now, and whether waiting can mend all of it.

    `{"ready": bool, "messages": [one line per thing that is missing], "summary": str, "waiting": [one line per
    partition that is not ready], "remarks": [one line per thing that is missing and that this work does without]}`.
    """
    from include.tiering.operations.readiness import summary_of, waiting_lines

    try:
        with TieringHook().open() as app:
            # Airflow away: the sizes seen last count. A database that is away is what the checks below speak about.
            with contextlib.suppress(AirflowApiError, MetadataUnavailableError):
                app.configs.mirror_pools()
            readiness = app.operations.ready(pool=slot_pool, topics=topics)
    except TieringError as error:
        return _event([str(error)], "", [], []), error.retriable
    waiting = waiting_lines(readiness)
    missing = list(readiness.missing) or ([] if readiness.ready else waiting)
    return _event(missing, summary_of(readiness), waiting, list(readiness.remarks)), readiness.waitable


def _event(missing: list[str], summary: str, waiting: list[str], remarks: list[str]) -> dict[str, Any]:
    return {"ready": not missing, "messages": missing, "summary": summary, "waiting": waiting, "remarks": remarks}


POLL_SECONDS: Final = 10.0
WAIT_SECONDS: Final = 24 * 60 * 60.0
SIZES_WAIT_SECONDS: Final = 30 * 60.0
_MARGIN: Final = timedelta(minutes=2)
_MOST_IN_TITLE: Final = 3


class TieringReadySensor(BaseSensorOperator):
    """Looks whether a run may start; if not, waits in the triggerer until it may.

    Ready means: the schema is at head, the store can be reached and written, has space and carries our marker, a log
    dir can be read, cluster metadata is there, nothing is paused, the pool has a slot, and a partition is ready. What
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
