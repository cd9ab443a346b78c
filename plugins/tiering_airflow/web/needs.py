"""The parts *Needs you* and *Quality and audit* of the page *Tiering*, and what a person decides there.

    GET  /tiering/page/attention  what `./tiering attention --json` has, and what the user may do
    GET  /tiering/page/quality    what `./tiering quality --json` has, and what the user may do
    POST /tiering/page/accept     JSON: {"finding_ids": [...]}, as `./tiering audit --accept`
    POST /tiering/page/skip       JSON: {"topic", "topic_id", "partition", "reason", "confirm"}, as `./tiering skip`

Answers to questions, and runs of DAGs, do not pass through here: the page asks Airflow's own API for them, as the user
who is logged in. A skip takes two requests: the first one, whose `confirm` is null, records nothing and returns the
question with its hash; the second one sends the hash as proof that the question was read, and records only what it
says. If something else could be skipped meanwhile, it records nothing and returns the new question.

| action | Airflow's permission |
|---|---|
| answer a question | edit the required actions of its DAG; and to be among its approvers, if there are any |
| accept a finding | edit the DAG `tiering_audit` |
| skip offsets | edit the DAG `tiering_copy` |
| verify again, copy again, continue a handover | trigger `tiering_quality`, `tiering_copy`, `tiering_handover` |
| compare with the store, plan the removal of orphans | trigger `tiering_audit` |
"""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.web.requests import KeptApp, Shared, answer, body_of, read_app, refusal, refused

if TYPE_CHECKING:
    from fastapi import APIRouter

    from include.tiering.app import App

AUDIT_DAG: Final = "tiering_audit"
ASKING_DAGS: Final = ("tiering_expiration", "tiering_audit", "tiering_handover")
RUN_DAGS: Final = ("tiering_quality", "tiering_copy", "tiering_handover", "tiering_audit")
_COPY_DAG: Final = "tiering_copy"
_MOST_ACCEPTED: Final = 200
_MOST_REASON: Final = 1_000
READ_SECONDS: Final = 2.0
"""How long viewers of *Needs you*, and of *Quality and audit*, share what was read."""
_MEMBERS: Final = {"topic", "topic_id", "partition", "reason", "confirm"}


@dataclass(frozen=True, slots=True)
class WantedSkip:
    """A decision to continue without offsets; `confirm` is the hash of the confirmed question, None to be asked."""

    topic: str
    topic_id: str | None
    partition: int
    reason: str
    confirm: str | None

    @classmethod
    def of(cls, body: Any) -> "WantedSkip | None":
        """Return what a request asks for; None if its JSON has another form."""
        from include.tiering.model.segments import is_legal_topic_name

        if not isinstance(body, dict) or set(body) != _MEMBERS:
            return None
        texts = all(isinstance(body[member], str) for member in ("topic", "reason"))
        optional = all(body[member] is None or isinstance(body[member], str) for member in ("topic_id", "confirm"))
        number = body["partition"]
        if not texts or not optional or type(number) is not int or not 0 <= number < 2**31:
            return None
        is_sound = is_legal_topic_name(body["topic"]) and 0 < len(body["reason"].strip()) <= _MOST_REASON
        return cls(**body) if is_sound else None


