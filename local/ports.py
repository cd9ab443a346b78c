"""Ports on loopback."""

import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_LISTENERS: Final = range(12_000, 32_000)
"""Below the ephemeral ports of Linux, which an outgoing connection could take before the server binds them."""
_ATTEMPTS: Final = 100


def free_port(preferred: int | None = None) -> int:
    """Return `preferred` if it is free, else a random port that is free now. Raises OSError after 100 attempts."""
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
