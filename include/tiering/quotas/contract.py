"""Contract of quotas: the limiters that senders and readers call before bytes move, and the ledger of quotas.

A quota limits a kind of traffic at one of four levels. A limiter charges each byte to the quotas of all levels of its
kind, to a client's only if a client reads it. A level without a quota sets no limit.

    copy    total | broker | topic              uploads, their retries
    fetch   total | broker | topic | client     read-backs, fetches
    delete  total                               delete requests of expiration and orphan removal

The broker of a copy is the broker whose log is read. The broker of a fetch is the broker from which the segment was
copied; for the digests of a handover the id is 0.

A delete request is paced like `UNITS_PER_REQUEST` bytes. Rates are granted in slices of 10 ms or more, and a slice has
whole units: in these units even a rate of 1 request a second can be divided into such slices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

UNITS_PER_REQUEST: Final = 1_000_000


class QuotaKind(StrEnum):
    """Kinds of traffic with separate quotas: traffic of one kind never waits for a quota of another kind."""

    COPY = "copy"
    FETCH = "fetch"
    DELETE = "delete"

    @property
    def units(self) -> int:
        """Units that a limiter charges: 1 for each byte, or `UNITS_PER_REQUEST` for each request (kind DELETE)."""
        return UNITS_PER_REQUEST if self is QuotaKind.DELETE else 1


class QuotaLevel(StrEnum):
    """Levels of quotas, from the widest to the narrowest."""

    TOTAL = "total"
    BROKER = "broker"
    TOPIC = "topic"
    CLIENT = "client"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """What a quota applies to: `name` is the broker id, topic or client id; empty for the total and for defaults."""

    kind: QuotaKind
    level: QuotaLevel
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.level}/{self.name}"

    @property
    def default(self) -> "Scope":
        """The scope whose quota applies if this scope has none."""
        return Scope(self.kind, self.level)

    @classmethod
    def parse(cls, text: str) -> "Scope":
        """Return the scope from its `str`; raise ValueError for any other text."""
        kind, level, name = text.split("/", 2)
        return cls(QuotaKind(kind), QuotaLevel(level), name)


NAMELESS_CLIENT: Final = ""
"""The client of a reader that gives no name: the default quota of clients holds for it, as in Kafka.

All such readers share it. The platform's own reads have no client."""


def copy_scopes(broker_id: int, topic: str) -> tuple[Scope, ...]:
    """Return all scopes that must grant a byte that is copied."""
    return (
        Scope(QuotaKind.COPY, QuotaLevel.TOTAL),
        Scope(QuotaKind.COPY, QuotaLevel.BROKER, str(broker_id)),
        Scope(QuotaKind.COPY, QuotaLevel.TOPIC, topic),
    )


def fetch_scopes(broker_id: int, topic: str, client: str | None = None) -> tuple[Scope, ...]:
    """Return all scopes that must grant a byte that is read back, for a client or (None) for the platform itself."""
    scopes = (
        Scope(QuotaKind.FETCH, QuotaLevel.TOTAL),
        Scope(QuotaKind.FETCH, QuotaLevel.BROKER, str(broker_id)),
        Scope(QuotaKind.FETCH, QuotaLevel.TOPIC, topic),
    )
    return scopes if client is None else (*scopes, Scope(QuotaKind.FETCH, QuotaLevel.CLIENT, client))


def delete_scopes() -> tuple[Scope, ...]:
    """Return all scopes that must grant a request that deletes objects."""
    return (Scope(QuotaKind.DELETE, QuotaLevel.TOTAL),)


GoOn = Callable[[], None]
"""Returns if work may continue, after waiting for the end of a short pause.

Otherwise it raises SendingStoppedError or LeaseLostError."""


def keep_on() -> None:
    """Return at once: the `GoOn` of work that nothing stops."""


