"""The parts of a standalone Spark cluster that the pools may use, so that no pool starves another.

Spark's standalone master has no queues: it serves applications in the order of their registration, and a copy batch
holds its core for minutes. So each pool has a share of the cores (`cluster_shares`), and a job begins only while its
pool uses less than its share. The master numbers applications, so there is one order that all jobs see, and no two jobs
take the same core: a job waits while as many earlier applications of its pool live as may run at once.

| key of Spark's configuration | value |
|---|---|
| spark.tiering.pool | the pool of the job |
| spark.tiering.pools | slots of all pools, as `remote_log_copier=4,remote_log_reader=2` |
| spark.tiering.master.url | the address of the master's web page, which has the figures as JSON |
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL

POOL_KEY: Final = "spark.tiering.pool"
POOLS_KEY: Final = "spark.tiering.pools"
MASTER_URL_KEY: Final = "spark.tiering.master.url"
_TIMEOUT_SECONDS: Final = 5.0
_MOST_BYTES: Final = 16 << 20
_OURS: Final = "tiering."
_POOL_OF_NAME: Final = {"tiering.copy": COPIER_POOL, "tiering.expire": EXPIRATION_POOL}


def cluster_shares(slots: Mapping[str, int], cores: int) -> dict[str, int]:
    """Return how many cores of a Spark cluster each pool may use, so that no pool starves another.

    A pool may use a core for each of its slots. If the cluster has more cores, jobs that read use the rest, because
    only they spread over several. If it has fewer, each pool has at least one, and the others are divided in proportion
    to the slots. On a cluster with fewer cores than pools the shares exceed the cluster, and pools wait for each other.

    Args:
        slots: the slots of all pools by name; a negative number is a pool without a limit.
        cores: the cores that the cluster gives to this platform.
    """
    wanted = {name: cores if each < 0 else min(each, cores) for name, each in slots.items()}
    shares = dict.fromkeys(slots, 1)
    for _ in range(cores - len(shares)):
        short = [name for name in shares if shares[name] < wanted[name]]
        if short:
            shares[max(short, key=lambda name: wanted[name] / shares[name])] += 1
        elif READER_POOL in shares:
            shares[READER_POOL] += 1
    return shares


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
class SparkCluster:
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


def read_cluster(url: str) -> SparkCluster:
    """Ask the master at the address of its web page. Raises OSError or ValueError if it gives no answer of a master."""
    import http.client  # most jobs have a local master, and never ask
    import urllib.request

    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{url.rstrip('/')}/json/", timeout=_TIMEOUT_SECONDS) as answer:
            return SparkCluster.of_json(json.loads(answer.read(_MOST_BYTES)))
    except (KeyError, TypeError, ValueError, RecursionError, http.client.HTTPException) as error:
        raise ValueError(f"{url} is not the web page of a standalone master") from error


def jobs_ahead(cluster: SparkCluster, app_id: str, pool: str, slots: Mapping[str, int], cores: int) -> int:
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
