"""The heartbeat of a batch, and its cancellation token."""

import threading
from functools import partial

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


def a_lease(topic: str, number: int) -> Lease:
    partition = TopicIdPartition(Uuid(bytes(15) + b"1"), number, topic)
    return Lease(
        run_id="run",
        batch_id="run/0",
        fence=Fence(partition, 1),
        expires_at_ms=30_000,
        replica_id=ReplicaId(partition, 1, ""),
    )


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
    heartbeat.beat()
    with pytest.raises(MetadataUnavailableError):
        heartbeat.claim(lambda: a_lease("orders", 0))
    clock.advance(lease_ms / 1000)
    heartbeat.beat()
    assert renewed == []


def test_a_pause_is_noticed_while_the_leases_of_many_partitions_are_renewed_slowly(clock, cancellation):
    """Of 48 leases that are due at once, as a batch may hold, each takes a tenth of a second to renew."""
    lease_ms, began_s, late = 30_000, clock.monotonic(), list[float]()

    class Slow(Partial):
        pauses_at: float | None = None

        def paused_topics(self) -> frozenset[str]:
            return (
                frozenset() if self.pauses_at is None or clock.monotonic() < self.pauses_at else frozenset(["orders"])
            )

        def renew(self, lease: Lease, *, lease_ms: int) -> Lease:
            clock.advance(0.1)
            if self.pauses_at is not None and not held[0].token.paused:
                late.append(clock.monotonic() - self.pauses_at)
            return lease

        def report_progress(self, progress: BatchProgress) -> None:
            return None

    work = Slow()
    identity = BatchProgress("run", "run/0", None, "host", 1, "", 0, 0, 0.0, False)
    heartbeat = BatchHeartbeat(
        work, cancellation, clock, identity=identity, lease_ms=lease_ms, parent_alive=lambda: True
    )
    claimed = [heartbeat.claim(partial(a_lease, "orders", number)) for number in range(48)]
    held = [each for each in claimed if each is not None]
    clock.advance(lease_ms / 3000)
    work.pauses_at = clock.monotonic() + 0.2
    heartbeat.beat()
    assert max(late) <= 0.6
    assert clock.monotonic() - began_s < lease_ms / 1000, "and none was lost meanwhile"
    for each in held:
        each.token.set_paused(False)
        each.token.check()


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
