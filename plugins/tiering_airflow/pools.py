"""The pools that limit each kind of work. Set-up creates the pools, and people change their sizes in Airflow.

    python -m plugins.tiering_airflow.pools        create what is missing, change nothing that exists

Running batches cannot read Airflow's database, so their tasks copy the sizes into the platform's own database.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

from include.tiering.configs.pools import COPIER_POOL as COPIER_POOL
from include.tiering.configs.pools import EXPIRATION_POOL as EXPIRATION_POOL
from include.tiering.configs.pools import POOLS
from include.tiering.configs.pools import READER_POOL as READER_POOL
from include.tiering.errors import TieringError
from plugins.tiering_airflow.hook import TieringHook

MIRROR_PERIOD_SECONDS: Final = 2.0
_KAFKA_POOL_SIZE: Final = 10

_log = logging.getLogger(__name__)


def suitable_slots(cpus: int) -> int:
    """Return one slot per core, as each batch runs a Spark driver, at least 1 and at most 10, Kafka's default."""
    return max(1, min(cpus, _KAFKA_POOL_SIZE))


def create_missing_pools(slots: int) -> list[str]:
    """Create missing pools, and return their names. For set-up only: tasks cannot use Airflow's database."""
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session

    with create_session() as session:
        present = {pool.pool for pool in Pool.get_pools(session=session)}
        missing = [spec for spec in POOLS if spec.name not in present]
        # A deferred task holds no slot.
        session.add_all(
            Pool(
                pool=spec.name,
                slots=slots,
                description=f"{spec.sentence} Kafka: {spec.config_name}",
                include_deferred=False,
            )
            for spec in missing
        )
    return [spec.name for spec in missing]


def created_sentence(created: list[str], slots: int) -> str:
    """Return what set-up says about the pools that it created, and why they have this size."""
    if not created:
        return "pools created: none, all exist"
    return (
        f"pools created: {', '.join(created)}, each with {slots} slots: one for each core of this host, as each batch"
        f" runs a Spark driver here, and at most {_KAFKA_POOL_SIZE}, Kafka's default. If batches run elsewhere, make"
        " the pools larger: on Airflow's page Admin, Pools, or with ./tiering configs (remote.log.*)"
    )


class PoolMirroring:
    """Calls `mirror`, which copies the pools' sizes, at once and then every `period_seconds` in the background.

    If `mirror` raises a TieringError, because Airflow or the platform's database is unavailable or Airflow refuses, a
    warning is logged, and the last mirrored sizes stay in force.
    """

    def __init__(self, mirror: Callable[[], object], *, period_seconds: float = MIRROR_PERIOD_SECONDS) -> None:
        self._mirror = mirror
        self._period_seconds = period_seconds
        self._last_warning = ""
        self.is_current = False
        """Whether the last refresh succeeded, so that the mirrored sizes are Airflow's."""

    def refresh(self) -> None:
        """Mirror the current sizes."""
        self.is_current = False
        try:
            self._mirror()
            self.is_current = True
        except TieringError as error:
            # The same error is not logged twice in a row.
            if str(error) != self._last_warning:
                _log.warning("Sizes of the pools are not mirrored: %s", error)
            self._last_warning = str(error)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Refresh now, and again every period until the context ends."""
        stop = threading.Event()
        self.refresh()
        thread = threading.Thread(target=self._run, args=(stop,), name="mirror-pools", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join(self._period_seconds)

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(self._period_seconds):
            self.refresh()


@contextmanager
def mirrored_pools() -> Iterator[PoolMirroring]:
    """Keep the mirrored pool sizes up to date while the context lasts."""
    with TieringHook().open() as app, PoolMirroring(app.configs.mirror_pools).running() as mirroring:
        yield mirroring


if __name__ == "__main__":
    wanted = suitable_slots(os.cpu_count() or 1)
    print(created_sentence(create_missing_pools(wanted), wanted))
