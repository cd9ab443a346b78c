"""Write the secrets of docker-compose.yaml, one file for each reader and purpose.

sudo python3 -m local.cluster.secret_files DIRECTORY

Compose mounts these files with their owners and modes, so each must belong to the user that reads it in its container,
with mode 0600; hence sudo. The module needs nothing but Python and openssl. Passwords that stand in SQL or in a URL are
hexadecimal, so nothing has to be quoted there. Servers get certificates of an authority that is made for this
directory; the authority's key is thrown away.
"""

import base64
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PLATFORM, _POSTGRES, _REDIS, _VERSITYGW = 50_000, 999, 999, 65_534
"""User ids of the images: docker/platform.Dockerfile, postgres, redis, and nobody of Alpine."""
_SERVERS: Mapping[str, int] = {"postgres": _POSTGRES, "redis": _REDIS, "versitygw": _VERSITYGW}
"""Servers with a certificate."""
AUTHORITY = "ca.crt"
"""The certificate of the authority: no secret, and read by all."""
OWNERS: Mapping[str, int] = {
    "postgres_password": _POSTGRES,
    "databases.sql": _POSTGRES,
    "redis.conf": _REDIS,
    "s3_access_key": _VERSITYGW,
    "s3_secret_key": _VERSITYGW,
    **{f"{server}.{kind}": owner for server, owner in _SERVERS.items() for kind in ("crt", "key")},
}

TIERING_TOML = """\
# The library's settings, docs/settings.md. Nothing is copied before topics are included.
[cluster]
name = "compose"
bootstrap_servers = "kafka:9092"

[topics]
include = []

[[log_dirs]]
broker_id = 1
path = "/srv/kafka/broker-1"
queue = "broker-1"

[remote_storage]
url = "s3://tiering/kafka"
endpoint_url = "https://versitygw:7070"
region = "us-east-1"
access_key_id = "{s3_access_key}"
secret_access_key = "{s3_secret_key}"

[metadata]
url = "postgresql+psycopg://tiering:{tiering_password}@postgres:5432/tiering?{verified}"

[airflow]
url = "http://airflow-api-server:8080"
login_file = "/run/secrets/airflow_operator.json"
"""
_VERIFIED = "sslmode=verify-full&sslrootcert=/run/secrets/ca.crt"
_REDIS_VERIFIED = "ssl_cert_reqs=required&ssl_ca_certs=/run/secrets/ca.crt"
_DATABASES_SQL = """\
CREATE ROLE airflow LOGIN PASSWORD '{airflow_password}';
CREATE DATABASE airflow OWNER airflow;
CREATE ROLE tiering LOGIN PASSWORD '{tiering_password}';
CREATE DATABASE tiering OWNER tiering;
REVOKE CONNECT ON DATABASE airflow, tiering FROM PUBLIC;
"""
_REDIS_CONF = """\
bind redis
port 0
tls-port 6379
tls-cert-file /run/secrets/redis.crt
tls-key-file /run/secrets/redis.key
tls-ca-cert-file /run/secrets/ca.crt
tls-auth-clients no
requirepass {redis_password}
save ""
"""
_SPARK_DEFAULTS = """\
# The secret that master, workers and drivers share.
spark.authenticate          true
spark.authenticate.secret   {spark_secret}
spark.network.crypto.enabled true
spark.io.encryption.enabled true
# One core for an application that asks for no number: a batch is one stream, and others need an executor, too.
spark.deploy.defaultCores   1
spark.master.rest.enabled   false
"""


def _password() -> str:
    return secrets.token_hex(24)


@dataclass(frozen=True, slots=True)
class _Passwords:
    """Secrets that templates name: made once for all files, because several files may have the same secret."""

    airflow_password: str = field(default_factory=_password)
    tiering_password: str = field(default_factory=_password)
    redis_password: str = field(default_factory=_password)
    spark_secret: str = field(default_factory=_password)
    s3_access_key: str = field(default_factory=lambda: secrets.token_hex(8))
    s3_secret_key: str = field(default_factory=_password)

    def fill(self, template: str) -> str:
        return template.format(
            verified=_VERIFIED, redis_verified=_REDIS_VERIFIED, **{name: getattr(self, name) for name in self.__slots__}
        )


