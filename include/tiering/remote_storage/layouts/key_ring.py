"""Encryption of segments: the ciphers, and the key pairs that encrypt (wrap) data keys. No message contains a key.

    stored chunk or index    12 bytes of initialisation vector, ciphertext, 16 bytes of tag: AES-256-GCM
    additional data          32 random bytes, the same for all chunks and indexes of a segment
    wrapped key              the 32 bytes of the data key, encrypted by RSA with OAEP: an empty label, and SHA3-512 as
                             the hash of the label and in the mask generation function

Source: Aiven's tiered-storage-for-apache-kafka 1.2, `security`.

Key pairs are PEM files, read when they are first needed. New segments are encrypted for the active pair. Each encrypted
segment names its pair. To rotate, add a pair and make it the active pair; keep the old pairs as long as segments name
them. Group and others must have no permission on the file of a private key; the private key never leaves this module.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from include.tiering.errors import FormatError, SegmentKeyError, SettingError, printable
from include.tiering.formats.aiven_chunks import ENCRYPTION_OVERHEAD_BYTES, IV_BYTES
from include.tiering.formats.aiven_manifest import Encryption
from include.tiering.settings.secret_files import open_to_others

DATA_KEY_BYTES: Final = 32
AAD_BYTES: Final = 32
LEAST_MODULUS_BITS: Final = 1296
"""162 bytes: OAEP with SHA3-512 needs 130 bytes in addition to the 32 bytes of the data key."""
_MAX_FILE_BYTES: Final = 1 << 16
_CACHED_KEYS: Final = 256


@dataclass(frozen=True, slots=True)
class SegmentCipher:
    """Encrypts and decrypts what one segment stores."""

    key: bytes = field(repr=False)
    aad: bytes = field(repr=False)

    def seal(self, content: bytes, iv: bytes) -> bytes:
        """Encrypt and authenticate. Under this key an `iv` may be used for one content only."""
        return iv + AESGCM(self.key).encrypt(iv, content, self.aad)

    def open(self, stored: bytes | memoryview) -> bytes:
        """Decrypt. Raises FormatError if `stored` is too short, was changed, or was encrypted with another key."""
        if len(stored) < ENCRYPTION_OVERHEAD_BYTES:
            raise FormatError(f"{len(stored)} bytes are too few for an encrypted chunk")
        try:
            view = memoryview(stored)
            return AESGCM(self.key).decrypt(view[:IV_BYTES], view[IV_BYTES:], self.aad)
        except InvalidTag:
            raise FormatError("its tag is wrong: it was changed or truncated, or encrypted with another key") from None


def wrap(data_key: bytes, public_key: RSA.RsaKey, random_bytes: Callable[[int], bytes]) -> bytes:
    return PKCS1_OAEP.new(public_key, hashAlgo=SHA3_512, randfunc=random_bytes).encrypt(data_key)


def unwrap(wrapped_key: bytes, private_key: RSA.RsaKey) -> bytes:
    """Decrypt a data key. Raises FormatError if it was wrapped for another key, was changed, or has a wrong length."""
    try:
        data_key = PKCS1_OAEP.new(private_key, hashAlgo=SHA3_512).decrypt(wrapped_key)
    except (ValueError, TypeError):
        raise FormatError("its data key cannot be unwrapped: it was wrapped for another key, or changed") from None
    if len(data_key) != DATA_KEY_BYTES:
        raise FormatError(f"its data key has {len(data_key)} bytes instead of {DATA_KEY_BYTES}")
    return data_key


@dataclass(frozen=True, slots=True)
class PemKeyPair:
    """PEM files: SubjectPublicKeyInfo and PKCS#8. Without the private key no segment of this pair can be read back."""

    key_pair_id: str
    public_key: Path
    private_key: Path | None = None


