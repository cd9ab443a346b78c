"""Requests of the page *Tiering*, and those that change something: where they may come from, JSON, and answers.

Airflow's session is a cookie that browsers also send with requests of other sites, so such a request must be JSON, and
a browser's must come from a page of this server.
"""

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.web import answer_headers

if TYPE_CHECKING:
    from fastapi.responses import Response

    from include.tiering.app import App

HEADERS: Final = answer_headers("private, no-store")
_MOST_BYTES: Final = 4_096


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
    from fastapi.responses import JSONResponse

    from include.tiering.errors import SettingError, TieringError

    try:
        content = read()
    except SettingError as error:
        return refusal(HTTPStatus.BAD_REQUEST, str(error))
    except TieringError as error:
        return refusal(HTTPStatus.SERVICE_UNAVAILABLE if error.retriable else HTTPStatus.CONFLICT, str(error))
    return JSONResponse(content, headers=HEADERS) if made is None else made(content)


def refusal(status: HTTPStatus, detail: str) -> "Response":
    """Return a JSON document with the reason."""
    from fastapi.responses import JSONResponse

    return JSONResponse({"detail": detail}, status, HEADERS)


def read_app(read: "Callable[[App], Any]") -> Any:
    """Return what `read` returns of an app that is open meanwhile."""
    from plugins.tiering_airflow.hook import TieringHook

    with TieringHook().open() as app:
        return read(app)
