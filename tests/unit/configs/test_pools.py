"""Pools: Airflow's, the mirror of them and their size."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from include.tiering.configs.airflow_api import AirflowApi, Login, Token
from include.tiering.configs.airflow_pools import AirflowPools
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.configs.pools import (
    COPIER_POOL,
    EXPIRATION_POOL,
    READER_POOL,
    UNLIMITED_SLOTS,
    PoolUsage,
    mirror_pools,
)
from include.tiering.configs.service import AlteredConfigs, asks_for_pools, resize_pools
from include.tiering.errors import (
    AirflowApiError,
    AirflowApiUnavailableError,
    ConfigRefusedError,
    MetadataUnavailableError,
    SettingError,
)
from tests.doubles.airflow_api_server import AirflowApiServer, MisleadingServer, pool, serving
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_stores import MemoryConfigStore, MemoryMirror, MemoryPools, usage

# Airflow's pools over real HTTP: what is read, what a resize sends, who changed a pool.

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
def airflow_pools(server: AirflowApiServer, login: Path) -> Iterator[AirflowPools]:
    found = AirflowPools.at(server.url, login_file=login, token=None)
    yield found
    found.close()
    found.close()


def test_one_answer_holds_all_pools_of_ours(server: AirflowApiServer, airflow_pools: AirflowPools) -> None:
    server.pools[COPIER_POOL] = pool(
        COPIER_POOL, 4, running_slots=2, queued_slots=1, scheduled_slots=7, deferred_slots=3
    )
    server.pools[READER_POOL] = pool(READER_POOL, -1)
    server.pools["default_pool"] = pool("default_pool", 128)
    usages = airflow_pools.usages()
    assert usages[COPIER_POOL] == PoolUsage(4, 2, 1, 7, 3)
    assert usages[READER_POOL].slots == UNLIMITED_SLOTS
    assert len(usages) == 3
    assert len(server.seen) == 2


def test_a_resize_changes_nothing_else(server: AirflowApiServer, airflow_pools: AirflowPools) -> None:
    server.pools[COPIER_POOL] |= {"description": "mine", "include_deferred": True}
    airflow_pools.resize(COPIER_POOL, 0)
    assert {key: server.pools[COPIER_POOL][key] for key in ("slots", "description", "include_deferred")} == {
        "slots": 0,
        "description": "mine",
        "include_deferred": True,
    }


def test_a_name_cannot_leave_its_place_in_the_path(server: AirflowApiServer, airflow_pools: AirflowPools) -> None:
    with pytest.raises(AirflowApiError):
        airflow_pools.resize("../dags?x=1", 2)
    assert server.seen[-1][1] == "/api/v2/pools/..%2Fdags%3Fx%3D1"


@pytest.mark.parametrize(("exposed", "known"), [(None, None), ("4", 4), ("four", None)])
def test_parallelism_is_known_where_airflow_shows_it(
    server: AirflowApiServer, airflow_pools: AirflowPools, exposed: str | None, known: int | None
) -> None:
    server.parallelism = exposed
    assert airflow_pools.parallelism() == known


def _edit(owner: str, slots: int, *, name: str = COPIER_POOL, when: str = NOON, **extra: Any) -> dict[str, Any]:
    content = {"pool_name": name, "pool": name, "slots": slots, "method": "PATCH", **extra}
    return {"event": "patch_pool", "owner": owner, "when": when, "extra": json.dumps(content)}


def test_who_patched_a_pool_last_is_in_airflows_log(server: AirflowApiServer, airflow_pools: AirflowPools) -> None:
    server.edits = [_edit("eve", 9), _edit("ada", 4), _edit("bob", 4, name="other")]
    assert airflow_pools.last_editor(COPIER_POOL, 4, since_ms=NOON_MS - 1) == "ada"


def test_a_later_edit_to_another_size_is_not_this_one(server: AirflowApiServer, airflow_pools: AirflowPools) -> None:
    server.edits = [_edit("ada", 4), _edit("eve", 9)]
    assert airflow_pools.last_editor(COPIER_POOL, 4, since_ms=NOON_MS - 1) is None


def test_an_edit_from_before_the_last_look_is_not_this_one(
    server: AirflowApiServer, airflow_pools: AirflowPools
) -> None:
    server.edits = [_edit("ada", 4)]
    assert airflow_pools.last_editor(COPIER_POOL, 4, since_ms=NOON_MS + 1) is None


def test_a_bulk_edit_and_unlimited(server: AirflowApiServer, airflow_pools: AirflowPools) -> None:
    entities = [{"name": "other", "slots": 1}, {"name": COPIER_POOL, "slots": -1}]
    extra = json.dumps({"actions": [{"action": "update", "entities": entities}], "method": "PATCH"})
    server.edits = [{"event": "bulk_pools", "owner": "ada", "when": NOON, "extra": extra}]
    assert airflow_pools.last_editor(COPIER_POOL, UNLIMITED_SLOTS, since_ms=NOON_MS - 1) == "ada"


@pytest.mark.parametrize("extra", [None, "", "no json", "[]", "{}", '{"actions": 3}', '{"slots": "x", "pool": "p"}'])
def test_an_edit_that_is_not_understood_names_nobody(
    server: AirflowApiServer, airflow_pools: AirflowPools, extra: str | None
) -> None:
    server.edits = [_edit("ada", 4) | {"extra": extra}]
    assert airflow_pools.last_editor(COPIER_POOL, 4, since_ms=NOON_MS - 1) is None


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


# Questions to Airflow's REST API, over real HTTP to a server that answers by script.

LOGIN = Login("reader", "s3cret")


def test_one_token_serves_many_questions() -> None:
    with serving(AirflowApiServer()) as server:
        with AirflowApi(server.url, LOGIN) as api:
            answers = [api.get("/pools/remote_log_copier")["slots"] for _ in range(3)]
        assert answers == [2, 2, 2]
    assert server.tokens == 1
    assert server.seen[0] == ("POST", "/auth/token", {"username": "reader", "password": "s3cret"})


def test_an_expired_token_is_renewed() -> None:
    with serving(AirflowApiServer(token_lasts=1)) as server:
        with AirflowApi(server.url, LOGIN) as api:
            answers = [api.get("/pools/remote_log_copier")["slots"] for _ in range(3)]
        assert answers == [2, 2, 2]
    assert server.tokens == 3


def test_a_token_of_the_users_is_used_as_it_is() -> None:
    with serving(AirflowApiServer()) as server:
        server.tokens = 7
        with AirflowApi(server.url, Token("token-7")) as api:
            assert api.get("/pools/remote_log_copier")["slots"] == 2
        with AirflowApi(server.url, Token("token-6")) as api, pytest.raises(AirflowApiError, match="401"):
            api.get("/pools/remote_log_copier")
    assert all(path != "/auth/token" for _, path, _ in server.seen)
    assert "token-6" not in repr(Token("token-6"))


def test_a_refusal_carries_airflows_words_and_no_password() -> None:
    with serving(AirflowApiServer()) as server, pytest.raises(AirflowApiError, match="no such pool") as refused:
        AirflowApi(server.url, LOGIN).get("/pools/other")
    assert not refused.value.retriable
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in repr(LOGIN)


@pytest.mark.parametrize("text", ["<html>log in</html>", "[]", "{}", '{"access_token": 1}'])
def test_an_answer_of_the_api_that_is_not_airflows_is_a_typed_error(text: str) -> None:
    with serving(MisleadingServer(200, text)) as server, pytest.raises(AirflowApiError):
        AirflowApi(server.url, LOGIN).get("/pools")


def test_a_login_that_is_repeated_in_the_refusal_is_not_shown() -> None:
    echo = json.dumps({"detail": [{"input": {"username": "reader", "password": LOGIN.password}}]})
    with serving(MisleadingServer(422, echo)) as server, pytest.raises(AirflowApiError, match="422") as refused:
        AirflowApi(server.url, LOGIN).get("/pools")
    assert LOGIN.password not in str(refused.value)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_without_its_server_is_worth_retrying(status: int) -> None:
    with serving(MisleadingServer(status, "")) as server, pytest.raises(AirflowApiUnavailableError):
        AirflowApi(server.url, LOGIN).get("/pools")


def test_no_answer_is_worth_retrying() -> None:
    with serving(AirflowApiServer()) as server:
        url = server.url
    with AirflowApi(url, LOGIN) as api, pytest.raises(AirflowApiUnavailableError, match="does not answer"):
        api.get("/pools")


def test_a_login_file_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "login.json"
    file.write_text(json.dumps({"username": "reader", "password": "s3cret"}))
    file.chmod(0o640)
    with pytest.raises(AirflowApiError, match="chmod 600"):
        Login.from_file(file)
    file.chmod(0o600)
    assert Login.from_file(file) == LOGIN


@pytest.mark.parametrize("content", ["", "[]", '{"username": "reader"}', "not json"])
def test_a_malformed_login_file_is_named_without_its_content(tmp_path: Path, content: str) -> None:
    file = tmp_path / "login.json"
    file.write_text(content)
    with pytest.raises(AirflowApiError, match=r"login\.json"):
        Login.from_file(file)


# The mirror follows Airflow, and a size that somebody changed there is written down with who it was.


def test_all_three_are_mirrored_and_the_first_look_is_no_change() -> None:
    mirror = MemoryMirror()
    mirror_pools(MemoryPools(3), mirror)
    assert {name: seen.slots for name, seen in mirror.known.items()} == {
        COPIER_POOL: 3,
        EXPIRATION_POOL: 3,
        READER_POOL: 3,
    }
    assert mirror.changes == []


@pytest.mark.parametrize(("editors", "author"), [({}, "unknown"), ({(COPIER_POOL, 6): "ada"}, "ada (Airflow)")])
def test_a_change_made_in_airflow_is_noticed_once(editors: dict[tuple[str, int], str], author: str) -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    mirror_pools(pools, mirror)
    pools.known[COPIER_POOL] = usage(6)
    pools.editors = editors
    for _ in range(2):
        mirror_pools(pools, mirror)
    assert mirror.changes == [(COPIER_POOL, 2, 6, author)]


def test_a_log_that_cannot_be_read_does_not_hold_the_size_up() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    mirror_pools(pools, mirror)
    pools.known[COPIER_POOL] = usage(0)
    pools.log_fails = AirflowApiError("403")
    mirror_pools(pools, mirror)
    assert mirror.changes == [(COPIER_POOL, 2, 0, "unknown")]


def test_without_airflow_nothing_is_forgotten() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    mirror_pools(pools, mirror)
    pools.fails = AirflowApiUnavailableError("away")
    with pytest.raises(AirflowApiUnavailableError):
        mirror_pools(pools, mirror)
    assert mirror.known[COPIER_POOL].slots == 2


def test_an_answer_that_was_overtaken_is_dropped() -> None:
    """Airflow was asked, then somebody resized the pool and wrote it down; the old answer comes last."""
    pools, mirror = MemoryPools(2), MemoryMirror()
    mirror_pools(pools, mirror)

    class Slow(MemoryPools):
        def usages(self):
            answer = super().usages()
            mirror.record(COPIER_POOL, 4, seen=2, author="ada")
            return answer

    mirror_pools(Slow(2), mirror)
    assert mirror.known[COPIER_POOL].slots == 4
    assert mirror.changes == [(COPIER_POOL, 2, 4, "ada")]


# Sizes of pools under Kafka's names: what is refused, what is asked of Airflow, what is written down.

COPIER = "remote.log.manager.copier.thread.pool.size"
EXPIRATION = "remote.log.manager.expiration.thread.pool.size"


def _resize(
    pools: MemoryPools,
    mirror: MemoryMirror,
    changes: Mapping[str, str | None],
    entity: ConfigEntity = ALL_BROKERS,
) -> AlteredConfigs:
    return resize_pools(
        entity, changes, pools=pools, mirror=mirror, store=MemoryConfigStore(), clock=ManualClock(), author="ada"
    )


def test_airflow_is_told_first_and_the_change_carries_its_author() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    altered = _resize(pools, mirror, {COPIER: "4", EXPIRATION: "1"})
    assert pools.resized == [(COPIER_POOL, 4), (EXPIRATION_POOL, 1)]
    assert mirror.changes == [(COPIER_POOL, 2, 4, "ada"), (EXPIRATION_POOL, 2, 1, "ada")]
    assert [(change.name, change.old_value, change.new_value) for change in altered.changes] == [
        (COPIER, "2", "4"),
        (EXPIRATION, "2", "1"),
    ]


def test_with_nothing_waiting_growing_starts_nothing() -> None:
    notes = _resize(MemoryPools(3), MemoryMirror(), {COPIER: "4"}).notes
    assert notes == ("remote_log_copier has 4 slots: 0 in use, nothing waits",)


def test_a_size_that_is_so_already_is_no_change() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    assert _resize(pools, mirror, {COPIER: "2"}).changes == ()
    assert (pools.resized, mirror.changes) == ([], [])


@pytest.mark.parametrize(
    ("slots", "note"),
    [
        ("0", "remote_log_copier is paused: 3 jobs are surplus (batches end early), 5 wait for slots"),
        ("2", "remote_log_copier has 2 slots: 1 of 3 jobs are surplus (batches end early)"),
        ("4", "remote_log_copier has 4 slots: 1 of 5 waiting jobs start"),
        ("99", "remote_log_copier has 99 slots: 5 of 5 waiting jobs start"),
    ],
)
def test_what_follows_is_said_in_numbers(slots: str, note: str) -> None:
    pools = MemoryPools(3)
    pools.known[COPIER_POOL] = usage(3, running=2, queued=1, scheduled=5)
    assert _resize(pools, MemoryMirror(), {COPIER: slots}).notes == (note,)


@pytest.mark.parametrize(("slots", "warned"), [("4", False), ("5", True), ("3", False)])
def test_more_slots_than_the_executor_runs_is_warned_about(slots: str, warned: bool) -> None:
    notes = _resize(MemoryPools(4, parallelism=4), MemoryMirror(), {COPIER: slots}).notes
    assert ("the executor runs 4 tasks at once" in notes[-1]) is warned


def test_an_airflow_that_was_changed_meanwhile_is_written_down_as_such() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    _resize(pools, mirror, {COPIER: "2"})
    pools.known[COPIER_POOL] = usage(7)
    _resize(pools, mirror, {COPIER: "3"})
    assert mirror.changes == [(COPIER_POOL, 2, 7, "unknown"), (COPIER_POOL, 7, 3, "ada")]


@pytest.mark.parametrize(
    ("changes", "entity", "error"),
    [
        ({COPIER: "-1"}, ALL_BROKERS, SettingError),
        ({COPIER: "many"}, ALL_BROKERS, SettingError),
        ({COPIER: None}, ALL_BROKERS, ConfigRefusedError),
        ({COPIER: "3"}, ConfigEntity(EntityType.BROKERS, "1"), SettingError),
        ({COPIER: "3"}, ConfigEntity(EntityType.TOPICS), SettingError),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    changes: Mapping[str, str | None], entity: ConfigEntity, error: type[Exception]
) -> None:
    pools = MemoryPools(2)
    with pytest.raises(error):
        _resize(pools, MemoryMirror(), {EXPIRATION: "9", **changes}, entity)
    assert pools.resized == []


def test_a_pool_that_airflow_lost_is_not_made_here() -> None:
    pools = MemoryPools(2)
    del pools.known[COPIER_POOL]
    with pytest.raises(ConfigRefusedError, match="Airflow has no pool remote_log_copier"):
        _resize(pools, MemoryMirror(), {EXPIRATION: "9", COPIER: "3"})
    assert pools.resized == []


def test_a_crash_between_airflow_and_the_mirror_is_found_by_the_next_look() -> None:
    """The crash table's second row."""
    pools, mirror = MemoryPools(2), MemoryMirror()
    _resize(pools, mirror, {COPIER: "2"})

    class Dying(MemoryMirror):
        def record(self, pool: str, slots: int, *, seen: int | None, author: str) -> bool:
            if author == "ada":
                raise MetadataUnavailableError("away")
            return mirror.record(pool, slots, seen=seen, author=author)

        def seen(self):
            return mirror.seen()

    with pytest.raises(MetadataUnavailableError):
        _resize(pools, Dying(), {COPIER: "5"})
    pools.editors[COPIER_POOL, 5] = "tiering-operator"
    assert _resize(pools, mirror, {COPIER: "5"}).changes == ()
    assert mirror.changes == [(COPIER_POOL, 2, 5, "tiering-operator (Airflow)")]


