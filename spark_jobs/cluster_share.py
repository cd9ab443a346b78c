"""The part of a standalone cluster that a job may use, so that copies, expirations and reads never starve each other.

Spark's standalone master has no queues: it serves applications in the order of their registration, and a copy batch
holds its core for minutes. So each pool has a share of the cluster's cores (`cluster_shares`), and a job begins only
while its pool uses less than its share. The master numbers applications, so there is one order that all jobs see, and
no two jobs take the same core: a job waits while as many earlier applications of its pool live as may run at once. It
holds no core meanwhile, because its executors come with its first task (dynamic allocation, see `cluster_conf`).

The figures are the master's own (JSON of its web page). If they cannot be read, the job begins without waiting, as
nothing is known that could justify the wait, and says so.

| key of Spark's configuration | value |
|---|---|
| spark.tiering.pool | the pool of the job |
| spark.tiering.pools | slots of all pools, as `remote_log_copier=4,remote_log_reader=2` |
| spark.tiering.master.url | the address of the master's web page |
"""

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL, cluster_shares
from spark_jobs.task_settings import unencrypted_words

if TYPE_CHECKING:
    from pyspark import SparkContext

POOL_KEY: Final = "spark.tiering.pool"
POOLS_KEY: Final = "spark.tiering.pools"
MASTER_URL_KEY: Final = "spark.tiering.master.url"
_POLL_SECONDS: Final = 1.0
_TRIES: Final = 5
_TIMEOUT_SECONDS: Final = 5.0
_MOST_BYTES: Final = 16 << 20
_OURS: Final = "tiering."
_POOL_OF_NAME: Final = {"tiering.copy": COPIER_POOL, "tiering.expire": EXPIRATION_POOL}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Application:
    """An application of the cluster: its id, its name, and the cores that it holds now."""

    app_id: str
    name: str
    cores: int

    @property
    def pool(self) -> str | None:
        """The pool of a job of this platform; None for any other application."""
        if not self.name.startswith(_OURS):
            return None
        return _POOL_OF_NAME.get(self.name.partition(" ")[0], READER_POOL)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cores of the living workers, and the applications in the order in which the master registered them."""

    cores: int
    applications: tuple[Application, ...]

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Self:
        """Read the answer of a standalone master. Raises KeyError, TypeError or ValueError if it is none."""
        alive = [worker for worker in document["workers"] if worker["state"] == "ALIVE"]
        active = sorted(document["activeapps"], key=lambda app: (int(app["starttime"]), str(app["id"])))
        return cls(
            sum(int(worker["cores"]) for worker in alive),
            tuple(Application(str(app["id"]), str(app["name"]), int(app["cores"])) for app in active),
        )

    @property
    def free_for_us(self) -> int:
        """The cores that applications of others do not hold."""
        return max(0, self.cores - sum(app.cores for app in self.applications if app.pool is None))


def read_cluster(url: str) -> Cluster:
    """Ask the master at the address of its web page. Raises OSError or ValueError if it gives no answer of a master."""
    import urllib.request  # most drivers have a local master, and never ask

    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{url.rstrip('/')}/json/", timeout=_TIMEOUT_SECONDS) as answer:
        try:
            return Cluster.of_json(json.loads(answer.read(_MOST_BYTES)))
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{url} is not the web page of a standalone master") from error


def jobs_ahead(cluster: Cluster, app_id: str, pool: str, slots: Mapping[str, int], cores: int) -> int:
    """Return how many earlier applications of the pool must end before this one may begin; 0 if it may now.

    Args:
        cluster: the master's figures.
        app_id: the application; one that the master does not know counts as the newest.
        pool: its pool.
        slots: the slots of all pools.
        cores: the most cores that each job of the pool uses.
    """
    earlier = 0
    for application in cluster.applications:
        if application.app_id == app_id:
            break
        earlier += application.pool == pool
    at_once = max(1, cluster_shares(slots, cluster.free_for_us)[pool] // cores)
    return max(0, earlier - at_once + 1)


def parse_slots(text: str) -> dict[str, int]:
    return {name: int(slots) for name, _, slots in (entry.partition("=") for entry in text.split(","))}


def prepare(
    context: "SparkContext",
    *,
    read: Callable[[str], Cluster] = read_cluster,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Warn if this job's settings travel in clear text, then wait until its pool has a core left for it."""
    conf = context.getConf()
    if (words := unencrypted_words(dict(conf.getAll()).get)) is not None:
        _log.warning("%s", words)
    pool, url = conf.get(POOL_KEY), conf.get(MASTER_URL_KEY)
    if pool is None or url is None:
        return
    slots, cores = parse_slots(str(conf.get(POOLS_KEY))), int(str(conf.get("spark.cores.max", "1")))
    _wait(context.applicationId, pool, slots, cores, lambda: read(url), sleep)


def _wait(
    app_id: str,
    pool: str,
    slots: Mapping[str, int],
    cores: int,
    read: Callable[[], Cluster],
    sleep: Callable[[float], None],
) -> None:
    said, failures = math.inf, 0
    while True:
        try:
            cluster = read()
            ahead, failures = jobs_ahead(cluster, app_id, pool, slots, cores), 0
        except (OSError, ValueError) as error:
            failures += 1
            if failures == _TRIES:
                _log.warning("%s begins without a look at its share of the cluster: %s", app_id, error)
                return
            sleep(_POLL_SECONDS)
            continue
        if not ahead:
            return
        if ahead < said:
            share = cluster_shares(slots, cluster.free_for_us)[pool]
            _log.warning(
                "%s waits for a core of %s (share %d of %d): %d before it",
                app_id,
                pool,
                share,
                cluster.free_for_us,
                ahead,
            )
            said = ahead
        sleep(_POLL_SECONDS)
