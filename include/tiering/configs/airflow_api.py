"""Airflow's REST API over HTTP, with a token from the user, or with a login from a file that only its owner may use."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import httpx

from include.tiering.errors import AirflowApiError, AirflowApiUnavailableError
from include.tiering.settings.catalogue import AirflowSettings
from include.tiering.settings.secret_files import open_to_others
from include.tiering.units import MIB, format_bytes

MAX_ANSWER_BYTES: Final = 32 * MIB
_T = TypeVar("_T")
_UNAVAILABLE: Final = frozenset({502, 503, 504})
_DAG_TAG: Final = "tiering"
_DAG_PREFIX: Final = "tiering_"
_MOST_DAGS: Final = "100"
"""How many DAGs one request asks for: what an Airflow returns at most, unless `[api] maximum_page_limit` is changed."""
_DAGS_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Login:
    """The login of a user of Airflow. Reading pools needs Airflow's role `viewer`, resizing them the role `op`."""

    username: str
    password: str = field(repr=False)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read JSON: `{"username": ..., "password": ...}`.

        Raises:
            AirflowApiError: the file is absent or malformed, or its mode gives its group or others any permission.
        """
        try:
            mode = path.stat().st_mode
            content = json.loads(path.read_text())
            login = cls(content["username"], content["password"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AirflowApiError(f"{path} holds no login for Airflow's API: {type(error).__name__}") from error
        if refusal := open_to_others(f"{path} holds a password", mode):
            raise AirflowApiError(refusal)
        return login


@dataclass(frozen=True, slots=True)
class Token:
    """A token that the user provides. When it has expired, Airflow refuses the requests."""

    text: str = field(repr=False)


class AirflowApi:
    """JSON over HTTP. With a login, fetches a token before the first request, and again if Airflow answers 401.

    Close it after use.
    """

    def __init__(self, base_url: str, credentials: Login | Token, *, timeout_seconds: float = 30.0) -> None:
        self._client = httpx.Client(base_url=base_url.rstrip("/"), timeout=timeout_seconds)
        self._login = credentials if isinstance(credentials, Login) else None
        if isinstance(credentials, Token):
            self._use_token(credentials.text)

    @classmethod
    def at(cls, url: str, *, login_file: Path | None, token: str | None, timeout_seconds: float = 30.0) -> Self:
        """Make a client of the API server at `url`, with the token if there is one, otherwise the login in the file.

        Nothing is sent before the first request. The timeout is that of each step of a request: to connect, and to wait
        for the next bytes.

        Raises:
            AirflowApiError: both are None, or the file holds no login that is safe to use.
        """
        if token is not None:
            return cls(url, Token(token), timeout_seconds=timeout_seconds)
        if login_file is None:
            raise AirflowApiError("no login for Airflow's API: set airflow.login_file or airflow.token")
        return cls(url, Login.from_file(login_file), timeout_seconds=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, **query: str | list[str]) -> Any:
        """GET a path, which starts with a slash and is appended to `/api/v2`.

        Raises:
            AirflowApiError: Airflow refused the request or the login, or its answer is not JSON or exceeds 32 MiB.
            AirflowApiUnavailableError: Airflow did not answer, or answered with status 502, 503 or 504.
        """
        return self._request("GET", path, params=query)

    def post(self, path: str, body: Any) -> Any:
        return self._request("POST", path, json=body)

    def patch(self, path: str, body: Any) -> Any:
        return self._request("PATCH", path, json=body)

    def _request(self, method: str, path: str, **arguments: Any) -> Any:
        if "Authorization" not in self._client.headers:
            self._authorize()
        response = self._send(method, f"/api/v2{path}", **arguments)
        if response.status_code == httpx.codes.UNAUTHORIZED and self._login is not None:
            self._authorize()
            response = self._send(method, f"/api/v2{path}", **arguments)
        return _content(response)

    def _authorize(self) -> None:
        if self._login is None:
            return
        login = {"username": self._login.username, "password": self._login.password}
        answer = self._send("POST", "/auth/token", json=login)
        if not answer.is_success and answer.status_code not in _UNAVAILABLE:
            # The body is not shown: Airflow repeats a malformed login in it, including the password.
            raise AirflowApiError(f"Airflow's API at {self._client.base_url} refused the login ({answer.status_code})")
        self._use_token(member(_content(answer), "access_token", str))

    def _use_token(self, token: str) -> None:
        self._client.headers["Authorization"] = f"Bearer {token}"

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            with self._client.stream(method, path, **arguments) as response:
                return _bounded(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            where = self._client.base_url
            raise AirflowApiUnavailableError(f"Airflow's API at {where} does not answer: {error}") from error


def _bounded(response: httpx.Response) -> httpx.Response:
    """Read the body, and return the response with it. Raises AirflowApiError if it exceeds `MAX_ANSWER_BYTES`."""
    body = bytearray()
    for block in response.iter_bytes():
        body += block
        if len(body) > MAX_ANSWER_BYTES:
            request = response.request
            raise AirflowApiError(
                f"{request.method} {request.url.path} was answered with more than {format_bytes(MAX_ANSWER_BYTES)}:"
                " is it Airflow?"
            )
    # The body is decoded already, so the header about its encoding is left out.
    headers = {"content-type": response.headers.get("content-type", "")}
    return httpx.Response(response.status_code, headers=headers, content=bytes(body), request=response.request)


def _content(response: httpx.Response) -> Any:
    """Return the JSON of a response, None if it is empty.

    Raises:
        AirflowApiError: the status is an error, or the body is not JSON.
        AirflowApiUnavailableError: the status is 502, 503 or 504.
    """
    request = response.request
    if response.is_success:
        try:
            return response.json() if response.content else None
        except (ValueError, RecursionError) as error:
            raise AirflowApiError(
                f"{request.method} {request.url} was not answered with JSON: is it Airflow?"
            ) from error
    kind = AirflowApiUnavailableError if response.status_code in _UNAVAILABLE else AirflowApiError
    raise kind(f"{request.method} {request.url.path} was refused with {response.status_code}: {response.text[:500]}")


def member(content: Any, name: str, kind: type[_T]) -> _T:
    """Return a member of a JSON object. Raises AirflowApiError unless `content` has this member, with this type."""
    found = content.get(name) if isinstance(content, dict) else None
    if not isinstance(found, kind):
        raise AirflowApiError(f"the answer of Airflow's API has no {name}: is it Airflow?")
    return found


def dags_in_airflow(airflow: AirflowSettings) -> Mapping[str, bool]:
    """Return the platform's DAGs by id, in alphabetical order, each with whether it is paused.

    DAGs that Airflow does not have, or does not show to this user, are absent.

    Raises:
        AirflowApiError: neither a token nor a login is set, or as `AirflowApi.get` raises it.
        AirflowApiUnavailableError: Airflow did not answer (within 5 seconds for each step of a request), or answered
            with status 502, 503 or 504.
    """
    token = None if airflow.token is None else airflow.token.get_secret_value()
    with AirflowApi.at(airflow.url, login_file=airflow.login_file, token=token, timeout_seconds=_DAGS_SECONDS) as api:
        found = member(api.get("/dags", tags=_DAG_TAG, limit=_MOST_DAGS), "dags", list)
    by_id = {member(dag, "dag_id", str): member(dag, "is_paused", bool) for dag in found}
    return {dag_id: by_id[dag_id] for dag_id in sorted(by_id) if dag_id.startswith(_DAG_PREFIX)}
