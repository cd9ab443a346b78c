"""Things in a file store that no metadata knows, put there behind the platform's back; and copies of tiny segments."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from include.tiering.app import App
from include.tiering.audit.remove_orphans import RemovalResult
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.runs.contract import Lease
from tests.doubles.segments import FINISHED, STARTED, planned, segment_of, update_of
from tests.doubles.stored_log import some_segment

TWO_DAYS_SECONDS: Final = 2 * 24 * 60 * 60
MARKER: Final = "_tiering-store.json"


def plant_orphan(store: Path, number: int = 1, *, age_seconds: float = TWO_DAYS_SECONDS) -> list[str]:
    """A copy of somebody's log and indexes, without its manifest, under an id that nobody has; returns the keys.

    Planted again, it is as before.
    """
    log = min(path for path in store.rglob("*.log") if not path.stem.endswith(str(_id(number))))
    stem = f"{log.stem.split('-')[0]}-{_id(number)}"
    planted = []
    for suffix in ("log", "indexes"):
        target = log.with_name(f"{stem}.{suffix}")
        shutil.copyfile(log.with_suffix(f".{suffix}"), target)
        make_old(target, age_seconds)
        planted.append(target.relative_to(store).as_posix())
    return planted


def plant_upload(store: Path, number: int = 1) -> str:
    """A temporary file, as a copy leaves it that dies; returns its name in the store."""
    log = min(path for path in store.rglob("*.log"))
    target = log.with_name(f"{log.stem.split('-')[0]}-{_id(1_000 + number)}.log.~{number:016x}")
    target.write_bytes(b"x" * 100)
    make_old(target, TWO_DAYS_SECONDS)
    return target.relative_to(store).as_posix()


def make_old(path: Path, age_seconds: float) -> None:
    at = time.time() - age_seconds
    os.utime(path, (at, at))


def stored_files(store: Path) -> set[str]:
    """Temporary files too; without the marker."""
    return {path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file()} - {MARKER}


def remove_all_orphans(app: App, run_id: str) -> RemovalResult:
    """Audit, plan, approve the plan, remove."""
    app.audit.run(run_id)
    plan = app.audit.plan_removals(f"{run_id}-remove", run_id)
    app.audit.apply_removal_limits(plan.run_id)
    app.audit.approve_removals(plan.run_id, plan.plan_hash, author="test")
    return app.audit.run_removal_batch(plan.run_id, f"{plan.run_id}/0")


@dataclass
class TinyCopies:
    """Copies into one partition as a batch does it: the row, the objects, FINISHED. `at` is told each step."""

    app: App
    partition: TopicIdPartition
    lease: Lease
    number: int = 0

    @classmethod
    def into(cls, app: App, partition: TopicIdPartition, run_id: str = "tiny") -> "TinyCopies":
        """Takes the lease to copy, and the topic for the platform."""
        app.adapters.stores.work.save_plan(run_id, [planned(partition)])
        lease = app.adapters.stores.work.claim(run_id, f"{run_id}/0", lease_ms=600_000)
        assert lease is not None
        registry = app.adapters.stores.registry
        owner = registry.owner(partition.topic_id)
        registry.set_owner(partition.topic_id, partition.topic, TopicOwner.PLATFORM, expected=owner, author="test")
        return cls(app, partition, lease)

    def copy(
        self, at: Callable[[str], None] = lambda _: None, *, give_up: bool = False, start: int | None = None
    ) -> RemoteLogSegmentMetadata:
        """One segment, the next one or that at `start`; one that is given up stays STARTED with all its objects."""
        self.number += 1
        start = 10 * self.number if start is None else start
        _, data = some_segment(500, seed=f"{self.partition}-{self.number}")
        segment = segment_of(self.partition, self.number, start, start + 9, size_bytes=500)
        self.app.adapters.stores.metadata.add_segment(segment, fence=self.lease.fence)
        at("started")
        self.app.adapters.storage.copy_log_segment(
            segment, data, limiter=UnlimitedBytes(), on_sent=lambda _: at("sending")
        )
        at("sent")
        if give_up:
            return segment
        update = update_of(segment, FINISHED)
        finished = self.app.adapters.stores.metadata.update_segment(update, expected=STARTED, fence=self.lease.fence)
        at("finished")
        return finished


def missing_objects(app: App) -> list[str]:
    """Segments in any state but a tombstone of which an object is not there: what must never be."""
    return [
        str(row.metadata.remote_log_segment_id)
        for partition in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(partition)
        if row.metadata.is_finished and len(app.adapters.storage.stat_log_segment(row.metadata)) != 3
    ]


def _id(number: int) -> Uuid:
    return Uuid(b"orphan" + number.to_bytes(10, "big"))
