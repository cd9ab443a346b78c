"""A sender that waits for one of its scopes keeps what it holds of the others."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from include.tiering.clock import SystemClock
from include.tiering.quotas.contract import QuotasInForce, copy_scopes
from include.tiering.quotas.shares import ALL_THERE_IS, ProcessPacing
from include.tiering.units import MIB
from tests.doubles.patience import PATIENCE_SECONDS

SCOPES = copy_scopes(1, "orders")
TOTAL, BROKER, TOPIC = SCOPES
QUOTAS = QuotasInForce(1, {TOTAL: 1000, BROKER: 1000})


@contextmanager
def a_sender_waits(pacing: ProcessPacing) -> Iterator[None]:
    sender = threading.Thread(target=pacing.take, args=(pacing.stream(SCOPES), MIB, 600.0))
    sender.start()
    assert pacing.starved.wait(PATIENCE_SECONDS)
    try:
        yield
    finally:
        pacing.hold(dict.fromkeys(SCOPES), SystemClock().monotonic() + 600)
        sender.join()


@pytest.fixture
def pacing() -> ProcessPacing:
    return ProcessPacing(SystemClock())


def test_who_has_nothing_of_one_scope_asks_for_what_it_holds_of_the_others(pacing: ProcessPacing) -> None:
    pacing.hold({TOTAL: 0.0, BROKER: 700.0, TOPIC: None}, SystemClock().monotonic() + 600)
    with a_sender_waits(pacing):
        for _ in range(3):
            wanted = pacing.wanted(QUOTAS)
            assert (wanted[TOTAL], wanted[BROKER]) == (ALL_THERE_IS, 700.0)


def test_a_scope_that_is_not_known_yet_starves_as_well(pacing: ProcessPacing) -> None:
    pacing.hold({BROKER: 700.0, TOPIC: None}, SystemClock().monotonic() + 600)
    with a_sender_waits(pacing):
        wanted = pacing.wanted(QUOTAS)
    assert (wanted[TOTAL], wanted[BROKER]) == (ALL_THERE_IS, 700.0)


def test_who_waits_for_nobody_asks_for_what_it_used(pacing: ProcessPacing) -> None:
    pacing.hold({TOTAL: 0.0, BROKER: 700.0, TOPIC: None}, SystemClock().monotonic() + 600)
    pacing.take(pacing.stream(SCOPES), MIB, 0.0)
    assert pacing.wanted(QUOTAS)[BROKER] == 0.0
