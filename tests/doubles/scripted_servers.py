"""Servers that answer as a test says."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from include.tiering.kafka.protocol.login import Address

# A server on loopback that answers as a test says, frame by frame; for what real brokers hardly ever do.

Script = Callable[[int, bytes], bytes | None]
"""From an API key and a correlation id (4 bytes) to what is sent back, size included; None closes the connection."""

API_VERSIONS: Final = 18
MOST_REQUEST_BYTES: Final = 100 << 20
"""Brokers close the connection on which more is announced (socket.request.max.bytes): a ClientHello, say."""
_APIS: Final = (1, 2, 3, 17, 23, 32, 36, 44, 61, 65, 66)


def frame(correlation_id: bytes, body: bytes, *, flexible: bool = True) -> bytes:
    message = correlation_id + (b"\0" if flexible else b"") + body
    return len(message).to_bytes(4) + message


def api_versions(correlation_id: bytes) -> bytes:
    """Knows version 0 to 20 of all that we ask."""
    apis = b"".join(key.to_bytes(2) + b"\0\0" + (20).to_bytes(2) + b"\0" for key in _APIS)
    return frame(correlation_id, b"\0\0" + bytes([len(_APIS) + 1]) + apis + bytes(4) + b"\0", flexible=False)


@contextmanager
def scripted_broker(script: Script) -> Iterator[Address]:
    """Listens for as long as the block lasts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server, script), daemon=True).start()
        host, port = server.getsockname()
        yield Address(host, port)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket, script: Script) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_converse, args=(connection, script), daemon=True).start()


def _converse(connection: socket.socket, script: Script) -> None:
    """Connections are served side by side: a client keeps one to a bootstrap server and one to each leader."""
    with suppress(OSError), connection, connection.makefile("rb") as reader:
        while len(size := reader.read(4)) == 4 and int.from_bytes(size) <= MOST_REQUEST_BYTES:
            request = reader.read(int.from_bytes(size))
            answer = script(int.from_bytes(request[:2]), request[4:8])
            if answer is None:
                return
            connection.sendall(answer)


# An S3 server that answers listings with what a test wrote down, one answer after another.

Answer = tuple[int, bytes] | tuple[int, bytes, int]
"""Status, body, and the length that the header claims if it is another."""


class ScriptedS3(ThreadingHTTPServer):
    """Questions about versioning are answered with no; the rest from the script. `asked` are parameters of listings."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.play(())

    def play(self, script: Sequence[Answer]) -> None:
        """From now on these answers."""
        self.script = iter(script)
        self.asked: list[dict[str, str]] = []

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def scripted_s3() -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedS3

    def do_GET(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query, True).items()}
        length: list[int]
        if "versioning" in asked:
            status, body, *length = 200, b"<VersioningConfiguration/>"
        else:
            self.server.asked.append(asked)
            status, body, *length = next(self.server.script)
        self.send_response(status)
        self.send_header("Content-Length", str(length[0] if length else len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_POST()

    def log_message(self, *_: Any) -> None:
        """Nothing to standard error."""
