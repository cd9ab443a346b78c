"""Nested quotas: workers that a narrower quota holds, beside one that only the total holds.

Each case is a total quota, a narrower one for the first workers, and one worker without it. What the limited workers
cannot use has to go to the other one: together they use the whole total.
"""

import time
from dataclasses import dataclass
from typing import Final

from benchmarks.quota_scenarios import FULL_USE, Bounds, Check, Outcome, steady_checks
from benchmarks.quota_scene import TOTAL, TOTAL_FETCH, Scene, Worker, begin, end, summary
from include.tiering.quotas.contract import QuotaKind, QuotaLevel, Scope
from include.tiering.units import MIB

_SEGMENT_BYTES: Final = MIB
_OF_TOPIC: Final = Scope(QuotaKind.COPY, QuotaLevel.TOPIC, "limited")
_OF_BROKER: Final = Scope(QuotaKind.COPY, QuotaLevel.BROKER, "1")
_OF_CLIENT: Final = Scope(QuotaKind.FETCH, QuotaLevel.CLIENT, "limited")


@dataclass(frozen=True, slots=True)
class Nested:
    """`processes` share the narrow quota, which is this part of the total."""

    narrow: Scope
    part: float
    processes: int = 1

    @property
    def total(self) -> Scope:
        return TOTAL_FETCH if self.narrow.kind is QuotaKind.FETCH else TOTAL


NESTED: Final = {
    "topic 0.15 on 3 processes": Nested(_OF_TOPIC, 0.15, 3),
    "topic 0.09": Nested(_OF_TOPIC, 0.09),
    "topic 0.12": Nested(_OF_TOPIC, 0.12),
    "topic 0.30": Nested(_OF_TOPIC, 0.30),
    "topic 0.30 on 3 processes": Nested(_OF_TOPIC, 0.30, 3),
    "broker 0.20 on 2 processes": Nested(_OF_BROKER, 0.20, 2),
    "fetch client 0.30 on 3 processes": Nested(_OF_CLIENT, 0.30, 3),
}


def nested(scene: Scene, case: Nested, quota: int, *, seconds: float, bounds: Bounds = FULL_USE) -> Outcome:
    """All have work all the time: checked from a second after their begin, when all have a share."""
    scene.set_quotas({case.total: quota})
    scene.set_narrow_quota(case.narrow, round(case.part * quota))
    try:
        scene.forget()
        limited = _started(scene, case.narrow, case.processes)
        workers = (*limited, *_started(scene, None if case.total == TOTAL else case.total, 1))
        begun_s = begin(workers)
        time.sleep(bounds.busy_s + seconds)
        ended_s = time.monotonic()
        accounts = end(workers)
    finally:
        scene.set_narrow_quota(case.narrow, None)
    trace = scene.trace()
    checks, figures = steady_checks(trace.part(begun_s + bounds.busy_s, ended_s), quota, bounds)
    used = sum(account["charged_bytes"] for account in accounts[: case.processes]) / (ended_s - begun_s) / quota
    most = Check("the limited together, of their quota", used / case.part, at_most=bounds.most_average)
    return Outcome((*checks, most), trace, ((begun_s, quota),), reported={**figures, **summary(accounts)})


def _started(scene: Scene, narrow: Scope | None, count: int) -> tuple[Worker, ...]:
    """Start workers in this scope; None: in no scope that has a narrower quota."""
    client, topic, broker_id = None, "other", 2
    if narrow is not None and narrow.kind is QuotaKind.FETCH:
        client = narrow.name or "other"
    elif narrow is not None and narrow.level is QuotaLevel.TOPIC:
        topic = narrow.name
    elif narrow is not None:
        broker_id = int(narrow.name)
    return scene.start(count, "busy", _SEGMENT_BYTES, broker_id=broker_id, topic=topic, client=client)
