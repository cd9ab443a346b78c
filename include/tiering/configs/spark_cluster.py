"""The parts of a standalone Spark cluster that the pools may use, so that no pool starves another.

Spark's standalone master has no queues: it serves applications in the order of their registration, and a copy batch
holds its core for minutes. So each pool has a share of the cores (`cluster_shares`), and a job begins only while its
pool uses less than its share. The master numbers applications, so there is one order that all jobs see, and no two jobs
take the same core: a job waits while as many earlier applications of its pool live as may run at once. The master does
not notice that the host of a waiting driver is gone. So no job waits longer than `LONGEST_WAIT_SECONDS` for its place,
nor longer than that for its first executor. An application without a core that is older than both waits together counts
as dead.

| key of Spark's configuration | value |
|---|---|
| spark.tiering.pool | the pool of the job |
| spark.tiering.pools | slots of all pools, as `remote_log_copier=4,remote_log_reader=2` |
| spark.tiering.master.url | addresses of the masters' web pages, which have the figures as JSON, with commas between |
| spark.tiering.platform | the id of the Kafka cluster, which tells this platform's applications from another's |
"""

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL

if TYPE_CHECKING:
    import http.client
    import socket

POOL_KEY: Final = "spark.tiering.pool"
POOLS_KEY: Final = "spark.tiering.pools"
MASTER_URL_KEY: Final = "spark.tiering.master.url"
PLATFORM_KEY: Final = "spark.tiering.platform"
LONGEST_WAIT_SECONDS: Final = 15 * 60.0
_DEAD_AFTER_SECONDS: Final = 2 * LONGEST_WAIT_SECONDS
_TIMEOUT_SECONDS: Final = 5.0
_DEADLINE_SECONDS: Final = 10.0
_MOST_BYTES: Final = 16 << 20
_MOST: Final = 1_000_000
_MOST_MS: Final = 1 << 53
_POOL_OF_KIND: Final = {
    "copy": COPIER_POOL,
    "expire": EXPIRATION_POOL,
    "audit": READER_POOL,
    "remote_log_sizes": READER_POOL,
    "verify": READER_POOL,
}


def application_name(kind: str, platform: str | None) -> str:
    """Return the first word of an application's name; `platform` is None for a job that Airflow did not start."""
    return f"tiering.{kind}" if platform is None else f"tiering.{re.sub('[^A-Za-z0-9_-]', '_', platform)}.{kind}"


def cluster_shares(slots: Mapping[str, int], cores: int) -> dict[str, int]:
    """Return how many cores of a Spark cluster each pool may use, so that no pool starves another.

    A pool may use a core for each of its slots. If the cluster has more cores, jobs that read use the rest, because
    only they spread over several. If it has fewer, each pool has at least one, and the other cores are divided in
    proportion to the slots. If there are fewer cores than pools, the sum of the shares is higher than the number of
    cores, and pools wait for each other.

    Args:
        slots: the slots of all pools by name; a negative number is a pool without a limit.
        cores: the cores that the cluster gives to this platform.
    """
    wanted = {name: cores if each < 0 else min(each, cores) for name, each in slots.items()}
    shares = dict.fromkeys(slots, 1)
    for rest in range(cores - len(shares), 0, -1):
        short = [name for name in shares if shares[name] < wanted[name]]
        if not short:
            if READER_POOL in shares:
                shares[READER_POOL] += rest
            break
        shares[max(short, key=lambda name: wanted[name] / shares[name])] += 1
    return shares


