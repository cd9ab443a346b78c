"""The part *Limits* of the page *Tiering*: what each config is, where its value comes from, and a change of it.

The preview of a retention is that of `./tiering retention`, of some partitions at a time.

A change is that of `./tiering configs --alter` and of the DAG `tiering_configs`, by the same service with the same
rules. If airflow.cfg names approvers (`[tiering] expiration_approvers`), only they can loosen a deletion limit, as with
that DAG.
"""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.web.requests import KeptApp, answer, body_of, read_app, refusal, refused

if TYPE_CHECKING:
    from fastapi import APIRouter

    from include.tiering.app import App
    from include.tiering.configs.config_store import ConfigEntity, ConfigValues

CONFIGS_DAG: Final = "tiering_configs"
MOST_PREVIEWED: Final = 20
"""How many partitions one preview has at most: each takes about twenty statements, and more if much expires."""
_MEMBERS: Final = {"entity_type", "entity_name", "name", "value"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A change of one config: `value` None removes it; `entity_name` None is the default of the type."""

    entity_type: str
    entity_name: str | None
    name: str
    value: str | None

    @classmethod
    def of(cls, body: Any) -> "Wanted | None":
        """Return the change that a request asks for; None if its JSON has another form."""
        if not isinstance(body, dict) or set(body) != _MEMBERS:
            return None
        texts = isinstance(body["entity_type"], str) and isinstance(body["name"], str)
        optional = all(body[member] is None or isinstance(body[member], str) for member in ("entity_name", "value"))
        return cls(**body) if texts and optional else None


def add_limits(reads: "APIRouter", changes: "APIRouter", kept: KeptApp) -> None:
    """Add the routes. Every route of `reads` and `changes` requires the permission that its router was made with."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails, PoolDetails
    from airflow.api_fastapi.core_api.security import GetUserDep
    from fastapi import Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import Response

    def may_alter(user: Any) -> bool:
        return get_auth_manager().is_authorized_dag(
            method="POST", access_entity=DagAccessEntity.RUN, details=DagDetails(id=CONFIGS_DAG), user=user
        )

    @reads.get("/limits")
    def limits(user: GetUserDep) -> Response:
        return answer(lambda: {**kept.read(_described), "may": {"alter": may_alter(user)}})

    @reads.get("/retention")
    def retention(
        user: GetUserDep, topic: str, retention_ms: str = "", retention_bytes: str = "", partitions: str = ""
    ) -> Response:
        asked = _previewing(topic, retention_ms or None, retention_bytes or None, partitions)
        return answer(lambda: {**kept.read(asked), "may": {"alter": may_alter(user)}})

    @changes.post("/limits")
    async def alter(request: Request, user: GetUserDep) -> Response:
        if why := refused(request.headers):
            return refusal(HTTPStatus.FORBIDDEN, why)
        wanted = Wanted.of(await body_of(request))
        if wanted is None:
            return refusal(HTTPStatus.BAD_REQUEST, f"send the members {', '.join(sorted(_MEMBERS))}")
        pool = _pool_of(wanted.name)
        may_resize = pool is None or get_auth_manager().is_authorized_pool(
            method="PUT", details=PoolDetails(name=pool), user=user
        )
        if not may_resize:
            return refusal(HTTPStatus.FORBIDDEN, f"to resize {pool} takes the permission to edit that pool")
        altering = _altering(wanted, user.get_name(), str(user.get_id()))
        return await run_in_threadpool(answer, lambda: read_app(altering))


def _described(app: "App") -> dict[str, Any]:
    """Return what `configs --describe` and `events` show; sizes of pools are the last known, Airflow is not asked."""
    from include.tiering.configs.report import LATEST_CHANGES, describe_now, meanings, present_configs
    from include.tiering.operations.events import events_document

    found = describe_now(app.adapters.stores.configs, app.settings, lambda: app.configs.pools_status(ask_airflow=False))
    presented = present_configs(found.configs, found.history, found.without_effect)
    events = events_document(app.adapters.stores.events.newest(LATEST_CHANGES))
    return {**presented.document(), **events, "meanings": meanings()}


def _previewing(
    topic: str, retention_ms: str | None, retention_bytes: str | None, partitions: str
) -> "Callable[[App], dict[str, Any]]":
    def preview(app: "App") -> dict[str, Any]:
        from include.tiering.configs.config_store import RETENTION_BYTES, RETENTION_MS
        from include.tiering.errors import SettingError
        from include.tiering.expiration.preview import partition_numbers, preview_document
        from include.tiering.model.segments import is_legal_topic_name

        if not is_legal_topic_name(topic):
            raise SettingError("this is no name of a topic: 1 to 249 of letters, digits, '.', '_' and '-'")
        changes = {RETENTION_MS: retention_ms, RETENTION_BYTES: retention_bytes}
        found = app.expiration.preview(topic, changes, numbers=partition_numbers(partitions), at_most=MOST_PREVIEWED)
        return {**preview_document(found, app.settings.prices.table())}

    return preview


def _pool_of(name: str) -> str | None:
    from include.tiering.configs.pools import POOLS

    return next((pool.name for pool in POOLS if pool.config_name == name), None)


def _altering(wanted: Wanted, user: str, user_id: str) -> "Callable[[App], dict[str, Any]]":
    def alter(app: "App") -> dict[str, Any]:
        from include.tiering.configs.report import present_alteration
        from include.tiering.configs.rules import checked_entity

        app.operations.require_schema()
        entity = checked_entity(wanted.entity_type, wanted.entity_name)
        warnings = () if wanted.value is None else app.operations.names.check_entity(entity)
        altered = app.configs.alter(
            entity,
            {wanted.name: wanted.value},
            author=f"{user} (page Tiering)",
            check=_limit_check(app, entity, user_id),
        )
        presented = present_alteration(altered)
        return {**presented.document(), "summary": "; ".join([presented.summary, *warnings])}

    return alter


def _limit_check(app: "App", entity: "ConfigEntity", user_id: str) -> "Callable[[ConfigValues, ConfigValues], None]":
    """Return a check that lets only approvers loosen a deletion limit; if none are configured, it lets everybody.

    Approvers are named by their ids, as Airflow compares them for an answer: some auth managers let a user choose a
    name, which may be the id of another one.
    """
    from include.tiering.configs.rules import loosened_limits
    from include.tiering.errors import LimitRefusedError

    def check(before: "ConfigValues", after: "ConfigValues") -> None:
        approvers, loosened = configuration.expiration_approvers(), loosened_limits(before, after, app.settings)
        if approvers and loosened and user_id not in approvers:
            what = "; ".join(map(str, loosened))
            raise LimitRefusedError(
                f"{what} on {entity} allows more deletions without an approval, and {user_id} may not approve deletions"
                f" ({', '.join(approvers)} may; [tiering] expiration_approvers): nothing was changed"
            )

    return check