def test_nothing_is_stored_that_airflow_has_not_taken() -> None:
    pools, mirror = MemoryPools(2), MemoryMirror()
    pools.fails = AirflowApiUnavailableError("away")
    with pytest.raises(AirflowApiUnavailableError):
        _resize(pools, mirror, {COPIER: "5"})
    assert mirror.known == {}


def test_pools_and_other_configs_are_changed_one_after_the_other() -> None:
    assert asks_for_pools({COPIER: "3"})
    assert not asks_for_pools({"queued.max.requests": "3"})
    with pytest.raises(SettingError, match="one after the other"):
        asks_for_pools({COPIER: "3", "queued.max.requests": "3"})


def test_json_that_is_nested_too_deeply_is_no_answer_of_airflow() -> None:
    with serving(MisleadingServer(200, "[" * 200_000)) as server, pytest.raises(AirflowApiError, match="is it Airflow"):
        AirflowApi(server.url, Token("t")).get("/pools")


def test_an_answer_that_is_too_long_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("include.tiering.configs.airflow_api.MAX_ANSWER_BYTES", 1_000)
    too_much = pytest.raises(AirflowApiError, match=r"more than 1000 B: is it Airflow\?")
    with serving(MisleadingServer(200, " " * 100_000)) as server, too_much:
        AirflowApi(server.url, Token("t")).get("/pools")
