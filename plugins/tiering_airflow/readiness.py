"""The sensor that waits until a run may start, and its trigger.

The trigger runs in the triggerer, so a waiting run uses no worker and no pool slot.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowRuntimeError, AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from include.tiering.errors import TieringError
from plugins.tiering_airflow import alerts
from plugins.tiering_airflow.errors import NotReadyError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.pools import COPIER_POOL
from plugins.tiering_airflow.run_form import form_of, scope_of
from plugins.tiering_airflow.spark_cluster import cluster_remarks

if TYPE_CHECKING:
    from airflow.sdk import Context


MISSING_KEY: Final = "tiering_missing"
"""XCom of a waiting task: what is missing now, as one text, because Airflow's page folds lists."""
WAITS: Final = "Waiting, not ready: %s"
"""One log line for each missing item: Airflow's page does not wrap long lines."""
_WITH_DIGITS: Final = re.compile(r"\w*\d\w*")


class ReadinessTrigger(BaseTrigger):
    """Fires when a run may start, when something is missing that waiting cannot resolve, or at the deadline.

    Its event is the one that `what_is_missing` returns. Until then each change of the missing items is written to the
    task's log and to its XCom `MISSING_KEY`. The checks are synchronous and run in a thread.

    Args:
        poll_seconds: time between two checks.
        deadline_ms: UTC milliseconds, so that a trigger that moves to another triggerer keeps its deadline.
        slot_pool: the pool of the work. A size of 0 delays the run, except of the reader pool: then the tasks of its
            jobs wait in Airflow.
        store_alone: see `OperationsService.ready`.
        said: the missing items that the task has logged already.
        form: the fields of the form that choose partitions; see `run_form.form_of`.
    """

    def __init__(
        self,
        *,
        poll_seconds: float,
        deadline_ms: int,
        slot_pool: str = COPIER_POOL,
        store_alone: bool = False,
        said: Sequence[str] = (),
        **form: Any,
    ) -> None:
        BaseTrigger.__init__(self)
        self.poll_seconds = poll_seconds
        self.deadline_ms = deadline_ms
        self.slot_pool = slot_pool
        self.store_alone = store_alone
        self.said = list(said)
        self.form = form

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("poll_seconds", "deadline_ms", "slot_pool", "store_alone", "said")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names} | self.form

    async def run(self) -> AsyncIterator[TriggerEvent]:
        while True:
            event, waitable = await asyncio.to_thread(what_is_missing, self.slot_pool, self.form, self.store_alone)
            if event["ready"] or not waitable or time.time_ns() // 1_000_000 >= self.deadline_ms:
                yield TriggerEvent(event)
                return
            # Logged only when the missing items change.
            if _comparable(event["messages"]) != _comparable(self.said):
                self.said = event["messages"]
                for line in self.said:
                    self.log.info(WAITS, line)
                await self._show(shown(self.said))
            await asyncio.sleep(self.poll_seconds)

    async def _show(self, missing: str) -> None:
        """Write the XCom. An error of Airflow does not end the wait, as the task's log has the same lines."""
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
    """Return the value of `MISSING_KEY`."""
    return "; ".join(missing) or "nothing"


def _comparable(missing: list[str]) -> list[str]:
    """Drop words with digits, such as free bytes and names of probes, which differ between checks."""
    return [_WITH_DIGITS.sub("", line) for line in missing]


def what_is_missing(slot_pool: str, form: Mapping[str, Any], store_alone: bool = False) -> tuple[dict[str, Any], bool]:
    """Return a pair: what prevents a run of the work of `slot_pool` now, and whether waiting can resolve all of it.

    What prevents it is `{"ready": bool, "messages": [one line per missing item], "summary": str, "waiting": [one line
    for each of the first 20 partitions that wait, and a line with the number of the rest], "remarks": [one line per
    missing item that this work does not need, or about the Spark cluster]}`. If nothing else prevents the run, but
    every partition waits, `messages` equals `waiting`.
    """
    from include.tiering.operations.readiness import summary_of, waiting_lines

    try:
        with TieringHook().open() as app:
            unsure = app.operations.names.check_topics(form.get("topics"))
            readiness = app.operations.ready(pool=slot_pool, scope=scope_of(form), store_alone=store_alone)
            unsure = (*unsure, *cluster_remarks(app))
    except TieringError as error:
        return _event([str(error)], "", [], []), error.retriable
    waiting = waiting_lines(readiness)
    missing = list(readiness.missing) or ([] if readiness.ready else waiting)
    return _event(missing, summary_of(readiness), waiting, [*unsure, *readiness.remarks]), readiness.waitable


