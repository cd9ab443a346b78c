"""Ports on loopback for brokers."""

import secrets
import socket
from dataclasses import dataclass
from typing import Final

# Below what the kernel hands out to clients, so that a port is still free when a broker comes back.
_RANGE: Final = range(20_000, 31_000)


@dataclass(frozen=True, slots=True)
class Ports:
    """`controller` is the port of node 1's controller, for every node."""

    broker: int
    controller: int


def free_ports(count: int) -> list[int]:
    """Different ports on which nobody listens now."""
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
