"""An Airflow plugin that serves the data docs.

    GET /tiering/quality/dags/{dag_id}/index.html          runs of a DAG
    GET /tiering/quality/dags/{dag_id}/{page}/index.html   one run, by the name of its page
    GET /tiering/quality/dags/{dag_id}/runs/{run_id}       one run, by its id

Every route checks with Airflow that the user may read the logs of that DAG's tasks. Only pages of the data docs are
served: a DAG id or a page name becomes part of a path only if it has the form of one, and of a run id only harmless
characters and a hash do. Airflow loads this file in every process, so the web application is created at the first
request.
"""

from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from airflow.plugins_manager import AirflowPlugin

from plugins.tiering_airflow.data_docs import URL_PREFIX, data_docs
from plugins.tiering_airflow.web import answer_headers, mounted

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi import FastAPI
    from fastapi.responses import Response

    from include.tiering.verification.data_docs import DataDocs

_HEADERS: Final = answer_headers("private, no-cache")


@cache
def make_application() -> "FastAPI":
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag
    from fastapi import Depends, FastAPI
    from fastapi.responses import Response

    may_read_logs = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.TASK_LOGS))
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=[may_read_logs])

    @app.get("/dags/{dag_id}/index.html")
    @app.get("/dags/{dag_id}")
    def runs(dag_id: str) -> Response:
        return _served(lambda docs: docs.list_of(dag_id))

    @app.get("/dags/{dag_id}/runs/{run_id:path}")
    def run(dag_id: str, run_id: str) -> Response:
        return _served(lambda docs: docs.page(dag_id, run_id))

    @app.get("/dags/{dag_id}/{page}/index.html")
    def named(dag_id: str, page: str) -> Response:
        return _served(lambda docs: docs.page_named(dag_id, page))

    return app


def _served(find: "Callable[[DataDocs], Path | None]") -> "Response":
    """Return the page that `find` finds; without a readable page, return status 404 and a page that says so."""
    from fastapi.responses import Response

    from include.tiering.html_markup import CONTENT_SECURITY_POLICY
    from include.tiering.settings import load_settings
    from include.tiering.verification.data_docs import no_page

    docs = data_docs(load_settings())
    try:
        page = find(docs)
        content = None if page is None else page.read_bytes()
    except (ValueError, OSError):
        content = None
    headers = {**_HEADERS, "Content-Security-Policy": CONTENT_SECURITY_POLICY}
    status = HTTPStatus.NOT_FOUND if content is None else HTTPStatus.OK
    return Response(content or no_page(docs.keep_days), status, headers, "text/html")


application: Final = mounted(make_application)
_APPLICATIONS: Final = [{"app": application, "url_prefix": URL_PREFIX, "name": "Tiering: quality"}]
_TABS: Final = [
    {
        "name": "Quality",
        "href": f"{URL_PREFIX}/dags/{{DAG_ID}}/runs/{{RUN_ID}}",
        "destination": "dag_run",
        "url_route": "tiering-quality-run",
    },
    {
        "name": "Quality",
        "href": f"{URL_PREFIX}/dags/{{DAG_ID}}/index.html",
        "destination": "dag",
        "url_route": "tiering-quality",
    },
]


class QualityPlugin(AirflowPlugin):
    """Registers the routes of the data docs, and tabs that Airflow shows for each DAG and each DAG run."""

    name = "tiering_quality"
    fastapi_apps = _APPLICATIONS
    external_views = _TABS
