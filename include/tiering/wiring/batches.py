"""What every batch has beside its own work: a gate, and the heartbeat that watches over it."""

import os
import socket
from collections.abc import Callable

from include.tiering.tasks.batch_heartbeat import BatchHeartbeat
from include.tiering.tasks.send_gate import SendGate
from include.tiering.wiring.parts import Parts
from include.tiering.work.contract import BatchProgress


def gate_and_heartbeat(
    parts: Parts, run_id: str, batch_id: str, *, pool: str | None, lease_ms: int, parent_alive: Callable[[], bool]
) -> tuple[SendGate, BatchHeartbeat]:
    """Of one batch that this process is about to run."""
    gate = SendGate(parts.clock)
    identity = BatchProgress(run_id, batch_id, pool, socket.gethostname(), os.getpid(), "", 0, 0, 0.0, False)
    heartbeat = BatchHeartbeat(
        parts.work, gate, parts.clock, identity=identity, lease_ms=lease_ms, parent_alive=parent_alive
    )
    return gate, heartbeat
