"""Processes that renew, stall, die and lose the ledger, in time that only the test moves.

Each process is the real renewer and the real pacing over one ledger row; nothing sleeps. What a process may send at a
moment is its rate while its lease lasts. The sum of that over all processes must never exceed the quota, nor, while one
that fell has not reached every process yet, what the row says.
"""

import secrets
from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import MetadataUnavailableError
from include.tiering.quotas.contract import QuotasInForce, Scope, copy_scopes
from include.tiering.quotas.shared_quotas import PERIOD_SECONDS, AllocationRenewer, AnnouncingLedger, LedgerRowChange
from include.tiering.quotas.shares import FILL, NO_QUOTAS, SILENT_SECONDS, UNLIMITED_DEMAND, LedgerRow, ProcessPacing
from tests.doubles.manual_clock import ManualClock
from tests.doubles.quotas import MemoryLedgerStore

TOTAL = copy_scopes(1, "orders")[0]
QUOTA = 1_000_000


class Unsteady:
    """A ledger that can be away before a change is stored, or fail to answer after it was."""

    def __init__(self) -> None:
        self.inner = MemoryLedgerStore()
        self.fails_before = self.fails_after = False

    def exchange(self, change: LedgerRowChange) -> LedgerRow:
        if self.fails_before:
            raise MetadataUnavailableError("away")
        row = self.inner.exchange(change)
        if self.fails_after:
            raise MetadataUnavailableError("no answer")
        return row


class DemandingPacing(ProcessPacing):
    """Asks for what the test says instead of for what was used."""

    demand: float = UNLIMITED_DEMAND

    def wanted(self, quotas: QuotasInForce) -> dict[Scope, float]:
        return {TOTAL: self.demand}


@dataclass
class Process:
    clock: ManualClock
    ledger: Unsteady
    pacing: DemandingPacing = field(init=False)
    renewer: AllocationRenewer = field(init=False)

    def __post_init__(self) -> None:
        self.pacing = DemandingPacing(self.clock)
        self.renewer = AllocationRenewer(
            self.ledger,
            self.pacing,
            self.clock,
            worker_id=secrets.token_hex(4),
            stored_quotas=lambda: NO_QUOTAS,
        )

    def rate(self) -> float:
        share = self.pacing.share(TOTAL)
        assert share is not None
        return share


@dataclass
class World:
    clock: ManualClock = field(default_factory=ManualClock)
    ledger: Unsteady = field(default_factory=Unsteady)
    processes: list[Process] = field(default_factory=list)
    version: int = 0

    def set_quota(self, quota: int) -> None:
        self.version += 1
        AnnouncingLedger(self.ledger.inner, self.clock).announce(QuotasInForce(self.version, {TOTAL: quota}))

    def quota(self) -> float:
        return float(AnnouncingLedger(self.ledger.inner, self.clock).in_force().of(TOTAL) or 0)

    def written(self) -> float:
        """The sum of shares in the row: above the quota only while one that fell has not reached every process."""
        row = self.ledger.inner.exchange(lambda row: row)
        return sum(held.share for entry in row.workers.values() for held in entry.allocations.values())

    def rates(self) -> float:
        return sum(process.rate() for process in self.processes)


ACTIONS = {
    "round": (12, lambda random: (random.randrange(6),)),
    "advance": (8, lambda random: (random.choice([0.01, 0.1, 0.2, 0.3, 0.5, 0.9, 1.2]),)),
    "demand": (2, lambda random: (random.randrange(6), random.choice([0.0, 1000.0, 400_000.0, UNLIMITED_DEMAND]))),
    "away": (1, lambda random: (random.randrange(6),)),
    "no answer": (2, lambda random: (random.randrange(6),)),
    "quota": (1, lambda random: (random.randrange(1, 20),)),
    "wall clock": (1, lambda random: (random.choice([-3_600_000, 3_600_000]),)),
    "join": (1, lambda random: ()),
    "kill": (1, lambda random: (random.randrange(6),)),
}
"""Name, weight, arguments."""


@given(st.integers(0, 2**32))
def test_what_all_may_send_never_exceeds_the_quota(seed: int) -> None:
    random = Random(seed)
    names, weights = list(ACTIONS), [weight for weight, _ in ACTIONS.values()]
    world = World()
    world.set_quota(QUOTA)
    world.processes = [Process(world.clock, world.ledger) for _ in range(4)]
    for name in random.choices(names, weights, k=200):
        arguments = ACTIONS[name][1](random)
        written = world.written()
        _act(world, name, *arguments)
        assert world.written() <= max(world.quota() * FILL, written) + 0.01, (name, arguments)
        assert world.rates() <= max(world.quota() * FILL, world.written()) + 0.01, (name, arguments)
    _settle(world)
    assert world.rates() >= world.quota() * FILL * 0.999
    assert world.rates() <= world.quota() * FILL + 0.01


def _act(world: World, name: str, number: float = 0, demand: float = 0.0) -> None:
    process = world.processes[int(number) % len(world.processes)]
    if name == "join" and len(world.processes) < 6:
        world.processes.append(Process(world.clock, world.ledger))
    elif name == "advance":
        world.clock.advance(number)
    elif name == "wall clock":
        world.clock.step(int(number))
    elif name == "quota":
        world.set_quota(int(number) * QUOTA // 10)
    elif name == "demand":
        process.pacing.demand = demand
    elif name == "kill" and len(world.processes) > 1:
        world.processes.remove(process)
    elif name in ("round", "away", "no answer"):
        world.ledger.fails_before, world.ledger.fails_after = name == "away", name == "no answer"
        try:
            process.renewer.round()
        except MetadataUnavailableError:
            assert name != "round"
        world.ledger.fails_before = world.ledger.fails_after = False


def _settle(world: World) -> None:
    """Everybody is busy for as long as a dead process may go unnoticed, and three rounds more."""
    for process in world.processes:
        process.pacing.demand = UNLIMITED_DEMAND
    for _ in range(int(SILENT_SECONDS / PERIOD_SECONDS) + 4):
        world.clock.advance(PERIOD_SECONDS)
        for process in world.processes:
            process.renewer.round()
