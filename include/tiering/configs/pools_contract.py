"""The three pools that bound each kind of work, and who knows their sizes.

Airflow is the truth: it starts no more tasks of a pool than the pool has slots. Running batches cannot ask it, so
whoever can writes what Airflow said into a mirror in SQL, and a difference from what was seen last is a change that
somebody made: it is recorded there with its author.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

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
