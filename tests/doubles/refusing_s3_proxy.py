"""A proxy on loopback before an S3 server that spoils requests: all of a kind, some deletes, some keys of others."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import unescape

_KEY = re.compile(rb"<Key>(.*?)</Key>")
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(frozen=True)
class Refusal:
    """The answer to every request whose ``METHOD /path?query`` matches."""

    request: re.Pattern[str]
    status: int
    code: str


@dataclass
class Spoiler:
    """Requests that match `refusal` are answered by it. `busy_requests` deletes are answered with 503; keys that match
    `locked` are refused, one by one.

    `delete_requests` counts what arrived, `refused_keys` what was kept.
    """

    refusal: Refusal | None = None
    busy_requests: int = 0
    locked: re.Pattern[str] | None = None
    delete_requests: int = 0
    refused_keys: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

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
        refusal = spoiler.refusal
        if refusal is not None and refusal.request.match(f"{self.command} {self.path}"):
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
