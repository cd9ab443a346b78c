"""An Airflow plugin that shows the deletion plan of a run of `tiering_expiration`, and lets a user withdraw it.

    GET  /tiering/expiration/dags/{dag_id}/runs/{run_id}   the plan; changes nothing
    POST /tiering/expiration/dags/{dag_id}/withdraw        JSON: {"dag_run_id": ..., "run_id": ...}

Users who may read the logs of that DAG's tasks see the page; users who may change its runs can withdraw the plan.
Airflow's session is a cookie that browsers also send with requests of other sites, so a request to withdraw must be
JSON, and a browser's must come from a page of this server. Airflow loads this file in every process, so the web
application is created at the first request.
"""

from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from airflow.plugins_manager import AirflowPlugin

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.web import answer_headers, mounted
from plugins.tiering_airflow.web.requests import body_of, refused

if TYPE_CHECKING:
    from fastapi import FastAPI

    from include.tiering.app import App
    from include.tiering.expiration.deletion_page import ShownPlan

URL_PREFIX: Final = "/tiering/expiration"
DAG_ID: Final = "tiering_expiration"
_HEADERS: Final = answer_headers("private, no-store")


@cache
def make_application() -> "FastAPI":
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
    from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
    from fastapi import Depends, FastAPI, Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import JSONResponse, Response

    from include.tiering.errors import TieringError
    from include.tiering.expiration.deletion_page import POLICY, deletion_page
    from plugins.tiering_airflow.hook import TieringHook

    may_read = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.TASK_LOGS))
    may_change_runs = Depends(requires_access_dag(method="PUT", access_entity=DagAccessEntity.RUN))
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/dags/{dag_id}/runs/{run_id:path}", dependencies=[may_read])
    def page(dag_id: str, run_id: str, user: GetUserDep) -> Response:
        withdraws = get_auth_manager().is_authorized_dag(
            method="PUT", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag_id), user=user
        )
        try:
            with TieringHook().open() as app:
                plans = _plans(app, run_id) if dag_id == DAG_ID else []
                names = app.topic_lifecycle.shared_names() if plans else ()
        except TieringError as error:
            return Response(str(error), HTTPStatus.SERVICE_UNAVAILABLE, _HEADERS, "text/plain")
        content = deletion_page(run_id, plans, withdraw_at=_address(dag_id) if withdraws else None, shared_names=names)
        status = HTTPStatus.OK if plans else HTTPStatus.NOT_FOUND
        return Response(content, status, {**_HEADERS, "Content-Security-Policy": POLICY}, "text/html")

    @app.post("/dags/{dag_id}/withdraw", dependencies=[may_change_runs])
    async def withdraw(dag_id: str, request: Request, user: GetUserDep) -> JSONResponse:
        if refusal := refused(request.headers):
            return JSONResponse({"detail": refusal}, HTTPStatus.FORBIDDEN, _HEADERS)
        wanted = _wanted(await body_of(request))
        if wanted is None or dag_id != DAG_ID:
            return JSONResponse({"detail": "name the DAG run and its planned run"}, HTTPStatus.BAD_REQUEST, _HEADERS)
        status, detail = await run_in_threadpool(_withdraw, *wanted, user.get_name())
        return JSONResponse({"detail": detail}, status, _HEADERS)

    return app


def _wanted(body: Any) -> tuple[str, str] | None:
    """Return the ids of the DAG run and of its planned run; None if they are missing."""
    if not isinstance(body, dict):
        return None
    dag_run_id, run_id = body.get("dag_run_id"), body.get("run_id")
    return (dag_run_id, run_id) if isinstance(dag_run_id, str) and isinstance(run_id, str) else None


def _withdraw(dag_run_id: str, run_id: str, user: str) -> tuple[HTTPStatus, str]:
    from include.tiering.errors import TieringError
    from include.tiering.expiration.report import present_withdrawal
    from plugins.tiering_airflow.hook import TieringHook

    try:
        with TieringHook().open() as app:
            if run_id not in app.adapters.stores.deletions.tries_of(_planned(dag_run_id)):
                return HTTPStatus.NOT_FOUND, "this run has no such plan"
            withdrawn = app.expiration.withdraw(run_id, author=f"{user} (page of {DAG_ID} {dag_run_id})")
    except TieringError as error:
        status = HTTPStatus.SERVICE_UNAVAILABLE if error.retriable else HTTPStatus.CONFLICT
        return status, str(error)
    return HTTPStatus.OK, present_withdrawal(withdrawn).summary


def _plans(app: "App", dag_run_id: str) -> "list[ShownPlan]":
    from include.tiering.expiration.deletion_page import ShownPlan
    from include.tiering.runs.deletion_limits import WINDOW_MS

    store, asked = app.adapters.stores.deletions, app.adapters.stores.plan_questions.find(f"{DAG_ID} {dag_run_id}")
    return [
        ShownPlan(
            store.run(run_id),
            store.plan(run_id),
            store.items(run_id),
            store.totals(run_id, window_ms=WINDOW_MS),
            asked if asked is not None and asked.subject == run_id else None,
        )
        for run_id in store.tries_of(_planned(dag_run_id))
    ]


def _planned(dag_run_id: str) -> str:
    from plugins.tiering_airflow.shared import EXPIRATION_PREFIX

    return f"{EXPIRATION_PREFIX}{dag_run_id}"


def _address(dag_id: str) -> str:
    """Return the path to which the page sends a withdrawal; no host, as the page may be opened by any host name."""
    prefix = urlsplit(configuration.api_base_url()).path.rstrip("/")
    return f"{prefix}{URL_PREFIX}/dags/{quote(dag_id, '')}/withdraw"


application: Final = mounted(make_application)
_APPLICATIONS: Final = [{"app": application, "url_prefix": URL_PREFIX, "name": "Tiering: deletion plans"}]
_TABS: Final = [
    {
        "name": "Deletion plan",
        "href": f"{URL_PREFIX}/dags/{{DAG_ID}}/runs/{{RUN_ID}}",
        "destination": "dag_run",
        "url_route": "tiering-deletion-plan",
    }
]


class DeletionPlanPlugin(AirflowPlugin):
    """Registers the routes of deletion plans, and a tab that Airflow shows for each DAG run."""

    name = "tiering_deletion_plans"
    fastapi_apps = _APPLICATIONS
    external_views = _TABS
