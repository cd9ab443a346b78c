"""Who may send how fast: the ledger's book, the one rule by which a process renews its entry, and who is silent. Pure.

Every process that sends holds, for each scope with a quota, a share of it. The rule that keeps their sum right needs no
clock and no leader: an entry is only ever changed by its owner, in one transaction on the whole book, and

* shrinking to the fair share is always allowed,
* growing takes only what no live entry holds.

So the sum of shares never grows beyond the quota, whatever the order of rounds; when a quota falls, it falls with every
round until it fits. Shares follow demand (max-min fairness): who wants less than an equal part gets what it wants, the
others divide the rest equally. How much a process asks for next follows from what it used of its share (`DemandMeter`).

Which processes have fallen silent is judged by one observer's own monotonic clock (`Liveness`). No clock is compared
with another: an entry whose beat has not moved between two looks that lie further apart than the lease has lost its
owner, because that owner would have stopped sending by itself when its lease ran out. Steps of wall clocks, of the
database server's clock too, change nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from include.tiering.quotas.contract import QuotasInForce, Scope

ALL_THERE_IS: Final = float("inf")

_FULL_USE: Final = 0.98
"""A share of which this part was used holds its owner up."""

_SPARE: Final = 0.10
_MOST_SPARE_OF_QUOTA: Final = 0.002
"""Room above what a slow sender uses: enough to see it grow, too little to keep from the busy ones."""


@dataclass(slots=True)
class DemandMeter:
    """The use of one scope by one process between two rounds of the ledger."""

    used_bytes: int = 0
    waiting: int = 0
    _last_rate: float = 0.0

    def wanted(self, seconds: float, share: float, quota: float) -> float:
        """Bytes a second to ask for, 0 if idle, `ALL_THERE_IS` if the share held the sender up; begins a new period.

        `seconds` is the length of the period that ends now, `share` what was held in it, `quota` that of the scope.
        A sender may pause between two segments: the faster one of the last two periods counts.
        """
        rate = self.used_bytes / seconds if seconds > 0 else 0.0
        usual_rate, self._last_rate, self.used_bytes = max(rate, self._last_rate), rate, 0
        if self.waiting and rate >= _FULL_USE * share:
            return ALL_THERE_IS
        return usual_rate + min(_SPARE * usual_rate, _MOST_SPARE_OF_QUOTA * quota)


FILL: Final = 0.995
"""The part of a quota that is given out. The rest is room for what no limiter sees: bursts of socket buffers."""


NO_QUOTAS: Final = QuotasInForce(0, MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Holding:
    """What a process holds of one scope and what it asked for last, both in bytes a second."""

    share: float
    wanted: float


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """One process. `beat` grows with every round: an entry whose beat stands still has lost its owner."""

    beat: int = 0
    version: int = 0
    holdings: Mapping[Scope, Holding] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Book:
    """Everything that the ledger stores."""

    quotas: QuotasInForce = NO_QUOTAS
    workers: Mapping[str, WorkerEntry] = field(default_factory=lambda: MappingProxyType({}))

    def with_quotas(self, quotas: QuotasInForce) -> "Book":
        """The newer of the two versions is in force; of equal ones the given."""
        return replace(self, quotas=quotas) if quotas.version >= self.quotas.version else self

    def beats(self) -> dict[str, int]:
        return {name: entry.beat for name, entry in self.workers.items()}

    def without(self, worker_ids: Collection[str]) -> "Book":
        if self.workers.keys().isdisjoint(worker_ids):
            return self
        return replace(self, workers={name: entry for name, entry in self.workers.items() if name not in worker_ids})


def renewed(book: Book, worker_id: str, wanted: Mapping[Scope, float], beat: int) -> Book:
    """The book after a round of one process. `wanted` names the scopes that it uses, in bytes a second.

    `beat` is higher than in any round of this process before, also if its entry was dropped meanwhile.

    Scopes without a quota get no entry: nothing limits them. A process that has not taken the quotas' version yet may
    be sending in any scope, so it counts as one that wants all there is: the first to hear of a new quota does not take
    all of it.
    """
    before = book.workers.get(worker_id, WorkerEntry())
    others = [entry for name, entry in book.workers.items() if name != worker_id]
    holdings = {}
    for scope, demand in wanted.items():
        quota = book.quotas.of(scope)
        if quota is not None:
            held = before.holdings[scope].share if scope in before.holdings else 0.0
            rivals = [entry.holdings[scope] for entry in others if scope in entry.holdings]
            late = [entry for entry in others if scope not in entry.holdings and entry.version < book.quotas.version]
            rivals += [Holding(0.0, ALL_THERE_IS)] * len(late)
            holdings[scope] = Holding(_share(quota * FILL, held, demand, rivals), demand)
    entry = WorkerEntry(beat, book.quotas.version, holdings)
    return replace(book, workers={**book.workers, worker_id: entry})


def fair_part(total: float, demand: float, other_demands: Collection[float]) -> float:
    """What max-min fairness gives to one of several demands; all of it to the only one."""
    left, claims = total, sorted((*other_demands, demand))
    for index, claim in enumerate(claims):
        equal_part = left / (len(claims) - index)
        if claim >= equal_part:
            return equal_part if demand >= equal_part else demand
        left -= claim
    return total if demand and not any(other_demands) else demand


def _share(total: float, held: float, demand: float, rivals: Collection[Holding]) -> float:
    fair = fair_part(total, demand, [rival.wanted for rival in rivals])
    if fair <= held:
        return fair
    free = total - held - sum(rival.share for rival in rivals)
    return held + max(0.0, min(fair - held, free))


LEASE_SECONDS: Final = 1.0
"""How long a process may use its shares after the beginning of the round in which it got them."""

SILENT_SECONDS: Final = 1.1
"""After this long without a beat an entry is dropped; the difference is for clocks that run at different speeds."""


class Liveness:
    """Records when each beat was first seen."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def silent(self, beats: Mapping[str, int], now: float) -> frozenset[str]:
        """Names whose beat has stood still for longer than `SILENT_SECONDS`. An entry seen first is alive."""
        self._seen = {
            name: seen if (seen := self._seen.get(name)) is not None and seen[0] == beat else (beat, now)
            for name, beat in beats.items()
        }
        return frozenset(name for name, (_, since) in self._seen.items() if now - since > SILENT_SECONDS)
