"""Prepare a cluster: read the compose file, write secrets and settings, choose addresses, find programs."""

import os
import pwd
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from local.class_archive import class_archive
from local.cluster.cluster import Cluster
from local.cluster.compose import Service, image_environment, read_services
from local.cluster.host import Host, State, addresses, require_namespaces
from local.cluster.parts import PORTS, POSTGRES_USER, parts
from local.cluster.secret_files import TIERING_TOML, contents, write
from local.java import java_environment
from local.layout import ROOT
from local.ports import LOOPBACK
from local.secrets_store import write_private

BASE_URL_VARIABLE: Final = "AIRFLOW_BASE_URL"
CA_VARIABLE: Final = "AWS_CA_BUNDLE"
"""Tells S3 clients the file with the certificate of the authority that signed the store's certificate."""
_COMPOSE: Final = ROOT / "docker-compose.yaml"
_DOCKERFILE: Final = ROOT / "docker" / "platform.Dockerfile"
_UI_PORT: Final = 8080
_INHERITED: Final = ("HOME", "LANG", "TZ", "USER")
_POSTGRES_FILES: Final = frozenset({"postgres_password", "databases.sql", "postgres.crt", "postgres.key"})
_BUNDLED: Final = """\
[[log_dirs]]
broker_id = 1
path = "/srv/kafka/broker-1"
queue = "broker-1"

[[log_dirs]]
broker_id = 2
path = "/srv/kafka/broker-2"
"""
_ON_DEMAND: Final = {
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
    "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
    "AIRFLOW__API__WORKERS": "1",
    **{
        f"AIRFLOW__TIERING__{use_case}_SCHEDULE": ""
        for use_case in ("AUDIT", "COPY", "EXPIRATION", "HANDOVER_WATCH", "INGEST", "QUALITY", "SIZES")
    },
}
"""What a cluster for trying things out adds to the compose file: DAGs run only when triggered, and one process each
parses them and serves the API, with time-outs for busy cores."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """A cluster that is ready to start. `base_url` is Airflow's address.

    `no_broker` says why there is no Kafka; empty if there is one.
    """

    cluster: Cluster
    base_url: str
    bootstrap_servers: str
    no_broker: str

    def log_dirs(self) -> dict[int, Path]:
        """Return the brokers' log dirs by broker id."""
        volumes = {1: "kafka-data"} if not self.no_broker else {1: "kafka-data", 2: "kafka-data-2"}
        return {broker: self.cluster.host.volume(name) for broker, name in volumes.items()}


def assemble(root: Path, *, say: Callable[[str], None]) -> Assembled:
    """Write all files of a new cluster below `root`, which is empty or does not exist.

    Raises:
        NamespaceError: a process cannot have mounts of its own here.
        ProgramMissingError: a program is missing; the message says how to get it.
        RuntimeError: there is no usable Java, or the ports are used at every address.
    """
    require_namespaces()
    java = java_environment()
    state = State(root)
    state.create()
    described = read_services(_COMPOSE.read_text(), {})
    at = addresses(list(described), PORTS)
    base_url = f"http://{at['airflow-api-server']}:{_UI_PORT}"
    services = read_services(_COMPOSE.read_text(), {BASE_URL_VARIABLE: base_url})
    own = parts(services, state, at, os.environ)
    base = {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        **java,
        "PATH": f"{ROOT}/.venv/bin:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "NO_PROXY": "*",
        "no_proxy": "*",
    }
    host = Host(state, at, image_environment(_DOCKERFILE.read_text()), base, own.paths)
    host.write_hosts()
    write(state.secrets, contents(_settings_template(has_broker=own.has_broker), at), _owner)
    bootstrap = f"{at['kafka']}:29092"
    write_private(state.settings, _outside((state.secrets / "tiering.toml").read_text(), state, at, bootstrap))
    archive = class_archive({**base, **java, "SPARK_LOCAL_IP": LOOPBACK}, say)
    extra = {**_ON_DEMAND, "AIRFLOW__TIERING__SPARK_CLASS_ARCHIVE": str(archive or "")}
    running = {name: _with(service, extra) for name, service in own.services.items()}
    return Assembled(Cluster(state, running, host, say), base_url, bootstrap, own.no_broker)


def _with(service: Service, extra: Mapping[str, str]) -> Service:
    if not service.name.startswith("airflow"):
        return service
    return replace(service, environment={**service.environment, **extra})


def _settings_template(*, has_broker: bool) -> str:
    """Return the compose file's settings with all topics, and two batches for two cores."""
    text = TIERING_TOML.replace("include = []", 'include = ["*"]') + "\n[tiering.copier]\nmax.batches = 2\n"
    if not has_broker:
        text = re.sub(r"\[\[log_dirs\]\].*?\n\n", f"{_BUNDLED}\n", text, flags=re.DOTALL)
        text = text.replace('bootstrap_servers = "kafka:9092"\n', "")
    return text


def _outside(settings: str, state: State, at: Mapping[str, str], bootstrap: str) -> str:
    """Return settings for a process outside of the namespaces: addresses instead of names, and paths of volumes."""
    text = settings.replace("kafka:9092", bootstrap)
    for name in ("postgres", "versitygw", "airflow-api-server"):
        text = re.sub(rf"(?<=[@/]){name}(?=:\d)", at[name], text)
    for broker, volume in ((1, "kafka-data"), (2, "kafka-data-2")):
        text = text.replace(f"/srv/kafka/broker-{broker}", str(state.volumes / volume))
    return text.replace("/run/secrets", str(state.secrets))


def _owner(name: str) -> int | None:
    if os.geteuid() != 0 or name not in _POSTGRES_FILES:
        return None
    return pwd.getpwnam(POSTGRES_USER).pw_uid
