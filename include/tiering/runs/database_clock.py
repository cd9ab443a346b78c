"""The check of the database's clock before anything is deleted by age.

The database's clock decides how old a segment or an orphan object is. If that clock is years ahead, everything looks
old. So the database's clock is compared with this worker's clock and with the time in the remote store's answer, and it
must not be before the time of an event that it dated itself. The store's time is left out if it is not wanted, or if
the store has none to tell, for example because its disk is full. If the store just does not answer now, the check fails
and may be tried again: the store's clock may be the only right one. On a single host these are one clock, so comparing
them finds nothing; there the deletion limits protect. While a batch runs, the database's clock must also advance as
fast as this process's monotonic clock. Decisions by age use `ClockGuard.now_ms` instead of reading the database's time
again, because its clock may jump right after the check; but tombstones are removed by the database's time itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import ClockBehindError, ClockDisagreesError, RemoteStorageError
from include.tiering.runs.deletion_run import DeletionStore
from include.tiering.units import format_utc

_ROUNDING_MS: Final = 1_000
"""Tolerance: a store's time has whole seconds, and two servers of one database may differ by milliseconds."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The time that a clock showed; `whose` has the words before it in a message, such as `this worker's says`."""

    whose: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """How far clocks may be apart. Events dated `ignored_until_ms` or earlier are ignored: a wrong clock dated them."""

    max_difference_ms: int
    ignored_until_ms: int = 0


def require_consistent_clock(
    database_ms: int, others: Sequence[ClockReading], newest_event_ms: int | None, bounds: ClockBounds
) -> None:
    """Compare the database's clock with other clocks and with the newest event; return if nothing contradicts it.

    Raises:
        ClockBehindError: the database's time is more than 1 s and at most `max_difference_ms` before the newest event
            (retriable).
        ClockDisagreesError: the database's time is more than `max_difference_ms` before the newest event, or differs
            from another clock by more than `max_difference_ms` plus 1 s.
    """
    for other in others:
        apart_ms = abs(database_ms - other.now_ms)
        if apart_ms > bounds.max_difference_ms + _ROUNDING_MS:
            raise ClockDisagreesError(
                f"the database's clock says {format_utc(database_ms)}, {other.whose} {format_utc(other.now_ms)}:"
                f" they are {apart_ms // 1000} s apart, but at most {bounds.max_difference_ms // 1000} s are allowed"
                " (tiering.clock.max.difference.ms). Nothing is deleted until the wrong clock is set right"
            )
    if newest_event_ms is None or database_ms + _ROUNDING_MS >= newest_event_ms:
        return
    said = (
        f"the database's clock says {format_utc(database_ms)}, before {format_utc(newest_event_ms)}, the time of the"
        " newest event in it"
    )
    if newest_event_ms - database_ms <= bounds.max_difference_ms:
        raise ClockBehindError(f"{said}: nothing is deleted until it has caught up")
    raise ClockDisagreesError(
        f"{said}: nothing is deleted. Set the clock right. If it is right now, and was ahead when that event was dated:"
        f" set tiering.clock.ignored.until.ms={newest_event_ms}"
    )


class ClockGuard:
    """Reads and compares the clocks. `store_ms` returns the remote store's time, None if it has none.

    Where the store is asked, each method may raise RemoteStorageUnavailableError: the store does not answer now.
    """

    def __init__(
        self,
        deletions: DeletionStore,
        clock: Clock,
        store_ms: Callable[[], int | None],
        bounds: Callable[[], ClockBounds],
    ) -> None:
        self._deletions = deletions
        self._clock = clock
        self._store_ms = store_ms
        self._bounds = bounds
        self._began: tuple[int, float] | None = None
        self._checked: tuple[int, float] | None = None

    def now_ms(self) -> int:
        """Return the database's time at the last check that passed, plus the monotonic time since then.

        If no check has passed yet, check first; raises what `require` raises.
        """
        checked_ms, monotonic = self._checked or self._check(with_store=True)
        return checked_ms + round((self._clock.monotonic() - monotonic) * 1000)

    def require(self, *, with_store: bool = True) -> None:
        """Read and compare the clocks now, see `require_consistent_clock`.

        From the second check on, the database's clock must also have advanced since the first check as fast as this
        process's monotonic clock.
        """
        self._check(with_store=with_store)

    def _check(self, *, with_store: bool) -> tuple[int, float]:
        """Check; return the database's time and this process's monotonic time then."""
        bounds = self._bounds()
        stored_ms = self._time_of_store() if with_store else None
        monotonic, database_ms = self._clock.monotonic(), self._deletions.now_ms()
        others = [ClockReading("this worker's says", self._clock.now_ms())]
        if stored_ms is not None:
            others.append(ClockReading("the remote store's answer says", stored_ms))
        if self._began is None:
            self._began = database_ms, monotonic
        else:
            began_ms, began = self._began
            passed_ms = round((monotonic - began) * 1000)
            others.append(ClockReading("by the time that has passed since this work began it is", began_ms + passed_ms))
        require_consistent_clock(database_ms, others, self._deletions.newest_event_ms(bounds.ignored_until_ms), bounds)
        self._checked = database_ms, monotonic
        return self._checked

    def _time_of_store(self) -> int | None:
        try:
            return self._store_ms()
        except RemoteStorageError as error:
            if error.retriable:
                raise
            return None


def clock_contradiction(clocks: ClockGuard, began_at_ms: int) -> str | None:
    """Return what contradicts the database's clock, now or when it showed `began_at_ms`; None if nothing does.

    A clock that is a little behind (ClockBehindError) is also returned, not raised.
    """
    try:
        clocks.require()
    except ClockDisagreesError as error:
        return str(error)
    now_ms = clocks.now_ms()
    if began_at_ms > now_ms + _ROUNDING_MS:
        return f"the database's clock said {format_utc(began_at_ms)} earlier, but says {format_utc(now_ms)} now"
    return None
