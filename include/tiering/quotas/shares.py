"""Shares of quotas: the rule by which processes divide a quota.

This module reads no clock, and reads and writes no database; `shared_quotas` does. `pacing` keeps a process within its
shares.

**The rule.** Every process holds a share, perhaps 0, of the quota of each scope that it uses. The rule that bounds the
sum of the shares needs no clock and no leader: of the shares, a process changes only its own (and removes entries of
dead processes), in one transaction on the whole ledger row, and

* a share may always shrink to the fair share,
* a share grows only by what no live entry holds.

So the sum of shares exceeds a quota only after the quota was lowered, whatever the order of rounds. Then the sum falls
with the rounds until it is within the new quota. Shares follow demand (max-min fairness): a process that wants less
than an equal part gets what it wants, and the others divide the rest equally. If only one process wants more than 0, it
may have all that is divided (`FILL`), as far as its other quotas let it use that.

**Nested quotas.** A byte needs a grant of several scopes, and the narrowest decides: a process that may use 10 MB/s of
a topic's quota can use no more of the total quota for this topic. So a process requests of each scope what its streams
can use, given their fair parts of all their other scopes (`requested`). What it cannot use is left to the others. How
much a stream could use at all depends on how much of its part it has used (`pacing.DemandMeter`).

**Liveness.** Each observer decides by its own monotonic clock which processes are dead (`Liveness`); no clock is
compared with another. If a heartbeat has not changed for longer than the lease, the owner of the entry is dead, or has
stopped sending because its lease has run out. Steps of wall clocks, including the database server's, have no effect.
"""

import heapq
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from include.tiering.quotas.contract import QuotasInForce, Scope
from include.tiering.quotas.window import WindowState

UNLIMITED_DEMAND: Final = float("inf")

FILL: Final = 0.995
"""The part of a quota that is divided into shares. The rest covers bursts of socket buffers, which no limiter sees."""


_SPARE: Final = 0.10
_MOST_SPARE_OF_QUOTA: Final = 0.002
"""What a process requests beyond the demand of streams that no quota holds up: a tenth, at most 0.2 % of the quota.

This is enough to detect growth, and too little to deprive busy senders."""

