"""The transfers that a copy batch has in flight: how many there are, and of which partitions.

A transfer waits for the store most of its time: a store is tens of milliseconds away, and gives one connection a
bounded rate. So several transfers go on side by side. More of them help only until something else limits the batch:

    this machine    the process uses about a whole core: Python code runs in one thread at a time
    a near store    a transfer waits for the store only a small part of its time (`ProcessorUse`)
    a quota         transfers with enough bytes already wait for it
    the store       it answered that requests should slow down

**Slots** (`TransferLimit`). The number of slots begins with one and doubles as long as all slots are used and none of
these limits is reached. The first three limits never lower the number: while one of them is reached, no further
transfer begins. When the store asks to slow down, the number is halved at once, and then grows by one each
`RECOVERY_SECONDS`. Two kinds of transfers in flight need no slot:

    one that has stored its objects and waits for the segment before it
    one that waits for a narrow quota, of a topic or a broker, while a segment to which that quota does not apply begins

**Bounds.** A partition has at most `PARTITION_BOUND` transfers in flight for each slot that the settings allow, and all
partitions together have at most `BATCH_BOUND`. So one slow segment, for which all others of its partition wait, leaves
a transfer for each slot to other partitions. The settlement of a partition's abandoned copies counts as a transfer.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from include.tiering.clock import WINDOW_SECONDS, Clock, CoreUse
from include.tiering.copying.copy_segment import CopiedSegment
from include.tiering.errors import LeaseLostError, SendingStoppedError, SourceVanishedError
from include.tiering.model.segments import TopicIdPartition
from include.tiering.quotas.byte_bounded_queue import NO_BYTE_BOUND
from include.tiering.quotas.contract import ByteLimiter, QuotaKind, QuotaLevel, Scope, copy_scopes
from include.tiering.quotas.topic_quotas import Admission
from include.tiering.runs.batch import HeldLease
from include.tiering.runs.contract import Lease, PlannedSegment

MOST_TRANSFERS: Final = 16
"""The highest value (inclusive) of the setting `tiering.copier.max.transfers`."""
PARTITION_BOUND: Final = 2
BATCH_BOUND: Final = 3
_OF_ANY_PARTITION: Final = (Scope(QuotaKind.COPY, QuotaLevel.TOTAL),)


@dataclass(slots=True, eq=False)
class Transfer:
    """One segment in flight.

    Attributes:
        planned: the segment.
        limiter: paces its bytes.
        admission: of the topic quota.
        waits_for_turn: whether its objects are stored and it waits for the segment before it.
        turn_seconds: how long it waited for the segment before it.
        use: how it used the processor, once its segment is copied.
        copied: ends with the copied segment, or with the error of the copy.
    """

    planned: PlannedSegment
    limiter: ByteLimiter
    admission: Admission
    waits_for_turn: bool = False
    turn_seconds: float = 0.0
    use: "ProcessorUse | None" = None
    copied: Future[CopiedSegment] = field(init=False)

    def wait_for_turn(self, before: Future[CopiedSegment], clock: Clock, on_wait: Callable[[], object]) -> None:
        """Wait in the transfer's thread as `wait_for` says. `on_wait` is called first, when the slot is free again."""
        began_at = clock.monotonic()
        self.waits_for_turn = True
        on_wait()
        wait_for(before)
        self.waits_for_turn = False
        self.turn_seconds = clock.monotonic() - began_at

    @contextmanager
    def noting_use(self, clock: Clock) -> Iterator[None]:
        """If the block succeeds, which copies the segment in the transfer's thread, note its `use` of the processor."""
        began_at, busy_before = clock.monotonic(), clock.thread_seconds()
        yield
        busy_seconds = clock.thread_seconds() - busy_before
        waited_seconds = self.turn_seconds + self.limiter.waited_seconds
        self.use = ProcessorUse(busy_seconds, clock.monotonic() - began_at - busy_seconds - waited_seconds)


@dataclass(frozen=True, slots=True)
class Settlement:
    """The abandoned copies of a partition are being settled, before or between transfers.

    Attributes:
        planned: the segments to be copied, as given to `AbandonedCopies.settle`.
        settled: ends with the start offsets of the copies that were kept, and with the end (inclusive) of what is
            copied then; or with an error.
    """

    planned: tuple[PlannedSegment, ...]
    settled: Future[tuple[frozenset[int], int | None]]


