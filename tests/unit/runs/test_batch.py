"""The heartbeat of a batch, and its cancellation token."""

import threading

import pytest

from include.tiering.clock import SystemClock
from include.tiering.errors import LeaseLostError, MetadataUnavailableError, RemoteMetadataError, SendingStoppedError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.runs.batch import BatchHeartbeat, CancellationToken
from include.tiering.runs.contract import BatchProgress, Lease
from tests.doubles.manual_clock import ManualClock
from tests.doubles.partial import Partial
from tests.doubles.patience import PATIENCE_SECONDS

# The heartbeat of a batch: what happens to the sending when it cannot go on.


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


def stop_reason_after(error: Exception) -> str | None:
    """Why the sending was stopped after the store raised `error` in the background."""
    clock, work = SystemClock(), Work(error)

    class Recording(CancellationToken):
        def stop(self, reason: str) -> None:
            super().stop(reason)
            work.asked_again.set()

    cancellation = Recording(clock)
    identity = BatchProgress("run", "run/0", None, "host", 1, "", 0, 0, 0.0, False)
    with BatchHeartbeat(work, cancellation, clock, identity=identity, lease_ms=30_000, parent_alive=lambda: True):
        assert work.asked_again.wait(PATIENCE_SECONDS)
    return cancellation.stop_reason


def test_a_store_that_is_away_is_survived():
    assert stop_reason_after(MetadataUnavailableError("away")) is None


def test_an_error_that_ends_the_heartbeat_ends_the_sending():
    assert "heartbeat failed" in str(stop_reason_after(RemoteMetadataError("file is not a database")))


def test_a_lease_that_was_taken_right_before_the_store_went_away_is_not_renewed(clock, cancellation):
    """The batch does not know of it, and would never give it back."""
    renewed = []

    class Taking(Work):
        def renew(self, lease: Lease, *, lease_ms: int) -> Lease:
            renewed.append(lease)
            return lease

    work, lease_ms = Taking(MetadataUnavailableError("away")), 30_000
    identity = BatchProgress("run", "run/0", None, "host", 1, "", 0, 0, 0.0, False)
    heartbeat = BatchHeartbeat(
        work, cancellation, clock, identity=identity, lease_ms=lease_ms, parent_alive=lambda: True
    )
    partition = TopicIdPartition(Uuid(bytes(15) + b"1"), 0, "orders")
    lease = Lease(
        run_id="run",
        batch_id="run/0",
        fence=Fence(partition, 1),
        expires_at_ms=lease_ms,
        replica_id=ReplicaId(partition, 1, ""),
    )
    heartbeat.beat()
    with pytest.raises(MetadataUnavailableError):
        heartbeat.claim(lambda: lease)
    clock.advance(lease_ms / 1000)
    heartbeat.beat()
    assert renewed == []


# The token is cancelled on stop, on a lost lease, and on a pause that lasts.


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cancellation(clock: ManualClock) -> CancellationToken:
    return CancellationToken(clock)


def test_a_token_that_is_not_cancelled_lets_through(cancellation):
    cancellation.check()


def test_a_cancelled_token_says_why(cancellation):
    cancellation.stop("the parent is gone")
    with pytest.raises(SendingStoppedError, match="the parent is gone"):
        cancellation.check()


def test_the_lease_ends_by_the_monotonic_clock(cancellation, clock):
    cancellation.lease_valid_until(clock.monotonic() + 10)
    clock.advance(9.9)
    cancellation.check()
    clock.advance(0.1)
    with pytest.raises(LeaseLostError):
        cancellation.check()
    cancellation.lease_valid_until(None)
    cancellation.check()


def test_a_resume_within_the_hold_lets_the_sender_go_on(cancellation):
    cancellation.set_paused(True)
    sender = threading.Thread(target=cancellation.check)
    sender.start()
    sender.join(0.05)
    assert sender.is_alive()
    cancellation.set_paused(False)
    sender.join(PATIENCE_SECONDS)
    assert not sender.is_alive()


def test_a_long_pause_gives_the_attempt_up(clock):
    cancellation = CancellationToken(clock, pause_hold_seconds=0.01)
    cancellation.set_paused(True)
    with pytest.raises(SendingStoppedError, match="paused"):
        cancellation.check()


def test_stop_ends_a_pause_at_once(cancellation):
    cancellation.set_paused(True)
    threading.Timer(0.02, cancellation.stop, ["shut down"]).start()
    with pytest.raises(SendingStoppedError, match="shut down"):
        cancellation.check()
