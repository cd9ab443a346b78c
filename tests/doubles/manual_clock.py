"""A clock that only moves when it is told to, or when somebody sleeps on it."""


class ManualClock:
    """`now_ms` and `monotonic` start apart, so that mixing them up shows."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 5_000.0
        self.slept: list[float] = []
        self.used_seconds = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def process_seconds(self) -> float:
        return self.used_seconds

    def thread_seconds(self) -> float:
        return self.used_seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)

    def step(self, milliseconds: int) -> None:
        """Somebody sets the wall clock; no time passes."""
        self._now_ms += milliseconds

    def advance(self, seconds: float) -> None:
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds
