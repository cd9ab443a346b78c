"""Proxies before an S3 server: one loses answers, one refuses requests."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import unescape

# A proxy on loopback that loses answers: the server has done the work, the client never hears of it.

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


# A proxy on loopback before an S3 server that spoils requests: all of a kind, some deletes, some keys of others.

_KEY = re.compile(rb"<Key>(.*?)</Key>")
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(frozen=True)
class Refusal:
    """The answer to requests whose ``METHOD /path?query`` matches: to all of them, or to one of `one_of` of them."""

    request: re.Pattern[str]
    status: int
    code: str
    one_of: int = 1


@dataclass
class Spoiler:
    """Requests that match `refusal` are answered by it. `busy_requests` deletes are answered with 503; keys that match
    `locked` are refused, one by one.

    `delete_requests` counts what arrived, `refused_keys` what was kept, `matching` the requests that matched a refusal.
    """

    refusal: Refusal | None = None
    busy_requests: int = 0
    locked: re.Pattern[str] | None = None
    delete_requests: int = 0
    matching: int = 0
    refused_keys: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def refuses(self, request: str) -> Refusal | None:
        refusal = self.refusal
        if refusal is None or not refusal.request.match(request):
            return None
        with self.lock:
            self.matching += 1
            return refusal if self.matching % refusal.one_of == 0 else None

    def is_busy(self) -> bool:
        with self.lock:
            self.busy_requests -= 1
            return self.busy_requests >= 0


class Handler(BaseHTTPRequestHandler):
    """One connection; what it needs to know is on the server."""

    protocol_version = "HTTP/1.1"
    server: "SpoilingServer"

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Every method of HTTP is handled alike."""
        if name.startswith("do_"):
            return self.handle_request
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""

    def handle_request(self) -> None:
        spoiler = self.server.spoiler
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        refusal = spoiler.refuses(f"{self.command} {self.path}")
        if refusal is not None:
            self.answer(refusal.status, f"<Error><Code>{refusal.code}</Code><Message/></Error>".encode())
            return
        if self.command == "POST" and "delete" in urlsplit(self.path).query:
            spoiler.delete_requests += 1
            if spoiler.is_busy():
                self.answer(503, b"<Error><Code>SlowDown</Code><Message>slow down</Message></Error>")
                return
            if spoiler.locked is not None:
                self.delete_but_locked(body, spoiler.locked)
                return
        self.forward(body)

    def delete_but_locked(self, body: bytes, locked: re.Pattern[str]) -> None:
        keys = [unescape(key.decode()) for key in _KEY.findall(body)]
        kept = [key for key in keys if locked.search(key)]
        self.server.spoiler.refused_keys += kept
        others = [{"Key": key} for key in keys if key not in kept]
        if others:
            bucket = unquote(urlsplit(self.path).path).strip("/")
            self.server.client.delete_objects(Bucket=bucket, Delete={"Objects": others})
        refusals = (f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message/></Error>" for key in kept)
        self.answer(200, f"<DeleteResult>{''.join(refusals)}</DeleteResult>".encode())

    def forward(self, body: bytes) -> None:
        upstream = self.server.upstream
        connection = HTTPConnection(upstream.hostname or "", upstream.port, timeout=240)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class SpoilingServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream_url: str, client: Any) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream = urlsplit(upstream_url)
        self.client = client
        self.spoiler = Spoiler()


@contextmanager
def refusing_s3_proxy(upstream_url: str, client: Any) -> Iterator[tuple[str, Spoiler]]:
    """The proxy's endpoint URL, and what it spoils; `client` reaches the server directly."""
    server = SpoilingServer(upstream_url, client)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", server.spoiler
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
