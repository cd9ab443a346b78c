"""Waits that run in the triggerer: they hold no worker and no pool slot."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.triggers.base import BaseTrigger, TriggerEvent

from include.tiering.errors import AirflowApiError, MetadataUnavailableError, TieringError
from include.tiering.operations.readiness import summary_of, waiting_lines
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.pools import COPIER_POOL

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