@dataclass(frozen=True, slots=True)
class Application:
    """An application of the cluster.

    Attributes:
        app_id: the id that the master gave it.
        pool: the pool of a job of this platform; None for any other application.
        cores: the cores that it holds now.
        age_seconds: how long ago it registered, by the master's clock.
    """

    app_id: str
    pool: str | None
    cores: int
    age_seconds: float = 0.0

    @property
    def may_live(self) -> bool:
        return self.cores > 0 or self.age_seconds < _DEAD_AFTER_SECONDS


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """What a master knows.

    Attributes:
        cores: those of the living workers.
        applications: in the order in which the master registered them.
        worker_mib: the memory of the largest living worker, in MiB; 0 if there is none.
    """

    cores: int
    applications: tuple[Application, ...]
    worker_mib: int = 0

    @classmethod
    def of_json(cls, document: Mapping[str, Any], platform: str) -> Self:
        """Read the answer of a standalone master about the cluster of `platform`.

        Raises:
            KeyError, TypeError, ValueError: `document` is no such answer, the master is not the active one, or a number
                is out of range.
        """
        if document["status"] != "ALIVE":
            raise ValueError("the master is not the active one")
        alive = [worker for worker in document["workers"] if worker["state"] == "ALIVE"]
        active = sorted(document["activeapps"], key=lambda app: (_whole(app["starttime"], _MOST_MS), str(app["id"])))
        pools = {application_name(kind, platform): pool for kind, pool in _POOL_OF_KIND.items()}
        return cls(
            _whole(sum(_whole(worker["cores"]) for worker in alive)),
            tuple(
                Application(
                    str(app["id"]),
                    pools.get(str(app["name"]).partition(" ")[0]),
                    _whole(app["cores"]),
                    _whole(app["duration"], _MOST_MS) / 1000,
                )
                for app in active
            ),
            max((_whole(worker["memory"], _MOST_MS) for worker in alive), default=0),
        )

    @property
    def free_for_us(self) -> int:
        """The cores of the cluster, less those that applications of others hold."""
        return max(0, self.cores - sum(app.cores for app in self.applications if app.pool is None))

    def cores_of(self, app_id: str) -> int | None:
        """Return the cores that an application holds; None if the master does not know it."""
        return next((app.cores for app in self.applications if app.app_id == app_id), None)


def _whole(value: object, most: int = _MOST) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"a number of the master is not between 0 and {most}")
    return value


def read_cluster(urls: str, platform: str) -> SparkCluster:
    """Ask the masters at the addresses of their web pages, in turn, until the active one answers.

    Args:
        urls: the addresses, with commas between them.
        platform: the id of the Kafka cluster whose applications are this platform's.

    Raises:
        OSError: no master gave figures, and the last one cannot be reached.
        ValueError: no master gave figures, and the last one answers, but is no active master.
    """
    *others, last = urls.split(",")
    for url in others:
        with contextlib.suppress(OSError, ValueError):
            return _read_master(url, platform)
    return _read_master(last, platform)


def _read_master(url: str, platform: str) -> SparkCluster:
    import http.client  # most jobs have a local master, and never ask

    try:
        return SparkCluster.of_json(json.loads(_answer(f"{url.rstrip('/')}/json/")), platform)
    except (KeyError, TypeError, ValueError, RecursionError, http.client.HTTPException) as error:
        raise ValueError(f"{url} is not the web page of an active standalone master") from error


def _answer(url: str) -> bytes:
    """Return the body; whatever the server does, the connection ends after `_DEADLINE_SECONDS`."""
    import http.client
    import threading
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    with contextlib.closing(kind(parts.netloc, timeout=_TIMEOUT_SECONDS)) as connection:
        connection.connect()
        # A time-out of a socket begins again with each byte.
        deadline = threading.Timer(_DEADLINE_SECONDS, _shut_down, (connection.sock,))
        deadline.daemon = True
        deadline.start()
        try:
            connection.request("GET", parts.path)
            with connection.getresponse() as response:
                return _body(response)
        finally:
            deadline.cancel()


def _body(response: "http.client.HTTPResponse") -> bytes:
    if response.status != 200:
        raise ValueError(f"status {response.status}")
    return response.read(_MOST_BYTES)


def _shut_down(connected: "socket.socket") -> None:
    import socket

    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def jobs_ahead(cluster: SparkCluster, app_id: str, pool: str, slots: Mapping[str, int], cores: int) -> int:
    """Return how many earlier applications of the pool must end before this one may begin; 0 if it may now.

    Args:
        cluster: the master's figures.
        app_id: the application, which the master knows.
        pool: its pool.
        slots: the slots of all pools.
        cores: the most cores that each job of the pool uses.
    """
    earlier = 0
    for application in cluster.applications:
        if application.app_id == app_id:
            break
        earlier += application.pool == pool and application.may_live
    at_once = max(1, cluster_shares(slots, cluster.free_for_us)[pool] // cores)
    return max(0, earlier - at_once + 1)


def parse_slots(text: str) -> dict[str, int]:
    return {name: int(slots) for name, _, slots in (entry.partition("=") for entry in text.split(","))}
