"""One broker process of the lab: what its log says, what it read and wrote, and JMX."""

import re
from dataclasses import dataclass
from pathlib import Path

from include.tiering.broker_process.broker_process import BrokerProcess


@dataclass
class KafkaBroker(BrokerProcess):
    """`jmx_port` 0: no JMX."""

    version: str = ""
    jmx_port: int = 0

    def restart(self) -> None:
        """A clean stop, then a start on the same ports: leader epochs of what it leads rise."""
        self.stop()
        self.start()

    def lines(self, pattern: str) -> list[str]:
        """Lines of its log in which the regular expression is found."""
        return [line for line in self.log_since(0).splitlines() if re.search(pattern, line)]

    def disk_bytes(self) -> tuple[int, int]:
        """(read from, written to) storage by the process so far; (asked for by read calls) is `rchar`, not this."""
        io = self._io()
        return io["read_bytes"], io["write_bytes"]

    def options(self) -> tuple[str, ...]:
        if not self.jmx_port:
            return ()
        loopback = ("-Dcom.sun.management.jmxremote.host=127.0.0.1", "-Djava.rmi.server.hostname=127.0.0.1")
        ports = (f"-Dcom.sun.management.jmxremote.{name}={self.jmx_port}" for name in ("port", "rmi.port"))
        open_to_all = (f"-Dcom.sun.management.jmxremote.{name}=false" for name in ("authenticate", "ssl"))
        return (*loopback, *ports, *open_to_all)

    def _io(self) -> dict[str, int]:
        text = Path(f"/proc/{self.pid}/io").read_text()
        return {name: int(value) for name, value in (line.split(": ") for line in text.splitlines())}