class KeyRing:
    """Key pairs by id. `active` is the id of the pair for new segments; None: this process encrypts no segments."""

    def __init__(
        self,
        pairs: Sequence[PemKeyPair],
        active: str | None = None,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._pairs = {pair.key_pair_id: pair for pair in pairs}
        self._active = active
        self._random_bytes = random_bytes
        self._public_key = lru_cache(maxsize=None)(_public_key)
        self._private_key = lru_cache(maxsize=None)(_private_key)
        self._cached = lru_cache(maxsize=_CACHED_KEYS)(self._unwrapped)

    def new_segment(self) -> tuple[Encryption, SegmentCipher]:
        """Create a data key; return what the manifest stores of it (the wrapped key), and the cipher that uses it.

        Raises:
            SettingError: no key pair is active, or the public key of the active one cannot be used.
        """
        pair = None if self._active is None else self._pairs.get(self._active)
        if pair is None:
            raise SettingError(
                f"remote_storage.encryption_key_pair_id {self._active!r} is not in remote_storage.encryption_key_pairs"
            )
        cipher = SegmentCipher(self._random_bytes(DATA_KEY_BYTES), self._random_bytes(AAD_BYTES))
        wrapped = wrap(cipher.key, self._public_key(pair.public_key), self._random_bytes)
        return Encryption(pair.key_pair_id, wrapped, cipher.aad), cipher

    def check(self) -> None:
        """Wrap a new data key for the active pair, and unwrap it if the pair has a private key here.

        Raises:
            SettingError: as `new_segment`; or the private key cannot be used or does not match the public key.
        """
        encryption, cipher = self.new_segment()
        if self._pairs[encryption.key_pair_id].private_key is None:
            return
        try:
            found = self._unwrapped(encryption)
        except FormatError:
            found = None
        if found != cipher:
            raise SettingError(
                f"remote_storage.encryption_key_pairs: the two keys of {encryption.key_pair_id!r} do not match:"
                " what is encrypted with the public one cannot be read with the private one"
            )

    def cipher(self, encryption: Encryption) -> SegmentCipher:
        """Return the cipher of a stored segment.

        Raises:
            SegmentKeyError: the segment's key pair is not in the settings, or has no private key there.
            SettingError: the private key's file cannot be used.
            FormatError: the data key was wrapped for another key pair with this id, or was changed.
        """
        return self._cached(encryption)

    def _unwrapped(self, encryption: Encryption) -> SegmentCipher:
        name = encryption.key_pair_id
        pair = self._pairs.get(name)
        if pair is None:
            known = ", ".join(sorted(self._pairs)) or "none"
            raise SegmentKeyError(
                f"it is encrypted for key pair {printable(name)!r}; in remote_storage.encryption_key_pairs: {known}"
            )
        if pair.private_key is None:
            raise SegmentKeyError(
                f"it is encrypted for key pair {name!r}, for which remote_storage.encryption_key_pairs has no private"
                " key on this host: it cannot be read"
            )
        try:
            key = unwrap(encryption.wrapped_key, self._private_key(pair.private_key))
        except FormatError as error:
            raise FormatError(f"it is encrypted for key pair {name!r}: {error}") from None
        return SegmentCipher(key, encryption.aad)


def _public_key(path: Path) -> RSA.RsaKey:
    key = _imported(path, _content(path))
    if key.has_private():
        raise SettingError(f"{_shown(path)} holds a private key: name the file of the public one")
    return key


def _private_key(path: Path) -> RSA.RsaKey:
    content = _content(path, is_secret=True)
    key = _imported(path, content)
    if not key.has_private():
        raise SettingError(f"{_shown(path)} holds a public key: name the file of the private one")
    return key


def _content(path: Path, *, is_secret: bool = False) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingError(f"key file {_shown(path)} cannot be read: {error.strerror or error}") from error
    if is_secret and (refusal := open_to_others(f"key file {_shown(path)} is a private key", mode)):
        raise SettingError(refusal)
    if len(content) > _MAX_FILE_BYTES:
        raise SettingError(f"key file {_shown(path)} is larger than {_MAX_FILE_BYTES} bytes")
    return content


def _imported(path: Path, content: bytes) -> RSA.RsaKey:
    """Parse a key file. Messages of errors never repeat its content."""
    try:
        key = RSA.import_key(content)
    except (ValueError, IndexError, TypeError):
        raise SettingError(f"key file {_shown(path)} is not an RSA key in PEM without a passphrase") from None
    if key.size_in_bits() < LEAST_MODULUS_BITS:
        raise SettingError(f"key file {_shown(path)}: {key.size_in_bits()} bits, {LEAST_MODULUS_BITS} are needed")
    return key


def _shown(path: Path) -> str:
    return printable(str(path))
