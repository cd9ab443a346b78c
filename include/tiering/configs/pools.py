"""The three pools that bound each kind of work, who knows their sizes, and the mirror that running batches go by.

Airflow is the truth: it starts no more tasks of a pool than the pool has slots. Running batches cannot ask it, so
whoever can writes what Airflow said into a mirror in SQL: the wait before a run, the tasks that hold a pool's slot
(every two seconds), and the command line. A size that is not the one seen last was changed by somebody: it is recorded
there, with the author if Airflow's own log tells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from include.tiering.errors import AirflowApiError

COPIER_POOL: Final = "remote_log_copier"
EXPIRATION_POOL: Final = "remote_log_expiration"
READER_POOL: Final = "remote_log_reader"

BATCH_SLOTS: Final = 1
"""Slots that one batch takes: a smaller pool that is not 0 would never start one."""
UNLIMITED_SLOTS: Final = 2**31 - 1
"""What a pool without a limit counts as."""
UNKNOWN_AUTHOR: Final = "unknown"


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool, and Kafka's name of the thread pool whose size it is."""

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
    """One pool as Airflow has it now. All but `slots` count slots that tasks hold or wait for.

    `slots` is `UNLIMITED_SLOTS` for a pool without a limit. `queued` tasks hold a slot and wait for a worker,
    `scheduled` ones wait for a slot.
    """

    slots: int
    running: int
    queued: int
    scheduled: int
    deferred: int


class Pools(Protocol):
    """Airflow's pools. Every call may raise AirflowApiUnavailableError or, if Airflow refuses, AirflowApiError."""

    def usages(self) -> Mapping[str, PoolUsage]:
        """Those of `POOLS` that exist, by name."""
        ...

    def resize(self, pool: str, slots: int) -> None:
        """Give a pool this many slots, and change nothing else of it. Repeating is harmless."""
        ...

    def parallelism(self) -> int | None:
        """Tasks that the executor runs at once in all pools together; None if Airflow does not tell."""
        ...

    def last_editor(self, pool: str, slots: int, *, since_ms: int) -> str | None:
        """Who gave the pool this size, if that was the last edit in Airflow's own log and after `since_ms` (UTC)."""
        ...

    def close(self) -> None:
        """Harmless when repeated."""
        ...


@dataclass(frozen=True, slots=True)
class SeenPool:
    """What was last seen of a pool, and when by the database's clock."""

    slots: int
    seen_at_ms: int


class PoolMirror(Protocol):
    """Sizes as they were last seen, in SQL. Every call may raise MetadataUnavailableError."""

    def seen(self) -> Mapping[str, SeenPool]:
        """By name; pools that nobody has seen yet are absent."""
        ...

    def record(self, pool: str, slots: int, *, seen: int | None, author: str) -> bool:
        """Store what was seen now, by one who saw `seen` in this mirror before asking Airflow (None: nothing).

        Nothing is stored if the mirror has moved on since: what was asked before that is old news. True if this was
        a change of a known size; it is then in the history of the dynamic configs and in the event log, with `author`.
        """
        ...


class LiveBatches(Protocol):
    """Who works in a pool now."""

    def live_batches(self, pool: str) -> Sequence[str]:
        """Ids of the batches that have reported lately."""
        ...


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


def compare_pools(pools: Pools, mirror: PoolMirror, work: LiveBatches) -> PoolsStatus:
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
