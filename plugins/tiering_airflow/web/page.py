"""An Airflow plugin with the page *Tiering* in the navigation.

    GET  /tiering/page/                 the page; its parts ask the routes below
    GET  /tiering/page/assets/{name}    style, scripts and icon of the page: files of this package, by a fixed list
    GET  /tiering/page/now              what `./tiering status --json` has of the present, and what the user may do
    GET  /tiering/page/throughput       what `./tiering throughput --json` has
    GET  /tiering/page/topics           a page of topics: search, sort, descending, offset, limit
    GET  /tiering/page/topics.csv       all topics that are searched for
    GET  /tiering/page/topic            one topic: name
    GET  /tiering/page/segments         what `./tiering segments --json` has: topic, topic_id, partition, before
    GET  /tiering/page/limits           what `./tiering configs --describe` and `events` have, and meanings
    GET  /tiering/page/backfill         what `./tiering backfill --json` has: topic (repeated), quota
    GET  /tiering/page/attention        what `./tiering attention --json` has, and what the user may do about it
    GET  /tiering/page/quality          what `./tiering quality --json` has, and what the user may do about it
    GET  /tiering/page/runbook          an entry of docs/runbook.md: entry, its anchor; empty: the list of entries
    GET  /tiering/page/retention        what `./tiering retention --json` has: topic, retention_ms, retention_bytes
    POST /tiering/page/pause            JSON: {"topic": name or null for all, "paused": true or false}
    POST /tiering/page/limits           JSON: {"entity_type": ..., "entity_name": ..., "name": ..., "value": ...}
    POST /tiering/page/accept, skip     decisions about findings and lost offsets: see `needs`

| action | Airflow's permission |
|---|---|
| see | read the logs of the tasks of `tiering_copy` |
| pause and resume | edit the DAG `tiering_copy` |
| accept a finding | edit the DAG `tiering_audit` |
| skip offsets | edit the DAG `tiering_copy` |
| change a config | trigger the DAG `tiering_configs` |
| change the size of a pool | trigger the DAG `tiering_configs`, and edit that pool |

Every route asks Airflow's own access checks. A request that changes something must come from a page of this server, as
for deletion plans. What was read for one viewer is the answer to all who ask within a second after it, of *Needs you*
and *Quality and audit* within two, of the throughput within ten. Airflow loads this file in every process, so the web
application is created at the first request.
"""

from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from airflow.plugins_manager import AirflowPlugin

from plugins.tiering_airflow.web import answer_headers, mounted
from plugins.tiering_airflow.web.limits import CONFIGS_DAG, add_limits
from plugins.tiering_airflow.web.needs import AUDIT_DAG, add_needs
from plugins.tiering_airflow.web.requests import HEADERS, KeptApp, Shared, answer, body_of, read_app, refusal, refused

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

    from include.tiering.app import App
    from include.tiering.operations.topic_list import TopicListService

URL_PREFIX: Final = "/tiering/page"
COPY_DAG: Final = "tiering_copy"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
ASSETS: Final = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "parts.js": "text/javascript",
    "now.js": "text/javascript",
    "chart.js": "text/javascript",
    "topics.js": "text/javascript",
    "topic.js": "text/javascript",
    "limits.js": "text/javascript",
    "needs.js": "text/javascript",
    "quality.js": "text/javascript",
    "timeline.js": "text/javascript",
    "decisions.js": "text/javascript",
    "backfill.js": "text/javascript",
    "retention.js": "text/javascript",
    "runbook.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}
_DIRECTORY: Final = Path(__file__).parent / "assets"
_RUNBOOK: Final = Path(__file__).parents[3] / "docs" / "runbook.md"
_ASSET_HEADERS: Final = {**answer_headers("private, max-age=300"), "Content-Security-Policy": "default-src 'none'"}
_NOW_SECONDS: Final = 1.0
_THROUGHPUT_SECONDS: Final = 10.0
_MOST_HOURS: Final = 48
_MOST_SEARCHED: Final = 249
_MOST_CHOSEN: Final = 500


@cache
def make_application() -> "FastAPI":
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag
    from fastapi import APIRouter, Depends, FastAPI

    reads = APIRouter(dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS, COPY_DAG))])
    changes = APIRouter(dependencies=[Depends(requires_access_dag("PUT", None, COPY_DAG))])
    kept, present = KeptApp(), Shared(_NOW_SECONDS)
    _add_files(reads)
    _add_present(reads, kept, present)
    _add_topics(reads, kept)
    _add_pause(changes, present)
    alterations = APIRouter(dependencies=[Depends(requires_access_dag("POST", DagAccessEntity.RUN, CONFIGS_DAG))])
    add_limits(reads, alterations, kept)
    acceptances = APIRouter(dependencies=[Depends(requires_access_dag("PUT", None, AUDIT_DAG))])
    add_needs(reads, changes, acceptances, kept)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(reads)
    app.include_router(changes)
    app.include_router(alterations)
    app.include_router(acceptances)
    return app