@dataclass(slots=True, eq=False)
class LeasedPartition:
    """A leased partition.

    Attributes:
        held: the lease, with its token.
        highest: end (inclusive) of what is copied or in flight; None if nothing is.
        to_start: planned segments that were not begun.
        settlement: under way now, if any; nothing is in flight meanwhile.
        in_flight: the transfers in the order of their segments.
        kept: start offsets of whole abandoned copies that may be finished once the segments before them are.
        has_begun: whether a transfer was begun under this lease.
        has_failed: whether a transfer ended with an error; then the later ones do, too.
        waited_seconds: how long the transfers that have ended waited for the quota.
    """

    held: HeldLease[Lease]
    highest: int | None = None
    to_start: deque[PlannedSegment] = field(default_factory=deque)
    settlement: Settlement | None = None
    in_flight: deque[Transfer] = field(default_factory=deque)
    kept: frozenset[int] = frozenset()
    has_begun: bool = False
    has_failed: bool = False
    waited_seconds: float = 0.0

    @property
    def lease(self) -> Lease:
        return self.held.taken

    @property
    def key(self) -> TopicIdPartition:
        return self.lease.replica_id.topic_id_partition

    @property
    def may_start(self) -> bool:
        """Whether the next segment may be begun now. One that may be copied already waits for those in flight."""
        if not self.to_start or self.settlement is not None or self.held.token.paused:
            return False
        planned = self.to_start[0]
        is_new = planned.supersedes is not None or self.highest is None or planned.end_offset > self.highest
        is_new = is_new and planned.base_offset not in self.kept
        has_error = any(each.copied.done() and each.copied.exception() is not None for each in self.in_flight)
        return (is_new or not self.in_flight) and not has_error

    @property
    def has_ended(self) -> bool:
        return not self.to_start and self.settlement is None and not self.in_flight

    def quota_wait_seconds(self) -> float:
        return self.waited_seconds + sum(transfer.limiter.waited_seconds for transfer in self.in_flight)


def wait_for(predecessor: Future[CopiedSegment]) -> None:
    """Return when the copy of the segment before is FINISHED.

    Raises:
        LeaseLostError, SourceVanishedError: it ended with this error, so the later copy is left as it is, too.
        SendingStoppedError: it was not copied for another reason.
    """
    error = predecessor.exception()
    if error is None:
        return
    if isinstance(error, LeaseLostError):
        raise LeaseLostError(str(error))
    if isinstance(error, SourceVanishedError):
        raise SourceVanishedError(error.path, "the segment before it vanished from the source")
    raise SendingStoppedError("the segment before it was not copied")


