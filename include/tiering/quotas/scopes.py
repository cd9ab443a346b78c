"""What a quota holds down: a kind of traffic, at one of four levels.

Every byte is charged at all levels that have a quota. A missing quota is no limit.

    copy    total | broker | topic              uploads, their retries
    fetch   total | broker | topic | client     read-backs, fetches, restores
    delete  total                               requests that delete objects, not bytes

The broker of a copy is the one whose log dir is read; that of a fetch is the one whose segment it was.

A delete request is paced like `UNITS_PER_REQUEST` bytes: rates are spread in slices of a few milliseconds, and one
request a second has as many slices as a million bytes a second.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

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
