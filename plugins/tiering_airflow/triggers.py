"""Waits that run in the triggerer: they hold no worker and no pool slot."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from include.tiering.errors import AirflowApiError, MetadataUnavailableError, TieringError
from include.tiering.reports.ready import summary_of, waiting_lines
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.pools import COPIER_POOL


class ReadinessTrigger(BaseTrigger):
    """Fires when a run may start, when something is missing that waiting cannot mend, or at the deadline.

    The event is `{"ready": bool, "messages": [one line per thing that is missing], "summary": str, "waiting": [one line
    per partition that is not ready]}`. `deadline_ms` is UTC milliseconds, so a trigger that moves to another triggerer
    keeps it. `topics` are patterns; None: those of the settings. The checks are synchronous and run in a thread.
    """

    def __init__(
        self,
        *,
        poll_seconds: float,
        deadline_ms: int,
        slot_pool: str = COPIER_POOL,
        topics: list[str] | None = None,
    ) -> None:
        BaseTrigger.__init__(self)
        self.poll_seconds = poll_seconds
        self.deadline_ms = deadline_ms
        self.slot_pool = slot_pool
        self.topics = topics

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("poll_seconds", "deadline_ms", "slot_pool", "topics")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        said: list[str] = []
        while True:
            event, waitable = await asyncio.to_thread(what_is_missing, self.slot_pool, self.topics)
            if event["ready"] or not waitable or time.time_ns() // 1_000_000 >= self.deadline_ms:
                yield TriggerEvent(event)
                return
            # Once for each picture, however long it lasts.
            if event["messages"] != said:
                said = event["messages"]
                self.log.info("Waiting, not ready: %s", "; ".join(said))
            await asyncio.sleep(self.poll_seconds)


def what_is_missing(slot_pool: str, topics: list[str] | None) -> tuple[dict[str, Any], bool]:
    """The event as it would be now, and whether waiting can mend all that is missing."""
    try:
        with TieringHook().open() as tiering:
            # Airflow away: the sizes seen last count. A database that is away is what the checks below speak about.
            with contextlib.suppress(AirflowApiError, MetadataUnavailableError):
                tiering.mirror_pools()
            readiness = tiering.readiness(pool=slot_pool, topics=topics)
    except TieringError as error:
        return _event([str(error)], "", []), error.retriable
    waiting = waiting_lines(readiness)
    missing = list(readiness.missing) or ([] if readiness.ready else waiting)
    return _event(missing, summary_of(readiness), waiting), readiness.waitable


def _event(missing: list[str], summary: str, waiting: list[str]) -> dict[str, Any]:
    return {"ready": not missing, "messages": missing, "summary": summary, "waiting": waiting}