class ByteLimiter(Protocol):
    """Grants bytes to the process that sends or reads them; a retry needs new grants."""

    @property
    def waited_seconds(self) -> float:
        """Seconds that all grants of this limiter had to wait. Never decreases.

        Time in which work was paused does not count.
        """
        ...

    @property
    def waits_for(self) -> Scope | None:
        """The scope for whose quota a call of `take` in another thread waits now; None if no call waits.

        If several scopes do not grant now, it is the one that lets the call wait longest, the widest among equals.
        """
        ...

    def take(self, wanted_bytes: int) -> int:
        """Wait until some of `wanted_bytes` may be sent, and charge them.

        Args:
            wanted_bytes: bytes to send; 0 only checks whether work may continue.

        Returns:
            The bytes that were charged and may be sent at once, 1 to `wanted_bytes`; 0 for 0. Under a quota they are at
            most what the rate gives in about 10 ms, or in 30 ms for a sender that is late, so that it keeps the pace;
            call again for the rest.

        Raises:
            SendingStoppedError: work is paused for long, or was cancelled.
            LeaseLostError: the lease ran out, or its renewal was refused.
        """
        ...


def take_all(limiter: ByteLimiter, size_bytes: int) -> None:
    """Wait until all of `size_bytes` were granted. Raises what `take` raises."""
    left_bytes = size_bytes
    while left_bytes > 0:
        left_bytes -= limiter.take(left_bytes)


class RequestLimiter(Protocol):
    """Grants single requests."""

    def take(self) -> None:
        """Wait until another request may be sent, and charge it.

        Raises:
            SendingStoppedError: as for `ByteLimiter.take`.
            LeaseLostError: as for `ByteLimiter.take`.
        """
        ...


class RequestsAsBytes:
    """A `RequestLimiter` over a `ByteLimiter`: a request counts as `UNITS_PER_REQUEST` bytes."""

    def __init__(self, limiter: ByteLimiter) -> None:
        self._limiter = limiter

    def take(self) -> None:
        """Implement `RequestLimiter.take`."""
        take_all(self._limiter, UNITS_PER_REQUEST)


class QuotaObserver(Protocol):
    """Receives reports some hundred times a second from several threads: it must be cheap and never raise.

    For the kind DELETE all numbers of bytes are units, see `QuotaKind.units`.
    """

    def granted(self, kind: QuotaKind, topic: str, size_bytes: int) -> None:
        """Record that these bytes were charged, whether their grant had to wait or not."""
        ...

    def throttled(self, kind: QuotaKind, topic: str, size_bytes: int, seconds: float) -> None:
        """Record that a grant of `size_bytes`, which `granted` also reports, had to wait this long."""
        ...

    def held_back(self, kind: QuotaKind, seconds: float) -> None:
        """Record how long the quota held back a segment, or the answer to a read, as a whole."""
        ...

    def refused(self, topic: str, size_bytes: int, seconds: float) -> None:
        """Record a read whose answer was a throttle time: the bytes that it requested, and this time."""
        ...

    def in_force(self, quotas: Mapping[Scope, int]) -> None:
        """Record all quotas that are in force from now on, in bytes a second; other scopes and levels have none."""
        ...


class ReadAdmission(Protocol):
    """Decides whether a reader gets bytes or a throttle time. All methods may raise MetadataUnavailableError."""

    def throttle_ms(self, scopes: Sequence[Scope]) -> int:
        """Return for how many milliseconds a reader in these scopes should not try again; 0 if it may read now."""
        ...

    @property
    def window_seconds(self) -> float:
        """The length of the window in which reads are counted."""
        ...

    def lowest_quota(self, scopes: Sequence[Scope]) -> int | None:
        """Return the lowest quota of the scopes in bytes a second; None without a quota."""
        ...

    def admit(self, scopes: Sequence[Scope], size_bytes: int) -> int:
        """Record `size_bytes` and return 0 if they may be read; else record nothing and return the throttle time."""
        ...

    def record(self, scopes: Sequence[Scope], size_bytes: int) -> None:
        """Record bytes that are read without admission: the rest of an admitted read."""
        ...


