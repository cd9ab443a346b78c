"""Waits that run in the triggerer: they hold no worker and no pool slot."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from include.tiering.errors import MetadataUnavailableError, TieringError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.pools import COPIER_POOL, mirrored_pool


class ReadinessTrigger(BaseTrigger):
    """Fires when every readiness check passes, when one fails that waiting cannot mend, or at the deadline.

    The event is `{"ready": bool, "messages": [one line per failed check]}`. `deadline_ms` is UTC milliseconds, so a
    trigger that moves to another triggerer keeps it. The checks are synchronous and run in a thread.
    """

    def __init__(self, *, poll_seconds: float, deadline_ms: int) -> None:
        BaseTrigger.__init__(self)
        self.poll_seconds = poll_seconds
        self.deadline_ms = deadline_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{__name__}.{type(self).__name__}",
            {"poll_seconds": self.poll_seconds, "deadline_ms": self.deadline_ms},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        while True:
            messages, waitable = await asyncio.to_thread(what_is_missing)
            if not messages or not waitable or time.time_ns() // 1_000_000 >= self.deadline_ms:
                yield TriggerEvent({"ready": not messages, "messages": messages})
                return
            for message in messages:
                self.log.info("Not ready yet: %s", message)
            await asyncio.sleep(self.poll_seconds)


def what_is_missing() -> tuple[list[str], bool]:
    """One line per failed check, and whether waiting can mend all of them."""
    try:
        # The checks below say what is the matter with a database that cannot take the pool's size.
        with contextlib.suppress(MetadataUnavailableError), mirrored_pool(COPIER_POOL) as mirror:
            mirror.refresh()
        with TieringHook().open() as tiering:
            failed = [check for check in tiering.readiness(pool=COPIER_POOL) if not check.ok]
    except TieringError as error:
        return [str(error)], error.retriable
    return [f"{check.name}: {check.message}" for check in failed], all(check.waitable for check in failed)
