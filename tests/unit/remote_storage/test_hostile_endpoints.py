"""Servers that lead a client elsewhere, or are not who they say: no request with a login leaves for another host, and
nothing is read from a server whose certificate is not that of the endpoint."""

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from include.tiering.configs.airflow_api import AirflowApi, Login, Token
from include.tiering.errors import AirflowApiError, RemoteStorageError
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.object_store import BytesSource, KeyInterval, S3Credentials, crc32c_of
from include.tiering.remote_storage.s3.listing import S3Listing
from include.tiering.remote_storage.s3.store import S3ObjectStore
from tests.doubles.kafka_lab.certificates import Authority, Pem
from tests.doubles.s3_server import ACCESS_KEY, SECRET_KEY

CONTENT: Final = BytesSource(b"a log")
CREDENTIALS: Final = S3Credentials(ACCESS_KEY, SECRET_KEY)
MAX_ATTEMPTS: Final = 2


class Server(ThreadingHTTPServer):
    """Answers every request alike. `asked` has their methods; `secrets` what they said about who asks."""

    daemon_threads = True

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.headers = status, headers
        self.asked: list[str] = []
        self.secrets: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(self.command)
        self.server.secrets.append(self.headers.get("Authorization"))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Every method of HTTP is handled alike."""
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Nothing to standard error."""


@contextmanager
def serving(status: int, headers: Mapping[str, str] | None = None, *, pem: Pem | None = None) -> Iterator[Server]:
    with Server(status, headers or {}) as server:
        if pem is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem.certificate, pem.key)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def put(store: S3ObjectStore) -> object:
    crc32c = crc32c_of(CONTENT.content)
    return store.put("a/b", CONTENT, crc32c, limiter=UnlimitedBytes(), on_sent=lambda _: None)


def delete(store: S3ObjectStore) -> None:
    for failure in store.delete(["a/b"]):
        raise RemoteStorageError(failure.message)


REQUESTS: Final[dict[str, Callable[[S3ObjectStore], object]]] = {
    "stat": lambda store: store.stat("a/b"),
    "read": lambda store: list(store.read("a/b", limiter=UnlimitedBytes())),
    "put": put,
    "replace": lambda store: store.replace("a/b", b"marker"),
    "delete": delete,
    "list": lambda store: list(store.list_objects()),
    "uploads": lambda store: list(store.list_open_uploads()),
}


def store_at(url: str) -> S3ObjectStore:
    return S3ObjectStore("bucket", "", endpoint_url=url, credentials=CREDENTIALS, max_attempts=MAX_ATTEMPTS)


@pytest.mark.parametrize("region", [None, "eu-west-9"])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_an_s3_server_that_redirects_is_not_followed(status: int, region: str | None) -> None:
    with serving(200) as elsewhere:
        headers = {"Location": f"{elsewhere.url}/bucket/a/b"}
        if region is not None:
            headers["x-amz-bucket-region"] = region
        with serving(status, headers) as server:
            store = store_at(server.url)
            for name, request in REQUESTS.items():
                asked = len(server.asked)
                with pytest.raises(RemoteStorageError):
                    request(store)
                assert 0 < len(server.asked) - asked <= 2 * MAX_ATTEMPTS, name
            listing = S3Listing(
                "bucket", "", endpoint_url=server.url, credentials=CREDENTIALS, max_attempts=MAX_ATTEMPTS
            )
            with pytest.raises(RemoteStorageError):
                list(listing.pages(KeyInterval()))
        assert elsewhere.asked == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("credentials", [Login("admin", "s3cr3t-word"), Token("s3cr3t-token")])
def test_an_airflow_that_redirects_gets_the_login_alone(status: int, credentials: Login | Token) -> None:
    with (
        serving(200) as elsewhere,
        serving(status, {"Location": f"{elsewhere.url}/auth/token"}) as server,
        AirflowApi(server.url, credentials, timeout_seconds=10) as api,
    ):
        with pytest.raises(AirflowApiError) as refused:
            api.get("/pools")
        assert server.asked
        assert elsewhere.asked == []
        assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize("trusted", ["nobody", "another", "of another name"])
def test_an_s3_server_with_a_wrong_certificate_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: str
) -> None:
    authority = Authority(tmp_path, "authority")
    if trusted == "another":
        monkeypatch.setenv("AWS_CA_BUNDLE", str(Authority(tmp_path, "other").certificate))
    elif trusted == "of another name":
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.certificate))
    pem = authority.sign("server", address=trusted != "of another name")
    with serving(200, pem=pem) as server:
        store = store_at(server.url.replace("http:", "https:"))
        for request in REQUESTS.values():
            with pytest.raises(RemoteStorageError, match="TLS failed"):
                request(store)
        assert server.asked == []


def test_an_s3_server_with_the_right_certificate_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path, "authority")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.certificate))
    with serving(404, pem=authority.sign("server")) as server:
        assert store_at(server.url.replace("http:", "https:")).stat("a/b") is None
        assert server.asked == ["HEAD"]
