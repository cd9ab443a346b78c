"""Questions to Airflow's REST API, over real HTTP to a server that answers by script."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from plugins.tiering_airflow.errors import AirflowApiError, AirflowApiUnavailableError
from plugins.tiering_airflow.rest import AirflowApi, Login

LOGIN = Login("reader", "s3cret")


class _Server(ThreadingHTTPServer):
    """Hands out numbered tokens; only the newest is good, and only for as many requests as `token_lasts`."""

    daemon_threads = True

    def __init__(self, token_lasts: int = 1000) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token_lasts = token_lasts
        self.tokens = 0
        self.uses = 0
        self.seen: list[tuple[str, str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.seen.append((self.command, self.path, body))
        if self.path == "/auth/token":
            self.server.tokens += 1
            self.server.uses = 0
            self._send(201, {"access_token": f"token-{self.server.tokens}"})
        elif self.headers["Authorization"] != f"Bearer token-{self.server.tokens}":
            self._send(401, {"detail": "stale"})
        elif self.server.uses >= self.server.token_lasts:
            self._send(401, {"detail": "expired"})
        elif self.path == "/api/v2/pools/remote_log_copier":
            self.server.uses += 1
            self._send(200, {"slots": 4})
        else:
            self._send(404, {"detail": "no such pool"})

    do_GET = do_POST = do_PATCH = _answer  # noqa: N815

    def _send(self, status: int, content: Any) -> None:
        encoded = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, *_: Any) -> None:
        return None


@contextmanager
def _serving(server: _Server) -> Iterator[_Server]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_one_token_serves_many_questions() -> None:
    with _serving(_Server()) as server:
        with AirflowApi(server.url, LOGIN) as api:
            answers = [api.pool_slots("remote_log_copier") for _ in range(3)]
        assert answers == [4, 4, 4]
    assert server.tokens == 1
    assert server.seen[0] == ("POST", "/auth/token", {"username": "reader", "password": "s3cret"})


def test_an_expired_token_is_renewed() -> None:
    with _serving(_Server(token_lasts=1)) as server:
        with AirflowApi(server.url, LOGIN) as api:
            answers = [api.pool_slots("remote_log_copier") for _ in range(3)]
        assert answers == [4, 4, 4]
    assert server.tokens == 3


def test_a_refusal_carries_airflows_words_and_no_password() -> None:
    with _serving(_Server()) as server, pytest.raises(AirflowApiError, match="no such pool") as refused:
        AirflowApi(server.url, LOGIN).pool_slots("other")
    assert not refused.value.retriable
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in repr(LOGIN)


class _Misleading(_Server):
    """Answers every request alike."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__()
        self.answer = status, text
        self.RequestHandlerClass = _MisleadingHandler


class _MisleadingHandler(_Handler):
    server: _Misleading

    def _same(self) -> None:
        status, text = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = _same  # noqa: N815


@pytest.mark.parametrize("text", ["<html>log in</html>", "[]", "{}", '{"access_token": 1}'])
def test_an_answer_that_is_not_airflows_is_a_typed_error(text: str) -> None:
    with _serving(_Misleading(200, text)) as server, pytest.raises(AirflowApiError):
        AirflowApi(server.url, LOGIN).pool_slots("remote_log_copier")


def test_a_login_that_is_repeated_in_the_refusal_is_not_shown() -> None:
    echo = json.dumps({"detail": [{"input": {"username": "reader", "password": LOGIN.password}}]})
    with _serving(_Misleading(422, echo)) as server, pytest.raises(AirflowApiError, match="422") as refused:
        AirflowApi(server.url, LOGIN).pool_slots("remote_log_copier")
    assert LOGIN.password not in str(refused.value)


def test_no_answer_is_worth_retrying() -> None:
    with _serving(_Server()) as server:
        url = server.url
    with AirflowApi(url, LOGIN) as api, pytest.raises(AirflowApiUnavailableError, match="does not answer"):
        api.get("/pools")


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    with _serving(_Server()) as server, AirflowApi(server.url, LOGIN) as api, pytest.raises(AirflowApiError):
        api.pool_slots("../dags?x=1")
    assert server.seen[-1][1] == "/api/v2/pools/..%2Fdags%3Fx%3D1"


def test_a_login_file_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "login.json"
    file.write_text(json.dumps({"username": "reader", "password": "s3cret"}))
    file.chmod(0o640)
    with pytest.raises(AirflowApiError, match="chmod 600"):
        Login.from_file(file)
    file.chmod(0o600)
    assert Login.from_file(file) == LOGIN


@pytest.mark.parametrize("content", ["", "[]", '{"username": "reader"}', "not json"])
def test_a_malformed_login_file_is_named_without_its_content(tmp_path: Path, content: str) -> None:
    file = tmp_path / "login.json"
    file.write_text(content)
    with pytest.raises(AirflowApiError, match=r"login\.json"):
        Login.from_file(file)
