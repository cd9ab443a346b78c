"""The three Airflow pools that limit copies, expirations and reads, and the mirror: their sizes stored in SQL.

Airflow's sizes are authoritative: Airflow starts no more tasks of a pool than the pool has slots. Running batches have
no access to Airflow and read the mirror. Other processes store Airflow's sizes there: the task that waits before a run,
the tasks that hold a pool's slot (every two seconds), and the command line. If a size in Airflow differs from the
stored size, the change is recorded, with its author if Airflow's log names the author.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from include.tiering.errors import AirflowApiError

COPIER_POOL: Final = "remote_log_copier"
EXPIRATION_POOL: Final = "remote_log_expiration"
READER_POOL: Final = "remote_log_reader"

BATCH_SLOTS: Final = 1
"""The slots that a batch takes. `resize_pools` refuses a size between 0 and this, with which no batch would start."""
UNLIMITED_SLOTS: Final = 2**31 - 1
"""The slots of a pool without a limit."""
UNKNOWN_AUTHOR: Final = "unknown"


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """An Airflow pool, and the name of Kafka's setting for the thread pool that it corresponds to (`config_name`)."""

    name: str
    config_name: str
    sentence: str


POOLS: Final = (
    PoolSpec(
        COPIER_POOL,
        "remote.log.manager.copier.thread.pool.size",
        "How many copy batches run at once; each takes a slot and sends up to `tiering.copier.max.transfers` segments.",
    ),
    PoolSpec(
        EXPIRATION_POOL,
        "remote.log.manager.expiration.thread.pool.size",
        "How many expiration batches run at once.",
    ),
    PoolSpec(
        READER_POOL,
        "remote.log.reader.threads",
        "How many jobs of sizes, verification and audits run at once, and how many threads a process that serves "
        "fetches has.",
    ),
)


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """The state of a pool in Airflow. The fields after `slots` count slots that tasks hold or wait for.

    `slots` is `UNLIMITED_SLOTS` for a pool without a limit. `queued` tasks hold a slot and wait for a worker;
    `scheduled` tasks wait for a slot.
    """

    slots: int
    running: int
    queued: int
    scheduled: int
    deferred: int


def pool_missing(pool: str) -> str:
    """Return the sentence about a pool that Airflow does not have, with the command that creates it."""
    return (
        f"Airflow has no pool {pool}, so its tasks would never start: create it on a host of Airflow with"
        f" `python -m plugins.tiering_airflow.pools`, or with `airflow pools set {pool} SLOTS tiering`"
    )


class Pools(Protocol):
    """Airflow's pools.

    Every call may raise AirflowApiUnavailableError if Airflow does not answer, and AirflowApiError if it refuses.
    """

    def usages(self) -> Mapping[str, PoolUsage]:
        """Return the usage of each of `POOLS` that exists in Airflow, by name."""
        ...

    def resize(self, pool: str, slots: int) -> None:
        """Set the slots of a pool, and change no other field. Idempotent."""
        ...

    def parallelism(self) -> int | None:
        """Return how many tasks the executor runs at once in all pools together; None if Airflow does not show it."""
        ...

    def last_editor(self, pool: str, slots: int, *, since_ms: int) -> str | None:
        """Return who made the last edit of the pool after `since_ms` (UTC) in Airflow's log, if it set `slots`.

        None if there is no such edit, if the last edit set another size, or if the log names no user.
        """
        ...

    def close(self) -> None:
        """Close the connection. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class SeenPool:
    """The last known size of a pool, and when it was last stored, by the database's clock."""

    slots: int
    seen_at_ms: int


class PoolMirror(Protocol):
    """Last known sizes of pools, in SQL. Every call may raise MetadataUnavailableError."""

    def seen(self) -> Mapping[str, SeenPool]:
        """Return the last known sizes by name; pools whose size was never stored are absent."""
        ...

    def record(self, pool: str, slots: int, *, seen: int | None, author: str) -> bool:
        """Store the size that Airflow returned, unless the stored size has changed since the caller read `seen`.

        Args:
            pool: the name of the pool.
            slots: its size in Airflow.
            seen: the size that the caller read from the mirror before it read Airflow's, None if there was none. If
                the stored size is another one now, `slots` may be older than it, and nothing is stored.
            author: who changed the size.

        Returns:
            Whether a stored size was changed. Then the change is also in the history of the dynamic configs and in the
            event log, with `author`.
        """
        ...


class LiveBatches(Protocol):
    """The batches that run in a pool now."""

    def live_batches(self, pool: str) -> Sequence[str]:
        """Return the ids of the batches that hold a slot of this pool, see `WorkStore.live_batches`."""
        ...


_CLOCKS_APART_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A pool: its state in Airflow, its last known size, and the batches in it.

    `usage` is None if Airflow was not read, did not answer, or has no such pool; `seen` is None if no size was ever
    stored.
    """

    spec: PoolSpec
    usage: PoolUsage | None
    seen: SeenPool | None
    live_batches: Sequence[str] = ()

    @property
    def slots(self) -> int | None:
        """The size in Airflow, else the last known size; None if neither is known."""
        if self.usage is not None:
            return self.usage.slots
        return None if self.seen is None else self.seen.slots


@dataclass(frozen=True, slots=True)
class PoolsStatus:
    """All pools in the order of `POOLS`. `unavailable` says why Airflow could not be read; else it is None."""

    pools: tuple[PoolStatus, ...]
    unavailable: str | None = None

    @property
    def stopped(self) -> tuple[str, ...]:
        """Names of the pools with 0 slots: nothing of them begins."""
        return tuple(pool.spec.name for pool in self.pools if pool.slots == 0)


def mirror_pools(pools: Pools, mirror: PoolMirror) -> Mapping[str, PoolUsage]:
    """Store the current sizes of Airflow's pools, and return their usage.

    Raises:
        AirflowApiError: Airflow refused, or did not answer.
        MetadataUnavailableError: the mirror cannot be read or changed.
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


def compare_pools(pools: Pools, mirror: PoolMirror, work: LiveBatches) -> PoolsStatus:
    """Store and return Airflow's figures; if they cannot be read, return the sizes in the mirror.

    Raises MetadataUnavailableError.
    """
    usages: Mapping[str, PoolUsage] = {}
    unavailable = None
    try:
        usages = mirror_pools(pools, mirror)
    except AirflowApiError as error:
        unavailable = str(error)
    return PoolsStatus(_statuses(usages, mirror, work), unavailable)


def mirrored_pools(mirror: PoolMirror, work: LiveBatches) -> PoolsStatus:
    """Return the sizes in the mirror, without a request to Airflow. Raises MetadataUnavailableError."""
    return PoolsStatus(_statuses({}, mirror, work))


def _statuses(usages: Mapping[str, PoolUsage], mirror: PoolMirror, work: LiveBatches) -> tuple[PoolStatus, ...]:
    seen = mirror.seen()
    return tuple(
        PoolStatus(spec, usages.get(spec.name), seen.get(spec.name), tuple(work.live_batches(spec.name)))
        for spec in POOLS
    )


def _author(pools: Pools, pool: str, slots: int, seen_at_ms: int) -> str:
    """Return the author of a changed size, `UNKNOWN_AUTHOR` if Airflow's log does not name the author.

    An error of Airflow must not prevent the size from being stored.
    """
    try:
        editor = pools.last_editor(pool, slots, since_ms=seen_at_ms - _CLOCKS_APART_MS)
    except AirflowApiError:
        editor = None
    return UNKNOWN_AUTHOR if editor is None else f"{editor} (Airflow)"
