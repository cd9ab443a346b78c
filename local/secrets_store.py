"""Random secrets and passwords of a local platform, made once, in files that only their owner can read."""

import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from cryptography.fernet import Fernet

from local.layout import Layout

ADMIN: Final = "admin"
READER: Final = "tiering-reader"
OPERATOR: Final = "tiering-operator"


@dataclass(frozen=True, slots=True)
class AirflowSecrets:
    """Keys with which Airflow signs and encrypts. The JWT secret is long enough for SHA-512."""

    fernet_key: str = field(repr=False)
    jwt_secret: str = field(repr=False)
    api_secret_key: str = field(repr=False)

    @classmethod
    def of(cls, layout: Layout) -> Self:
        """Return the secrets of this platform, which are created on the first call."""
        if not layout.secrets.exists():
            made = cls(Fernet.generate_key().decode(), secrets.token_urlsafe(64), secrets.token_urlsafe(32))
            write_private(layout.secrets, json.dumps(asdict(made)))
        return cls(**json.loads(layout.secrets.read_text()))


def ensure_passwords(layout: Layout) -> None:
    """Create the users: administrator, viewer (reads pool sizes) and operator (with it `./tiering` sets pool sizes)."""
    known: dict[str, str] = json.loads(layout.passwords.read_text()) if layout.passwords.exists() else {}
    missing = {name: secrets.token_urlsafe(12) for name in (ADMIN, READER, OPERATOR) if name not in known}
    if missing:
        write_private(layout.passwords, json.dumps(known | missing))
    for login, username in ((layout.api_login, READER), (layout.operator_login, OPERATOR)):
        write_private(login, json.dumps({"username": username, "password": password_of(layout, username)}))


def password_of(layout: Layout, username: str) -> str:
    passwords: dict[str, Any] = json.loads(layout.passwords.read_text())
    return str(passwords[username])


def write_private(path: Path, text: str) -> None:
    """Replace `path` by a file with mode 0600. Other users cannot read the new file at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stage = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(stage, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    stage.rename(path)
