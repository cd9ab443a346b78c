"""A job of a standalone Spark cluster waits in its driver until its pool has a core left for it.

It holds no core meanwhile, because its executors come with its first task (dynamic allocation, see `cluster_conf` in
`plugins/tiering_airflow/spark_cluster.py`). If the figures of the master cannot be read, the job begins without
waiting, as nothing is known that could justify the wait, and says so.

While it waits for its place, and then for its first executor, a job asks whether it is still wanted (`waiting.py`): it
ends once its pool has no slot for it or no work is left, and takes no core in a pause of all topics. Once it has had a
core, its work asks this itself. A cancelled task ends it through its parent process.

No wait is endless. A job that has no place in its pool, or whose tasks have no executor, for `LONGEST_WAIT_SECONDS`
ends, and Airflow tries it again. It has done nothing by then. To begin without a place would take the core of another
pool.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from include.tiering.configs.spark_cluster import (
    LONGEST_WAIT_SECONDS,
    MASTER_URL_KEY,
    PLATFORM_KEY,
    POOL_KEY,
    POOLS_KEY,
    SparkCluster,
    cluster_shares,
    jobs_ahead,
    parse_slots,
    read_cluster,
)
from include.tiering.errors import TieringError
from spark_jobs.task_settings import unencrypted_words
from spark_jobs.waiting import Look, unseen

if TYPE_CHECKING:
    from pyspark import SparkContext

_POLL_SECONDS: Final = 1.0
_EXECUTOR_POLL_SECONDS: Final = 15.0
_TRIES: Final = 5
_MINUTES: Final = round(LONGEST_WAIT_SECONDS / 60)
_log = logging.getLogger(__name__)


class NoCoreError(TieringError):
    """The cluster had no core for this job in time, or does not know it any more: nothing was done."""

    retriable: ClassVar[bool] = True


class HeldBackError(NoCoreError):
    """The job was held back before it had its first executor: it asks for none any more, and has done nothing."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """How a waiting job reads the cluster and the clock; tests replace both."""

    read: Callable[[str, str], SparkCluster] = read_cluster
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


@contextmanager
def place_in_cluster(
    context: "SparkContext",
    surroundings: Surroundings = Surroundings(),
    looking: Callable[[], AbstractContextManager[Look]] = unseen,
    *,
    was_held_back: bool = False,
) -> Iterator[None]:
    """Warn if settings travel in clear text, wait until the pool has a core left, then watch that executors come.

    Args:
        context: the application of this job.
        surroundings: the master's figures, and the clock.
        looking: opens the look of a job that waits.
        was_held_back: look before the job begins even if it need not wait.

    Raises:
        HeldBackError: something holds the job back, before its first executor came.
        NoCoreError: there was no place or no executor in time, or the application has ended.
        WaitOverError: the job is not wanted any more.
    """
    conf = context.getConf()
    if (words := unencrypted_words(dict(conf.getAll()).get)) is not None:
        _log.warning("%s", words)
    pool, urls, platform = conf.get(POOL_KEY), conf.get(MASTER_URL_KEY), conf.get(PLATFORM_KEY)
    if pool is None or urls is None or platform is None:
        yield
        return
    slots, cores = parse_slots(str(conf.get(POOLS_KEY))), int(str(conf.get("spark.cores.max", "1")))
    read = lambda: surroundings.read(urls, platform)  # noqa: E731
    with looking() as look:
        _wait(context, pool, slots, cores, read, surroundings, look, looks=was_held_back)
    with _ExecutorWatch(context, read, surroundings.clock, looking) as watch:
        try:
            yield
        except Exception as error:
            if watch.gave_up is not None:
                raise watch.gave_up from error
            raise
        # The body may have made an outcome of the error with which Spark ends cancelled work.
        if watch.gave_up is not None:
            raise watch.gave_up


def _wait(
    context: "SparkContext",
    pool: str,
    slots: Mapping[str, int],
    cores: int,
    read: Callable[[], SparkCluster],
    surroundings: Surroundings,
    look: Look,
    *,
    looks: bool,
) -> None:
    app_id, began = context.applicationId, surroundings.clock()
    said, failures, unknown, was_held = math.inf, 0, 0, None
    while True:
        if is_stopped(context):
            raise NoCoreError(f"{app_id} was stopped while it waited for a core of {pool}")
        try:
            cluster = read()
        except (OSError, ValueError) as error:
            failures += 1
            if failures == _TRIES:
                _log.warning("%s begins without a look at its share of the cluster: %s", app_id, error)
                return
            surroundings.sleep(_POLL_SECONDS)
            continue
        failures, unknown = 0, 0 if cluster.cores_of(app_id) is not None else unknown + 1
        if unknown == _TRIES:
            raise NoCoreError(
                f"the master does not know {app_id}: it was removed, or the extra web-url of tiering_spark is the "
                "address of another master"
            )
        ahead = jobs_ahead(cluster, app_id, pool, slots, cores)
        looks = looks or bool(ahead)
        held = look() if looks else None
        if not ahead and not unknown and held is None:
            return
        if held is not None and held != was_held:
            _log.warning("%s takes no core: %s", app_id, held)
        was_held = held
        share = cluster_shares(slots, cluster.free_for_us)[pool]
        what = f"a core of {pool} (share {share} of {cluster.free_for_us}): {held or f'{ahead} before it'}"
        if surroundings.clock() - began >= LONGEST_WAIT_SECONDS:
            raise NoCoreError(f"{app_id} waited {_MINUTES} minutes for {what}")
        if 0 < ahead < said and not unknown:
            _log.warning("%s waits for %s", app_id, what)
            said = ahead
        surroundings.sleep(_POLL_SECONDS)


def is_stopped(context: "SparkContext") -> bool:
    java = context._jsc  # noqa: SLF001 - PySpark has no public way to ask
    return java is None or bool(java.sc().isStopped())


class _ExecutorWatch:
    """A thread that cancels the work of a job that has tasks and no executor, and is not wanted or waits too long.

    If no worker has the resource or the memory that its executors ask for, the job would hold its place for ever.
    `gave_up` is why the work was cancelled.
    """

    def __init__(
        self,
        context: "SparkContext",
        read: Callable[[], SparkCluster],
        clock: Callable[[], float],
        looking: Callable[[], AbstractContextManager[Look]],
    ) -> None:
        self.gave_up: TieringError | None = None
        self._context, self._read, self._clock, self._looking = context, read, clock, looking
        self._since = clock()
        self._had_core = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="executor-watch", daemon=True)

    def __enter__(self) -> "_ExecutorWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _words(self) -> str:
        conf = self._context.getConf()
        asked = [f"{key}={value}" for key, value in conf.getAll() if key.startswith("spark.executor.resource.")]
        memory = conf.get("spark.executor.memory", "1g")
        return (
            f"{self._context.applicationId} had no executor for {_MINUTES} minutes: no worker has what it asks for "
            f"({', '.join([f'spark.executor.memory={memory}', *asked])}), or others hold all cores"
        )

    def _run(self) -> None:
        with ExitStack() as stack:
            look = stack.enter_context(self._looking())
            while not self._over.wait(_EXECUTOR_POLL_SECONDS):
                self.gave_up = self.why_give_up(look)
                if self._had_core:
                    # From now on the work looks itself: the library is not kept open for it.
                    stack.close()
                if self.gave_up is not None:
                    _log.error("%s: %s", self._context.applicationId, self.gave_up)
                    self._context.cancelAllJobs()
                    return

    def why_give_up(self, look: Look) -> TieringError | None:
        """Look at the cluster once, and before the first executor whether the job is wanted."""
        try:
            has_core = bool(self._read().cores_of(self._context.applicationId))
        except (OSError, ValueError):
            return None
        self._had_core = self._had_core or has_core
        if has_core or not self._context.statusTracker().getActiveJobsIds():
            self._since = self._clock()
            return None
        if self._clock() - self._since >= LONGEST_WAIT_SECONDS:
            return NoCoreError(self._words())
        try:
            held = None if self._had_core else look()
        except TieringError as error:
            return error
        return None if held is None else HeldBackError(held)
