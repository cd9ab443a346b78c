"""`Quotas` over one bucket of bytes that the operator of a schedule may change. Its token is the product's."""

from typing import Any, Final

from include.tiering.quotas.contract import GoOn, QuotaKind, QuotaLevel, ReadAdmission, RequestLimiter, Scope, keep_on
from tests.simulation.kernel.scheduler import Process

TOTAL: Final = Scope(QuotaKind.COPY, QuotaLevel.TOTAL)
_MOST_WAIT_SECONDS: Final = 1.0
_REQUEST_SECONDS: Final = 2.0


class Bucket:
    """Bytes that may be sent: `rate` a second, at most one second of it in store; None: without limit."""

    def __init__(self) -> None:
        self.rate: int | None = None
        self._level = 0.0
        self._since_ms = 0

    def set_rate(self, rate: int | None, now_ms: int) -> None:
        self._refill(now_ms)
        self.rate = rate
        self._level = min(self._level, rate or 0)

    def take(self, wanted: int, now_ms: int) -> int:
        """How many of them now; 0: none."""
        if self.rate is None:
            return wanted
        self._refill(now_ms)
        granted = min(wanted, int(self._level))
        self._level -= granted
        return granted

    def _refill(self, now_ms: int) -> None:
        if self.rate is not None:
            self._level = min(float(self.rate), self._level + self.rate * (now_ms - self._since_ms) / 1000)
        self._since_ms = now_ms


class _Limiter:
    def __init__(self, world: Any, process: Process, topic: str, go_on: GoOn) -> None:
        self._world = world
        self._process = process
        self._topic = topic
        self._go_on = go_on
        self.waited_seconds = 0.0
        self.waits_for: Scope | None = None

    def take(self, wanted_bytes: int) -> int:
        while True:
            self._process.scheduler.point(self._process, "quota.take", "take")
            self._go_on()
            granted = self._world.bucket.take(wanted_bytes, self._process.scheduler.now_ms)
            if granted or not wanted_bytes:
                self._world.bytes_granted(self._process, self._topic, granted)
                return granted
            began = self._process.monotonic()
            self.waits_for = TOTAL
            self._process.sleep(_MOST_WAIT_SECONDS)
            self.waits_for = None
            self.waited_seconds += self._process.monotonic() - began


class _Requests:
    def __init__(self, world: Any, process: Process, topic: str, go_on: GoOn) -> None:
        self._world = world
        self._process = process
        self._topic = topic
        self._go_on = go_on

    def take(self) -> None:
        self._process.scheduler.point(self._process, "quota.take request", "take")
        if self._world.tempers.quotas:
            self._process.sleep(_REQUEST_SECONDS)
        self._go_on()
        self._world.request_granted(self._process, self._topic)


class ModelQuotas:
    """`Quotas` of one process."""

    def __init__(self, world: Any, process: Process) -> None:
        self._world = world
        self._process = process

    def copy(self, broker_id: int, topic: str, *, go_on: GoOn) -> _Limiter:
        return _Limiter(self._world, self._process, topic, go_on)

    def fetch(self, broker_id: int, topic: str, client: str | None = None, *, go_on: GoOn = keep_on) -> _Limiter:
        return _Limiter(self._world, self._process, topic, go_on)

    def delete(self, topic: str, *, go_on: GoOn) -> RequestLimiter:
        return _Requests(self._world, self._process, topic, go_on)

    def held_back(self, kind: QuotaKind, seconds: float) -> None:
        pass

    def admission(self, *, samples: int, sample_ms: int) -> ReadAdmission:
        raise NotImplementedError("no process of the simulation reads records")

    def share(self, scope: Scope) -> float | None:
        return None
