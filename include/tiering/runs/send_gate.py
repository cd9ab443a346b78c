"""The last question before bytes leave: may this worker still send?

A `SendGate` stands before every grant of the quota. Its state is written by the heartbeat (another thread) and read
before every slice, so that a pause, a lost lease or a dead parent stops the sending within one heartbeat.
"""

import threading
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import LeaseLostError, SendingStoppedError

PAUSE_HOLD_SECONDS: Final = 20.0


class SendGate:
    """May be closed for good, or for a while.

    A pause is waited out for at most `pause_hold_seconds`, about as long as a store keeps an idle connection; after
    that the attempt is given up and begun anew on resume.
    """

    def __init__(self, clock: Clock, *, pause_hold_seconds: float = PAUSE_HOLD_SECONDS) -> None:
        self._clock = clock
        self._pause_hold_seconds = pause_hold_seconds
        self._changed = threading.Condition()
        self._paused = False
        self._pauses = 0
        self._stop_reason: str | None = None
        self._lease_valid_until: float | None = None

    def check(self) -> None:
        """Wait out a short pause, then say whether work may go on.

        Raises:
            SendingStoppedError: stopped, or paused for longer than the hold.
            LeaseLostError: the lease ran out by this host's monotonic clock, or was taken.
        """
        with self._changed:
            if self._paused:
                self._changed.wait_for(lambda: not self._paused or self._stop_reason, timeout=self._pause_hold_seconds)
            if self._stop_reason is not None:
                raise SendingStoppedError(self._stop_reason)
            if self._paused:
                raise SendingStoppedError(f"paused for more than {self._pause_hold_seconds:.0f} s")
            if self._lease_valid_until is not None and self._clock.monotonic() >= self._lease_valid_until:
                raise LeaseLostError("the lease was not renewed in time: another worker may own the partition")

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def pauses(self) -> int:
        """How many pauses have begun: who sees another number than before has slept through one."""
        return self._pauses

    @property
    def stop_reason(self) -> str | None:
        return self._stop_reason

    def set_paused(self, paused: bool) -> None:
        with self._changed:
            self._pauses += paused and not self._paused
            self._paused = paused
            self._changed.notify_all()

    def stop(self, reason: str) -> None:
        with self._changed:
            self._stop_reason = reason
            self._changed.notify_all()

    def lease_valid_until(self, monotonic_seconds: float | None) -> None:
        """Monotonic second from which on the lease must be taken for lost; None while no lease is held."""
        with self._changed:
            self._lease_valid_until = monotonic_seconds
