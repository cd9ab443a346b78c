"""The master that the connection `tiering_spark` names: which ones work, and how a standalone cluster is divided.

| master | |
|---|---|
| `local`, `local[N]` | the job runs in one process on the host of the task |
| `spark://HOST:PORT` | a standalone cluster, in client mode |
| all others | refused by `Master.of`, with what works instead |

The extra `web-url` of the connection is the address of the standalone master's web page, from which a job learns what
runs on the cluster; without it, port 8080 of the master's host. Several masters are asked in turn.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.configs.pools import POOLS, READER_POOL
from include.tiering.configs.spark_cluster import (
    MASTER_URL_KEY,
    PLATFORM_KEY,
    POOL_KEY,
    POOLS_KEY,
    SparkCluster,
    cluster_shares,
    read_cluster,
)
from include.tiering.configs.spark_conf import SPARK_DAGS, spark_conf_of
from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.app import App

SPARK_CONNECTION: Final = "tiering_spark"
WEB_URL: Final = "web-url"
EXECUTOR_MEMORY: Final = "512m"
_MEMORY_KEY: Final = "spark.executor.memory"
_WORKS: Final = "give the connection tiering_spark the host local[1], or spark://HOST with port 7077"
_WHY: Final = (
    ("yarn", "YARN is no master for these jobs, which get no Hadoop configuration and have no image for its executors"),
    ("k8s://", "Kubernetes is no master for these jobs, which bring no image for pods; a standalone master in pods is"),
    ("sc://", "a Spark Connect server is no master: jobs are submitted by spark-submit"),
)
_UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class Master:
    """A master that jobs can use: its URL, and the address of its web page, None for a local one.

    If the URL names several masters, the address is those of all of them, with commas between.
    """

    url: str
    web_url: str | None

    @classmethod
    def of(cls, connection: Connection) -> Self:
        """Return the master of the connection. Raises SettingError for one that cannot work."""
        host, extra = str(connection.host or ""), connection.extra_dejson
        url = f"{host}:{connection.port}" if connection.port else host
        if str(extra.get("deploy-mode") or "client") != "client":
            raise SettingError(
                "the connection tiering_spark has deploy-mode cluster, where a driver on another host would get no "
                "settings and no secrets, and its exit code would be lost: remove deploy-mode"
            )
        if re.fullmatch(r"local(\[[^\]]+\])?", url):
            return cls(url, None)
        if url.startswith("spark://"):
            hosts = [re.sub(r":\d+\Z", "", each) for each in url.removeprefix("spark://").split(",")]
            pages = str(extra.get(WEB_URL) or ",".join(f"http://{each}:8080" for each in hosts))
            return cls(url, ",".join(_checked_web_url(page) for page in pages.split(",")))
        why = next((words for start, words in _WHY if url.startswith(start)), f"{url or 'nothing'} is no master")
        raise SettingError(f"{why}: {_WORKS}")

    @property
    def is_local(self) -> bool:
        return self.web_url is None


def _checked_web_url(url: str) -> str:
    """Return the URL. Raises SettingError, without the value, if it is not of a page, or has a login or a query."""
    if not re.fullmatch(r"https?://[^@?#\s]+", url):
        raise SettingError(
            f"the extra {WEB_URL} of {SPARK_CONNECTION} must begin with http:// or https://, have no login, as Spark "
            "shows it, and no ? or #, as /json/ is appended"
        )
    return url


def pool_slots(app: "App") -> dict[str, int]:
    """Return the last known slots of each pool; a pool whose size was never seen has no limit."""
    seen = app.adapters.stores.pool_mirror.seen()
    return {spec.name: seen[spec.name].slots if spec.name in seen else _UNLIMITED for spec in POOLS}


def cluster_conf(
    master: Master,
    platform: str,
    pool: str,
    slots: Mapping[str, int],
    cluster: SparkCluster | None,
    wanted_cores: str | None = None,
) -> dict[str, str]:
    """Return the configuration with which a job keeps to the share of its pool on a standalone cluster.

    Executors have one core, and begin with the first task: a job that waits holds none. A batch has one executor, and a
    job that reads as many as its slot's part of the pool's share; `wanted_cores` replaces this, up to the whole share.
    """
    cores = 1
    if pool == READER_POOL:
        free = 0 if cluster is None else cluster.free_for_us
        share, jobs = cluster_shares(slots, free)[pool], slots[pool]
        if wanted_cores is not None:
            cores = int(wanted_cores) if cluster is None else min(int(wanted_cores), share)
        else:
            cores = max(1, share // jobs) if jobs > 0 else 1
    return {
        "spark.cores.max": str(cores),
        "spark.executor.cores": "1",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.initialExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": str(cores),
        POOL_KEY: pool,
        POOLS_KEY: ",".join(f"{name}={number}" for name, number in slots.items()),
        MASTER_URL_KEY: str(master.web_url),
        PLATFORM_KEY: platform,
    }


def seen_cluster(master: Master, platform: str) -> SparkCluster | None:
    """Return the master's figures; None if it does not answer, or is local."""
    try:
        return None if master.web_url is None else read_cluster(master.web_url, platform)
    except (OSError, ValueError):
        return None