class Quotas(Protocol):
    """Makes limiters. Each stream of bytes needs a limiter of its own."""

    def copy(self, broker_id: int, topic: str, *, go_on: GoOn) -> ByteLimiter:
        """Make a limiter for copies of a topic's segments from this broker. It calls `go_on` before every grant."""
        ...

    def fetch(self, broker_id: int, topic: str, client: str | None = None, *, go_on: GoOn = keep_on) -> ByteLimiter:
        """Make a limiter for reads of a topic's segments that came from this broker, for a client or the platform.

        It calls `go_on` before every grant.
        """
        ...

    def delete(self, topic: str, *, go_on: GoOn) -> RequestLimiter:
        """Make a limiter for requests that delete objects of a topic. It calls `go_on` before every grant."""
        ...

    def held_back(self, kind: QuotaKind, seconds: float) -> None:
        """Record how long its limiter held back a segment, or the answer to a read; 0 is not recorded.

        This is the throttle time of KIP-956, the same for one slice as for many: what `ByteLimiter.waited_seconds` has
        grown by since the segment or answer began.
        """
        ...

    def admission(self, *, samples: int, sample_ms: int) -> ReadAdmission:
        """Make the admission of reads under the fetch quotas of all processes, by windows of this length."""
        ...

    def share(self, scope: Scope) -> float | None:
        """Return the bytes a second that this process may move in a scope now.

        None means no limit; 0 means that it has no share, or that its share is not known or has expired.
        """
        ...


class UnlimitedBytes:
    """A `ByteLimiter` without a limit: grants all bytes at once, as long as work may continue."""

    waited_seconds: Final = 0.0
    waits_for: Final = None

    def __init__(self, go_on: GoOn = keep_on) -> None:
        self._go_on = go_on

    def take(self, wanted_bytes: int) -> int:
        """Implement `ByteLimiter.take`."""
        self._go_on()
        return wanted_bytes


NO_LIMIT: Final = UnlimitedBytes()
UNLIMITED: Final = 2**63 - 1
"""The value of a quota that sets no limit: Kafka's default."""


@dataclass(frozen=True, slots=True)
class QuotasInForce:
    """Quotas in bytes (kind DELETE: units) a second by scope, as of one version of the dynamic configs.

    The default of a level is the scope with the empty name; `UNLIMITED` exempts a scope from it.
    """

    version: int
    bytes_per_second: Mapping[Scope, int]

    @property
    def set_no_limit(self) -> bool:
        """Whether no scope has a limit."""
        return all(quota == UNLIMITED for quota in self.bytes_per_second.values())

    def of(self, scope: Scope) -> int | None:
        """Return the quota of a scope, else the default of its level; None if neither sets a limit."""
        found = self.bytes_per_second.get(scope, self.bytes_per_second.get(scope.default))
        return None if found == UNLIMITED else found


@dataclass(frozen=True, slots=True)
class QuotaWorker:
    """A process with an entry in the ledger, and the version of the dynamic configs whose quotas it uses."""

    worker_id: str
    version: int


class QuotaLedger(Protocol):
    """The shared ledger of quotas and shares, as far as commands use it."""

    def announce(self, quotas: QuotasInForce) -> None:
        """Put quotas in force, unless quotas of a newer version are in force.

        Running workers use them from their next successful round with the ledger; rounds begin about every 0.6 s.

        Raises:
            MetadataUnavailableError: the ledger cannot be changed.
        """
        ...

    def in_force(self) -> QuotasInForce:
        """Return the quotas in force; in a new ledger they have version 0 and set no limit.

        Raises:
            MetadataUnavailableError: the ledger cannot be read.
        """
        ...

    def workers(self) -> tuple[QuotaWorker, ...]:
        """Return the processes with an entry.

        A process that died is returned until calls on this object, or the rounds of another process, have seen its
        heartbeat stand still for longer than a lease.

        Raises:
            MetadataUnavailableError: the ledger cannot be read.
        """
        ...
