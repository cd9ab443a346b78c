"""Ports on loopback."""

import socket

LOOPBACK = "127.0.0.1"


def free_port(preferred: int | None = None) -> int:
    """`preferred` if nobody listens there, else one that the system gives out now."""
    for port in (preferred, 0):
        if port is None:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("the system has no free port on loopback")
