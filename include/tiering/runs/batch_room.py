"""Whether a batch goes on: time, room in its pool, and the gate."""

from enum import StrEnum

from include.tiering.clock import Clock
from include.tiering.runs.contract import WorkStore
from include.tiering.runs.send_gate import SendGate


class BatchEnd(StrEnum):
    """Why a batch ended."""

    NO_WORK = "no work left"
    TIME_OVER = "its time is over"
    SURPLUS = "its pool was made smaller"
    STOPPED = "stopped"
    WITHDRAWN = "its run was withdrawn"


class BatchRoom:
    """Of one batch, whose time begins now. `pool` is the Airflow pool whose slot it holds, None outside of Airflow."""

    def __init__(
        self, work: WorkStore, gate: SendGate, clock: Clock, *, batch_id: str, pool: str | None, max_seconds: float
    ) -> None:
        self._work = work
        self._gate = gate
        self._clock = clock
        self._batch_id = batch_id
        self._pool = pool
        self._deadline = clock.monotonic() + max_seconds

    def reason_to_end(self) -> BatchEnd | None:
        """To be asked before anything new is begun; None: go on."""
        if self._gate.stop_reason is not None:
            return BatchEnd.STOPPED
        if self._clock.monotonic() >= self._deadline:
            return BatchEnd.TIME_OVER
        if self._is_surplus():
            return BatchEnd.SURPLUS
        return None

    def _is_surplus(self) -> bool:
        """Youngest batches first leave a pool that became too small."""
        slots = self._work.pool_size(self._pool) if self._pool is not None else None
        if self._pool is None or slots is None or slots < 0:
            return False
        return self._batch_id in self._work.live_batches(self._pool)[slots:]
