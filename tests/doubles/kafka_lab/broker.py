"""One broker process: formatted, started, stopped, killed, and what it wrote into its log."""

import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.doubles.kafka_lab.artifacts import class_path, java

START_SECONDS: Final = 300
_STOP_SECONDS: Final = 240
_READY: Final = "Kafka Server started"
# Said later. A broker that is stopped before it has read its remote log metadata takes a minute to stop.
_READY_TO_TIER: Final = "Initialized topic-based RLMM resources successfully"
_PORT_TAKEN: Final = "Address already in use"
_SMALL_JVM: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
)
_ERROR: Final = re.compile(r"^\[[\d:,]+\] (?:ERROR|FATAL) ")
# The line after an error that the consumer of the metadata topic logs at a clean stop: it is closed while it polls.
_OF_A_STOP: Final = re.compile(r"not subscribed to any topics or assigned any partitions")
# Controllers, quorums and heartbeats say as errors that the machine is busy.
_BUSY: Final = re.compile(r"\(org\.apache\.kafka\.(controller|raft|metadata)\.|BrokerLifecycleManager|NodeToController")


class BrokerFailedError(Exception):
    """A broker ended, or was not ready in time. With the end of its log."""


class PortTakenError(BrokerFailedError):
    """Somebody else listens on its port."""


@dataclass
class KafkaBroker:
    """`directory` holds its configuration and `server.log`; `log_dir` its partitions. `jmx_port` 0: no JMX."""

    node_id: int
    version: str
    directory: Path
    log_dir: Path
    port: int
    logging: str
    tiering: bool
    heap_mib: int = 384
    jmx_port: int = 0
    niceness: int = 10
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
        """Raises: BrokerFailedError, when it does not run."""
        if self.process is None or self.process.poll() is not None:
            raise BrokerFailedError(f"broker {self.node_id} does not run")
        return self.process.pid

    def format(self, cluster_id: str) -> None:
        """Makes its log dir one of that cluster, with Kafka's own tool."""
        command = [*self._java("-Xmx128m"), "kafka.tools.StorageTool", "format"]
        command += ["-t", cluster_id, "-c", str(self.configuration)]
        done = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, timeout=START_SECONDS, check=False
        )
        if done.returncode != 0:
            raise BrokerFailedError(f"format of broker {self.node_id}: {done.stdout[-1000:]}{done.stderr[-1000:]}")

    def start(self) -> None:
        """Returns when it says that it has started, and knows its remote segments if it tiers.

        Raises:
            BrokerFailedError: it ended, or was not ready within `START_SECONDS`.
        """
        already_said = self.log.stat().st_size if self.log.exists() else 0
        heap = (f"-Xms{self.heap_mib // 2}m", f"-Xmx{self.heap_mib}m")
        command = [*self._java(*heap, self.logging, *self._jmx()), "kafka.Kafka", str(self.configuration)]
        with (self.directory / "output").open("ab") as output:
            self.process = subprocess.Popen(
                command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        deadline = time.monotonic() + START_SECONDS
        awaited = (_READY, _READY_TO_TIER) if self.tiering else (_READY,)
        while not all(words in (said := self._said_since(already_said)) for words in awaited):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                taken = _PORT_TAKEN in said
                raise (PortTakenError if taken else BrokerFailedError)(self._last_words())
            time.sleep(0.1)

    def stop(self) -> None:
        """As an operator does: TERM, then waits; kills it after `_STOP_SECONDS`. Nothing if it does not run."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """kill -9. Nothing if it does not run."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        """A clean stop, then a start on the same ports: leader epochs of what it leads rise."""
        self.stop()
        self.start()

    def errors(self) -> list[str]:
        """Lines of level ERROR or FATAL since it was first started, about records, segments and clients: a clean stop's
        harmless one and what tells of a busy machine are left out."""
        lines = self._lines()
        with_next = zip(lines, [*lines[1:], ""], strict=True)
        errors = [line for line, then in with_next if _ERROR.match(line) and not _OF_A_STOP.search(then)]
        return [line for line in errors if not _BUSY.search(line)]

    def lines(self, pattern: str) -> list[str]:
        """Lines of its log in which the regular expression is found."""
        return [line for line in self._lines() if re.search(pattern, line)]

    def disk_bytes(self) -> tuple[int, int]:
        """(read from, written to) storage by the process so far; (asked for by read calls) is `rchar`, not this."""
        io = self._io()
        return io["read_bytes"], io["write_bytes"]

    def _io(self) -> dict[str, int]:
        text = Path(f"/proc/{self.pid}/io").read_text()
        return {name: int(value) for name, value in (line.split(": ") for line in text.splitlines())}

    def _java(self, *options: str) -> list[str]:
        return ["nice", "-n", str(self.niceness), java(), *_SMALL_JVM, *options, "-cp", class_path(self.version)]

    def _jmx(self) -> list[str]:
        if not self.jmx_port:
            return []
        loopback = ["-Dcom.sun.management.jmxremote.host=127.0.0.1", "-Djava.rmi.server.hostname=127.0.0.1"]
        ports = [f"-Dcom.sun.management.jmxremote.{name}={self.jmx_port}" for name in ("port", "rmi.port")]
        open_to_all = [f"-Dcom.sun.management.jmxremote.{name}=false" for name in ("authenticate", "ssl")]
        return [*loopback, *ports, *open_to_all]

    def _lines(self) -> list[str]:
        return self._said_since(0).splitlines()

    def _said_since(self, position: int) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")

    def _last_words(self) -> str:
        output = (self.directory / "output").read_text(errors="replace")
        return f"broker {self.node_id} did not start: {self._said_since(0)[-3000:]}{output[-1000:]}"
