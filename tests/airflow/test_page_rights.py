"""Who may use which route of the page *Tiering*: every route, method and role, foreign origins, and no token.

`pytest -rP` prints the table of statuses by route, method and role.
"""

from typing import Any, Final
from urllib.parse import urlencode

import pytest
from fastapi.routing import APIRoute
from sqlalchemy import func, select

from include.tiering.database.schema import dynamic_config_changes, events
from plugins.tiering_airflow.web import page
from plugins.tiering_airflow.web.page import ASSETS, URL_PREFIX
from tests.airflow.conftest import Ask
from tests.doubles.airflow_home import Deployment

# Airflow's web application imports a test client.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`")

SEE: Final = {"nobody": 401, None: 403, "viewer": 200, "user": 200, "op": 200, "admin": 200}
CHANGE: Final = {"nobody": 401, None: 403, "viewer": 403, "user": 400, "op": 400, "admin": 400}
"""The body of these requests is empty: status 400 is that of a user who may do it, and says what to send."""
RIGHTS: Final[dict[tuple[str, str], dict[str | None, int]]] = {
    ("GET", "/"): SEE,
    ("GET", "/assets/{name}"): SEE,
    ("GET", "/now"): SEE,
    ("GET", "/throughput"): SEE,
    ("GET", "/attention"): SEE,
    ("GET", "/quality"): SEE,
    ("GET", "/backfill"): SEE,
    ("GET", "/topics"): SEE,
    ("GET", "/topics.csv"): SEE,
    ("GET", "/topic"): SEE,
    ("GET", "/segments"): SEE,
    ("GET", "/limits"): SEE,
    ("GET", "/retention"): SEE,
    ("GET", "/runbook"): SEE,
    ("POST", "/pause"): CHANGE,
    ("POST", "/limits"): CHANGE,
    ("POST", "/accept"): CHANGE,
    ("POST", "/skip"): CHANGE,
}
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PATHS: Final = sorted({path for _, path in RIGHTS})
SAME_ORIGIN: Final = {"Origin": "http://airflow", "Sec-Fetch-Site": "same-origin"}
FOREIGN: Final = (
    {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {**SAME_ORIGIN, "Content-Type": "text/plain"},
)


@pytest.fixture
def deployed(deployed: Deployment) -> Deployment:
    deployed.copied("orders")
    return deployed


def address(path: str) -> str:
    queries = {"/topic": "?name=orders", "/segments": "?topic=orders&partition=0", "/retention": "?topic=orders"}
    return URL_PREFIX + path.replace("{name}", next(iter(ASSETS))) + queries.get(path, "")


def recorded(deployed: Deployment) -> tuple[int, ...]:
    with deployed.open() as app, app.adapters.engine.connect() as connection:
        tables = (events, dynamic_config_changes)
        return tuple(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables)


def test_the_table_has_every_route() -> None:
    routes = [route for route in page.make_application().routes if isinstance(route, APIRoute)]
    found = {(method, route.path) for route in routes for method in route.methods - {"HEAD"}}
    page.make_application.cache_clear()
    assert found == set(RIGHTS)


@pytest.mark.parametrize("path", PATHS)
def test_every_role_with_every_method(ask: Ask, deployed: Deployment, path: str) -> None:
    before = recorded(deployed)
    for method in METHODS:
        rights, statuses = RIGHTS.get((method, path)), {}
        for role in SEE:
            body: dict[str, Any] = {"json": {}} if method in ("POST", "PUT", "PATCH") else {}
            answer = ask(address(path), role, method, headers=SAME_ORIGIN, **body)
            if rights is None:
                assert answer.status_code in (401, 403, 405), (method, role)
            else:
                assert answer.status_code == rights[role], (method, role, answer.text)
            if answer.status_code in (401, 403):
                assert "orders" not in answer.text
            statuses[role or "no role"] = answer.status_code
        print(f"{method:8}{path:16}", *(f"{role} {status}" for role, status in statuses.items()), sep=" | ")  # noqa: T201 - the table
    assert recorded(deployed) == before


@pytest.mark.parametrize("path", [path for method, path in RIGHTS if method == "POST"])
def test_foreign_origins_and_requests_without_a_token_change_nothing(ask: Ask, deployed: Deployment, path: str) -> None:
    before = recorded(deployed)
    for role in ("user", "op", "admin"):
        for headers in FOREIGN:
            assert ask(address(path), role, "POST", json={}, headers=headers).status_code == 403, (role, headers)
    for headers in ({}, SAME_ORIGIN, *FOREIGN):
        assert ask(address(path), "nobody", "POST", json={}, headers=headers).status_code == 401, headers
        forged = {**headers, "Authorization": "Bearer forged"}
        assert ask(address(path), "nobody", "POST", json={}, headers=forged).status_code in (401, 403), headers
    assert recorded(deployed) == before


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "../../etc/passwd", "a' OR 1=1--", "%00", "x" * 3_000])
def test_hostile_names_are_refused_and_never_markup(ask: Ask, text: str) -> None:
    wanted = (("/topic", "name"), ("/retention", "topic"), ("/topics", "sort"), ("/segments?partition=0", "topic"))
    for path, name in wanted:
        separator = "&" if "?" in path else "?"
        answer = ask(f"{URL_PREFIX}{path}{separator}{urlencode({name: text})}")
        assert (answer.status_code, list(answer.json())) == (400, ["detail"])
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
    answer = ask(f"{URL_PREFIX}/segments", params={"topic": "orders", "partition": "0", "topic_id": text})
    assert (answer.status_code, list(answer.json())) == (400, ["detail"])
    for parameter in ("retention_ms", "retention_bytes", "partitions"):
        answer = ask(f"{URL_PREFIX}/retention", params={"topic": "orders", parameter: text})
        assert (answer.status_code, list(answer.json())) == (400, ["detail"])
