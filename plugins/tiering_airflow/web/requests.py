"""Requests that change something: where they may come from, and their JSON.

Airflow's session is a cookie that browsers also send with requests of other sites, so such a request must be JSON, and
a browser's must come from a page of this server.
"""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from plugins.tiering_airflow import configuration

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