def _add_files(router: "APIRouter") -> None:
    from fastapi.responses import FileResponse, Response

    @router.get("/")
    def page() -> Response:
        headers = {**HEADERS, "Content-Security-Policy": POLICY}
        return FileResponse(_DIRECTORY / "page.html", headers=headers, media_type="text/html")

    @router.get("/runbook")
    def runbook(entry: str = "") -> Response:
        return answer(lambda: _runbook(entry))

    @router.get("/assets/{name}")
    def asset(name: str) -> Response:
        if name not in ASSETS:
            return refusal(HTTPStatus.NOT_FOUND, "there is no such file")
        return FileResponse(_DIRECTORY / name, headers=_ASSET_HEADERS, media_type=ASSETS[name])


def _add_present(router: "APIRouter", kept: KeptApp, present: Shared) -> None:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
    from airflow.api_fastapi.core_api.security import GetUserDep
    from fastapi import Query
    from fastapi.responses import Response

    throughput_read = Shared(_THROUGHPUT_SECONDS)

    @router.get("/now")
    def now(user: GetUserDep) -> Response:
        may_pause = get_auth_manager().is_authorized_dag(method="PUT", details=DagDetails(id=COPY_DAG), user=user)
        return answer(lambda: {**present.get("now", lambda: kept.read(_now)), "may": {"pause": may_pause}})

    @router.get("/backfill")
    def backfill(user: GetUserDep, topic: Annotated[list[str] | None, Query()] = None, quota: str = "") -> Response:
        manager, details = get_auth_manager(), DagDetails(id=COPY_DAG)
        may = {
            "start": manager.is_authorized_dag(
                method="POST", access_entity=DagAccessEntity.RUN, details=details, user=user
            ),
            "pause": manager.is_authorized_dag(method="PUT", details=details, user=user),
        }
        asked = tuple(topic or ())[:_MOST_CHOSEN]
        return answer(lambda: {**present.get((asked, quota), lambda: kept.read(_backfill(asked, quota))), "may": may})

    @router.get("/throughput")
    def throughput(hours: int = 6) -> Response:
        asked = max(1, min(hours, _MOST_HOURS))
        return answer(lambda: throughput_read.get(asked, lambda: kept.read(_throughput(asked))))


def _add_topics(router: "APIRouter", kept: KeptApp) -> None:
    from fastapi.responses import Response

    from include.tiering.operations.topic_list import AskedPage, topic_page_document, topics_table
    from include.tiering.presentation import as_csv

    read = Shared(_NOW_SECONDS)

    @router.get("/topics")
    def topics(
        search: str = "", sort: str = "topic", descending: bool = False, offset: int = 0, limit: int = 50
    ) -> Response:
        def page() -> Any:
            asked = AskedPage(search[:_MOST_SEARCHED], sort, descending, offset, limit)
            return read.get(asked, lambda: topic_page_document(kept.read(lambda app: _list(app).page(asked))))

        return answer(page)

    @router.get("/topic")
    def topic(name: str) -> Response:
        return answer(lambda: read.get(("topic", name), lambda: kept.read(_topic(name))))

    @router.get("/segments")
    def segments(topic: str, partition: int, topic_id: str = "", before: int | None = None) -> Response:
        asked = (topic, partition, topic_id, before)
        return answer(lambda: read.get(("segments", *asked), lambda: kept.read(_segments(*asked))))

    @router.get("/topics.csv")
    def topics_csv(search: str = "") -> Response:
        def content() -> str:
            return as_csv([topics_table(kept.read(lambda app: _list(app).all(search[:_MOST_SEARCHED])))])

        headers = {**HEADERS, "Content-Disposition": 'attachment; filename="tiering-topics.csv"'}
        return answer(content, lambda text: Response(text, HTTPStatus.OK, headers, "text/csv"))


def _add_pause(router: "APIRouter", present: Shared) -> None:
    from airflow.api_fastapi.core_api.security import GetUserDep
    from fastapi import Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import Response

    @router.post("/pause")
    async def pause(request: Request, user: GetUserDep) -> Response:
        if why := refused(request.headers):
            return refusal(HTTPStatus.FORBIDDEN, why)
        wanted = _wanted_pause(await body_of(request))
        if wanted is None:
            detail = 'send {"topic": the name of a topic or null, "paused": true or false}'
            return refusal(HTTPStatus.BAD_REQUEST, detail)
        author = f"{user.get_name()} (page Tiering)"
        return await run_in_threadpool(answer, lambda: present.changed(lambda: _pause(*wanted, author)))


