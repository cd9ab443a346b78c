"""Requests that fail side by side do not take the retries from each other."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from include.tiering.errors import RemoteStorageError
from include.tiering.remote_storage.object_store import S3Credentials
from include.tiering.remote_storage.s3.store import S3ObjectStore

TRIES = 4
REQUESTS = 16
"""botocore would allow 35 retries to all of them together."""


class Server(ThreadingHTTPServer):
    """Answers every request with one status, and counts the requests by their path."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.status = status
        self.tries: Counter[str] = Counter()
        self.lock = threading.Lock()


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        with self.server.lock:
            self.server.tries[self.path] += 1
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(params=[503, 403])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(request.param)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_each_request_has_all_of_its_tries(server: Server) -> None:
    store = S3ObjectStore(
        "bucket",
        "",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        credentials=S3Credentials("id", "secret"),
        max_attempts=TRIES,
    )

    def ask(number: int) -> bool:
        try:
            store.stat(f"key-{number}")
        except RemoteStorageError as error:
            return error.retriable
        return False

    with ThreadPoolExecutor(REQUESTS) as threads:
        unavailable = list(threads.map(ask, range(REQUESTS)))
    expected = TRIES if server.status == 503 else 1
    assert unavailable == [server.status == 503] * REQUESTS
    assert server.tries == {f"/bucket/key-{number}": expected for number in range(REQUESTS)}