def contents(tiering_toml: str = TIERING_TOML, addresses: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return all files with new secrets, by name.

    Args:
        tiering_toml: the library's settings, with names of passwords in braces.
        addresses: the IP address of each server, for clients that do not know its name.
    """
    made = _Passwords()
    database = made.fill("{{}}://airflow:{airflow_password}@postgres:5432/airflow?{verified}")
    return {
        "airflow_admin_password": secrets.token_urlsafe(16),
        "airflow_api_secret_key": _password(),
        "airflow_database_async_url": database.format("postgresql+psycopg_async"),
        "airflow_database_url": database.format("postgresql+psycopg"),
        "airflow_fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "airflow_jwt_secret": secrets.token_hex(48),
        "airflow_operator.json": _login("tiering-operator"),
        "airflow_reader.json": _login("tiering-reader"),
        "celery_broker_url": made.fill("rediss://:{redis_password}@redis:6379/0?{redis_verified}"),
        "celery_result_backend": database.format("db+postgresql+psycopg"),
        "databases.sql": made.fill(_DATABASES_SQL),
        "metrics_token": _password(),
        "postgres_password": _password(),
        "redis.conf": made.fill(_REDIS_CONF),
        "s3_access_key": made.s3_access_key,
        "s3_secret_key": made.s3_secret_key,
        "spark-defaults.conf": made.fill(_SPARK_DEFAULTS),
        "tiering.toml": made.fill(tiering_toml),
        **_certificates(addresses or {}),
    }


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS = "3650"


def _certificates(addresses: Mapping[str, str]) -> dict[str, str]:
    """Return the authority's certificate, and each server's key and certificate, for its name and any given address."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        authority = ("-subj", "/CN=tiering", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        _openssl(place, "req", "-x509", *_KEY, "-days", _DAYS, *authority, "-keyout", "ca.key", "-out", AUTHORITY)
        for server in _SERVERS:
            names = [f"DNS:{server}", *([f"IP:{addresses[server]}"] if server in addresses else [])]
            (place / "extensions").write_text(f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth\n")
            _openssl(place, "req", *_KEY, "-subj", f"/CN={server}", "-keyout", f"{server}.key", "-out", "request")
            signed = ("-CA", AUTHORITY, "-CAkey", "ca.key", "-days", _DAYS, "-extfile", "extensions")
            _openssl(place, "x509", "-req", "-in", "request", *signed, "-out", f"{server}.crt")
        return {
            name: (place / name).read_text()
            for name in (AUTHORITY, *(f"{server}.{kind}" for server in _SERVERS for kind in ("crt", "key")))
        }


def _openssl(directory: Path, *arguments: str) -> None:
    try:
        done = subprocess.run(
            ["/usr/bin/env", "openssl", *arguments], cwd=directory, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise RuntimeError(f"openssl cannot be started: {error}") from error
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr[-500:]}")


def _login(username: str) -> str:
    return json.dumps({"username": username, "password": _password()})


def write(directory: Path, files: Mapping[str, str], owner_of: Callable[[str], int | None]) -> None:
    """Write files with mode 0600 (the authority's certificate 0644); nothing if one of them exists.

    A directory that does not exist is made, with mode 0700.

    Raises:
        FileExistsError: a file exists: passwords would no longer match each other.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if found := sorted(name for name in files if (directory / name).exists()):
        raise FileExistsError(f"{directory} has {', '.join(found)} already: nothing was written")
    for name, text in files.items():
        descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        if name == AUTHORITY:
            (directory / name).chmod(0o644)
        if (owner := owner_of(name)) is not None:
            os.chown(directory / name, owner, -1)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("only root can give the files to the users of the containers: use sudo", file=sys.stderr)
        return 2
    try:
        write(Path(sys.argv[1]), contents(), lambda name: OWNERS.get(name, _PLATFORM))
    except FileExistsError as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"written to {sys.argv[1]}; the administrator of Airflow is admin, with the password in airflow_admin_password"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
