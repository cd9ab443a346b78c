"""Shared by the web applications of the plugins: the mounted ASGI application, and the headers of every response.

Airflow loads the plugins' files in every process, so a plugin creates its FastAPI application at the first request.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI

_Message = MutableMapping[str, Any]
_Application = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]
]


def mounted(make: "Callable[[], FastAPI]") -> _Application:
    """Return the ASGI application that Airflow mounts. It gets the FastAPI application from `make` at each request."""

    async def application(
        scope: _Message, receive: Callable[[], Awaitable[_Message]], send: Callable[[_Message], Awaitable[None]]
    ) -> None:
        await make()(scope, receive, send)

    return application


def answer_headers(cache_control: str) -> dict[str, str]:
    """Return the headers of every response."""
    return {
        "Cache-Control": cache_control,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "SAMEORIGIN",
    }