NO_QUOTAS: Final = QuotasInForce(0, MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Allocation:
    """The share of a scope that a process holds, and what it requested last, both in bytes a second."""

    share: float
    wanted: float


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """The entry of a process: `version` of the quotas that it uses, and a `heartbeat` that grows with every round."""

    heartbeat: int = 0
    version: int = 0
    allocations: Mapping[Scope, Allocation] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def holds_all(self) -> bool:
        """Whether this is the entry of a `healed_row`: nothing is left for others while it is there."""
        return self.version == _OF_UNKNOWN_SHARES


_OF_UNKNOWN_SHARES: Final = -1


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The content of the ledger: quotas, the entries of processes, and what was read under fetch quotas recently."""

    quotas: QuotasInForce = NO_QUOTAS
    workers: Mapping[str, WorkerEntry] = field(default_factory=lambda: MappingProxyType({}))
    reads: Mapping[Scope, WindowState] = field(default_factory=lambda: MappingProxyType({}))

    def with_quotas(self, quotas: QuotasInForce) -> "LedgerRow":
        """Return the row with these quotas, or unchanged if its own quotas have a newer version."""
        return replace(self, quotas=quotas) if quotas.version >= self.quotas.version else self

    def heartbeats(self) -> dict[str, int]:
        return {name: entry.heartbeat for name, entry in self.workers.items()}

    def without(self, worker_ids: Collection[str]) -> "LedgerRow":
        if self.workers.keys().isdisjoint(worker_ids):
            return self
        return replace(self, workers={name: entry for name, entry in self.workers.items() if name not in worker_ids})


def healed_row(text: str) -> LedgerRow:
    """Return the row that replaces a text that is no row.

    Who held which share is lost with the text, and the holders go on until their leases end. So an entry that belongs
    to no process, with a checksum of the text in its name, holds all shares until all observers have seen its heartbeat
    stand still (`Liveness`).
    """
    name = f"unreadable:{zlib.crc32(text.encode()):08x}"
    return LedgerRow(workers={name: WorkerEntry(version=_OF_UNKNOWN_SHARES)})


@dataclass(frozen=True, slots=True)
class Demand:
    """What the streams of a process that have the same scopes want together, in bytes a second.

    `UNLIMITED_DEMAND` if a quota holds them up.
    """

    scopes: tuple[Scope, ...]
    wanted: float = UNLIMITED_DEMAND


def renewed(row: LedgerRow, worker_id: str, demands: Sequence[Demand], heartbeat: int) -> LedgerRow:
    """Return the ledger row after a round of one process.

    Scopes without a quota get no allocation: they have no limit. Another process that uses an older version of the
    quotas, and has no allocation of a scope, may be sending there without a limit. So it counts as if it requested an
    unlimited rate, and the first process that reads a new quota does not take all of it.

    Args:
        row: the row before the round.
        worker_id: the process.
        demands: what the streams of the process want, at most one item for the same scopes.
        heartbeat: higher than in any earlier round of this process, even if its entry was dropped meanwhile.
    """
    before = row.workers.get(worker_id, WorkerEntry())
    others = [entry for name, entry in row.workers.items() if name != worker_id]
    quotas, rivals = {}, {}
    for scope in dict.fromkeys(scope for demand in demands for scope in demand.scopes):
        quota = row.quotas.of(scope)
        if quota is not None:
            quotas[scope] = quota
            rivals[scope] = _rivals(row, scope, quota, others)
    fair_parts = {
        scope: fair_part(quota * FILL, UNLIMITED_DEMAND, [rival.wanted for rival in rivals[scope]])
        for scope, quota in quotas.items()
    }
    allocations = {}
    alone = {scope for scope in quotas if not any(rival.wanted for rival in rivals[scope])}
    for scope, wanted in requested(demands, fair_parts, quotas, alone).items():
        held = before.allocations[scope].share if scope in before.allocations else 0.0
        allocations[scope] = Allocation(_share(quotas[scope] * FILL, held, wanted, rivals[scope]), wanted)
    entry = WorkerEntry(heartbeat, row.quotas.version, allocations)
    return replace(row, workers={**row.workers, worker_id: entry})


def _rivals(row: LedgerRow, scope: Scope, quota: int, others: Sequence[WorkerEntry]) -> list[Allocation]:
    rivals = [entry.allocations[scope] for entry in others if scope in entry.allocations]
    stale = [entry for entry in others if scope not in entry.allocations and entry.version < row.quotas.version]
    rivals += [Allocation(0.0, UNLIMITED_DEMAND)] * len(stale)
    return rivals + [Allocation(quota, quota) for entry in others if entry.holds_all]


def requested(
    demands: Sequence[Demand],
    fair_parts: Mapping[Scope, float],
    quotas: Mapping[Scope, int],
    alone: Collection[Scope] = (),
) -> dict[Scope, float]:
    """Return what a process requests of each scope that has a quota.

    Of a scope that limits one of its streams it requests `UNLIMITED_DEMAND`: all of its fair part. Of every other scope
    it requests what its streams can use within their other scopes, and a little more for streams that no quota holds
    up. If no other process wants any of a scope that such a stream uses, it requests all of it, too.

    Args:
        demands: what its streams want.
        fair_parts: its part of each scope if it wanted all of everything.
        quotas: the quotas of the same scopes.
        alone: the scopes of which no other process wants any.
    """
    usable = usable_rates(demands, fair_parts)
    used, growing = dict.fromkeys(fair_parts, 0.0), dict.fromkeys(fair_parts, 0.0)
    for demand, rate in zip(demands, usable.rates, strict=True):
        for scope in used.keys() & demand.scopes:
            used[scope] += rate
            growing[scope] += rate if demand.wanted < UNLIMITED_DEMAND else 0.0
    return {
        scope: UNLIMITED_DEMAND
        if scope in usable.limiting or (scope in alone and growing[scope])
        else rate + min(_SPARE * growing[scope], _MOST_SPARE_OF_QUOTA * quotas[scope])
        for scope, rate in used.items()
    }


@dataclass(frozen=True, slots=True)
class UsableRates:
    """What streams can use of the parts of their scopes: `rates` in the order of the demands.

    `limiting` are the scopes that limit a stream, whose parts are used up; `left` is what the streams leave of each
    part.
    """

    rates: tuple[float, ...]
    limiting: frozenset[Scope]
    left: Mapping[Scope, float]


def usable_rates(demands: Sequence[Demand], parts: Mapping[Scope, float]) -> UsableRates:
    """Divide the parts of scopes among streams by max-min fairness; a scope without a part limits nothing.

    All rates grow alike, until a scope is used up or a demand satisfied: then the streams concerned keep their rate.
    """
    left, rates, limiting = dict(parts), [UNLIMITED_DEMAND] * len(demands), set()
    growing: dict[Scope, set[int]] = {scope: set() for scope in parts}
    for number, demand in enumerate(demands):
        for each in left.keys() & demand.scopes:
            growing[each].add(number)
    bounds: list[tuple[float, int, Scope | None]] = [(demand.wanted, at, None) for at, demand in enumerate(demands)]
    bounds += [(0.0, len(demands) + at, each) for at, each in enumerate(parts)]
    heapq.heapify(bounds)
    while bounds:
        rate, order, scope = heapq.heappop(bounds)
        if scope is not None:
            stopping = growing[scope]
            # What its other streams stopped at may leave more for each of the rest than when this bound was computed.
            if stopping and left[scope] / len(stopping) > rate * (1 + _ROUNDING):
                heapq.heappush(bounds, (left[scope] / len(stopping), order, scope))
                continue
            limiting |= {scope} if stopping else set()
        else:
            stopping = {order} if rates[order] == UNLIMITED_DEMAND else set()
        for number in tuple(stopping):
            rates[number] = rate
            for each in left.keys() & demands[number].scopes:
                left[each] = max(0.0, left[each] - rate)
                growing[each].discard(number)
    return UsableRates(tuple(rates), frozenset(limiting), left)


_ROUNDING: Final = 1e-9


def fair_part(total: float, demand: float, other_demands: Collection[float]) -> float:
    """Return the part of `total` that max-min fairness gives to `demand`."""
    left, claims = total, sorted((*other_demands, demand))
    for index, claim in enumerate(claims):
        equal_part = left / (len(claims) - index)
        if claim >= equal_part:
            return min(demand, equal_part)
        left -= claim
    return demand


def _share(total: float, held: float, demand: float, rivals: Collection[Allocation]) -> float:
    fair = fair_part(total, demand, [rival.wanted for rival in rivals])
    if fair <= held:
        return fair
    free = total - held - sum(rival.share for rival in rivals)
    return held + max(0.0, min(fair - held, free))


LEASE_SECONDS: Final = 1.0
"""How long a process may use its shares, counted from the beginning of the round in which it got them."""

SILENT_SECONDS: Final = 1.1
"""An entry is dropped if its heartbeat has not changed for longer than this.

It is longer than `LEASE_SECONDS`, because clocks may run at different speeds."""


class Liveness:
    """Records since when each process has had its current heartbeat, as seen by this observer."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def silent(self, heartbeats: Mapping[str, int], now: float) -> frozenset[str]:
        """Return the names whose heartbeat has not changed for longer than `SILENT_SECONDS`; new names are alive."""
        self._seen = {
            name: seen if (seen := self._seen.get(name)) is not None and seen[0] == heartbeat else (heartbeat, now)
            for name, heartbeat in heartbeats.items()
        }
        return frozenset(name for name, (_, since) in self._seen.items() if now - since > SILENT_SECONDS)
