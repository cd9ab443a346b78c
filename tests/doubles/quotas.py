"""`Quotas` that give one limiter to all."""

from dataclasses import dataclass

from include.tiering.quota.contract import ByteLimiter, GoOn


@dataclass
class SameLimiter:
    limiter: ByteLimiter

    def copy(self, broker_id: int, topic: str, *, go_on: GoOn) -> ByteLimiter:
        return _Asking(self.limiter, go_on)

    def fetch(self, broker_id: int, topic: str, client: str | None = None) -> ByteLimiter:
        return self.limiter


@dataclass
class _Asking:
    limiter: ByteLimiter
    go_on: GoOn

    def take(self, wanted_bytes: int) -> int:
        self.go_on()
        return self.limiter.take(wanted_bytes)
