"""Kafka brokers from Maven artifacts: jars, configuration, start, stop, kill."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
START_SECONDS: Final = 90.0
STOP_SECONDS: Final = 60.0
_JVM: Final = ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_READY: Final = "Kafka Server started"

# Small checkpoints intervals and indexes: a set is made in a minute and stays small.
_COMMON: Final = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.max.timeout.ms": "7200000",
    "log.index.size.max.bytes": "65536",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.flush.start.offset.checkpoint.interval.ms": "5000",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.dedupe.buffer.size": "2097152",
}
_LOG4J: Final = """\
status = error
appenders = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
"""


def fetch_jars(into: Path) -> Path:
    """The broker's jars, through Maven, once."""
    if not into.is_dir():
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={into}"], check=True)
    return into


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Java:
    """The JVM with Kafka on its class path."""

    jars: Path

    def command(self, *arguments: str) -> list[str]:
        return ["java", *_JVM, "-cp", f"{self.jars}/*", *arguments]

    def tool(self, *arguments: str) -> str:
        """Standard output of one of Kafka's tools. Raises CalledProcessError."""
        done = subprocess.run(self.command(*arguments), check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def log_facts(self, log_dir: Path) -> str:
        """What Kafka's classes say of a log directory: JSON. The source file is compiled as it is started."""
        command = ["java", *_JVM, "-cp", f"{self.jars}/*", str(HERE / "LogFacts.java"), str(log_dir)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@dataclass
class Broker:
    """One node; node 1 is also the controller."""

    java: Java
    node_id: int
    directory: Path
    port: int
    controller_port: int
    extra: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None

    @property
    def log_dir(self) -> Path:
        return self.directory / f"broker-{self.node_id}"

    @property
    def properties(self) -> Path:
        return self.directory / f"broker-{self.node_id}.server.properties"

    def format(self, cluster_id: str) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        is_controller = self.node_id == 1
        listeners = [f"PLAINTEXT://127.0.0.1:{self.port}"]
        if is_controller:
            listeners.append(f"CONTROLLER://127.0.0.1:{self.controller_port}")
        settings = {
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": ",".join(listeners),
            "advertised.listeners": listeners[0],
            "log.dirs": str(self.log_dir),
            **_COMMON,
            **self.extra,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.java.tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self.properties))

    def start(self, *, wait: bool = True) -> None:
        log4j = self.directory / "log4j2.properties"
        log4j.write_text(_LOG4J)
        output = (self.directory / f"broker-{self.node_id}.out").open("w")
        command = self.java.command(f"-Dlog4j2.configurationFile=file:{log4j}", "kafka.Kafka", str(self.properties))
        self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True)
        output.close()
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Raises RuntimeError if the broker ends or is not ready in time."""
        deadline = time.monotonic() + START_SECONDS
        output = self.directory / f"broker-{self.node_id}.out"
        while _READY not in output.read_text():
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"broker {self.node_id} did not start:\n{output.read_text()[-2000:]}")
            time.sleep(0.2)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        os.kill(self.process.pid, how)
        self.process.wait(STOP_SECONDS)
        self.process = None


def stop_all(brokers: Sequence[Broker]) -> None:
    """The controller, node 1, last."""
    for broker in sorted(brokers, key=lambda broker: -broker.node_id):
        broker.stop()