ENOUGH_WAITING: Final = 2
AHEAD_SECONDS: Final = 0.5
"""A quota is exhausted if at least `ENOUGH_WAITING` transfers wait for it, with bytes for `AHEAD_SECONDS` of its rate.

One of them sends, and another is ready to send. Their bytes last while the batch waits for the database, when no
further transfer can begin."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """What a batch has in flight at one moment.

    Attributes:
        total: the transfers and settlements.
        size_bytes: the sizes of the segments of the transfers together.
        by_quota: those that do not wait for their turn, by the scope whose quota each waits for; None: for no quota.
        exhausted: the scopes whose quota enough transfers wait for.
    """

    total: int
    size_bytes: int
    by_quota: Counter[Scope | None]
    exhausted: frozenset[Scope] = frozenset()

    @classmethod
    def of(cls, partitions: Collection[LeasedPartition], share: Callable[[Scope], float | None]) -> "InFlight":
        """Count what these partitions have in flight; `share` is `Quotas.share`."""
        transfers = [transfer for partition in partitions for transfer in partition.in_flight]
        by_quota: Counter[Scope | None] = Counter({None: sum(each.settlement is not None for each in partitions)})
        total, size_bytes, waiting_bytes = len(transfers) + by_quota[None], 0, Counter[Scope]()
        for transfer in transfers:
            size_bytes += transfer.planned.size_bytes
            if not transfer.waits_for_turn:
                scope = transfer.limiter.waits_for
                by_quota[scope] += 1
                if scope is not None:
                    waiting_bytes[scope] += transfer.planned.size_bytes
        exhausted = frozenset(
            scope
            for scope, waiting in waiting_bytes.items()
            # On average half of a segment in flight is sent.
            if by_quota[scope] >= ENOUGH_WAITING and waiting / 2 >= AHEAD_SECONDS * (share(scope) or 0)
        )
        return cls(total, size_bytes, by_quota, exhausted)

    def slots_used(self, scopes: Iterable[Scope]) -> int:
        """Return how many slots a segment to which these scopes apply finds in use."""
        return self.by_quota[None] + sum(self.by_quota[scope] for scope in scopes)


@dataclass(frozen=True, slots=True)
class ProcessorUse:
    """How one transfer, or several, used the processor.

    Attributes:
        busy_seconds: how long its thread ran, or was ready to and waited for a processor.
        idle_seconds: how long it waited for something else: for the store, mostly. Waits for the quota and for its
            turn do not count.
    """

    busy_seconds: float
    idle_seconds: float

    @property
    def useful_transfers(self) -> int:
        """How many such transfers at the same time keep one thread busy: while one waits, the others work.

        That number is doubled, because waits vary. It is at least two: one is checked while another is sent.
        """
        return max(2, round(2 * self.idle_seconds / max(self.busy_seconds, 1e-6)))

    def then(self, next_one: "ProcessorUse") -> "ProcessorUse":
        """Return the use of all of these transfers, of which the latest count most."""
        return ProcessorUse(
            _REMEMBERED * self.busy_seconds + next_one.busy_seconds,
            _REMEMBERED * self.idle_seconds + next_one.idle_seconds,
        )


_REMEMBERED: Final = 0.9
"""When a transfer ends, the weight of all earlier transfers is multiplied by this."""

KNOWN_SECONDS: Final = 1.0
"""How long after the end of a transfer the use of the processor counts as known."""

RECOVERY_SECONDS: Final = 1.0


class TransferLimit:
    """The slots of one batch. For one thread."""

    def __init__(self, clock: Clock, *, most: int, most_bytes: int = NO_BYTE_BOUND) -> None:
        self._clock = clock
        self.most, self.most_bytes = most, most_bytes
        """Highest number of slots; no transfer begins at or above `most_bytes`. Both may be changed at any time."""
        self._slots = 1
        self._core_use = CoreUse(clock)
        self._use: ProcessorUse | None = None
        self._noted_at = clock.monotonic()
        self._slow_downs: int | None = None
        self._slowed_at: float | None = None

    def allows_another(self, in_flight: InFlight, slow_downs: int, partition: LeasedPartition | None) -> bool:
        """Return whether another transfer may begin; the first one always may.

        Args:
            in_flight: what is in flight.
            slow_downs: how often the store has asked so far to slow down.
            partition: the partition of the other transfer; None for one that is yet to be claimed.
        """
        self._note_slow_downs(slow_downs)
        if not in_flight.total:
            return True
        has_bytes = in_flight.size_bytes >= self.most_bytes != NO_BYTE_BOUND
        is_full = has_bytes or in_flight.total >= BATCH_BOUND * self.most
        if is_full or self.is_held_back(in_flight, partition):
            return False
        used = in_flight.slots_used(_scopes_of(partition))
        if used >= self._slots:
            self._grow()
        # A transfer that waits for a quota leaves the store and the processor to others.
        return used < min(self._slots, self.most) and in_flight.by_quota[None] < self._useful_transfers()

    def note_end(self, transfer: Transfer) -> None:
        """Take into account how a transfer used the processor that has copied its segment."""
        if transfer.use is not None:
            self._use = transfer.use if self._use is None else self._use.then(transfer.use)
            self._noted_at = self._clock.monotonic()

    def _useful_transfers(self) -> int:
        """Return how many are useful; `most` if that is unknown: none has ended for a while, and they may be stuck."""
        if self._use is None or self._clock.monotonic() - self._noted_at > KNOWN_SECONDS:
            return self.most
        return self._use.useful_transfers

    def is_held_back(self, in_flight: InFlight, partition: LeasedPartition | None) -> bool:
        """Return whether a partition has to wait although there may be slots for others.

        Enough transfers wait for a quota that applies to it, or too many of its own are in flight.
        """
        is_full = partition is not None and len(partition.in_flight) >= PARTITION_BOUND * self.most
        return is_full or not in_flight.exhausted.isdisjoint(_scopes_of(partition))

    def _note_slow_downs(self, slow_downs: int) -> None:
        before, self._slow_downs = self._slow_downs, slow_downs
        now = self._clock.monotonic()
        if before is None or slow_downs <= before:
            return
        if self._slowed_at is None or now - self._slowed_at >= RECOVERY_SECONDS:
            self._slots = max(1, self._slots // 2)
            self._slowed_at = now
            self._core_use.begin()

    def _grow(self) -> None:
        if self._core_use.is_free(WINDOW_SECONDS if self._slowed_at is None else RECOVERY_SECONDS):
            wanted = 2 * self._slots if self._slowed_at is None else self._slots + 1
            self._slots = min(wanted, self.most)


def _scopes_of(partition: LeasedPartition | None) -> tuple[Scope, ...]:
    if partition is None:
        return _OF_ANY_PARTITION
    return copy_scopes(partition.lease.replica_id.broker_id, partition.key.topic)
