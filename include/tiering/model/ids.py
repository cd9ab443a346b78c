"""Identities: Kafka's Uuid, a partition by topic id, one attempt to copy a segment."""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Self

UUID_TEXT_LENGTH: Final = 22
_RESERVED: Final = frozenset({bytes(16), bytes(15) + b"\x01"})
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


@dataclass(frozen=True, slots=True, order=True)
class Uuid:
    """16 bytes, written as URL-safe base64 without padding (22 characters), as Kafka prints them."""

    value: bytes

    def __post_init__(self) -> None:
        if len(self.value) != 16:
            raise ValueError(f"a Uuid has 16 bytes, not {len(self.value)}")

    def __str__(self) -> str:
        return _text_of(self.value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError unless `text` is the one 22-character form of 16 bytes."""
        if len(text) != UUID_TEXT_LENGTH:
            raise ValueError(f"a Uuid has {UUID_TEXT_LENGTH} characters, not {len(text)}")
        try:
            parsed = cls(base64.b64decode(text + "==", altchars=b"-_", validate=True))
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"not a Uuid: {text!r}") from error
        if str(parsed) != text:
            raise ValueError(f"not a canonical Uuid: {text!r}")
        return parsed

    @classmethod
    def random(cls, random_bytes: Callable[[int], bytes]) -> Self:
        """A version 4 UUID; redrawn while reserved or while its text starts with ``-``, as Kafka does."""
        while True:
            raw = bytearray(random_bytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            drawn = cls(bytes(raw))
            if drawn.value not in _RESERVED and not str(drawn).startswith("-"):
                return drawn

    @property
    def is_zero(self) -> bool:
        return not any(self.value)


@lru_cache(maxsize=4_096)
def _text_of(value: bytes) -> str:
    """Cached: the ids of a few topics are in every key of every statement."""
    return base64.urlsafe_b64encode(value)[:UUID_TEXT_LENGTH].decode()


def is_legal_topic_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 of ``[a-zA-Z0-9._-]``, and neither ``.`` nor ``..``."""
    return name not in (".", "..") and _TOPIC_NAME.match(name) is not None


@dataclass(frozen=True, slots=True)
class TopicIdPartition:
    """A partition. Identity is (topic id, partition); the topic's name is a label."""

    topic_id: Uuid
    partition: int
    topic: str = field(compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.partition < 2**31:
            raise ValueError(f"partition {self.partition} is outside 0..2^31-1")
        if not is_legal_topic_name(self.topic):
            raise ValueError(f"not a legal topic name: {self.topic!r}")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentId:
    """One ATTEMPT to copy a segment: a retry has a new id, so nothing is ever overwritten."""

    topic_id_partition: TopicIdPartition
    id: Uuid

    def __str__(self) -> str:
        return f"{self.topic_id_partition}:{self.id}"
