"""What the images of other projects do at their start, done here: PostgreSQL, redis, versitygw and Kafka.

The platform's own services need none of this: their commands run as they stand in the compose file.
"""

import base64
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from include.tiering.broker_process.broker_process import Ports as BrokerPorts
from include.tiering.broker_process.broker_process import logging_option, server_properties
from include.tiering.broker_process.kafka_home import java, kafka_by_maven
from include.tiering.errors import KafkaMissingError
from local.cluster.compose import HealthCheck, Mount, Service
from local.cluster.host import State
from local.cluster.programs import postgresql_directory, redis_directory, versitygw_directory
from local.layout import ROOT
from local.sample_data import broker_log_dirs, unpack

POSTGRES_USER: Final = "nobody"
"""PostgreSQL refuses to run as root."""
PORTS: Final = (5432, 6379, 7070, 7077, 8080, 8081, 8974, 9092, 9093, 29092)
BROKERS_LOG_DIR: Final = "/srv/kafka/broker-1"
"""Where the services that read the broker's log dir mount it."""
_HERE: Final = ROOT / "local" / "cluster"
_CONFIGURATION, _REMOTE = "kafka-configuration", "kafka-remote"
_HEAP: Final = ("-Xms192m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_ANSWERS: Final = (
    "from confluent_kafka.admin import AdminClient;"
    "AdminClient({'bootstrap.servers': 'kafka:9092', 'log_level': 0}).list_topics(timeout=5)"
)
_OTHER_BROKER: Final = "kafka-data-2"


@dataclass(frozen=True, slots=True)
class Parts:
    """The services as they run here, and by service the directory of its programs.

    `no_broker` says why there is no Kafka; empty if there is one.
    """

    services: Mapping[str, Service]
    paths: Mapping[str, Path]
    no_broker: str

    @property
    def has_broker(self) -> bool:
        return not self.no_broker


def parts(
    services: Mapping[str, Service], state: State, addresses: Mapping[str, str], environ: Mapping[str, str]
) -> Parts:
    """Return the services of the compose file as they run on this machine. Makes the volumes that images bring.

    Raises:
        ProgramMissingError: PostgreSQL, redis or versitygw is missing.
    """
    found = dict(services)
    objects = state.volumes / "objects"
    rows = state.volumes / "postgres-data"
    for directory in (objects / "data" / "tiering", objects / "versions", rows):
        directory.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        shutil.chown(rows, POSTGRES_USER)
    found["postgres"] = replace(
        found["postgres"], command=("sh", str(_HERE / "postgres.sh"), *found["postgres"].command)
    )
    gateway = found["versitygw"]
    script = {"/etc/versitygw.sh": str(ROOT / "docker" / "versitygw.sh")}
    found["versitygw"] = replace(gateway, command=tuple(script.get(part, part) for part in gateway.command))
    paths = {
        "postgres": postgresql_directory(),
        "redis": redis_directory(),
        "versitygw": versitygw_directory(),
    }
    try:
        found["kafka"] = _broker(found["kafka"], state, addresses["kafka"], environ)
    except KafkaMissingError as error:
        return Parts(_without_broker(found, state), paths, str(error))
    return Parts(found, paths, "")


def readers(services: Mapping[str, Service]) -> set[str]:
    """Return the services that mount the broker's log dir to read it, and go on running."""
    return {
        name
        for name, service in services.items()
        if not service.runs_once and BROKERS_LOG_DIR in {mount.target for mount in service.mounts}
    }


def _broker(service: Service, state: State, address: str, environ: Mapping[str, str]) -> Service:
    """Return the broker's service, with properties from its variables, quick checkpoints, and remote storage.

    Raises:
        KafkaMissingError: there is no Maven, or it does not bring Kafka's jars.
    """
    home = kafka_by_maven(environ)
    here, inside = state.volumes / _CONFIGURATION, Path("/srv") / _CONFIGURATION
    for directory in (here, state.volumes / _REMOTE):
        directory.mkdir(parents=True, exist_ok=True)
    named = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in service.environment.items()
    }
    listener = named["inter.broker.listener.name"]
    named |= {
        "advertised.listeners": f"INSIDE://kafka:9092,HOST://{address}:29092",
        "remote.log.metadata.manager.listener.name": listener,
        "rsm.config.dir": f"/srv/{_REMOTE}",
    }
    text = server_properties(1, BrokerPorts(9092, 9093), Path(named["log.dirs"]), Path("/srv") / _REMOTE, named)
    (here / "server.properties").write_text(text)
    logging = logging_option(home.version, here, inside / "server.log").replace(str(here), str(inside))
    cluster_id = base64.urlsafe_b64encode(b"\x01" + secrets.token_bytes(15)).decode().rstrip("=")
    virtual_machine = (java(), *_HEAP, logging, f"-Djava.io.tmpdir={inside}", "-cp", home.class_path)
    return replace(
        service,
        command=("sh", str(_HERE / "kafka.sh"), cluster_id, str(inside / "server.properties"), *virtual_machine),
        environment={},
        mounts=(*service.mounts, Mount(_CONFIGURATION, str(inside)), Mount(_REMOTE, f"/srv/{_REMOTE}")),
        health_check=HealthCheck((str(ROOT / ".venv/bin/python"), "-c", _ANSWERS), 2, 30, 60),
    )


def _without_broker(services: Mapping[str, Service], state: State) -> dict[str, Service]:
    """Return the services without Kafka; its volume has the bundled log dir of a broker, a second volume another's.

    Without a broker, the cluster's metadata is in the log dirs alone, so each service of Airflow has to read them.
    """
    dirs = broker_log_dirs(unpack("public", state.root / "bundled") / "stopped")
    for volume, broker in (("kafka-data", 1), (_OTHER_BROKER, 2)):
        if not (state.volumes / volume).exists():
            dirs[broker].rename(state.volumes / volume)
    mounts = {
        Mount("kafka-data", BROKERS_LOG_DIR, read_only=True): None,
        Mount(_OTHER_BROKER, "/srv/kafka/broker-2", read_only=True): None,
    }
    return {
        name: replace(
            service,
            needs=tuple(need for need in service.needs if need != "kafka"),
            mounts=tuple({**dict.fromkeys(service.mounts), **mounts})
            if name.startswith(("airflow", "spark-worker"))
            else service.mounts,
        )
        for name, service in services.items()
        if name != "kafka"
    }
