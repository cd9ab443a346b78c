"""Fixtures that the tests of Airflow share; a module whose deployment begins otherwise extends `deployed`."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest
from fastapi import FastAPI

from tests.doubles.airflow_home import Deployment, airflow_database, deployed_for, deployment

NO_ROLE = "nobody"
Ask = Callable[..., httpx.Response]


class Plugin(Protocol):
    fastapi_apps: Sequence[Any]


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    """A deployment that operators of this process find, with nothing copied."""
    return deployed_for(monkeypatch, deployment(tmp_path))


@pytest.fixture(scope="module")
def requests_to() -> Iterator[Callable[[type[Plugin]], Ask]]:
    """Send requests of users, logged in as Airflow does it, to a plugin's application where Airflow mounts it."""
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    airflow_database()
    manager: Any = create_auth_manager()

    def header(role: str | None) -> dict[str, str]:
        user = SimpleAuthManagerUser(username=f"a {role}", role=role)
        return {"Authorization": f"Bearer {manager.generate_jwt(user)}"}

    def mounted(plugin: type[Plugin]) -> Ask:
        (application,) = plugin.fastapi_apps
        airflow = FastAPI()
        airflow.mount(application["url_prefix"], application["app"])

        def send(path: str, role: str | None = "viewer", method: str = "GET", **request: Any) -> httpx.Response:
            headers = {**({} if role == NO_ROLE else header(role)), **request.pop("headers", {})}

            async def sent() -> httpx.Response:
                transport = httpx.ASGITransport(app=airflow)
                async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
                    return await client.request(method, path, headers=headers, **request)

            return asyncio.run(sent())

        return send

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s" * 64)
        manager.init()
        yield mounted


@pytest.fixture
def ask(deployed: Deployment, requests_to: Callable[..., Ask]) -> Iterator[Ask]:
    """Send requests of users to the page *Tiering* of the deployment."""
    from plugins.tiering_airflow.web import page

    page.make_application.cache_clear()
    yield requests_to(page.TieringPagePlugin)
    page.make_application.cache_clear()
