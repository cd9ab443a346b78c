"""Airflow's pools over real HTTP: what is read, what a resize sends, who changed a pool."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from include.tiering.configs.airflow_pools import AirflowPools
from include.tiering.configs.pools import COPIER_POOL, READER_POOL, UNLIMITED_SLOTS, PoolUsage
from include.tiering.errors import AirflowApiError, AirflowApiUnavailableError
from tests.doubles.airflow_api_server import AirflowApiServer, MisleadingServer, pool, serving

NOON = "2026-01-01T12:00:00+00:00"
NOON_MS = 1_767_268_800_000


@pytest.fixture
def server() -> Iterator[AirflowApiServer]:
    with serving(AirflowApiServer()) as running:
        yield running


@pytest.fixture
def login(tmp_path: Path) -> Path:
    file = tmp_path / "login.json"
    file.write_text('{"username": "op", "password": "s3cret"}')
    file.chmod(0o600)
    return file


@pytest.fixture
def pools(server: AirflowApiServer, login: Path) -> Iterator[AirflowPools]:
    found = AirflowPools.at(server.url, login_file=login, token=None)
    yield found
    found.close()
    found.close()


def test_one_answer_holds_all_pools_of_ours(server: AirflowApiServer, pools: AirflowPools) -> None:
    server.pools[COPIER_POOL] = pool(
        COPIER_POOL, 4, running_slots=2, queued_slots=1, scheduled_slots=7, deferred_slots=3
    )
    server.pools[READER_POOL] = pool(READER_POOL, -1)
    server.pools["default_pool"] = pool("default_pool", 128)
    usages = pools.usages()
    assert usages[COPIER_POOL] == PoolUsage(4, 2, 1, 7, 3)
    assert usages[READER_POOL].slots == UNLIMITED_SLOTS
    assert len(usages) == 3
    assert len(server.seen) == 2


def test_a_resize_changes_nothing_else(server: AirflowApiServer, pools: AirflowPools) -> None:
    server.pools[COPIER_POOL] |= {"description": "mine", "include_deferred": True}
    pools.resize(COPIER_POOL, 0)
    assert {key: server.pools[COPIER_POOL][key] for key in ("slots", "description", "include_deferred")} == {
        "slots": 0,
        "description": "mine",
        "include_deferred": True,
    }


def test_a_name_cannot_leave_its_place_in_the_path(server: AirflowApiServer, pools: AirflowPools) -> None:
    with pytest.raises(AirflowApiError):
        pools.resize("../dags?x=1", 2)
    assert server.seen[-1][1] == "/api/v2/pools/..%2Fdags%3Fx%3D1"


@pytest.mark.parametrize(("exposed", "known"), [(None, None), ("4", 4), ("four", None)])
def test_parallelism_is_known_where_airflow_shows_it(
    server: AirflowApiServer, pools: AirflowPools, exposed: str | None, known: int | None
) -> None:
    server.parallelism = exposed
    assert pools.parallelism() == known


def _edit(owner: str, slots: int, *, name: str = COPIER_POOL, when: str = NOON, **extra: Any) -> dict[str, Any]:
    content = {"pool_name": name, "pool": name, "slots": slots, "method": "PATCH", **extra}
    return {"event": "patch_pool", "owner": owner, "when": when, "extra": json.dumps(content)}


def test_who_patched_a_pool_last_is_in_airflows_log(server: AirflowApiServer, pools: AirflowPools) -> None:
    server.edits = [_edit("eve", 9), _edit("ada", 4), _edit("bob", 4, name="other")]
    assert pools.last_editor(COPIER_POOL, 4, since_ms=NOON_MS - 1) == "ada"


def test_a_later_edit_to_another_size_is_not_this_one(server: AirflowApiServer, pools: AirflowPools) -> None:
    server.edits = [_edit("ada", 4), _edit("eve", 9)]
    assert pools.last_editor(COPIER_POOL, 4, since_ms=NOON_MS - 1) is None


def test_an_edit_from_before_the_last_look_is_not_this_one(server: AirflowApiServer, pools: AirflowPools) -> None:
    server.edits = [_edit("ada", 4)]
    assert pools.last_editor(COPIER_POOL, 4, since_ms=NOON_MS + 1) is None


def test_a_bulk_edit_and_unlimited(server: AirflowApiServer, pools: AirflowPools) -> None:
    entities = [{"name": "other", "slots": 1}, {"name": COPIER_POOL, "slots": -1}]
    extra = json.dumps({"actions": [{"action": "update", "entities": entities}], "method": "PATCH"})
    server.edits = [{"event": "bulk_pools", "owner": "ada", "when": NOON, "extra": extra}]
    assert pools.last_editor(COPIER_POOL, UNLIMITED_SLOTS, since_ms=NOON_MS - 1) == "ada"


@pytest.mark.parametrize("extra", [None, "", "no json", "[]", "{}", '{"actions": 3}', '{"slots": "x", "pool": "p"}'])
def test_an_edit_that_is_not_understood_names_nobody(
    server: AirflowApiServer, pools: AirflowPools, extra: str | None
) -> None:
    server.edits = [_edit("ada", 4) | {"extra": extra}]
    assert pools.last_editor(COPIER_POOL, 4, since_ms=NOON_MS - 1) is None


@pytest.mark.parametrize("text", ["[]", "{}", '{"pools": 1}', '{"pools": [{}]}', '{"pools": [{"name": "x"}, 5]}'])
def test_an_answer_that_is_not_airflows_is_a_typed_error(text: str) -> None:
    with serving(MisleadingServer(200, text)) as server, pytest.raises(AirflowApiError):
        AirflowPools.at(server.url, login_file=None, token="t").usages()


def test_without_a_login_every_question_is_refused_with_the_way_out(server: AirflowApiServer) -> None:
    with pytest.raises(AirflowApiError, match=r"set airflow\.login_file or airflow\.token"):
        AirflowPools.at(server.url, login_file=None, token=None).usages()
    assert server.seen == []


def test_an_airflow_that_is_away_is_worth_retrying(login: Path) -> None:
    with serving(AirflowApiServer()) as server:
        url = server.url
    with pytest.raises(AirflowApiUnavailableError):
        AirflowPools.at(url, login_file=login, token=None).parallelism()
