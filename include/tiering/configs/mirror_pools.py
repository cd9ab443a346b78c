"""Look at Airflow's pools, and keep the mirror of their sizes that running batches go by.

Whoever may ask Airflow does this: the wait before a run, the tasks that hold a pool's slot (every two seconds), and the
command line. A size that is not the one seen last was changed by somebody: it is written down, with the author if
Airflow's own log tells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.configs.pools_contract import (
    POOLS,
    UNKNOWN_AUTHOR,
    LiveBatches,
    PoolMirror,
    Pools,
    PoolSpec,
    PoolUsage,
    SeenPool,
)
from include.tiering.errors import AirflowApiError

_CLOCKS_APART_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """One pool: what Airflow says now, what was seen last, and who works in it.

    `usage` is None if Airflow did not answer or has no such pool; `seen` is None if nobody has ever seen it.
    """

    spec: PoolSpec
    usage: PoolUsage | None
    seen: SeenPool | None
    live_batches: Sequence[str] = ()

    @property
    def slots(self) -> int | None:
        """As Airflow says, else as was seen last; None if neither is known."""
        if self.usage is not None:
            return self.usage.slots
        return None if self.seen is None else self.seen.slots


@dataclass(frozen=True, slots=True)
class PoolsStatus:
    """All pools in Kafka's order; `unavailable` says why Airflow did not answer, if so."""

    pools: tuple[PoolStatus, ...]
    unavailable: str | None = None


def mirror_pools(pools: Pools, mirror: PoolMirror) -> Mapping[str, PoolUsage]:
    """Store what Airflow says now, and say it.

    Raises:
        AirflowApiError, MetadataUnavailableError
    """
    before = mirror.seen()
    usages = pools.usages()
    for name, usage in usages.items():
        seen = before.get(name)
        author = UNKNOWN_AUTHOR
        if seen is not None and seen.slots != usage.slots:
            author = _author(pools, name, usage.slots, seen.seen_at_ms)
        mirror.record(name, usage.slots, seen=None if seen is None else seen.slots, author=author)
    return usages


def look_at_pools(pools: Pools, mirror: PoolMirror, work: LiveBatches) -> PoolsStatus:
    """Airflow's own figures if it can be asked, else the mirror. Raises MetadataUnavailableError."""
    usages: Mapping[str, PoolUsage] = {}
    unavailable = None
    try:
        usages = mirror_pools(pools, mirror)
    except AirflowApiError as error:
        unavailable = str(error)
    return PoolsStatus(_statuses(usages, mirror, work), unavailable)


def mirrored_pools(mirror: PoolMirror, work: LiveBatches) -> PoolsStatus:
    """What was seen last, without asking Airflow. Raises MetadataUnavailableError."""
    return PoolsStatus(_statuses({}, mirror, work))


def _statuses(usages: Mapping[str, PoolUsage], mirror: PoolMirror, work: LiveBatches) -> tuple[PoolStatus, ...]:
    seen = mirror.seen()
    return tuple(
        PoolStatus(spec, usages.get(spec.name), seen.get(spec.name), tuple(work.live_batches(spec.name)))
        for spec in POOLS
    )


def _author(pools: Pools, pool: str, slots: int, seen_at_ms: int) -> str:
    """A size is known before its author is: a log that cannot be read must not hold the mirror up."""
    try:
        editor = pools.last_editor(pool, slots, since_ms=seen_at_ms - _CLOCKS_APART_MS)
    except AirflowApiError:
        editor = None
    return UNKNOWN_AUTHOR if editor is None else f"{editor} (Airflow)"
