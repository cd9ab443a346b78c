"""Ports on loopback."""

import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_LISTENERS: Final = range(12_000, 32_000)
"""Below the ports that Linux gives to outgoing connections: one of those may take a port before its server does."""
_ATTEMPTS: Final = 100


def free_port(preferred: int | None = None) -> int:
    """`preferred` if nobody listens there, else one drawn by lot that is free now."""
    drawn = random.SystemRandom().sample(_LISTENERS, _ATTEMPTS)
    for port in drawn if preferred is None else (preferred, *drawn):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"none of {_ATTEMPTS} ports on loopback is free")
