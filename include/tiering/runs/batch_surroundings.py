"""What every batch has beside its own work: a gate, the heartbeat that watches over it, and room in its pool."""

import os
import socket
from collections.abc import Callable

from include.tiering.clock import Clock
from include.tiering.runs.batch_heartbeat import BatchHeartbeat
from include.tiering.runs.batch_room import BatchRoom
from include.tiering.runs.brake import BrakeLimits
from include.tiering.runs.contract import BatchProgress, WorkStore
from include.tiering.runs.send_gate import SendGate
from include.tiering.settings import TieringSettings


def gate_and_heartbeat(
    work: WorkStore,
    clock: Clock,
    run_id: str,
    batch_id: str,
    *,
    pool: str | None,
    lease_ms: int,
    parent_alive: Callable[[], bool],
) -> tuple[SendGate, BatchHeartbeat]:
    """Of one batch that this process is about to run."""
    gate = SendGate(clock)
    identity = BatchProgress(run_id, batch_id, pool, socket.gethostname(), os.getpid(), "", 0, 0, 0.0, False)
    heartbeat = BatchHeartbeat(work, gate, clock, identity=identity, lease_ms=lease_ms, parent_alive=parent_alive)
    return gate, heartbeat


def deletion_limits(settings: TieringSettings) -> BrakeLimits:
    """What goes without a person, whatever it is that deletes."""
    limits = settings.expiration
    return BrakeLimits(limits.max_share, limits.min_bytes, limits.total_max_bytes, limits.max_whole_topics)


def around_deletion(
    work: WorkStore,
    clock: Clock,
    settings: TieringSettings,
    run_id: str,
    batch_id: str,
    *,
    pool: str | None,
    parent_alive: Callable[[], bool],
) -> tuple[SendGate, BatchHeartbeat, BatchRoom]:
    """Of a batch that deletes, whatever it is that it deletes."""
    gate, heartbeat = gate_and_heartbeat(
        work, clock, run_id, batch_id, pool=pool, lease_ms=settings.copier.lease_ms, parent_alive=parent_alive
    )
    max_seconds = float(settings.expiration.batch_max_seconds)
    return gate, heartbeat, BatchRoom(work, gate, clock, batch_id=batch_id, pool=pool, max_seconds=max_seconds)
