"""How a segment is encrypted: the `encryption` member of a manifest.

    dataKey    <key pair id>:<base64 of the data key, wrapped for that key pair>
    aad        base64 of 32 random bytes

Source: Aiven's tiered-storage-for-apache-kafka 1.2, `security`.
"""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Final

from include.tiering.errors import FormatError

_LONGEST_ID: Final = 256
_LONGEST_FIELD: Final = 8192


@dataclass(frozen=True, slots=True)
class Encryption:
    """The `encryption` member of a manifest. The key in it is wrapped: whoever has no private key can do nothing with
    it."""

    key_pair_id: str
    wrapped_key: bytes = field(repr=False)
    aad: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not is_key_pair_id(self.key_pair_id):
            raise ValueError("the id of a key pair is not blank and holds no colon")

    def data_key_text(self) -> str:
        return f"{self.key_pair_id}:{base64.b64encode(self.wrapped_key).decode()}"

    def aad_text(self) -> str:
        return base64.b64encode(self.aad).decode()

    @classmethod
    def parse(cls, data_key: str, aad: str) -> "Encryption":
        """Raises FormatError: not one id, one colon and base64, or base64 that is none."""
        key_pair_id, colon, wrapped = data_key.partition(":")
        if not colon or ":" in wrapped or not is_key_pair_id(key_pair_id):
            raise FormatError("encryption.dataKey does not start with the id of a key pair")
        return cls(key_pair_id, _base64(wrapped, "dataKey"), _base64(aad, "aad"))


def is_key_pair_id(text: str) -> bool:
    """Not blank, without a colon."""
    return bool(text.strip()) and ":" not in text and text.isprintable() and len(text) <= _LONGEST_ID


def _base64(text: str, name: str) -> bytes:
    if len(text) > _LONGEST_FIELD:
        raise FormatError(f"encryption.{name} has {len(text)} characters")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"encryption.{name} is not base64") from None
