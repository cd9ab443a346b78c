"""A proxy on loopback that loses answers: the server has done the work, the client never hears of it."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_CHUNK_BYTES = 1 << 16


class LossyProxy:
    """`lose(pattern)`: the answer to the next request whose first line matches is swallowed, and the connection cut.

    `lost` holds those first lines, so that a test can prove that it happened. With `breaks_off_after_bytes` every
    connection is cut when so much of an answer has been passed on.
    """

    def __init__(self, upstream_url: str, *, breaks_off_after_bytes: int | None = None) -> None:
        parts = urlsplit(upstream_url)
        self._upstream = (parts.hostname or "", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._rules: list[re.Pattern[bytes]] = []
        self._lock = threading.Lock()
        self._breaks_off_after_bytes = breaks_off_after_bytes
        self._sockets: list[socket.socket] = []
        self.lost: list[str] = []
        self.endpoint_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def lose(self, pattern: str) -> None:
        with self._lock:
            self._rules.append(re.compile(pattern.encode()))

    def close(self) -> None:
        # Awake before the descriptor is given to somebody else: it would go on accepting there.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        with self._lock:
            for opened in self._sockets:
                _cut(opened)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._upstream)
            with self._lock:
                self._sockets += [client, server]
            cut = threading.Event()
            threading.Thread(target=self._forward_requests, args=(client, server, cut), daemon=True).start()
            threading.Thread(target=self._forward_answers, args=(server, client, cut), daemon=True).start()

    def _forward_requests(self, client: socket.socket, server: socket.socket, cut: threading.Event) -> None:
        with suppress(OSError):
            while chunk := client.recv(_CHUNK_BYTES):
                if self._matches(chunk.partition(b"\r\n")[0]):
                    cut.set()
                server.sendall(chunk)
        _cut(server)

    def _forward_answers(self, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        left_bytes = self._breaks_off_after_bytes
        with suppress(OSError):
            while (chunk := server.recv(_CHUNK_BYTES)) and not cut.is_set():
                client.sendall(chunk[:left_bytes])
                if left_bytes is not None:
                    left_bytes -= len(chunk)
                    if left_bytes <= 0:
                        break
        _cut(client)
        _cut(server)

    def _matches(self, first_line: bytes) -> bool:
        with self._lock:
            for rule in self._rules:
                if rule.match(first_line):
                    self._rules.remove(rule)
                    self.lost.append(first_line.decode(errors="replace"))
                    return True
        return False


def _cut(opened: socket.socket) -> None:
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
    opened.close()


@contextmanager
def lossy_proxy(upstream_url: str, *, breaks_off_after_bytes: int | None = None) -> Iterator[LossyProxy]:
    proxy = LossyProxy(upstream_url, breaks_off_after_bytes=breaks_off_after_bytes)
    try:
        yield proxy
    finally:
        proxy.close()
