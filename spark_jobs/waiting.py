"""What a job looks at while it waits for a core of a Spark cluster: its pool, its work, and a pause of all topics.

It waits first for its place, then for its first executor.

A waiting job reports nothing, so it is no live batch, and which of several waiting jobs is surplus cannot be told from
reports. So it ends when the live batches alone fill its pool. It sees that for longer than a dead batch counts as live
before it ends, because Airflow may have given it the slot of a batch that was killed.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from include.tiering.errors import MetadataUnavailableError, TieringError

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.clock import Clock
    from include.tiering.runs.contract import NoWork, WorkStore

SURPLUS_SECONDS: Final = 10.0
"""Longer than `LIVE_BATCH_MS`, for which the last report of a killed batch makes it a live one."""
ALL_PAUSED: Final = "all topics are paused: ./tiering resume"

Look = Callable[[], str | None]
"""Returns what holds a job back besides the cluster, or None. Raises WaitOverError if the job need not run any more."""


class WaitOverError(TieringError):
    """A job is not wanted any more, before it has begun. `ended` says why, `exit_code` is that of the job."""

    def __init__(self, ended: str, exit_code: int) -> None:
        super().__init__(ended)
        self.ended = ended
        self.exit_code = exit_code


@contextmanager
def unseen() -> Iterator[Look]:
    """Return a look that sees nothing."""
    yield lambda: None


class Lookout:
    """Looks for a job of a pool; an unreachable database holds no job back.

    Args:
        work: pools, live batches and pauses.
        clock: measures how long a job has been surplus.
        batch_id: the job's own id, whose earlier, killed process does not count as another batch.
        pool: the Airflow pool of the job; None outside Airflow.
        surplus_exit_code: of the job if its pool became too small for it.
        no_work: returns why the job would end at once, None if it would not.
        obeys_pauses: whether a pause of all topics stops the job's work; it then holds no core meanwhile.
    """

    def __init__(
        self,
        work: "WorkStore",
        clock: "Clock",
        *,
        batch_id: str,
        pool: str | None,
        surplus_exit_code: int,
        no_work: "Callable[[], NoWork | None]" = lambda: None,
        obeys_pauses: bool = False,
    ) -> None:
        self._work = work
        self._clock = clock
        self._batch_id = batch_id
        self._pool = pool
        self._surplus_exit_code = surplus_exit_code
        self._no_work = no_work
        self._obeys_pauses = obeys_pauses
        self._surplus_since: float | None = None

    def look(self) -> str | None:
        """Return what holds the job back, None if nothing does.

        Raises:
            WaitOverError: its pool has no slot for it any more, or no work is left.
        """
        from include.tiering.runs.batch import BatchEnd
        from include.tiering.runs.contract import ALL_TOPICS

        try:
            if self._is_surplus():
                raise WaitOverError(BatchEnd.SURPLUS.value, self._surplus_exit_code)
            if (none := self._no_work()) is not None:
                raise WaitOverError(f"{BatchEnd.NO_WORK.value}: {none}", 0)
            return ALL_PAUSED if self._obeys_pauses and ALL_TOPICS in self._work.paused_topics() else None
        except MetadataUnavailableError:
            return None

    def _is_surplus(self) -> bool:
        slots = None if self._pool is None else self._work.pool_size(self._pool)
        if self._pool is None or slots is None or slots < 0:
            self._surplus_since = None
            return False
        others = [batch for batch in self._work.live_batches(self._pool) if batch != self._batch_id]
        if len(others) < slots:
            self._surplus_since = None
            return False
        now = self._clock.monotonic()
        self._surplus_since = now if self._surplus_since is None else self._surplus_since
        return slots == 0 or now - self._surplus_since >= SURPLUS_SECONDS


@contextmanager
def looking(
    open_app: "Callable[[], AbstractContextManager[App]]",
    *,
    batch_id: str,
    pool: str | None,
    surplus_exit_code: int,
    no_work: "Callable[[App], NoWork | None]" = lambda _: None,
    obeys_pauses: bool = False,
) -> Iterator[Look]:
    """Open the library while a job waits, and return its look; see `Lookout`.

    The database is opened at the first look. While it cannot be, the look sees nothing and tries again.
    """
    with ExitStack() as stack:
        lookout: Lookout | None = None

        def look() -> str | None:
            nonlocal lookout
            if lookout is None:
                try:
                    app = stack.enter_context(open_app())
                    lookout = Lookout(
                        app.adapters.stores.work,
                        app.adapters.clock,
                        batch_id=batch_id,
                        pool=pool,
                        surplus_exit_code=surplus_exit_code,
                        no_work=lambda: no_work(app),
                        obeys_pauses=obeys_pauses,
                    )
                except MetadataUnavailableError:
                    return None
            return lookout.look()

        yield look
