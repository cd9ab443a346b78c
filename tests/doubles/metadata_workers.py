"""What several processes do to one database at once. Each function runs in a process of its own."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import current_revision, upgrade
from include.tiering.errors import LeaseLostError, StateConflictError
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import Fence
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from include.tiering.runs.contract import Lease, SegmentOutcome, WorkItem
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles.segments import CLUSTER_ID, FINISHED, STARTED, segment_of, update_of

T = TypeVar("T")
_together: Barrier


@dataclass(frozen=True, slots=True)
class Held:
    """One lease as its holder saw it: `since` after the claim returned, `until` before it was given up (seconds)."""

    partition: str
    token: int
    since: float
    until: float


def worker_context() -> ForkServerContext:
    """Processes from a clean one that has imported this module already, so that they begin quickly."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def run_together(processes: int, function: Callable[..., T], *arguments: Any) -> list[T]:
    """`function(number, *arguments)` in that many processes, which begin when all are ready."""
    context = worker_context()
    barrier = context.Barrier(processes)
    with ProcessPoolExecutor(processes, context, initializer=_keep_barrier, initargs=(barrier,)) as pool:
        return list(pool.map(function, range(processes), *([one] * processes for one in arguments), timeout=800))


def _keep_barrier(barrier: Barrier) -> None:
    global _together
    _together = barrier


def migrate(_number: int, url: str) -> str | None:
    engine = open_engine(url)
    _together.wait()
    upgrade(engine)
    revision = current_revision(engine)
    engine.dispose()
    return revision


def take_turns(number: int, url: str, run_id: str, rounds: int) -> list[Held]:
    """Claim and give back as fast as can be."""
    engine = open_engine(url)
    work = SqlWorkStore(engine, CLUSTER_ID)
    _together.wait()
    held: list[Held] = []
    while len(held) < rounds:
        lease = work.claim(run_id, f"batch-{number}", lease_ms=60_000)
        since = time.monotonic()
        if lease is not None:
            held.append(_held(lease, since))
            work.release(lease)
    engine.dispose()
    return held


def copy_all(number: int, url: str, run_id: str, seed: int) -> tuple[list[Held], int]:
    """Copy until nothing is left; now and then lose the lease and go on as a zombie. Returns leases and refusals."""
    draw = random.Random(f"{seed}/{number}")
    engine = open_engine(url)
    work, metadata = SqlWorkStore(engine, CLUSTER_ID), SqlRemoteLogMetadata(engine, CLUSTER_ID)
    _together.wait()
    held, refused = [], 0
    while work.has_work(run_id):
        lease = work.claim(run_id, f"batch-{number}", lease_ms=60_000)
        since = time.monotonic()
        if lease is None:
            time.sleep(0.005)
            continue
        try:
            until = _copy_some(work, metadata, lease, draw)
        except LeaseLostError:
            refused += 1
            continue
        held.append(Held(str(lease.fence.topic_id_partition), lease.fence.token, since, until))
    engine.dispose()
    return held, refused


def _copy_some(work: SqlWorkStore, metadata: SqlRemoteLogMetadata, lease: Lease, draw: random.Random) -> float:
    for planned in work.remaining(lease)[: draw.randint(1, 4)]:
        fate = draw.random()
        if fate < 0.1:
            until = time.monotonic()
            work.renew(lease, lease_ms=0)
            time.sleep(draw.random() * 0.02)
            _copy(work, metadata, lease, planned.base_offset, draw)
            return until
        _copy(work, metadata, lease, planned.base_offset, draw)
    until = time.monotonic()
    work.release(lease)
    return until


def _copy(
    work: SqlWorkStore, metadata: SqlRemoteLogMetadata, lease: Lease, base_offset: int, draw: random.Random
) -> None:
    partition = lease.fence.topic_id_partition
    item = next(one for one in work.items(lease.run_id) if _is_segment(one, lease, base_offset))
    highest = metadata.highest_copied_offset(partition)
    outcome = SegmentOutcome.SKIPPED
    if highest is None or highest < item.segment.end_offset:
        segment = RemoteLogSegmentMetadata(
            remote_log_segment_id=RemoteLogSegmentId(partition, Uuid(draw.randbytes(16))),
            start_offset=base_offset,
            end_offset=item.segment.end_offset,
            max_timestamp_ms=0,
            broker_id=1,
            event_timestamp_ms=0,
            segment_size_bytes=draw.randint(1, 2**31 - 1),
            segment_leader_epochs=LeaderEpochs.of([(base_offset // 300, base_offset), (99, base_offset + 50)]),
        )
        metadata.add_segment(segment, fence=lease.fence)
        metadata.update_segment(update_of(segment, FINISHED), expected=STARTED, fence=lease.fence)
        outcome = SegmentOutcome.COPIED
    work.record_outcome(lease, WorkItem(partition, item.segment, outcome))


def _is_segment(item: WorkItem, lease: Lease, base_offset: int) -> bool:
    same_partition = item.topic_id_partition == lease.fence.topic_id_partition
    return same_partition and item.segment.base_offset == base_offset


def change_all(number: int, url: str, fence: Fence, count: int, targets: Sequence[int]) -> int:
    """Every process wants each STARTED segment to become its own target; returns how often it did."""
    engine = open_engine(url)
    metadata = SqlRemoteLogMetadata(engine, CLUSTER_ID)
    target = RemoteLogSegmentState(targets[number % len(targets)])
    _together.wait()
    won = 0
    for index in range(count):
        segment = segment_of(fence.topic_id_partition, index, 100 * index, 100 * index + 99)
        try:
            metadata.update_segment(update_of(segment, target), expected=STARTED, fence=fence)
            won += 1
        except StateConflictError:
            continue
    engine.dispose()
    return won


def finish_or_delete(number: int, url: str, copying: Fence, expiring: Fence, count: int) -> list[int]:
    """Even processes finish each STARTED segment, odd ones begin to delete it; returns the ones that were won."""
    engine = open_engine(url)
    metadata = SqlRemoteLogMetadata(engine, CLUSTER_ID)
    _together.wait()
    won = []
    for index in range(count):
        segment = segment_of(copying.topic_id_partition, index, 100 * index, 100 * index + 99)
        if number % 2:
            state = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
            if metadata.advance_deletion([segment], state, event_timestamp_ms=0, fence=expiring):
                won.append(index)
            continue
        try:
            metadata.update_segment(update_of(segment, FINISHED), expected=STARTED, fence=copying)
            won.append(index)
        except StateConflictError:
            continue
    engine.dispose()
    return won


def copy_until_killed(url: str, run_id: str, segments: int) -> None:
    """A thread of this process kills it, wherever it is, once so many segments were copied."""
    enough = threading.Event()
    threading.Thread(target=_kill_when, args=(enough,), daemon=True).start()
    engine = open_engine(url)
    work, metadata = SqlWorkStore(engine, CLUSTER_ID), SqlRemoteLogMetadata(engine, CLUSTER_ID)
    lease = work.claim(run_id, "batch-1", lease_ms=600_000)
    assert lease is not None
    for number, planned in enumerate(work.remaining(lease)):
        if number == segments:
            enough.set()
        _copy(work, metadata, lease, planned.base_offset, random.Random(planned.base_offset))


def _kill_when(enough: threading.Event) -> None:
    enough.wait()
    os.kill(os.getpid(), signal.SIGKILL)


def _held(lease: Lease, since: float) -> Held:
    return Held(str(lease.fence.topic_id_partition), lease.fence.token, since, time.monotonic())
