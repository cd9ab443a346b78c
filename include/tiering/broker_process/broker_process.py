"""Configure, format, start and stop one broker process on loopback, and find the errors in its log.

Processes are ended by pid. On Linux with the program setpriv (util-linux), the kernel kills a broker that
`ends_with_starter` as soon as the thread that started the broker has ended, also if kill -9 ended it. Elsewhere such a
broker runs on after kill -9, until a person ends it by its pid.
"""

import re
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from include.tiering.broker_process.kafka_home import java
from include.tiering.clock import Clock, SystemClock
from include.tiering.errors import BrokerProcessError, PortTakenError

# Linux assigns only higher ports to clients by default, so no client takes the port of a broker that restarts.
_RANGE: Final = range(20_000, 31_000)


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a node. `controller` is the port of node 1's controller for every node."""

    broker: int
    controller: int


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that are not in use on loopback now."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(_RANGE)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


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
    # This is long enough that a broker on a busy machine is not fenced. After kill -9 a restart may take as long.
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
    """Return server.properties. Node 1 is controller and broker, others are brokers.

    Args:
        node_id: the node.
        ports: its ports.
        log_dir: its log directory.
        remote_dir: the directory of LocalTieredStorage; with None the broker has no tiered storage.
        config: additional properties, which replace other properties of the same name.
    """
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
    """Write the logging configuration into `directory`, and return the JVM option that names it."""
    if version.startswith("3."):
        path, text, option = directory / "log4j.properties", _RELOAD4J, "log4j.configuration"
    else:
        path, text, option = directory / "log4j2.properties", _LOG4J_2, "log4j2.configurationFile"
    path.write_text(text.format(log=log))
    return f"-D{option}=file:{path}"


_START_SECONDS: Final = 300
_STOP_SECONDS: Final = 240
_POLL_SECONDS: Final = 0.1
_READY: Final = "Kafka Server started"
# A broker logs this after _READY. If the broker is stopped before it has logged this, stopping takes a minute.
_READY_TO_TIER: Final = "Initialized topic-based RLMM resources successfully"
_PORT_TAKEN: Final = "Address already in use"
_SMALL_JVM: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
)
_ERROR: Final = re.compile(r"^\[[\d:,]+\] (?:ERROR|FATAL) ")
# A clean stop may log an error, because the consumer of the metadata topic is closed while it polls. This is the line
# after that error.
_CLEAN_STOP: Final = re.compile(r"not subscribed to any topics or assigned any partitions")
# Controllers, quorums and heartbeats log errors if the machine is busy.
_BUSY: Final = re.compile(
    r"\(org\.apache\.kafka\.(controller|raft|metadata)\.|BrokerLifecycleManager|NodeToController|ControllerApis"
)
_FORMAT_SHOWN: Final = 1_000
_LOG_SHOWN: Final = 3_000


@dataclass
class BrokerProcess:
    """A broker process. `directory` has its configuration and `server.log`, `log_dir` has its partitions.

    `class_path` names Kafka's jars, and `logging` is the JVM option that names the logging configuration. `tiering`
    says that the broker has remote storage, `ends_with_starter` that it must not outlive the thread that starts it.
    """

    node_id: int
    directory: Path
    log_dir: Path
    port: int
    class_path: str
    logging: str
    tiering: bool
    heap_mib: int = 384
    niceness: int = 10
    ends_with_starter: bool = False
    clock: Clock = field(default_factory=SystemClock, repr=False)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def configuration(self) -> Path:
        return self.directory / "server.properties"

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerProcessError if the broker does not run."""
        if self.process is None:
            raise BrokerProcessError(f"broker {self.node_id} does not run")
        if (ended := self.process.poll()) is not None:
            how = f"signal {-ended}" if ended < 0 else f"exit code {ended}"
            raise BrokerProcessError(f"broker {self.node_id} does not run: it ended with {how}; its log is {self.log}")
        return self.process.pid

    def format(self, cluster_id: str) -> None:
        """Format the log directory with StorageTool. Raises BrokerProcessError if the tool exits with an error."""
        command = [*self._java("-Xmx128m"), "kafka.tools.StorageTool", "format"]
        command += ["-t", cluster_id, "-c", str(self.configuration)]
        done = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, timeout=_START_SECONDS, check=False
        )
        if done.returncode != 0:
            output = f"{done.stdout[-_FORMAT_SHOWN:]}{done.stderr[-_FORMAT_SHOWN:]}"
            raise BrokerProcessError(f"format of broker {self.node_id}: {output}")

    def start(self) -> None:
        """Start the broker, and wait until its log says that it is ready.

        With `tiering`, the broker's remote log metadata manager must be ready as well.

        Raises:
            PortTakenError: the broker did not start, because another process uses one of its ports.
            BrokerProcessError: the broker exited, or was not ready within five minutes, and was killed.
        """
        log_position = self.log.stat().st_size if self.log.exists() else 0
        heap = (f"-Xms{self.heap_mib // 2}m", f"-Xmx{self.heap_mib}m")
        command = [*self._java(*heap, self.logging, *self.options()), "kafka.Kafka", str(self.configuration)]
        if self.ends_with_starter and (setpriv := shutil.which("setpriv")) is not None:
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with (self.directory / "output").open("ab") as output:
            self.process = subprocess.Popen(
                command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        deadline = self.clock.monotonic() + _START_SECONDS
        awaited = (_READY, _READY_TO_TIER) if self.tiering else (_READY,)
        while not all(words in (logged := self.log_since(log_position)) for words in awaited):
            if self.process.poll() is not None or self.clock.monotonic() > deadline:
                self.kill()
                taken = _PORT_TAKEN in logged
                raise (PortTakenError if taken else BrokerProcessError)(self._start_failure())
            self.clock.sleep(_POLL_SECONDS)

    def options(self) -> tuple[str, ...]:
        """Return additional JVM options; a subclass may override this."""
        return ()

    def stop(self) -> None:
        """Stop the broker with SIGTERM, and kill it if it runs for four more minutes. Do nothing if it does not run."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the broker with SIGKILL. Do nothing if it was never started."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def errors(self) -> list[str]:
        """Return the lines of level ERROR or FATAL in the whole log.

        The harmless error of a clean stop is left out, and so are all errors of controllers, quorums and heartbeats,
        which a busy machine may cause.
        """
        lines = self.log_since(0).splitlines()
        with_next = zip(lines, [*lines[1:], ""], strict=True)
        errors = [line for line, then in with_next if _ERROR.match(line) and not _CLEAN_STOP.search(then)]
        return [line for line in errors if not _BUSY.search(line)]

    def log_since(self, position: int) -> str:
        """Return the log from this byte position on; an empty text if there is no log."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")

    def _java(self, *options: str) -> list[str]:
        # Libraries that Java unpacks would stay in /tmp when a broker is killed.
        options = (f"-Djava.io.tmpdir={self.directory}", *options)
        return ["nice", "-n", str(self.niceness), java(), *_SMALL_JVM, *options, "-cp", self.class_path]

    def _start_failure(self) -> str:
        output = (self.directory / "output").read_text(errors="replace")
        return f"broker {self.node_id} did not start: {self.log_since(0)[-_LOG_SHOWN:]}{output[-_FORMAT_SHOWN:]}"
