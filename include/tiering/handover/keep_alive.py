"""A second thread prolongs the lease of whoever drives a hand-over, for as long as the driver lives.

A lease that was lost is not mourned here: the driver's next change is refused. A database that is away is asked again;
what lasts longer than the lease lets another driver go on.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from include.tiering.errors import LeaseLostError, TieringError
from include.tiering.handover.handover_contract import Drive, HandoverStore
from include.tiering.telemetry import get_logger

_log = get_logger(__name__)
_BEATS_PER_LEASE = 3


@contextmanager
def kept_alive(handovers: HandoverStore, drive: Drive, lease_ms: int) -> Iterator[None]:
    """Until the block ends."""
    ended = threading.Event()
    thread = threading.Thread(
        target=_beat, args=(handovers, drive, lease_ms, ended), name=f"handover-{drive.handover_id}", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _beat(handovers: HandoverStore, drive: Drive, lease_ms: int, ended: threading.Event) -> None:
    while not ended.wait(lease_ms / 1000 / _BEATS_PER_LEASE):
        try:
            handovers.renew(drive, lease_ms=lease_ms)
        except LeaseLostError as error:
            _log.warning("%s", error)
            return
        except TieringError as error:
            _log.warning("the lease is not prolonged now: %s", error)