def _event(missing: list[str], summary: str, waiting: list[str], remarks: list[str]) -> dict[str, Any]:
    return {"ready": not missing, "messages": missing, "summary": summary, "waiting": waiting, "remarks": remarks}


POLL_SECONDS: Final = 10.0
WAIT_SECONDS: Final = 24 * 60 * 60.0
SIZES_WAIT_SECONDS: Final = 30 * 60.0
_MARGIN: Final = timedelta(minutes=2)
_MOST_IN_TITLE: Final = 3


class TieringReadySensor(BaseSensorOperator):
    """Checks whether a run may start; if not, waits in the triggerer until it may.

    A copy may start if the schema is at head; the store can be reached and written, has space and this database's
    marker; at least one log dir can be read, or workers of a queue read one, or segments are read from the leaders;
    cluster metadata can be read; no pause of all topics is in force; the quota ledger answers, or no quota is set; the
    suite files are valid; Airflow has the pool, and its size is not 0. Single partitions that are not ready do not
    delay the run: the log names the first 20 of them with the reason. But while every partition waits for something
    that can pass without a decision of a person, a copy waits, too, unless the log dirs of a queue were not reported
    yet. The sensor fails at once for a problem that waiting cannot resolve, such as another database's marker.

    `slot_pool` is the pool of the work after the sensor; its size is checked, and the sensor takes no slot of it. Items
    that this work does not need (see `OperationsService.ready`) do not delay the run, and are logged.

    Missing items are in the first lines of the task's log, and in its XCom `MISSING_KEY`.
    """

    def __init__(
        self,
        *,
        slot_pool: str = COPIER_POOL,
        store_alone: bool = False,
        poll_seconds: float = POLL_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.slot_pool = slot_pool
        self.store_alone = store_alone
        self.poll_seconds = poll_seconds
        self.wait_seconds = wait_seconds

    def execute(self, context: "Context") -> dict[str, Any]:
        """Return or raise as `on_answer` does, or wait. If another run waits, skip a scheduled one that must wait."""
        event, waitable = what_is_missing(self.slot_pool, form_of(context), self.store_alone)
        if waitable and not event["ready"]:
            self._wait(context, event["messages"])
        return self.on_answer(context, event)

    def _wait(self, context: "Context", missing: list[str]) -> NoReturn:
        # If runs overlap, one waiting run is enough: the schedule would add another one every time.
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
                store_alone=self.store_alone,
                said=missing,
                **form_of(context),
            ),
            method_name="on_answer",
            # The trigger itself ends at the deadline and reports what is missing; this timeout is for a lost triggerer.
            timeout=timedelta(seconds=self.wait_seconds) + _MARGIN,
        )

    def on_answer(self, context: "Context", event: dict[str, Any]) -> dict[str, Any]:
        """Log what is ready, what waits, what is missing but not needed, and whom Airflow cannot tell of a failed run.

        Returns the same for XCom.

        Raises:
            NotReadyError: with one line per missing item.
        """
        context["ti"].xcom_push(key=MISSING_KEY, value=shown(event["messages"]))
        if not event["ready"]:
            raise NotReadyError("not ready:\n" + "\n".join(event["messages"]))
        waiting: Sequence[str] = event["waiting"]
        remarks = [*event["remarks"], *alerts.problems()]
        named = "; ".join(waiting[:_MOST_IN_TITLE]) + ("; ..." if len(waiting) > _MOST_IN_TITLE else "")
        self.log.info("%s", f"{event['summary']}, waiting: {named}" if waiting else event["summary"])
        for line in remarks:
            self.log.warning("%s", line)
        for line in waiting[_MOST_IN_TITLE:]:
            self.log.info("Waiting: %s", line)
        return {"summary": event["summary"], "waiting": waiting, "remarks": remarks}
