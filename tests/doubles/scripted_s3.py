"""An S3 server that answers listings with what a test wrote down, one answer after another."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

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
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing to standard error."""
