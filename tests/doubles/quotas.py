"""`Quotas` that give one limiter to all."""

from dataclasses import dataclass, field

from include.tiering.quota.contract import ByteLimiter, GoOn, RequestLimiter, RequestsAsBytes


@dataclass
class SameLimiter:
    limiter: ByteLimiter

    def copy(self, broker_id: int, topic: str, *, go_on: GoOn) -> ByteLimiter:
        return _Asking(self.limiter, go_on)

    def fetch(self, broker_id: int, topic: str, client: str | None = None) -> ByteLimiter:
        return self.limiter

    def delete(self, topic: str, *, go_on: GoOn) -> RequestLimiter:
        return RequestsAsBytes(_Asking(self.limiter, go_on))


@dataclass
class _Asking:
    """One stream's view: what others waited before it was made is not counted."""

    limiter: ByteLimiter
    go_on: GoOn
    waited_before: float = field(init=False)

    def __post_init__(self) -> None:
        self.waited_before = self.limiter.waited_seconds

    @property
    def waited_seconds(self) -> float:
        return self.limiter.waited_seconds - self.waited_before

    def take(self, wanted_bytes: int) -> int:
        self.go_on()
        return self.limiter.take(wanted_bytes)
