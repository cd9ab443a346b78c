"""Whether the database's clock can be believed, before anything is deleted by what it says.

Retention, and the age of an object that nobody knows, are decided by the database's clock. One that is years ahead
makes everything old. It is compared with what other clocks say now: this worker's, and the store's answer. And it must
not lie before what it dated itself. What cannot be compared is no obstacle: on one host all of them are the same clock,
and there the deletion limit is what asks. While a batch runs, the database's clock must go on as this process counts
the time. What is decided by age takes its time from `ClockGuard.now_ms`, not from the database once more: a clock may
jump right behind the look at it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import ClockBehindError, ClockDisagreesError, RemoteStorageError
from include.tiering.runs.deletion_run import DeletionStore
from include.tiering.units import format_utc

_ROUNDING_MS: Final = 1_000
"""A store says whole seconds, and two servers of one database need not agree on the millisecond."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """What a clock said; `whose` as a person knows it."""

    whose: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """How far clocks may be apart. Events up to `ignored_until_ms` are known to have been dated by a wrong clock."""

    max_difference_ms: int
    ignored_until_ms: int = 0


def require_consistent_clock(
    database_ms: int, others: Sequence[ClockReading], newest_event_ms: int | None, bounds: ClockBounds
) -> None:
    """Return if nothing contradicts the database's clock.

    Raises:
        ClockBehindError: it lies before the newest event, by no more than clocks may be apart (retriable).
        ClockDisagreesError: it is far from another clock, or lies far before the newest event.
    """
    for other in others:
        apart_ms = abs(database_ms - other.now_ms)
        if apart_ms > bounds.max_difference_ms + _ROUNDING_MS:
            raise ClockDisagreesError(
                f"the database's clock says {format_utc(database_ms)}, {other.whose} {format_utc(other.now_ms)}:"
                f" {apart_ms // 1000} s apart, at most {bounds.max_difference_ms // 1000} may be"
                " (tiering.clock.max.difference.ms). Nothing is deleted before the wrong one is set right"
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
        f"{said}: nothing is deleted. Set the clock right. If it is right, and was ahead when that was dated: set"
        f" tiering.clock.ignored.until.ms={newest_event_ms}"
    )


class ClockGuard:
    """Asks the clocks. `store_ms` gives None if the store's clock cannot be asked."""

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
        self._believed: tuple[int, float] | None = None

    def now_ms(self) -> int:
        """The database's time as it was believed last, gone on as this process counts the time. Asks if nobody has."""
        believed_ms, monotonic = self._believed or self._ask(with_store=True)
        return believed_ms + round((self._clock.monotonic() - monotonic) * 1000)

    def require(self, *, with_store: bool = True) -> None:
        """Ask now; see `require_consistent_clock`. From the first time on the database's clock has to go as this process does."""
        self._ask(with_store=with_store)

    def _ask(self, *, with_store: bool) -> tuple[int, float]:
        """The database's time, and this process's at that moment."""
        bounds = self._bounds()
        stored_ms = self._asked_store() if with_store else None
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
        self._believed = database_ms, monotonic
        return self._believed

    def _asked_store(self) -> int | None:
        try:
            return self._store_ms()
        except RemoteStorageError:
            return None


def clock_contradiction(clocks: ClockGuard, began_at_ms: int) -> str | None:
    """Why the database's clock cannot be believed, now or when it said `began_at_ms` a while ago; None if it can."""
    try:
        clocks.require()
    except ClockDisagreesError as error:
        return str(error)
    now_ms = clocks.now_ms()
    if began_at_ms > now_ms + _ROUNDING_MS:
        return f"the database's clock said {format_utc(began_at_ms)} before, and says {format_utc(now_ms)} now"
    return None