def add_needs(reads: "APIRouter", decisions: "APIRouter", acceptances: "APIRouter", kept: KeptApp) -> None:
    """Add the routes; those of the routers already ask for Airflow's permission."""
    from airflow.api_fastapi.core_api.security import GetUserDep
    from fastapi import Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import Response

    read = Shared(READ_SECONDS)

    @reads.get("/attention")
    def attention(user: GetUserDep) -> Response:
        return answer(lambda: {**read.get("attention", lambda: kept.read(_attention)), "may": _may(user)})

    @reads.get("/quality")
    def quality(user: GetUserDep) -> Response:
        return answer(lambda: {**read.get("quality", lambda: kept.read(_quality)), "may": _may(user)})

    @acceptances.post("/accept")
    async def accept(request: Request, user: GetUserDep) -> Response:
        if why := refused(request.headers):
            return refusal(HTTPStatus.FORBIDDEN, why)
        finding_ids = _finding_ids(await body_of(request))
        if finding_ids is None:
            return refusal(HTTPStatus.BAD_REQUEST, f'send {{"finding_ids": 1 to {_MOST_ACCEPTED} numbers}}')
        accepting = _accepting(finding_ids, _author(user))
        return await run_in_threadpool(answer, lambda: read.changed(lambda: read_app(accepting)))

    @decisions.post("/skip")
    async def skip(request: Request, user: GetUserDep) -> Response:
        if why := refused(request.headers):
            return refusal(HTTPStatus.FORBIDDEN, why)
        wanted = WantedSkip.of(await body_of(request))
        if wanted is None:
            detail = f"send the members {', '.join(sorted(_MEMBERS))}, with a reason of 1 to {_MOST_REASON} characters"
            return refusal(HTTPStatus.BAD_REQUEST, detail)
        skipping = _skipping(wanted, _author(user))
        return await run_in_threadpool(answer, lambda: read.changed(lambda: read_app(skipping)))


def _author(user: Any) -> str:
    return f"{user.get_name()} (page Tiering)"


def _may(user: Any) -> dict[str, Any]:
    """Return what Airflow allows the user."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails

    manager, approvers = get_auth_manager(), configuration.expiration_approvers()
    is_approver = not approvers or str(user.get_id()) in approvers

    def may(method: Any, dag_id: str, entity: DagAccessEntity | None) -> bool:
        return manager.is_authorized_dag(method=method, access_entity=entity, details=DagDetails(id=dag_id), user=user)

    return {
        "answer": [dag for dag in ASKING_DAGS if is_approver and may("PUT", dag, DagAccessEntity.HITL_DETAIL)],
        "run": [dag for dag in RUN_DAGS if may("POST", dag, DagAccessEntity.RUN)],
        "accept": may("PUT", AUDIT_DAG, None),
        "skip": may("PUT", _COPY_DAG, None),
    }


def _attention(app: "App") -> Any:
    from include.tiering.operations.attention import attention_document

    return attention_document(app.operations.attention.now())


def _quality(app: "App") -> Any:
    from include.tiering.operations.quality import quality_document

    return quality_document(app.operations.quality.now())


def _finding_ids(body: Any) -> list[int] | None:
    """Return the ids of findings; None if the body does not say so."""
    if not isinstance(body, dict) or set(body) != {"finding_ids"} or not isinstance(body["finding_ids"], list):
        return None
    found = body["finding_ids"]
    is_sound = 0 < len(found) <= _MOST_ACCEPTED and all(type(each) is int and 0 < each < 2**63 for each in found)
    return found if is_sound else None


def _accepting(finding_ids: list[int], author: str) -> "Callable[[App], dict[str, Any]]":
    def accept(app: "App") -> dict[str, Any]:
        from include.tiering.audit.report import present_accepted

        app.operations.require_schema()
        presented = present_accepted(app.adapters.stores.audits.accept(finding_ids, author=author))
        return {**presented.document(), "summary": presented.summary}

    return accept


def _skipping(wanted: WantedSkip, author: str) -> "Callable[[App], dict[str, Any]]":
    def skip(app: "App") -> dict[str, Any]:
        from include.tiering.copying.decisions import present_skip, skip_question
        from include.tiering.runs.deletion_run import hash_of

        app.operations.require_schema()
        planned = app.copying.plan_skip(wanted.topic, wanted.partition, wanted.topic_id)
        question = skip_question(planned) if planned.ranges else None
        shown = None if question is None else hash_of(question)
        if shown is None or shown != wanted.confirm:
            presented = present_skip(planned, None)
            asked = {"question": question, "confirm": shown, "summary": "" if question else presented.summary}
            return {**presented.document(), **asked}
        presented = present_skip(app.copying.skip_offsets(planned, reason=wanted.reason, author=author), None)
        return {**presented.document(), "question": None, "confirm": None, "summary": presented.summary}

    return skip
