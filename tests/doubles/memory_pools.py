"""Airflow's pools and their mirror in memory."""

from collections.abc import Mapping
from dataclasses import replace

from include.tiering.configs.pools import POOLS, PoolUsage, SeenPool


def usage(slots: int, *, running: int = 0, queued: int = 0, scheduled: int = 0, deferred: int = 0) -> PoolUsage:
    return PoolUsage(slots, running, queued, scheduled, deferred)


class MemoryPools:
    """`Pools` that a test sets; `fails` is raised by every call, `log_fails` by a question for an author."""

    def __init__(self, slots: int = 2, *, parallelism: int | None = None) -> None:
        self.known: dict[str, PoolUsage] = {spec.name: usage(slots) for spec in POOLS}
        self.executor_parallelism = parallelism
        self.editors: dict[tuple[str, int], str] = {}
        self.resized: list[tuple[str, int]] = []
        self.fails: Exception | None = None
        self.log_fails: Exception | None = None

    def usages(self) -> Mapping[str, PoolUsage]:
        self._answer(self.fails)
        return dict(self.known)

    def resize(self, pool: str, slots: int) -> None:
        self._answer(self.fails)
        self.resized.append((pool, slots))
        self.known[pool] = replace(self.known[pool], slots=slots)

    def parallelism(self) -> int | None:
        self._answer(self.fails)
        return self.executor_parallelism

    def last_editor(self, pool: str, slots: int, *, since_ms: int) -> str | None:
        self._answer(self.fails)
        self._answer(self.log_fails)
        return self.editors.get((pool, slots))

    def close(self) -> None:
        return None

    def _answer(self, error: Exception | None) -> None:
        if error is not None:
            raise error


class MemoryMirror:
    """`PoolMirror` that remembers changes as (pool, old, new, author)."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms
        self.known: dict[str, SeenPool] = {}
        self.changes: list[tuple[str, int, int, str]] = []

    def seen(self) -> Mapping[str, SeenPool]:
        return dict(self.known)

    def record(self, pool: str, slots: int, *, seen: int | None, author: str) -> bool:
        stored = self.known.get(pool)
        if (None if stored is None else stored.slots) != seen:
            return False
        self.known[pool] = SeenPool(slots, self.now_ms)
        if seen is None or seen == slots:
            return False
        self.changes.append((pool, seen, slots, author))
        return True
