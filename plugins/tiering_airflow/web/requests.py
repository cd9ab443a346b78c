"""Requests of the page *Tiering*, and those that change something: where they may come from, JSON, and answers.

Airflow's session is a cookie that browsers also send with requests of other sites, so such a request must be JSON, and
a browser's must come from a page of this server.
"""

import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.web import answer_headers

if TYPE_CHECKING:
    from fastapi.responses import Response
    from pydantic import TypeAdapter

    from include.tiering.app import App
    from include.tiering.settings import TieringSettings

HEADERS: Final = answer_headers("private, no-store")
_MOST_BYTES: Final = 4_096
_KEPT_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 5.0


def refused(headers: Mapping[str, str]) -> str | None:
    """Return why a request that changes something is refused; None if it is accepted.

    Browsers send the site from which a request comes, and another site cannot change that. A request without this
    information must have an `authorization` header.
    """
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return "send application/json"
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin"):
        return f"the request comes from another site ({site!r}): open the page in Airflow"
    if origin is not None and not _is_same_origin(origin, headers.get("host", "")):
        return "the request comes from another origin: open the page in Airflow"
    if site is None and origin is None and "authorization" not in headers:
        return "the request has neither an origin nor a token"
    return None


def _is_same_origin(origin: str, host: str) -> bool:
    try:
        own, asked = urlsplit(configuration.api_base_url()), urlsplit(origin)
    except ValueError:
        return False
    is_configured = (asked.scheme, asked.netloc) == (own.scheme, own.netloc)
    return asked.scheme in ("http", "https") and (is_configured or (bool(host) and asked.netloc == host))


async def body_of(request: Any) -> Any:
    """Return the JSON of a request of at most 4,096 bytes; None if it is longer or invalid."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > _MOST_BYTES:
            return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def answer(read: Callable[[], Any], made: "Callable[[Any], Response] | None" = None) -> "Response":
    """Return what `read` returns, as JSON unless `made` makes another response of it; or the reason why it failed."""
    from fastapi.responses import Response

    from include.tiering.errors import SettingError, TieringError

    try:
        content = read()
    except SettingError as error:
        return refusal(HTTPStatus.BAD_REQUEST, str(error))
    except TieringError as error:
        return refusal(HTTPStatus.SERVICE_UNAVAILABLE if error.retriable else HTTPStatus.CONFLICT, str(error))
    if made is not None:
        return made(content)
    return Response(_documents().dump_json(content), headers=HEADERS, media_type="application/json")


@cache
def _documents() -> "TypeAdapter[Any]":
    """Return what writes JSON: FastAPI's own classes take a millisecond of the processor for a list of 500 topics."""
    from pydantic import TypeAdapter

    return TypeAdapter(Any)


def refusal(status: HTTPStatus, detail: str) -> "Response":
    """Return a JSON document with the reason."""
    from fastapi.responses import JSONResponse

    return JSONResponse({"detail": detail}, status, HEADERS)


class Shared:
    """Keeps what was read for a short time, so that many viewers cost one read. A failure is not kept.

    Who comes while another request reads the same waits for it, and gets its result or its failure. The wait is short:
    a database that does not answer must not hold all threads with which Airflow's API server answers.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._reads: dict[Any, tuple[float, Future[Any]]] = {}

    def get(self, key: Any, read: Callable[[], Any]) -> Any:
        """Return what was read under this key, or read it.

        Raises:
            MetadataUnavailableError: another request has been reading it for a while.
            Exception: what `read` raises.
        """
        with self._lock:
            now = time.monotonic()
            self._reads = {known: kept for known, kept in self._reads.items() if now < kept[0]}
            _, found = self._reads.get(key, (0.0, None))
            if found is None:
                own: Future[Any] = Future()
                self._reads[key] = (math.inf, own)
        if found is None:
            return self._read(key, own, read)
        try:
            return found.result(_PATIENCE_SECONDS)
        except FutureTimeoutError:
            from include.tiering.errors import MetadataUnavailableError

            raise MetadataUnavailableError(
                f"the database has not answered another request for more than {_PATIENCE_SECONDS:.0f} seconds"
            ) from None

    def _read(self, key: Any, own: Future[Any], read: Callable[[], Any]) -> Any:
        try:
            value = read()
        except BaseException as error:
            self._keep(key, own, until=0.0)
            own.set_exception(error)
            raise
        self._keep(key, own, until=time.monotonic() + self._seconds)
        own.set_result(value)
        return value

    def _keep(self, key: Any, own: Future[Any], *, until: float) -> None:
        """Keep a read until then, unless something was changed after it began."""
        with self._lock:
            if self._reads.get(key, (0.0, None))[1] is own:
                self._reads[key] = (until, own)

    def changed(self, change: Callable[[], Any]) -> Any:
        """Return what `change` returns; afterwards nothing that was read before is returned."""
        try:
            return change()
        finally:
            with self._lock:
                self._reads = {}


class KeptApp:
    """An app that reads share, so that a request does not open the database again; writes open their own.

    Settings and connections of Airflow may change, so they are read again after `_KEPT_SECONDS`. If they are the same,
    only the connections to the database are opened again, because a new app prepares each statement anew. The app is
    also opened again after an error that was not about the request. Reads that are under way end with the app that they
    began with.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[ExitStack, App] | None = None
        self._read_at = 0.0

    def read(self, read: "Callable[[App], Any]") -> Any:
        """Return what `read` returns of the app; pass its errors on."""
        from include.tiering.errors import SettingError

        app = self._app()
        try:
            return read(app)
        except SettingError:
            raise
        except Exception:
            self._forget(app)
            raise

    def _app(self) -> "App":
        from include.tiering.app import open_app
        from plugins.tiering_airflow.hook import TieringHook

        with self._lock:
            if self._kept is None or time.monotonic() - self._read_at >= _KEPT_SECONDS:
                settings = TieringHook().settings()
                if self._kept is not None and not _is_current(self._kept[1], settings):
                    self.close()
                if self._kept is None:
                    stack = ExitStack()
                    self._kept = (stack, stack.enter_context(open_app(settings)))
                self._read_at = time.monotonic()
            return self._kept[1]

    def _forget(self, app: "App") -> None:
        with self._lock:
            if self._kept is not None and self._kept[1] is app:
                self.close()

    def close(self) -> None:
        """Close the app, if one is open; the next read opens another one."""
        if self._kept is not None:
            self._kept[0].close()
            self._kept = None


def _is_current(app: "App", settings: "TieringSettings") -> bool:
    from include.tiering.app.adapters import reconnect
    from include.tiering.errors import TieringError

    if app.settings != settings:
        return False
    try:
        reconnect(app.adapters)
    except TieringError:
        return False
    return True


def read_app(read: "Callable[[App], Any]") -> Any:
    """Return what `read` returns of an app that is open meanwhile."""
    from plugins.tiering_airflow.hook import TieringHook

    with TieringHook().open() as app:
        return read(app)
