"""The lease of a driver is renewed while it works, and no longer."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from include.tiering.errors import LeaseLostError, MetadataUnavailableError
from include.tiering.handover import drive
from include.tiering.handover.drive import kept_alive
from tests.doubles.patience import PATIENCE_SECONDS

DRIVE: Any = SimpleNamespace(handover_id="handover-1")


class Handovers:
    """Answers renewals with these errors, one after the other, then without one."""

    def __init__(self, errors: Sequence[Exception | None], expected: int) -> None:
        self.errors = list(errors)
        self.expected = expected
        self.renewed = 0
        self.enough = threading.Event()

    def renew(self, drive: object, *, lease_ms: int) -> None:
        assert (drive, lease_ms) == (DRIVE, 30)
        self.renewed += 1
        if self.renewed == self.expected:
            self.enough.set()
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error


def beats() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "handover-handover-1"]


@pytest.mark.parametrize("errors", [[], [MetadataUnavailableError("away"), None, MetadataUnavailableError("away")]])
def test_it_is_renewed_again_and_again_also_after_a_database_was_away(errors: list[Exception | None]) -> None:
    handovers: Any = Handovers(errors, expected=4)
    with kept_alive(handovers, DRIVE, 30):
        assert handovers.enough.wait(PATIENCE_SECONDS)
        assert len(beats()) == 1
    renewed = handovers.renewed
    assert beats() == []
    assert handovers.renewed == renewed


def test_a_lease_that_is_lost_is_renewed_no_more() -> None:
    handovers: Any = Handovers([LeaseLostError("another driver")], expected=1)
    with kept_alive(handovers, DRIVE, 30):
        running = beats()
        assert len(running) <= 1
        beat = running[0] if running else None
        assert handovers.enough.wait(PATIENCE_SECONDS)
        if beat is not None:
            beat.join(PATIENCE_SECONDS)
        assert beats() == []
    assert handovers.renewed == 1


def test_three_beats_fit_into_a_lease() -> None:
    class Ended(threading.Event):
        waits: ClassVar[list[float | None]] = []

        def wait(self, timeout: float | None = None) -> bool:
            self.waits.append(timeout)
            return True

    drive._beat(Handovers([], 0), DRIVE, 30_000, Ended())  # type: ignore[arg-type]
    assert Ended.waits == [10.0]
