"""`Pools` through Airflow's REST API.

GET   /pools                   returns sizes and usage of at most `[api] maximum_page_limit` pools (100 by default);
                               pools that do not fit in this answer are not read
PATCH /pools/NAME              needs all fields, so unchanged fields are sent with their current values
GET   /eventLogs               returns who changed a pool, through the API or the admin page, which uses the API
GET   /config/section/core/option/parallelism    answers 403 if `[api] expose_config` is false
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from include.tiering.configs.airflow_api import AirflowApi, member
from include.tiering.configs.pools import POOLS, UNLIMITED_SLOTS, PoolUsage
from include.tiering.errors import AirflowApiError, AirflowApiUnavailableError

_NAMES: Final = frozenset(spec.name for spec in POOLS)
_MOST_POOLS: Final = "1000"
_EDITS_READ: Final = "50"


class AirflowPools:
    """`Pools` that open the API at the first call, so that without a login only calls that need the API fail."""

    def __init__(self, open_api: Callable[[], AirflowApi]) -> None:
        self._open_api = open_api
        self._opened: AirflowApi | None = None

    @classmethod
    def at(cls, url: str, *, login_file: Path | None, token: str | None) -> Self:
        """Return the pools of the API server at `url`.

        The token is used if there is one, otherwise the login in the file. If `token` and `login_file` are None, every
        call raises AirflowApiError, except `close`, and `parallelism`, which returns None.
        """
        return cls(lambda: AirflowApi.at(url, login_file=login_file, token=token))

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _api(self) -> AirflowApi:
        if self._opened is None:
            self._opened = self._open_api()
        return self._opened

    def usages(self) -> Mapping[str, PoolUsage]:
        found = member(self._api.get("/pools", limit=_MOST_POOLS), "pools", list)
        by_name = {member(pool, "name", str): pool for pool in found}
        return {name: _usage(pool) for name, pool in by_name.items() if name in _NAMES}

    def resize(self, pool: str, slots: int) -> None:
        path = f"/pools/{quote(pool, safe='')}"
        now = self._api.get(path)
        unchanged = {"description": now.get("description"), "include_deferred": member(now, "include_deferred", bool)}
        self._api.patch(path, {"pool": pool, "slots": slots, **unchanged})

    def parallelism(self) -> int | None:
        try:
            answer = self._api.get("/config/section/core/option/parallelism")
        except AirflowApiUnavailableError:
            raise
        except AirflowApiError:
            return None
        options = [
            option for section in member(answer, "sections", list) for option in member(section, "options", list)
        ]
        with suppress(ValueError):
            return int(str(options[0]["value"])) if options else None
        return None

    def last_editor(self, pool: str, slots: int, *, since_ms: int) -> str | None:
        answer = self._api.get(
            "/eventLogs",
            included_events=["patch_pool", "post_pool", "bulk_pools"],
            after=datetime.fromtimestamp(since_ms / 1000, UTC).isoformat(),
            order_by="-event_log_id",
            limit=_EDITS_READ,
        )
        for entry in member(answer, "event_logs", list):
            sizes = _sizes_in(entry)
            if pool in sizes:
                return str(entry.get("owner") or "") or None if sizes[pool] == slots else None
        return None


def _usage(pool: Any) -> PoolUsage:
    slots = member(pool, "slots", int)
    return PoolUsage(
        slots=UNLIMITED_SLOTS if slots < 0 else slots,
        running=member(pool, "running_slots", int),
        queued=member(pool, "queued_slots", int),
        scheduled=member(pool, "scheduled_slots", int),
        deferred=member(pool, "deferred_slots", int),
    )


def _sizes_in(entry: Any) -> dict[str, int]:
    """Return the slots by pool from the log entry of an edit; empty if the format of the entry is unknown.

    Airflow's -1 (unlimited) becomes `UNLIMITED_SLOTS`.
    """
    sizes: dict[str, int] = {}
    try:
        extra = json.loads(entry["extra"])
        edits = [entity for action in extra.get("actions", ()) for entity in action["entities"]] or [extra]
        for edit in edits:
            slots = int(edit["slots"])
            sizes[str(edit.get("pool_name") or edit.get("pool") or edit["name"])] = (
                UNLIMITED_SLOTS if slots < 0 else slots
            )
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    return sizes
