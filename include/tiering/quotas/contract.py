"""What a sender or reader asks before bytes move, and what gives it the answer.

A quota holds down a kind of traffic, at one of four levels. Every byte is charged at all levels that have a quota. A
missing quota is no limit.

    copy    total | broker | topic              uploads, their retries
    fetch   total | broker | topic | client     read-backs, fetches, restores
    delete  total                               requests that delete objects, not bytes

The broker of a copy is the one whose log dir is read; that of a fetch is the one whose segment it was.

A delete request is paced like `UNITS_PER_REQUEST` bytes: rates are spread in slices of a few milliseconds, and one
request a second has as many slices as a million bytes a second.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

UNITS_PER_REQUEST: Final = 1_000_000


class QuotaKind(StrEnum):
    """Each is separate: none ever waits for another."""

    COPY = "copy"
    FETCH = "fetch"
    DELETE = "delete"

    @property
    def units(self) -> int:
        """What one of the things that this kind counts is to a limiter: a byte is 1."""
        return UNITS_PER_REQUEST if self is QuotaKind.DELETE else 1


class QuotaLevel(StrEnum):
    """From the widest to the narrowest."""

    TOTAL = "total"
    BROKER = "broker"
    TOPIC = "topic"
    CLIENT = "client"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """`name` is the broker id, topic or client id; empty for the total, and for the default of the other levels."""

    kind: QuotaKind
    level: QuotaLevel
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.level}/{self.name}"

    @property
    def default(self) -> "Scope":
        """The scope whose quota applies where this one has none."""
        return Scope(self.kind, self.level)

    @classmethod
    def parse(cls, text: str) -> "Scope":
        """The reverse of `str`. Raises ValueError."""
        kind, level, name = text.split("/", 2)
        return cls(QuotaKind(kind), QuotaLevel(level), name)


def copy_scopes(broker_id: int, topic: str) -> tuple[Scope, ...]:
    """All scopes that must grant a byte that is copied."""
    return (
        Scope(QuotaKind.COPY, QuotaLevel.TOTAL),
        Scope(QuotaKind.COPY, QuotaLevel.BROKER, str(broker_id)),
        Scope(QuotaKind.COPY, QuotaLevel.TOPIC, topic),
    )


def fetch_scopes(broker_id: int, topic: str, client: str | None = None) -> tuple[Scope, ...]:
    """All scopes that must grant a byte that is read back, for a client or for the platform itself."""
    scopes = (
        Scope(QuotaKind.FETCH, QuotaLevel.TOTAL),
        Scope(QuotaKind.FETCH, QuotaLevel.BROKER, str(broker_id)),
        Scope(QuotaKind.FETCH, QuotaLevel.TOPIC, topic),
    )
    return scopes if client is None else (*scopes, Scope(QuotaKind.FETCH, QuotaLevel.CLIENT, client))


def delete_scopes() -> tuple[Scope, ...]:
    """All scopes that must grant a request that deletes objects."""
    return (Scope(QuotaKind.DELETE, QuotaLevel.TOTAL),)


GoOn = Callable[[], None]
"""Returns while work may go on, waits through a short pause, raises SendingStoppedError or LeaseLostError otherwise."""


class ByteLimiter(Protocol):
    """Grants bytes. Charged before they are sent, by the process that sends them, retries included."""

    @property
    def waited_seconds(self) -> float:
        """How long callers of `take` have waited for a quota since this limiter was made: 0.0 if every byte was free.

        Only grows. Time in which work was paused is not in it.
        """
        ...

    def take(self, wanted_bytes: int) -> int:
        """Blocks until some of `wanted_bytes` may be sent now; returns how many, 1 to `wanted_bytes`.

        What it returns is charged, and small against the rate, so that sending it at once keeps the pace: ask again
        for the rest. 0 wanted bytes only ask whether work may go on, and give 0.

        Raises:
            SendingStoppedError: paused for long, or the work behind this sender was taken away.
            LeaseLostError: another worker owns the partition now.
        """
        ...


def take_all(limiter: ByteLimiter, size_bytes: int) -> None:
    """Blocks until all of `size_bytes` were granted. Raises what `take` raises."""
    left_bytes = size_bytes
    while left_bytes > 0:
        left_bytes -= limiter.take(left_bytes)


class RequestLimiter(Protocol):
    """Grants requests, one by one."""

    def take(self) -> None:
        """Blocks until one more request may be sent; it is charged.

        Raises:
            SendingStoppedError, LeaseLostError: as for `ByteLimiter.take`.
        """
        ...


class RequestsAsBytes:
    """A `RequestLimiter` over one of bytes: a request is `UNITS_PER_REQUEST` of them."""

    def __init__(self, limiter: ByteLimiter) -> None:
        self._limiter = limiter

    def take(self) -> None:
        take_all(self._limiter, UNITS_PER_REQUEST)


class QuotaObserver(Protocol):
    """Told what limiters do, some hundred times a second and by several threads: it must be cheap and never raise.

    What is called bytes here are `QuotaKind.units` where the kind counts something else.
    """

    def granted(self, kind: QuotaKind, topic: str, size_bytes: int) -> None:
        """These bytes were charged, whether they waited or not."""
        ...

    def throttled(self, kind: QuotaKind, topic: str, size_bytes: int, seconds: float) -> None:
        """A grant of `size_bytes`, reported by `granted` as well, had to wait this long for a quota.

        0 bytes: a read was refused, with this throttle time.
        """
        ...

    def in_force(self, scope: Scope, bytes_per_second: int | None) -> None:
        """The quota of a scope, or of a scope's default, is this from now on; None: it has no limit."""
        ...


