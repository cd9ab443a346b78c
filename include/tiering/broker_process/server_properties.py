"""What a broker on loopback is told: one text of `server.properties`, and how it logs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from include.tiering.broker_process.ports import Ports

_QUICK: Final[Mapping[str, str | int]] = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    "log.index.size.max.bytes": 65_536,
    "log.retention.check.interval.ms": 1_000,
    "log.initial.task.delay.ms": 500,
    "log.segment.delete.delay.ms": 1_000,
    "log.flush.start.offset.checkpoint.interval.ms": 1_000,
    "log.flush.offset.checkpoint.interval.ms": 1_000,
    # A busy machine's broker is not believed dead. After kill -9 this is how long it takes to come back.
    "broker.session.timeout.ms": 18_000,
}
_TIERING: Final[Mapping[str, str | int]] = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
    "rlmm.config.remote.log.metadata.topic.num.partitions": 3,
    "rlmm.config.remote.log.metadata.topic.min.isr": 1,
    "remote.log.manager.task.interval.ms": 500,
}
_LOG4J_2: Final = """\
status=warn
appender.file.type=File
appender.file.name=file
appender.file.fileName={log}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d{{HH:mm:ss,SSS}}] %p %m (%c)%n%ex
rootLogger.level=INFO
rootLogger.appenderRef.file.ref=file
"""
_RELOAD4J: Final = """\
log4j.rootLogger=INFO,file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={log}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=[%d{{HH:mm:ss,SSS}}] %p %m (%c)%n
"""


def server_properties(
    node_id: int, ports: Ports, log_dir: Path, remote_dir: Path | None, config: Mapping[str, str | int]
) -> str:
    """Node 1 is controller and broker, others are brokers. No `remote_dir`: no tiered storage."""
    first = node_id == 1
    listeners = f"PLAINTEXT://127.0.0.1:{ports.broker}"
    properties: dict[str, str | int] = {
        "process.roles": "broker,controller" if first else "broker",
        "node.id": node_id,
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{ports.controller}" if first else listeners,
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(log_dir),
        **_QUICK,
    }
    if remote_dir is not None:
        properties |= {**_TIERING, "rsm.config.dir": str(remote_dir)}
    return "".join(f"{name}={value}\n" for name, value in {**properties, **config}.items())


def logging_option(version: str, directory: Path, log: Path) -> str:
    """Writes the logging configuration into `directory`; the JVM's option that names it."""
    if version.startswith("3."):
        path, text, option = directory / "log4j.properties", _RELOAD4J, "log4j.configuration"
    else:
        path, text, option = directory / "log4j2.properties", _LOG4J_2, "log4j2.configurationFile"
    path.write_text(text.format(log=log))
    return f"-D{option}=file:{path}"
