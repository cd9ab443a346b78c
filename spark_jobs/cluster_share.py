"""A job of a standalone Spark cluster waits in its driver until its pool has a core left for it.

It holds no core meanwhile, because its executors come with its first task (dynamic allocation, see `cluster_conf` in
`plugins/tiering_airflow/spark_cluster.py`). If the figures of the master cannot be read, the job begins without
waiting, as nothing is known that could justify the wait, and says so.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from include.tiering.configs.spark_cluster import (
    MASTER_URL_KEY,
    POOL_KEY,
    POOLS_KEY,
    SparkCluster,
    cluster_shares,
    jobs_ahead,
    parse_slots,
    read_cluster,
)
from spark_jobs.task_settings import unencrypted_words

if TYPE_CHECKING:
    from pyspark import SparkContext

_POLL_SECONDS: Final = 1.0
_TRIES: Final = 5
_log = logging.getLogger(__name__)


def prepare(
    context: "SparkContext",
    *,
    read: Callable[[str], SparkCluster] = read_cluster,
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
    read: Callable[[], SparkCluster],
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