class Quotas(Protocol):
    """Where limiters come from: one for each stream of bytes."""

    def copy(self, broker_id: int, topic: str, *, go_on: GoOn) -> ByteLimiter:
        """For segments of one topic, read from this broker's log dirs. `go_on` is asked before every grant."""
        ...

    def fetch(self, broker_id: int, topic: str, client: str | None = None) -> ByteLimiter:
        """For remote bytes of one topic that this broker's segments hold, for a client or for the platform itself."""
        ...

    def delete(self, topic: str, *, go_on: GoOn) -> RequestLimiter:
        """For requests that delete objects of one topic. `go_on` is asked before every grant."""
        ...

    def share(self, scope: Scope) -> float | None:
        """Bytes a second that this process may move in a scope now; None without a limit, 0 while it is unknown."""
        ...


class UnlimitedBytes:
    """Every byte at once, as long as work may go on."""

    waited_seconds: Final = 0.0

    def __init__(self, go_on: GoOn = lambda: None) -> None:
        self._go_on = go_on

    def take(self, wanted_bytes: int) -> int:
        self._go_on()
        return wanted_bytes


UNLIMITED: Final = 2**63 - 1
"""Kafka's default of a quota."""


@dataclass(frozen=True, slots=True)
class QuotasInForce:
    """Bytes a second by scope, as of one version of the dynamic configs. A scope's default has the empty name.

    `UNLIMITED` frees a scope from the default that would apply to it.
    """

    version: int
    bytes_per_second: Mapping[Scope, int]

    def of(self, scope: Scope) -> int | None:
        """The quota of a scope, its default if it has none of its own; None without a limit."""
        found = self.bytes_per_second.get(scope, self.bytes_per_second.get(scope.default))
        return None if found == UNLIMITED else found


@dataclass(frozen=True, slots=True)
class QuotaWorker:
    """A live process that holds shares, and the version of the configs that it has taken."""

    worker_id: str
    version: int


class QuotaLedger(Protocol):
    """The shared ledger of quotas and of the live processes' shares, as a change of quotas uses it."""

    def announce(self, quotas: QuotasInForce) -> None:
        """Put quotas in force, unless a newer version is; running workers take them within half a second.

        Raises:
            MetadataUnavailableError
        """
        ...

    def in_force(self) -> QuotasInForce:
        """What was announced last; version 0 without a quota before the first time.

        Raises:
            MetadataUnavailableError
        """
        ...

    def workers(self) -> tuple[QuotaWorker, ...]:
        """Processes with an entry. One that died is gone when it is asked for again after more than a lease length.

        Raises:
            MetadataUnavailableError
        """
        ...
