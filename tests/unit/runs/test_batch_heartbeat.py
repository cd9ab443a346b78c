"""The heartbeat of a batch: what happens to the sending when it cannot go on."""

import threading

from include.tiering.clock import SystemClock
from include.tiering.errors import MetadataUnavailableError, RemoteMetadataError
from include.tiering.runs.batch import BatchHeartbeat, SendGate
from include.tiering.runs.contract import BatchProgress
from tests.doubles.partial import Partial
from tests.doubles.patience import PATIENCE_SECONDS


class Work(Partial):
    """A work store that answers its first question, and raises `error` from then on."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._questions = 0
        self.asked_again = threading.Event()

    def paused_topics(self) -> frozenset[str]:
        self._questions += 1
        if self._questions > 2:
            self.asked_again.set()
        if self._questions > 1:
            raise self._error
        return frozenset()

    def report_progress(self, progress: BatchProgress) -> None:
        return None


def gate_after(error: Exception) -> str | None:
    """Why the sending was stopped after the store raised `error` in the background."""
    clock, work = SystemClock(), Work(error)

    class Gate(SendGate):
        def stop(self, reason: str) -> None:
            super().stop(reason)
            work.asked_again.set()

    gate = Gate(clock)
    identity = BatchProgress("run", "run/0", None, "host", 1, "", 0, 0, 0.0, False)
    with BatchHeartbeat(work, gate, clock, identity=identity, lease_ms=30_000, parent_alive=lambda: True):
        assert work.asked_again.wait(PATIENCE_SECONDS)
    return gate.stop_reason


def test_a_store_that_is_away_is_survived():
    assert gate_after(MetadataUnavailableError("away")) is None


def test_an_error_that_ends_the_heartbeat_ends_the_sending():
    assert "heartbeat broke" in str(gate_after(RemoteMetadataError("file is not a database")))
