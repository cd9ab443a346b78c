"""What a job looks at while it waits for a core of a Spark cluster: its pool, its work, and a pause of all topics.

It waits first for its place, then for its first executor.

A pool that was made smaller may have more jobs than slots: some are surplus. A waiting job sends no reports, so it is
no live batch (`WorkStore.live_batches`), and nothing says which of several waiting jobs is surplus. So a job ends when
the live batches of others fill its pool by themselves. A killed batch counts as live for a short time, and Airflow may
have given its slot to this job. So the job ends only if the pool has been full for longer than that time.
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
"""How long a pool must be full before a waiting job ends. A killed batch counts as live for `LIVE_BATCH_MS`, a shorter
time, after its last report."""
ALL_PAUSED: Final = "all topics are paused: ./tiering resume"

Look = Callable[[], str | None]
"""Returns what keeps a waiting job from beginning, apart from the cluster; None if nothing does.

Raises WaitOverError if the job need not run any more."""


class WaitOverError(TieringError):
    """A job that has not begun need not run any more. `ended` says why, `exit_code` is that of the job."""

    def __init__(self, ended: str, exit_code: int) -> None:
        super().__init__(ended)
        self.ended = ended
        self.exit_code = exit_code


@contextmanager
def unseen() -> Iterator[Look]:
    """Yield a `Look` that keeps no job from beginning."""
    yield lambda: None


class Lookout:
    """Looks, on behalf of a waiting job, at its pool, its work and pauses; an unreachable database holds no job back.

    Args:
        work: pools, live batches and pauses.
        clock: measures how long a job has been surplus.
        batch_id: the job's own id, whose earlier, killed process does not count as another batch.
        pool: the Airflow pool of the job; None outside Airflow.
        surplus_exit_code: the exit code of the job if its pool became too small for it.
        no_work: returns why the job would end at once, None if it would not.
        obeys_pauses: whether a pause of all topics stops this kind of work; if so, the job takes no core meanwhile.
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
            WaitOverError: its pool has no slot for it any more (at once if the pool has none at all, otherwise after
                `SURPLUS_SECONDS`), or no work is left.
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
    """Yield the `Look` of a waiting job; see `Lookout`.

    The first call of it opens the library, and with it the database. While the database cannot be opened, a call
    returns None, and the next call tries again.
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
