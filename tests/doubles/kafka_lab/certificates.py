"""An authority of a test, and the certificates that it signs, as PEM files."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY: Final = dt.timedelta(days=1)
_LOOPBACK: Final = ipaddress.ip_address("127.0.0.1")


@dataclass(frozen=True)
class Pem:
    """`both`: key and certificate in one file, as a broker's PEM keystore wants them."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs with a key of its own; `certificate` is what trusts it."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(
            certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )

    def sign(self, name: str, *, key_password: str | None = None, address: bool = True) -> Pem:
        """For 127.0.0.1 unless not `address`; the key is readable by its owner alone."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key())
        if address:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(_LOOPBACK)]), critical=False)
        signed = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if key_password is not None:
            encryption = serialization.BestAvailableEncryption(key_password.encode())
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        pem = Pem(*(self._directory / f"{name}.{kind}" for kind in ("pem", "key", "both")))
        for path, content in ((pem.certificate, signed), (pem.key, secret), (pem.both, secret + signed)):
            path.write_bytes(content)
            path.chmod(0o600)
        return pem

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
        )
