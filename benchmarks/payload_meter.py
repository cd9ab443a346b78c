"""A proxy in front of an S3 server on loopback that counts payload as it arrives, as `s3_sink` does.

It passes every byte on as it is. Payload are the bodies of PUT requests, of the length that their headers give; a body
in chunks, which no upload of the product has, is refused.
"""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from benchmarks.s3_sink import Arrivals
from include.tiering.units import KIB

_BLOCK_BYTES: Final = 256 * KIB
_LOOPBACK: Final = "127.0.0.1"
_HEAD_ENDS: Final = b"\r\n\r\n"


class PayloadCounter:
    """Counts the payload of one connection's requests, in blocks of any size."""

    def __init__(self) -> None:
        self._head = b""
        self._body_bytes = 0
        self._is_payload = False

    def count(self, block: bytes) -> int:
        """Return how many bytes of the next block are payload. Raises ValueError for a body in chunks."""
        payload_bytes, at = 0, 0
        while at < len(block):
            if self._body_bytes:
                size_bytes = min(self._body_bytes, len(block) - at)
                payload_bytes += size_bytes if self._is_payload else 0
                self._body_bytes -= size_bytes
                at += size_bytes
            else:
                known_bytes = len(self._head)
                head, found, _ = (self._head + block[at:]).partition(_HEAD_ENDS)
                if not found:
                    self._head = head
                    return payload_bytes
                at += len(head) + len(found) - known_bytes
                self._begin(head)
        return payload_bytes

    def _begin(self, head: bytes) -> None:
        request, *lines = head.split(b"\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        if b"transfer-encoding" in headers:
            raise ValueError(f"{request!r} has a body in chunks")
        self._head, self._body_bytes = b"", int(headers.get(b"content-length", 0))
        self._is_payload = request.startswith(b"PUT ")


class _Proxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 1024
    upstream_port: int
    arrivals: Arrivals


class _Connection(socketserver.BaseRequestHandler):
    server: _Proxy

    def handle(self) -> None:
        with suppress(OSError), socket.create_connection((_LOOPBACK, self.server.upstream_port)) as upstream:
            for each in (self.request, upstream):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answers = threading.Thread(target=_pass_on, args=(upstream, self.request), daemon=True)
            answers.start()
            counter = PayloadCounter()
            while block := self.request.recv(_BLOCK_BYTES):
                if size_bytes := counter.count(block):
                    self.server.arrivals.add(size_bytes)
                upstream.sendall(block)
            upstream.shutdown(socket.SHUT_WR)
            answers.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while block := source.recv(_BLOCK_BYTES):
            target.sendall(block)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def payload_meter(upstream_port: int) -> Iterator[tuple[int, Arrivals]]:
    """Give the port of the proxy, which runs in threads of this process, and what arrives there."""
    server = _Proxy((_LOOPBACK, 0), _Connection)
    server.upstream_port, server.arrivals = upstream_port, Arrivals()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server.server_address[1], server.arrivals
    finally:
        server.shutdown()
        server.server_close()
