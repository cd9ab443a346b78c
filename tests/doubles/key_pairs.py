"""RSA key pairs of tests, made once for each process, and their PEM files."""

from functools import cache
from pathlib import Path

from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from include.tiering.remote_storage.layouts.key_ring import PemKeyPair

# Small, so that they are made quickly; enough for the wrapping of a data key.
_BITS = 1536


@cache
def key_pair(name: str) -> RSA.RsaKey:
    """The same pair for the same name. OpenSSL finds its primes several times faster than Python does."""
    made = generate_private_key(public_exponent=65537, key_size=_BITS)
    return RSA.import_key(made.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))


def private_pem(name: str) -> bytes:
    return key_pair(name).export_key(pkcs=8)


def public_pem(name: str) -> bytes:
    return key_pair(name).public_key().export_key()


def key_files(directory: Path, name: str, *, called: str | None = None) -> PemKeyPair:
    """Files of the pair `name`, in the ring under `called`."""
    public, private = directory / f"{name}.pub.pem", directory / f"{name}.pem"
    public.write_bytes(public_pem(name))
    private.touch(mode=0o600)
    private.chmod(0o600)
    private.write_bytes(private_pem(name))
    return PemKeyPair(called or name, public, private)
