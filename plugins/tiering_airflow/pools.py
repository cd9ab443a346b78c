"""The pools that bound each kind of work. Airflow is the truth of their sizes; set-up creates them, people change them.

    python -m plugins.tiering_airflow.pools        create what is missing, change nothing that exists

Running batches cannot ask Airflow's database, so their tasks mirror the size of their pool into the work store.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Self

from include.tiering.errors import TieringError
from plugins.tiering_airflow.errors import AirflowApiError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.rest import AirflowApi

COPIER_POOL: Final = "remote_log_copier"
EXPIRATION_POOL: Final = "remote_log_expiration"
READER_POOL: Final = "remote_log_reader"

MIRROR_PERIOD_SECONDS: Final = 2.0
UNLIMITED_SLOTS: Final = 2**31 - 1
_KAFKA_POOL_SIZE: Final = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool as set-up creates it. A deferred task holds no slot."""

    name: str
    description: str


POOLS: Final = (
    PoolSpec(
        COPIER_POOL, "Copy batches: one slot is one upload stream (Kafka: remote.log.manager.copier.thread.pool.size)"
    ),
    PoolSpec(EXPIRATION_POOL, "Expiration of remote segments (Kafka: remote.log.manager.expiration.thread.pool.size)"),
    PoolSpec(READER_POOL, "Reads of remote segments: sizes, verification, restore (Kafka: remote.log.reader.threads)"),
)


def suitable_slots(cpus: int) -> int:
    """One slot per core: each is a Spark driver. Never more than Kafka's own default of ten."""
    return max(1, min(cpus, _KAFKA_POOL_SIZE))


def create_missing_pools(slots: int) -> list[str]:
    """Names of the pools created. Talks to Airflow's database: for set-up, never for tasks."""
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session

    with create_session() as session:
        present = {pool.pool for pool in Pool.get_pools(session=session)}
        missing = [spec for spec in POOLS if spec.name not in present]
        session.add_all(
            Pool(pool=spec.name, slots=slots, description=spec.description, include_deferred=False) for spec in missing
        )
    return [spec.name for spec in missing]


class PoolMirror:
    """Copies the size of one pool from Airflow to wherever `write` puts it, at once and then in the background.

    Airflow away or refusing is a warning, not a failure, and in the background so is a work store that is away: the
    size mirrored last stays in force.
    """

    def __init__(
        self,
        pool: str,
        *,
        read: Callable[[str], int],
        write: Callable[[str, int], None],
        period_seconds: float = MIRROR_PERIOD_SECONDS,
    ) -> None:
        self._pool = pool
        self._read = read
        self._write = write
        self._period_seconds = period_seconds
        self._last_warning = ""

    def refresh(self) -> None:
        """Mirror the size as it is now; -1 in Airflow means unlimited."""
        try:
            slots = self._read(self._pool)
        except AirflowApiError as error:
            self._warn(error)
            return
        self._write(self._pool, UNLIMITED_SLOTS if slots < 0 else slots)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Refresh now, and again every period until the context ends."""
        stop = threading.Event()
        self.refresh()
        thread = threading.Thread(target=self._run, args=(stop,), name=f"mirror-{self._pool}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(self._period_seconds)

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(self._period_seconds):
            try:
                self.refresh()
            except TieringError as error:
                self._warn(error)

    def _warn(self, error: TieringError) -> None:
        """Once for each error, however often it comes again."""
        if str(error) != self._last_warning:
            _log.warning("Size of pool %s is not mirrored: %s", self._pool, error)
        self._last_warning = str(error)


@contextmanager
def mirrored_pool(pool: str) -> Iterator[PoolMirror]:
    """A mirror of `pool` between this deployment's Airflow and its work store. Raises TieringError."""
    with _Airflow() as airflow, TieringHook().open() as tiering:
        yield PoolMirror(pool, read=airflow.pool_slots, write=tiering.work.set_pool_size)


class _Airflow:
    """Airflow's API, opened by the first question: a login that is missing is an answer that fails, no more."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._api: AirflowApi | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def pool_slots(self, pool: str) -> int:
        if self._api is None:
            self._api = self._opened.enter_context(AirflowApi.from_configuration())
        return self._api.pool_slots(pool)


if __name__ == "__main__":
    created = create_missing_pools(suitable_slots(os.cpu_count() or 1))
    print(f"pools created: {', '.join(created) or 'none, all exist'}")
