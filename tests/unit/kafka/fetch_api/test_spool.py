"""Ranges wait for space in the spool, and never for a range that waits for them."""

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from include.tiering.clock import SystemClock
from include.tiering.errors import SendingStoppedError
from include.tiering.kafka.fetch_api import spool as spool_module
from include.tiering.kafka.fetch_api.spool import Spool
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.patience import eventually

ORDERS = TopicIdPartition(Uuid(b"o" * 16), 0, "orders")
PAYMENTS = TopicIdPartition(Uuid(b"p" * 16), 0, "payments")


def go_on() -> None:
    """Nothing ends a wait."""


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, 100, SystemClock())


def test_a_range_waits_until_others_are_closed(spool: Spool) -> None:
    opened = threading.Event()

    def wait() -> None:
        with spool.file("orders-0, range 10", ORDERS, 10, 60, go_on):
            opened.set()

    with spool.file("orders-0, range 0", ORDERS, 0, 60, go_on):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not opened.wait(0.4)
    assert opened.wait(60)
    waiting.join(60)


def test_what_ends_the_batch_ends_the_wait(spool: Spool) -> None:
    stopped = threading.Event()

    def paused() -> None:
        if stopped.is_set():
            raise SendingStoppedError("paused")

    found: list[Exception] = []

    def wait() -> None:
        try:
            with spool.file("orders-0, range 10", ORDERS, 10, 60, paused):
                pass
        except SendingStoppedError as error:
            found.append(error)

    with spool.file("orders-0, range 0", ORDERS, 0, 60, go_on):
        waiting = threading.Thread(target=wait)
        waiting.start()
        stopped.set()
        eventually(lambda: found, "the wait ends")
        waiting.join(60)
    with spool.file("orders-0, range 10", ORDERS, 10, 60, go_on):
        pass


def test_a_wait_ends(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "PATIENCE_SECONDS", 0.1)
    with (
        spool.file("orders-0, range 0", ORDERS, 0, 60, go_on),
        pytest.raises(SendingStoppedError, match="had no space"),
        spool.file("orders-0, range 10", ORDERS, 10, 60, go_on),
    ):
        pass


def test_a_range_before_one_in_the_spool_is_taken_at_once(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "PATIENCE_SECONDS", 0.1)
    with ExitStack() as files:
        files.enter_context(spool.file("orders-0, range 10", ORDERS, 10, 60, go_on))
        files.enter_context(spool.file("orders-0, range 0", ORDERS, 0, 60, go_on))
        with pytest.raises(SendingStoppedError), spool.file("payments-0, range 0", PAYMENTS, 0, 60, go_on):
            pass


def test_a_range_larger_than_the_spool_is_taken_alone(spool: Spool) -> None:
    with spool.file("orders-0, range 0", ORDERS, 0, 1000, go_on) as log:
        log.append(memoryview(bytes(1000)))
        assert log.size_bytes == 1000