def cluster_remarks(app: "App") -> list[str]:
    """Return what the task `ready` says: pools or executors that are too large for the cluster, missing figures.

    Raises:
        SettingError: the connection names a master that cannot work.
    """
    try:
        master = Master.of(Connection.get(SPARK_CONNECTION))
    except AirflowNotFoundException:
        return [f"Airflow has no connection {SPARK_CONNECTION}: {_WORKS}"]
    if master.web_url is None:
        return []
    try:
        cluster = read_cluster(master.web_url, app.adapters.cluster_id)
    except (OSError, ValueError) as error:
        unknown = f"how many cores {master.url} gives is not known, so pools may starve each other: {error}"
        return [f"{unknown}; set the extra {WEB_URL} of {SPARK_CONNECTION} to the address of the master's web page"]
    configs = app.adapters.stores.configs.of_entity(ALL_BROKERS)
    memories = {dag_id: spark_conf_of(dag_id, configs).get(_MEMORY_KEY, EXECUTOR_MEMORY) for dag_id in SPARK_DAGS}
    return share_remarks(pool_slots(app), cluster) + memory_remarks(memories, cluster)


def memory_remarks(memories: Mapping[str, str], cluster: SparkCluster) -> list[str]:
    """Return a line for each DAG whose executors fit on no worker; `memories` are theirs, as Spark writes them."""
    return [
        f"{_MEMORY_KEY} of {dag_id} is {memory}, and the largest Spark worker has {cluster.worker_mib} MiB: its jobs "
        "get no executor"
        for dag_id, memory in memories.items()
        if cluster.worker_mib and (_mib(memory) or 0) > cluster.worker_mib
    ]


def _mib(memory: str) -> float | None:
    """Return a size of Spark in MiB, its unit for a number alone; None for what Spark itself refuses."""
    found = re.fullmatch(r"(\d{1,12})\s*([kmgt]?)b?", memory.strip().lower())
    return None if found is None else int(found[1]) * {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024**2}[found[2]]


def share_remarks(slots: Mapping[str, int], cluster: SparkCluster) -> list[str]:
    """Return a line if the pools have more slots than the cluster has cores, and what runs at once then."""
    cores = cluster.free_for_us
    if all(each >= 0 for each in slots.values()) and sum(slots.values()) <= cores:
        return []
    pools = ", ".join(f"{name} {'without a limit' if each < 0 else each}" for name, each in slots.items())
    if cores < len(slots):
        effect = "fewer than pools, so that they wait for each other: start workers"
    else:
        shares = ", ".join(str(share) for share in cluster_shares(slots, cores).values())
        effect = f"so that at once they use {shares}, and other jobs wait: make pools smaller, or start workers"
    return [f"pools have more slots ({pools}) than the Spark cluster has cores for them ({cores}), {effect}"]
