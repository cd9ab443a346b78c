"""Who may send how fast: the ledger's book, and the one rule by which a process renews its entry. Pure.

Every process that sends holds, for each scope with a quota, a share of it. The rule that keeps their sum right needs no
clock and no leader: an entry is only ever changed by its owner, in one transaction on the whole book, and

* shrinking to the fair share is always allowed,
* growing takes only what no live entry holds.

So the sum of shares never grows beyond the quota, whatever the order of rounds; when a quota falls, it falls with every
round until it fits. Shares follow demand (max-min fairness): who wants less than an equal part gets what it wants, the
others divide the rest equally.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from include.tiering.quotas.contract import QuotasInForce
from include.tiering.quotas.demand import ALL_THERE_IS
from include.tiering.quotas.scopes import Scope

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
