"""The gate closes on stop, on a lost lease, and on a pause that lasts."""

import threading

import pytest

from include.tiering.errors import LeaseLostError, SendingStoppedError
from include.tiering.runs.batch import SendGate
from tests.doubles.manual_clock import ManualClock
from tests.doubles.patience import PATIENCE_SECONDS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def gate(clock: ManualClock) -> SendGate:
    return SendGate(clock)


def test_an_open_gate_lets_through(gate):
    gate.check()


def test_a_stopped_gate_says_why(gate):
    gate.stop("the parent is gone")
    with pytest.raises(SendingStoppedError, match="the parent is gone"):
        gate.check()


def test_the_lease_ends_by_the_monotonic_clock(gate, clock):
    gate.lease_valid_until(clock.monotonic() + 10)
    clock.advance(9.9)
    gate.check()
    clock.advance(0.1)
    with pytest.raises(LeaseLostError):
        gate.check()
    gate.lease_valid_until(None)
    gate.check()


def test_a_resume_within_the_hold_lets_the_sender_go_on(gate):
    gate.set_paused(True)
    sender = threading.Thread(target=gate.check)
    sender.start()
    sender.join(0.05)
    assert sender.is_alive()
    gate.set_paused(False)
    sender.join(PATIENCE_SECONDS)
    assert not sender.is_alive()


def test_a_long_pause_gives_the_attempt_up(clock):
    gate = SendGate(clock, pause_hold_seconds=0.01)
    gate.set_paused(True)
    with pytest.raises(SendingStoppedError, match="paused"):
        gate.check()


def test_stop_ends_a_pause_at_once(gate):
    gate.set_paused(True)
    threading.Timer(0.02, gate.stop, ["shut down"]).start()
    with pytest.raises(SendingStoppedError, match="shut down"):
        gate.check()