def _runbook(anchor: str) -> dict[str, str]:
    """Return an entry of the runbook, or without an anchor its beginning with the list of entries.

    Raises:
        SettingError: the runbook has no such entry, or is not on this host.
    """
    from include.tiering.errors import SettingError

    try:
        lines = _RUNBOOK.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SettingError(f"{_RUNBOOK} is not on this host: read docs/runbook.md elsewhere") from error
    heads = [number for number, line in enumerate(lines) if line.startswith("#")]
    for at, start in enumerate(heads):
        level, _, title = lines[start].partition(" ")
        if anchor_of(title) != anchor and (anchor or level != "#"):
            continue
        # A part of an entry is shown with the parts below it; the beginning of the runbook up to the first entry.
        ends = (end for end in heads[at + 1 :] if len(lines[end].partition(" ")[0]) <= max(2, len(level)))
        skipped = 1 if level == "#" else 0
        end = next((end for number, end in enumerate(ends) if number == skipped), len(lines))
        return {"title": title, "text": "\n".join(lines[start + 1 : end]).strip()}
    raise SettingError("docs/runbook.md has no such entry")


def anchor_of(title: str) -> str:
    """Return the anchor of a heading, as Markdown viewers make it."""
    return "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_").replace(" ", "-")


def _now(app: "App") -> Any:
    from include.tiering.operations.overview import overview_document

    return overview_document(app.operations.overview.now())


def _throughput(hours: int) -> "Callable[[App], Any]":
    from include.tiering.operations.throughput import throughput_document

    return lambda app: throughput_document(app.operations.throughput.last_hours(hours))


def _backfill(topics: tuple[str, ...], quota: str) -> "Callable[[App], Any]":
    def read(app: "App") -> Any:
        from include.tiering.operations.backfill import backfill_document
        from plugins.tiering_airflow.shared import amount

        other = amount("quota", quota, "bytes")
        return backfill_document(app.operations.backfill.of(topics, quota=other))

    return read


def _topic(name: str) -> "Callable[[App], Any]":
    from include.tiering.operations.topic_details import topic_details_document

    return lambda app: topic_details_document(app.operations.topic_details.of(name), app.operations.topic_list.currency)


def _segments(topic: str, partition: int, topic_id: str, before: int | None) -> "Callable[[App], Any]":
    def read(app: "App") -> Any:
        from include.tiering.errors import SettingError
        from include.tiering.operations.timeline import timeline_document

        if before is not None and not 0 <= before < 2**63:
            raise SettingError(f"before {before}: accepted: 0 to {2**63 - 1}")
        return timeline_document(app.operations.timeline.of(topic, partition, topic_id=topic_id or None, before=before))

    return read


def _list(app: "App") -> "TopicListService":
    return app.operations.topic_list


def _wanted_pause(body: Any) -> tuple[str | None, bool] | None:
    """Return the topic (None: all) and whether it is to be paused; None if the body does not say so."""
    from include.tiering.model.segments import is_legal_topic_name

    if not isinstance(body, dict) or set(body) != {"topic", "paused"} or not isinstance(body["paused"], bool):
        return None
    topic = body["topic"]
    is_topic = topic is None or (isinstance(topic, str) and is_legal_topic_name(topic))
    return (topic, body["paused"]) if is_topic else None


def _pause(topic: str | None, paused: bool, author: str) -> Any:
    """Pause or resume, as `./tiering pause` and `resume` do, and return their document."""
    from include.tiering.operations.status import present_pause

    def change(app: "App") -> Any:
        if topic is not None and paused:
            app.operations.names.check_topics((topic,))
        work = app.adapters.stores.work
        (work.pause if paused else work.resume)(topic, author=author)
        return present_pause(work.paused_topics(), app.ownership.claim_if_possible()).document()

    return read_app(change)


application: Final = mounted(make_application)
_APPLICATIONS: Final = [{"app": application, "url_prefix": URL_PREFIX, "name": "Tiering: page"}]
_VIEWS: Final = [
    {
        "name": "Tiering",
        "href": f"{URL_PREFIX}/",
        "destination": "nav",
        "url_route": "tiering",
        "nav_top_level": True,
        "icon": f"{URL_PREFIX}/assets/icon.svg",
        "icon_dark_mode": f"{URL_PREFIX}/assets/icon-dark.svg",
    }
]


class TieringPagePlugin(AirflowPlugin):
    """Registers the routes of the page *Tiering*, and its entry in Airflow's navigation."""

    name = "tiering_page"
    fastapi_apps = _APPLICATIONS
    external_views = _VIEWS
