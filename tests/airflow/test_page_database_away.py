"""The page *Tiering* while PostgreSQL cuts its connections, is away and comes back: it says so, and goes on."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import make_url

from plugins.tiering_airflow.web import page
from plugins.tiering_airflow.web.page import URL_PREFIX
from plugins.tiering_airflow.web.requests import KeptApp
from tests.airflow.conftest import Ask
from tests.doubles.airflow_home import Deployment, deployed_for, deployment
from tests.doubles.databases import administer, create_postgresql_database, new_name

__all__ = ["create_postgresql_database"]

pytestmark = [
    pytest.mark.integration,
    # Airflow's web application imports a test client.
    pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`"),
]

READS: Final = (
    *("now", "topics", "topics.csv", "topic?name=orders", "segments?topic=orders&partition=0", "limits"),
    *("attention", "quality", "backfill", "retention?topic=orders"),
)
SAME_ORIGIN: Final = {"Origin": "http://airflow", "Sec-Fetch-Site": "same-origin"}
CUT: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{0}' AND pid <> pg_backend_pid()"
SHARED_SECONDS: Final = 2.1
"""So long viewers share an answer, that of the throughput apart."""
MOST_SECONDS: Final = 15
"""The page gives up after 30."""


@pytest.fixture(autouse=True)
def closed_app(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An API server keeps its app as long as it lives."""
    kept = KeptApp()
    monkeypatch.setattr(page, "KeptApp", lambda: kept)
    yield
    kept.close()


@pytest.fixture
def deployed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, create_postgresql_database: Callable[[str], str]
) -> Deployment:
    monkeypatch.setenv("TIERING_METADATA__URL", create_postgresql_database(new_name()))
    return deployed_for(monkeypatch, deployment(tmp_path))


def test_a_database_that_is_away_in_the_middle(ask: Ask, deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed.copied("orders")
    with deployed.open() as app:
        app.sizes.report()
        url = make_url(app.settings.metadata.url.get_secret_value())
    name, server = str(url.database), url.set(database="postgres")

    def read() -> list[int]:
        time.sleep(SHARED_SECONDS)
        return [ask(f"{URL_PREFIX}/{path}", "viewer").status_code for path in READS]

    def pause() -> int:
        body = {"topic": "orders", "paused": True}
        return ask(f"{URL_PREFIX}/pause", "op", "POST", json=body, headers=SAME_ORIGIN).status_code

    assert set(read()) == {200}
    administer(server, CUT.format(name))
    assert set(read()) <= {200, 503}
    assert set(read()) == {200}

    administer(server, CUT.format(name), f'ALTER DATABASE "{name}" RENAME TO "{name}_away"')
    time.sleep(SHARED_SECONDS)
    begun = time.monotonic()
    for path in READS:
        answer = ask(f"{URL_PREFIX}/{path}", "viewer")
        assert (answer.status_code, list(answer.json())) == (503, ["detail"]), path
        assert name in answer.json()["detail"]
    assert pause() == 503
    assert time.monotonic() - begun < MOST_SECONDS
    assert ask(f"{URL_PREFIX}/", "viewer").status_code == 200

    administer(server, f'ALTER DATABASE "{name}_away" RENAME TO "{name}"')
    assert set(read()) == {200}
    with deployed.open() as app:
        assert app.adapters.stores.work.paused_topics() == frozenset()
    assert pause() == 200
    assert ask(f"{URL_PREFIX}/now", "viewer").json()["paused_topics"] == ["orders"]
