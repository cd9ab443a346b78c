"""The client's side of SCRAM (RFC 5802, RFC 7677): proves a password without sending it, and makes the server prove
that it knows it too."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from include.tiering.errors import BrokersLoginError

HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 1_000_000
_NO_CHANNEL_BINDING: Final = "n,,"


class Scram:
    """One login: `first`, then `final` with the server's answer, then `check` with its last one.

    Args:
        nonce: printable ASCII without commas, never used before.

    `final` and `check` raise BrokersLoginError for what no server that knows the password would say.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return (_NO_CHANNEL_BINDING + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        fields = _fields(server_first)
        nonce, salt, iterations = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not salt:
            raise BrokersLoginError("SCRAM: the broker's first answer has no nonce or salt of its own")
        if not iterations.isdecimal() or not LEAST_ITERATIONS <= int(iterations[:9]) <= MOST_ITERATIONS:
            raise BrokersLoginError(
                f"SCRAM: the broker asks for {iterations[:20]!r} iterations; accepted are {LEAST_ITERATIONS} to "
                f"{MOST_ITERATIONS}"
            )
        without_proof = f"c={base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        signed = ",".join((self._first_bare, server_first.decode(), without_proof)).encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(iterations))
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        fields = _fields(server_final)
        signature = _decoded(fields.get("v", ""))
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise BrokersLoginError("SCRAM: the broker does not prove that it knows the password: somebody in between?")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise BrokersLoginError("SCRAM: the broker's answer is not UTF-8") from None
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BrokersLoginError("SCRAM: the broker's answer is not base64") from None
