"""Readers under the fetch quotas: what all of them get, and what a client beyond its own quota leaves to the others.

Every reader is a process of its own (`fetch_reader`), on the archive of a generated log directory in a file store.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.generated_log_dir import Shape
from benchmarks.quota_scenarios import FULL_USE, Bounds, Check, Outcome, steady_checks
from benchmarks.quota_scene import Worker, begin
from benchmarks.quota_trace import Trace, worst_second
from benchmarks.served_archive import environment_of, served_archive
from include.tiering.app import App
from include.tiering.configs.config_catalogue import NARROW_FETCH_QUOTA, TOTAL_FETCH_QUOTA
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.units import KIB, MIB

READERS: Final = 8
ROGUE: Final = "rogue"
REFUSED: Final = "refused"
REFUSED_QUOTA: Final = 1_000
"""Bytes a second: a window of it carries no batch, so every request is answered at once, without records."""
SHAPE: Final = Shape(2, 2, 8 * MIB, 16 * KIB)
_ENDS_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Read:
    """What one reader got, and how many of its requests were answered with a throttle time alone."""

    trace: Trace
    refused: int


@dataclass
class Archive:
    """Served segments, and processes that read them. Use `archive`."""

    app: App
    environment: Mapping[str, str]
    directory: Path
    _workers: list[Worker] = field(default_factory=list)

    def start(self, count: int, mode: str = "stream", *, client: str = "") -> tuple[Worker, ...]:
        """Readers that are ready to begin."""
        workers = tuple(self._started(mode, client) for _ in range(count))
        for worker in workers:
            worker.await_ready()
        return workers

    def set_quotas(self, total: int | None, *, rogue: int | None = None) -> None:
        """Returns when all live readers have taken them. With a quota for the rogue, `REFUSED` has one, too."""
        refused = None if rogue is None else REFUSED_QUOTA
        for entity, name, quota in (
            (ConfigEntity(EntityType.CLIENTS, ROGUE), NARROW_FETCH_QUOTA, rogue),
            (ConfigEntity(EntityType.CLIENTS, REFUSED), NARROW_FETCH_QUOTA, refused),
            (ALL_BROKERS, TOTAL_FETCH_QUOTA, total),
        ):
            self.app.configs.alter(entity, {name: None if quota is None else str(quota)}, author="benchmark")

    def close(self) -> None:
        """End every reader that still runs."""
        for worker in self._workers:
            worker.close()

    def _started(self, mode: str, client: str) -> Worker:
        command = [sys.executable, "-m", "benchmarks.fetch_reader", mode, "--client", client]
        self._workers.append(Worker.started(command, self.environment, self.directory / f"{len(self._workers)}.stderr"))
        return self._workers[-1]


@contextmanager
def archive(directory: Path, shape: Shape = SHAPE) -> Iterator[Archive]:
    """Copy a generated log directory below `directory`; readers that still run are killed at the end."""
    environment = environment_of(directory)
    with served_archive(directory, shape, environment, has_quotas=True) as app:
        opened = Archive(app, environment, directory)
        with closing(opened):
            yield opened


def end(workers: Sequence[Worker]) -> list[Read]:
    """Stop all; what each got."""
    for worker in workers:
        worker.stop()
    reads = []
    for worker in workers:
        words, _ = worker.process.communicate(timeout=_ENDS_WITHIN_S)
        if worker.process.returncode:
            raise RuntimeError(f"reader {worker.process.pid} failed: {worker.errors.read_text()[-500:]}")
        account = json.loads(words)
        reads.append(Read(Trace.from_json(account), account["refused"]))
    return reads


def together(reads: Sequence[Read]) -> Trace:
    """What all of them got."""
    traces = [read.trace for read in reads if read.trace.total_bytes]
    first = min(trace.first_bucket for trace in traces)
    counts = np.zeros(max(trace.first_bucket + len(trace.counts) for trace in traces) - first, dtype=np.int64)
    for trace in traces:
        counts[trace.first_bucket - first :][: len(trace.counts)] += trace.counts
    return Trace(first, counts)


def shared(opened: Archive, quota: int, *, seconds: float, bounds: Bounds = FULL_USE) -> Outcome:
    """Eight readers under one quota: checked from a second after their begin, when all have a share."""
    opened.set_quotas(quota)
    workers = opened.start(READERS)
    begun_s = begin(workers)
    time.sleep(bounds.busy_s + seconds)
    ended_s = time.monotonic()
    reads = end(workers)
    trace = together(reads)
    checks, figures = steady_checks(trace.part(begun_s + bounds.busy_s, ended_s), quota, bounds)
    shares = [read.trace.total_bytes / trace.total_bytes * READERS for read in reads]
    figures |= {"least_of_an_eighth": round(min(shares), 3), "most_of_an_eighth": round(max(shares), 3)}
    return Outcome(checks, trace, ((begun_s, quota),), reported=figures)


def beside_a_rogue(opened: Archive, quota: int, limited: int, *, seconds: float, bounds: Bounds = FULL_USE) -> Outcome:
    """Three readers beside a client with a quota of its own, which streams, and one that asks again at each refusal.

    The others have to get what the rogue's quota leaves of the total, but for 5 %.
    """
    opened.set_quotas(quota, rogue=limited)
    try:
        rogues = (*opened.start(2, client=ROGUE), *opened.start(1, "ask", client=REFUSED))
        others = opened.start(3, client="other")
        begun_s = begin((*rogues, *others))
        time.sleep(bounds.busy_s + seconds)
        ended_s = time.monotonic()
        reads = end((*rogues, *others))
    finally:
        opened.set_quotas(quota)
    from_s, refused = begun_s + bounds.busy_s, sum(read.refused for read in reads)
    of_rogue, of_others = (together(part).part(from_s, ended_s) for part in (reads[:2], reads[3:]))
    trace = together(reads)
    checks = (
        Check("others, of what the rogue's quota leaves", of_others.average / (quota - limited), 0.95),
        Check("rogue, of its quota", of_rogue.average / limited, at_most=bounds.most_average + 0.01),
        Check("requests that were refused", refused, 1),
        Check("worst second", worst_second(trace.part(from_s, ended_s)) / quota, at_most=bounds.most_in_a_second),
    )
    return Outcome(checks, trace, ((begun_s, quota),))
