"""What the aiven layout asks of whoever holds keys: `key_ring` does, and a process without keys loads no cipher."""

from typing import Protocol

from include.tiering.formats.aiven_manifest import Encryption


class Cipher(Protocol):
    """Seals and opens what one segment stores; see `formats.aiven_cipher`."""

    def seal(self, content: bytes, iv: bytes) -> bytes:
        """`iv` is used for one content, never for another."""
        ...

    def open(self, stored: bytes) -> bytes:
        """Raises FormatError: it was changed, or sealed with another key."""
        ...


class SegmentKeys(Protocol):
    """Keys of segments."""

    def new_segment(self) -> tuple[Encryption, Cipher]:
        """A fresh key, and how a manifest carries it.

        Raises:
            SettingError: it cannot be wrapped.
        """
        ...

    def check(self) -> None:
        """Raises SettingError: new segments cannot be encrypted, or not be read with what is here."""
        ...

    def cipher(self, encryption: Encryption) -> Cipher:
        """What opens a segment.

        Raises:
            SegmentKeyError, SettingError: its key is not at hand.
            FormatError: its key was wrapped for another pair of this id, or changed.
        """
        ...
