"""Sealing and opening what a segment stores, and the wrapping of the key for it. No key ever gets into a text.

    stored chunk or index    12 bytes of initialisation vector, ciphertext, 16 bytes of tag: AES-256-GCM
    additional data          32 random bytes, the same for all of a segment
    wrapped key              the 32 bytes of the key under RSA with OAEP: SHA3-512 for label and mask, an empty label

Source: Aiven's tiered-storage-for-apache-kafka 1.2, `security`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from include.tiering.errors import FormatError
from include.tiering.formats.aiven_chunks import ENCRYPTION_OVERHEAD_BYTES, IV_BYTES

DATA_KEY_BYTES: Final = 32
AAD_BYTES: Final = 32
LEAST_MODULUS_BITS: Final = 1296
"""OAEP with SHA3-512 needs 130 bytes beside the 32 of the key."""


@dataclass(frozen=True, slots=True)
class SegmentCipher:
    """Seals and opens what one segment stores."""

    key: bytes = field(repr=False)
    aad: bytes = field(repr=False)

    def seal(self, content: bytes, iv: bytes) -> bytes:
        """`iv` is used for one content under this key, never for another."""
        return iv + AESGCM(self.key).encrypt(iv, content, self.aad)

    def open(self, stored: bytes | memoryview) -> bytes:
        """Raises FormatError: too short, changed, or sealed with another key."""
        if len(stored) < ENCRYPTION_OVERHEAD_BYTES:
            raise FormatError(f"{len(stored)} bytes are too few for an encrypted chunk")
        try:
            view = memoryview(stored)
            return AESGCM(self.key).decrypt(view[:IV_BYTES], view[IV_BYTES:], self.aad)
        except InvalidTag:
            raise FormatError("its tag is wrong: it was changed or cut, or sealed with another key") from None


def wrap(data_key: bytes, public_key: RSA.RsaKey, random_bytes: Callable[[int], bytes]) -> bytes:
    return PKCS1_OAEP.new(public_key, hashAlgo=SHA3_512, randfunc=random_bytes).encrypt(data_key)


def unwrap(wrapped_key: bytes, private_key: RSA.RsaKey) -> bytes:
    """Raises FormatError: wrapped for another key, or changed."""
    try:
        data_key = PKCS1_OAEP.new(private_key, hashAlgo=SHA3_512).decrypt(wrapped_key)
    except (ValueError, TypeError):
        raise FormatError("its data key cannot be unwrapped: it was wrapped for another key, or changed") from None
    if len(data_key) != DATA_KEY_BYTES:
        raise FormatError(f"its data key has {len(data_key)} bytes instead of {DATA_KEY_BYTES}")
    return data_key
