"""The three Airflow pools that limit each kind of work, and the stored copy of their sizes that running batches use.

Airflow's sizes are authoritative: it starts no more tasks of a pool than the pool has slots. Running batches have no
access to Airflow, so other processes store its answers in SQL, the mirror: the wait before a run, the tasks that hold a
pool's slot (every two seconds), and the command line. If a size differs from the stored one, the change is recorded,
with its author if Airflow's log contains it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from include.tiering.errors import AirflowApiError

COPIER_POOL: Final = "remote_log_copier"
EXPIRATION_POOL: Final = "remote_log_expiration"
READER_POOL: Final = "remote_log_reader"

BATCH_SLOTS: Final = 1
"""Slots of a batch: a pool with fewer slots, but not 0, would never start any."""
UNLIMITED_SLOTS: Final = 2**31 - 1
"""The slots of a pool without a limit."""
UNKNOWN_AUTHOR: Final = "unknown"


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """An Airflow pool, and Kafka's setting for the thread pool that it corresponds to."""

    name: str
    config_name: str
    sentence: str


POOLS: Final = (
    PoolSpec(
        COPIER_POOL,
        "remote.log.manager.copier.thread.pool.size",
        "Copy batches at once; one slot is one upload stream.",
    ),
    PoolSpec(
        EXPIRATION_POOL,
        "remote.log.manager.expiration.thread.pool.size",
        "Expiration batches at once.",
    ),
    PoolSpec(
        READER_POOL,
        "remote.log.reader.threads",
        "Jobs that read remote segments at once: sizes, verification, restore; and the threads of a process that "
        "serves fetches.",
    ),
)


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """The state of a pool in Airflow. All fields but `slots` count slots that tasks hold or wait for.

    `slots` is `UNLIMITED_SLOTS` for a pool without a limit. `queued` tasks hold a slot and wait for a worker;
    `scheduled` tasks wait for a slot.
    """

    slots: int
    running: int
    queued: int
    scheduled: int
    deferred: int


class Pools(Protocol):
    """Airflow's pools. Every call may raise AirflowApiUnavailableError or, if Airflow refuses, AirflowApiError."""

    def usages(self) -> Mapping[str, PoolUsage]:
        """The usage of those of `POOLS` that exist, by name."""
        ...

    def resize(self, pool: str, slots: int) -> None:
        """Set the slots of a pool, and change no other field. Idempotent."""
        ...

    def parallelism(self) -> int | None:
        """How many tasks the executor runs at once in all pools together; None if Airflow does not show it."""
        ...

    def last_editor(self, pool: str, slots: int, *, since_ms: int) -> str | None:
        """Who set this size, if that is the last edit of the pool in Airflow's log and after `since_ms` (UTC)."""
        ...

    def close(self) -> None:
        """Close the connection. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class SeenPool:
    """The last known size of a pool, and when it was stored by the database's clock."""

    slots: int
    seen_at_ms: int


class PoolMirror(Protocol):
    """Last known sizes of pools, in SQL. Every call may raise MetadataUnavailableError."""

    def seen(self) -> Mapping[str, SeenPool]:
        """Last known sizes by name; pools that were never stored are absent."""
        ...

    def record(self, pool: str, slots: int, *, seen: int | None, author: str) -> bool:
        """Store the size that Airflow returned, unless the mirror has changed since the caller read `seen` from it.

        Args:
            pool: the name of the pool.
            slots: its size in Airflow.
            seen: the size that the mirror had before Airflow was asked, None if it had none. If it differs now, the
                caller's answer may be older than the stored size, and nothing is stored.
            author: who changed the size.

        Returns:
            Whether a known size was changed; then the change is also in the history of the dynamic configs and in the
            event log, with `author`.
        """
        ...


class LiveBatches(Protocol):
    """The batches that run in a pool now."""

    def live_batches(self, pool: str) -> Sequence[str]:
        """Ids of the batches with a recent report."""
        ...


_CLOCKS_APART_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A pool: its state in Airflow, its last known size, and the batches in it.

    `usage` is None if Airflow did not answer or has no such pool; `seen` is None if no size was ever stored.
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
    """All pools in Kafka's order; `unavailable` says why Airflow did not answer, if so."""

    pools: tuple[PoolStatus, ...]
    unavailable: str | None = None


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
    """Airflow's figures if it answers, else the mirror's. Raises MetadataUnavailableError."""
    usages: Mapping[str, PoolUsage] = {}
    unavailable = None
    try:
        usages = mirror_pools(pools, mirror)
    except AirflowApiError as error:
        unavailable = str(error)
    return PoolsStatus(_statuses(usages, mirror, work), unavailable)


def mirrored_pools(mirror: PoolMirror, work: LiveBatches) -> PoolsStatus:
    """The last known sizes, without a request to Airflow. Raises MetadataUnavailableError."""
    return PoolsStatus(_statuses({}, mirror, work))


def _statuses(usages: Mapping[str, PoolUsage], mirror: PoolMirror, work: LiveBatches) -> tuple[PoolStatus, ...]:
    seen = mirror.seen()
    return tuple(
        PoolStatus(spec, usages.get(spec.name), seen.get(spec.name), tuple(work.live_batches(spec.name)))
        for spec in POOLS
    )


def _author(pools: Pools, pool: str, slots: int, seen_at_ms: int) -> str:
    """The author of a changed size; an error of Airflow's log must not prevent the size from being stored."""
    try:
        editor = pools.last_editor(pool, slots, since_ms=seen_at_ms - _CLOCKS_APART_MS)
    except AirflowApiError:
        editor = None
    return UNKNOWN_AUTHOR if editor is None else f"{editor} (Airflow)"
