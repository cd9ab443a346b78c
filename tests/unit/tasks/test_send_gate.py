"""The gate closes on stop, on a lost lease, and on a pause that lasts."""

import threading

import pytest

from include.tiering.errors import LeaseLostError, SendingStoppedError
from include.tiering.quota.contract import UnlimitedBytes
from include.tiering.tasks.send_gate import SendGate
from tests.doubles.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def gate(clock: ManualClock) -> SendGate:
    return SendGate(UnlimitedBytes(), clock)


class Charged:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def acquire(self, size_bytes: int) -> None:
        self.sizes.append(size_bytes)


def test_an_open_gate_charges_the_quota(clock):
    charged = Charged()
    SendGate(charged, clock).acquire(17)
    assert charged.sizes == [17]


def test_a_closed_gate_charges_nothing(clock):
    charged = Charged()
    gate = SendGate(charged, clock)
    gate.stop("the parent is gone")
    with pytest.raises(SendingStoppedError, match="the parent is gone"):
        gate.acquire(17)
    assert charged.sizes == []


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
    sender.join(5)
    assert not sender.is_alive()


def test_a_long_pause_gives_the_attempt_up(clock):
    gate = SendGate(UnlimitedBytes(), clock, pause_hold_seconds=0.01)
    gate.set_paused(True)
    with pytest.raises(SendingStoppedError, match="paused"):
        gate.check()


def test_stop_ends_a_pause_at_once(gate):
    gate.set_paused(True)
    threading.Timer(0.02, gate.stop, ["shut down"]).start()
    with pytest.raises(SendingStoppedError, match="shut down"):
        gate.check()
