"""The page *Tiering* in Airflow: who sees and changes what, whom it asks, and that its numbers are right."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sqlite3 import connect
from threading import Event
from typing import Any, Final

import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse
from sqlalchemy import select
from typer.testing import CliRunner

from include.tiering.app import App
from include.tiering.cli.app import cli
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.database.schema import events
from include.tiering.errors import MetadataUnavailableError, SettingError
from include.tiering.operations.alarms import RULES
from include.tiering.operations.attention import APPROVAL_ENTRY, GUARD_ENTRY, HANDOVER_ENTRY, HELD_ENTRY, POOL_ENTRY
from plugins.tiering_airflow.web import page, requests
from plugins.tiering_airflow.web.page import ASSETS, POLICY, URL_PREFIX, TieringPagePlugin, anchor_of
from plugins.tiering_airflow.web.requests import KeptApp, Shared
from tests.airflow.conftest import Ask
from tests.doubles.airflow_home import Deployment
from tests.doubles.patience import eventually
from tests.doubles.source_tree import ROOT

# Airflow's web application imports a test client.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`")

READS: Final = (
    "/",
    "/now",
    "/throughput",
    "/topics",
    "/topics.csv",
    "/limits",
    "/runbook",
    *(f"/assets/{name}" for name in ASSETS),
)
PAUSE: Final = f"{URL_PREFIX}/pause"
SAME_ORIGIN: Final = {"Origin": "http://airflow", "Sec-Fetch-Site": "same-origin"}
ALL: Final = {"topic": None, "paused": True}


def _paused(deployed: Deployment) -> frozenset[str]:
    with deployed.open() as app:
        return app.adapters.stores.work.paused_topics()


@pytest.mark.parametrize("path", READS)
def test_who_may_read_the_logs_of_copies_sees_the_page_and_nobody_else_does(ask: Ask, path: str) -> None:
    statuses = {role: ask(URL_PREFIX + path, role).status_code for role in ("nobody", None, "viewer", "user", "op")}
    assert statuses == {"nobody": 401, None: 403, "viewer": 200, "user": 200, "op": 200}
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask(URL_PREFIX + path, "admin", method, headers=SAME_ORIGIN).status_code in (403, 404, 405)


def test_the_page_asks_nobody_but_its_own_server(ask: Ask) -> None:
    answer = ask(f"{URL_PREFIX}/")
    assert answer.headers["content-security-policy"] == POLICY
    assert not {"'unsafe-inline'", "'unsafe-eval'", "*", "data:"} & set(POLICY.replace(";", " ").split())
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"
    assert re.findall(r'(?:href|src)="([^"#]+)"', answer.text) == ["assets/page.css", "assets/page.js"]
    assert not re.search(r"\sstyle=|<style|\son\w+=|<script[^>]*>[^<]", answer.text)
    for name in ASSETS:
        text = ask(f"{URL_PREFIX}/assets/{name}").text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]|@import|url\(", re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|\.style\b", text)


@pytest.mark.parametrize("name", ["page.py", "..%2Fpage.py", "%2e%2e/page.py", "page.html", "x" * 3_000, "page.css%00"])
def test_no_other_file_is_served(ask: Ask, name: str) -> None:
    assert ask(f"{URL_PREFIX}/assets/{name}", "admin").status_code == 404


def test_the_list_of_files_is_complete() -> None:
    directory = ROOT / "plugins" / "tiering_airflow" / "web" / "assets"
    assert {path.name for path in directory.iterdir()} == {*ASSETS, "page.html"}
    imported = {name for path in directory.glob("*.js") for name in re.findall(r'from "\./([^"]+)"', path.read_text())}
    assert imported <= set(ASSETS)


def test_each_script_imports_what_it_calls_of_the_common_parts() -> None:
    directory = ROOT / "plugins" / "tiering_airflow" / "web" / "assets"
    exported = re.findall(r"^export (?:const|(?:async )?function) (\w+)", (directory / "parts.js").read_text(), re.M)
    assert {"advice", "runbook", "table"} <= set(exported)
    for path in sorted(directory.glob("*.js")):
        text = path.read_text()
        known = {
            name.split(" as ")[-1].strip()
            for names in re.findall(r"import \{([^}]*)\}", text)
            for name in names.split(",")
        }
        known |= set(re.findall(r"(?:const|function) (\w+)", text)) | set(re.findall(r"[{,] (\w+)(?= [,}])", text))
        called = {name for name in exported if re.search(rf"(?<![\w.]){name}\(", text)}
        assert called <= known, path.name


def test_each_entry_of_the_runbook_that_a_report_names_is_served(ask: Ask) -> None:
    entries = {rule.runbook for rule in RULES} | {
        address.partition("#")[2] for address in (APPROVAL_ENTRY, GUARD_ENTRY, HELD_ENTRY, POOL_ENTRY, HANDOVER_ENTRY)
    }
    for entry in sorted(entries):
        served = ask(f"{URL_PREFIX}/runbook?entry={entry}").json()
        assert anchor_of(served["title"]) == entry
        assert "**What to do.**" in served["text"] or served["title"].startswith(("Alerts of", "Guards"))
        assert "\n## " not in served["text"]
    assert "A pool has another size" in ask(f"{URL_PREFIX}/runbook").json()["text"]
    for odd in ("no-such-entry", "../settings", "%00", "x" * 3_000):
        assert ask(f"{URL_PREFIX}/runbook?entry={odd}").status_code == 400


def test_a_host_without_the_runbook_says_so(ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(page, "_RUNBOOK", tmp_path / "runbook.md")
    answer = ask(f"{URL_PREFIX}/runbook?entry=a-partition-is-held-back")
    assert (answer.status_code, "is not on this host" in answer.json()["detail"]) == (400, True)


def _command(deployed: Deployment, *arguments: str) -> Any:
    result = CliRunner().invoke(cli, [*arguments, "--json"], env=deployed.environment)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_its_numbers_are_those_of_the_commands(ask: Ask, deployed: Deployment) -> None:
    deployed.copied("orders", "audit_log")
    deployed.expires("orders", retention_bytes="4096")
    with deployed.open() as app:
        app.operations.topic_list.all()
        app.sizes.report()
        app.verification.publish_verdicts()
    shown, said = ask(f"{URL_PREFIX}/now", "viewer").json(), _command(deployed, "status")
    assert shown.pop("may") == {"pause": False}
    assert shown.pop("as_of_ms") <= said.pop("as_of_ms")
    assert shown == {name: said[name] for name in shown}
    assert shown["totals"]["segments"] > 0
    throughput, known = ask(f"{URL_PREFIX}/throughput").json(), _command(deployed, "throughput")
    assert {**throughput, "since_ms": 0, "until_ms": 0}.keys() == known.keys()
    assert throughput["changes"] == known["changes"]
    sizes = {topic["topic"]: topic for topic in _command(deployed, "sizes", "--by", "topic")["topics"]}
    listed = ask(f"{URL_PREFIX}/topics").json()
    assert {topic["topic"] for topic in listed["topics"]} == sizes.keys() == {"orders", "audit_log"}
    for topic in listed["topics"]:
        own = sizes[topic["topic"]]
        pairs = (("finished_bytes", "bytes"), ("stored_bytes", "stored_bytes"), ("segments", "segments"))
        assert [topic[name] for name, _ in pairs] == [own[name] for _, name in pairs]
        assert topic["partitions"] == own["partitions"]
    assert [topic["retention_bytes"] for topic in listed["topics"]] == [None, 4096]


def test_topics_are_searched_sorted_and_cut_by_the_server(ask: Ask, deployed: Deployment) -> None:
    deployed.copied("orders", "audit_log", "bigrecs")

    def names(query: str) -> list[str]:
        return [topic["topic"] for topic in ask(f"{URL_PREFIX}/topics?{query}").json()["topics"]]

    assert names("") == ["audit_log", "bigrecs", "orders"]
    assert names("search=OR") == ["orders"]
    assert names("sort=finished_bytes&descending=true&limit=1") == ["bigrecs"]
    assert names("search=%3Cscript%3E") == names("search=%27%20OR%201=1--") == names("search=%25") == []
    assert ask(f"{URL_PREFIX}/topics?sort=nothing").status_code == 400
    assert ask(f"{URL_PREFIX}/topics?limit=100000").status_code == 400
    lines = ask(f"{URL_PREFIX}/topics.csv?search=or").text.splitlines()
    assert [line.split(",")[1] for line in lines] == ["topic", "orders"]


def test_a_topic_has_the_numbers_of_the_commands(ask: Ask, deployed: Deployment) -> None:
    deployed.copied("orders", "audit_log")
    deployed.expires("orders", retention_bytes="4096")
    with deployed.open() as app:
        app.sizes.report()
    shown = ask(f"{URL_PREFIX}/topic?name=orders").json()
    sizes, configs = (
        _command(deployed, "sizes", "--topic", "orders"),
        _command(deployed, "configs", "--describe", "--topic", "orders"),
    )
    assert shown["partitions"] == sizes["partitions"]
    assert (shown["configs"]["configs"], shown["configs"]["history"]) == (configs["configs"], configs["history"])
    assert (shown["more_partitions"], shown["failed"], shown["topics"][0]["retention_bytes"]) == (0, [], 4096)
    assert shown["hours"][-1]["stored_bytes"] == sum(each["stored_bytes"] for each in shown["partitions"]) > 0
    for name in ("nothing", "../../etc/passwd", "<script>", "", "x" * 3_000):
        answer = ask(f"{URL_PREFIX}/topic", params={"name": name})
        assert (answer.status_code, list(answer.json())) == (400, ["detail"])


def test_a_timeline_is_that_of_the_command(ask: Ask, deployed: Deployment) -> None:
    with deployed.open() as app:
        app.copying.plan("some", limit_bytes=400_000)
        app.copying.run_batch("some", "some/0")
        app.verification.verify_run("some")
        app.copying.plan("rest")
        rest = app.adapters.stores.work.items("rest")
        sizes = app.adapters.stores.metadata.partition_sizes()
    of_both = {size.topic_id_partition for size in sizes} & {item.topic_id_partition for item in rest}
    partition = min(of_both, key=str)
    topic = partition.topic
    asked = {"topic": topic, "topic_id": str(partition.topic_id), "partition": partition.partition}
    size = next(size for size in sizes if size.topic_id_partition == partition)
    shown = ask(f"{URL_PREFIX}/segments", params=asked).json()
    of_partition = ("segments", topic, "--partition", str(partition.partition))
    assert shown == _command(deployed, *of_partition)
    assert sum(part["kind"] == "verified" for part in shown["parts"]) == size.segments
    assert sum(part["bytes"] for part in shown["parts"] if part["kind"] == "verified") == size.size_bytes
    second = shown["parts"][1]["start_offset"]
    older = ask(f"{URL_PREFIX}/segments", params={**asked, "before": second}).json()
    assert older == _command(deployed, *of_partition, "--before", str(second))
    assert older["parts"] == shown["parts"][:1]
    waiting = [part["start_offset"] for part in shown["parts"] if part["kind"] == "waiting"]
    assert waiting == [item.segment.base_offset for item in rest if item.topic_id_partition == partition]
    assert shown["planned_at_ms"] is not None
    for query in ({**asked, "partition": 99}, {**asked, "topic_id": "A" * 22}, {**asked, "before": -1}):
        answer = ask(f"{URL_PREFIX}/segments", params=query)
        assert (answer.status_code, list(answer.json())) == (400, ["detail"])


def test_an_empty_platform_has_a_page(ask: Ask) -> None:
    shown = ask(f"{URL_PREFIX}/now").json()
    assert (shown["totals"]["topics"], shown["batches"], shown["alarms"]) == (0, [], [])
    assert shown["totals"]["safe_bytes"] == {"value": None, "as_of_ms": None}
    assert ask(f"{URL_PREFIX}/topics").json()["found"] == 0


@pytest.mark.parametrize(
    ("role", "status"), [("nobody", 401), (None, 403), ("viewer", 403), ("user", 200), ("op", 200), ("admin", 200)]
)
def test_who_may_edit_the_dag_pauses_and_resumes_by_name(
    ask: Ask, deployed: Deployment, role: str | None, status: int
) -> None:
    answer = ask(PAUSE, role, "POST", json=ALL, headers=SAME_ORIGIN)
    assert answer.status_code == status
    assert _paused(deployed) == (frozenset("*") if status == 200 else frozenset())
    if status != 200:
        return
    assert answer.json()["paused_topics"] == ["*"]
    assert ask(f"{URL_PREFIX}/now", role).json()["may"] == {"pause": True}
    assert ask(PAUSE, role, "POST", json={**ALL, "paused": False}, headers=SAME_ORIGIN).status_code == 200
    assert _paused(deployed) == frozenset()
    with deployed.open() as app, app.adapters.engine.connect() as connection:
        query = select(events.c.kind, events.c.author).where(events.c.kind.in_(("pause", "resume")))
        found = connection.execute(query.order_by(events.c.event_id)).all()
    assert found == [("pause", f"a {role} (page Tiering)"), ("resume", f"a {role} (page Tiering)")]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-site"},
        {**SAME_ORIGIN, "Content-Type": "text/plain"},
    ],
)
def test_other_sites_pause_nothing(ask: Ask, deployed: Deployment, headers: dict[str, str]) -> None:
    assert ask(PAUSE, "admin", "POST", json=ALL, headers=headers).status_code == 403
    assert _paused(deployed) == frozenset()


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"topic": None},
        {"topic": 7, "paused": True},
        {"topic": "a/b", "paused": True},
        {"topic": "", "paused": True},
        {"topic": None, "paused": "yes"},
        {"topic": None, "paused": True, "more": 1},
        {"topic": "x" * 5_000, "paused": True},
        {"topic": "no-such-topic", "paused": True},
    ],
)
def test_what_is_no_pause_changes_nothing(ask: Ask, deployed: Deployment, body: Any) -> None:
    assert ask(PAUSE, "admin", "POST", json=body, headers=SAME_ORIGIN).status_code == 400
    assert _paused(deployed) == frozenset()


def test_a_database_that_is_away_is_said(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERING_METADATA__URL", "sqlite:////nowhere/at/all.sqlite")
    for path in ("/now", "/throughput", "/topics", "/topics.csv", "/limits"):
        answer = ask(URL_PREFIX + path)
        assert (answer.status_code, list(answer.json())) == (503, ["detail"]), path
    assert ask(f"{URL_PREFIX}/").status_code == 200
    assert ask(PAUSE, "admin", "POST", json=ALL, headers=SAME_ORIGIN).status_code == 503


def test_viewers_share_what_was_read_and_failures_are_not_kept() -> None:
    shared, calls = Shared(60.0), []

    def read() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("away")
        return len(calls)

    with pytest.raises(ConnectionError, match="away"):
        shared.get("a", read)
    assert [shared.get("a", read), shared.get("a", read), shared.get("b", read)] == [2, 2, 3]
    assert Shared(0.0).get("a", read) == 4
    assert shared.changed(lambda: "done") == "done"
    assert shared.get("a", read) == 5


def test_viewers_who_come_during_a_read_get_its_result_or_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_PATIENCE_SECONDS", 0.05)
    shared, reads, answers = Shared(60.0), [], Event()

    def read() -> int:
        reads.append(1)
        assert answers.wait(60)
        if len(reads) == 1:
            raise ConnectionError("away")
        return 7

    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(shared.get, "a", read) for _ in range(20)]
        # One reads on, the others hold no thread any longer, and another key is read meanwhile.
        eventually(lambda: sum(one.done() for one in asked) == 19, "19 requests have given up")
        assert shared.get("b", lambda: 3) == 3
        answers.set()
        errors = {type(one.exception()) for one in asked}
        assert (errors, len(reads)) == ({ConnectionError, MetadataUnavailableError}, 1)
        assert shared.get("a", read) == shared.get("a", read) == 7

        monkeypatch.setattr(requests, "_PATIENCE_SECONDS", 60.0)
        answers.clear()
        shared.changed(lambda: None)
        begun_before = pool.submit(shared.get, "a", read)
        eventually(lambda: len(reads) == 3, "a request reads")
        shared.changed(lambda: None)
        answers.set()
        assert begun_before.result() == 7
    # What was read before a change is not returned after it.
    assert (shared.get("a", lambda: 8), len(reads)) == (8, 3)


def test_airflows_navigation_has_the_page() -> None:
    (view,) = TieringPagePlugin.external_views
    assert (view["destination"], view["nav_top_level"], view["href"]) == ("nav", True, f"{URL_PREFIX}/")
    assert {Path(str(view[name])).name for name in ("icon", "icon_dark_mode")} <= set(ASSETS)
    assert ExternalViewResponse.model_validate(view).url_route == "tiering"


def test_reads_share_an_app_until_it_fails(deployed: Deployment) -> None:
    kept, seen = KeptApp(), []

    def note(app: App) -> int:
        seen.append(app)
        return len(seen)

    def fail(app: App, error: Exception) -> None:
        raise error

    assert [kept.read(note), kept.read(note)] == [1, 2]
    with pytest.raises(SettingError):
        kept.read(lambda app: fail(app, SettingError("no such topic")))
    kept.read(note)
    with pytest.raises(MetadataUnavailableError):
        kept.read(lambda app: fail(app, MetadataUnavailableError("away")))
    kept.read(note)
    assert seen[0] is seen[1] is seen[2]
    assert seen[3] is not seen[0]


def test_the_app_is_kept_while_its_settings_and_its_database_are_the_same(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(requests, "_KEPT_SECONDS", 0.0)
    kept, seen = KeptApp(), []

    def topics(app: App) -> int:
        seen.append(app)
        return app.operations.overview.now().totals.topics

    def replace(file: Path) -> None:
        """Put another file at the place of the database, as a restored backup is."""
        with connect(file) as found, connect(tmp_path / "copy.sqlite") as copy:
            found.backup(copy)
        (tmp_path / "copy.sqlite").rename(database)
        for rest in ("-wal", "-shm"):
            database.with_name(database.name + rest).unlink(missing_ok=True)

    with deployed.open() as app:
        database = Path(str(app.adapters.engine.url.database))
    with connect(database) as found, connect(tmp_path / "before.sqlite") as before:
        found.backup(before)
    deployed.copied("orders")
    assert [kept.read(topics), kept.read(topics)] == [1, 1]
    assert seen[0] is seen[1]
    replace(tmp_path / "before.sqlite")
    assert kept.read(topics) == 0
    assert seen[2] is seen[0]
    monkeypatch.setenv("TIERING_TOPICS__INCLUDE", "orders")
    assert kept.read(topics) == 0
    assert seen[3] is not seen[0]
    monkeypatch.setenv("TIERING_METADATA__URL", "sqlite:////nowhere/at/all.sqlite")
    with pytest.raises(MetadataUnavailableError):
        kept.read(topics)


LIMITS: Final = f"{URL_PREFIX}/limits"
TOTAL: Final = "tiering.copy.total.max.bytes.per.second"
WANTED: Final = {"entity_type": "brokers", "entity_name": None, "name": TOTAL, "value": "50MiB"}


def _stored(deployed: Deployment) -> dict[str, str]:
    with deployed.open() as app:
        return dict(app.adapters.stores.configs.of_entity(ALL_BROKERS))


def test_limits_are_those_of_the_command_with_what_they_mean(ask: Ask, deployed: Deployment) -> None:
    deployed.copied("orders")
    deployed.expires("orders", retention_bytes="4096")
    shown, said = ask(LIMITS).json(), _command(deployed, "configs", "--describe")
    assert shown["may"] == {"alter": False}
    assert (shown["configs"], shown["history"], shown["notes"]) == (said["configs"], said["history"], said["notes"])
    assert shown["events"] == _command(deployed, "events")["events"]
    meant = {(each["entity_type"], each["name"]) for each in shown["meanings"]}
    assert {(each["entity_type"], each["name"]) for each in shown["configs"]} <= meant


@pytest.mark.parametrize(
    ("role", "status"), [("nobody", 401), (None, 403), ("viewer", 403), ("user", 200), ("op", 200), ("admin", 200)]
)
def test_who_may_trigger_the_dag_changes_a_config_by_name(
    ask: Ask, deployed: Deployment, role: str | None, status: int
) -> None:
    answer = ask(LIMITS, role, "POST", json=WANTED, headers=SAME_ORIGIN)
    assert answer.status_code == status
    assert _stored(deployed) == ({TOTAL: "52428800"} if status == 200 else {})
    if status == 200:
        assert "1 config changed" in answer.json()["summary"]
        shown = ask(LIMITS, role).json()
        assert shown["may"] == {"alter": True}
        assert [change["author"] for change in shown["history"]] == [f"a {role} (page Tiering)"]
        assert ask(LIMITS, role, "POST", json={**WANTED, "value": None}, headers=SAME_ORIGIN).status_code == 200
        assert _stored(deployed) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"name": "tiering.copy.totl.max.bytes.per.second"},
        {"value": "fast"},
        {"value": "<script>alert(1)</script>"},
        {"entity_type": "planets"},
        {"entity_type": "topics", "entity_name": "ordrs", "name": "retention.bytes", "value": "1"},
        {"entity_type": "topics", "entity_name": "../../etc", "name": "retention.bytes", "value": "1"},
        {"value": 7},
        {"more": 1},
    ],
)
def test_what_is_no_config_changes_nothing(ask: Ask, deployed: Deployment, change: dict[str, Any]) -> None:
    answer = ask(LIMITS, "admin", "POST", json={**WANTED, **change}, headers=SAME_ORIGIN)
    assert (answer.status_code, list(answer.json())) == (400, ["detail"])
    assert _stored(deployed) == {}


def test_other_sites_change_no_config(ask: Ask, deployed: Deployment) -> None:
    headers = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert ask(LIMITS, "admin", "POST", json=WANTED, headers=headers).status_code == 403
    assert _stored(deployed) == {}


def test_who_may_not_edit_a_pool_does_not_resize_it(ask: Ask) -> None:
    wanted = {**WANTED, "name": "remote.log.manager.copier.thread.pool.size", "value": "3"}
    answer = ask(LIMITS, "user", "POST", json=wanted, headers=SAME_ORIGIN)
    assert (answer.status_code, "remote_log_copier" in answer.json()["detail"]) == (403, True)


def test_only_approvers_loosen_a_deletion_limit(
    ask: Ask, deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__TIERING__EXPIRATION_APPROVERS", "a op")
    loosening = {**WANTED, "name": "tiering.expiration.max.share", "value": "0.9"}
    refused = ask(LIMITS, "admin", "POST", json=loosening, headers=SAME_ORIGIN)
    assert refused.status_code == 409, refused.json()
    assert "may not approve deletions" in refused.json()["detail"]
    assert _stored(deployed) == {}
    # Some auth managers let a user choose a name: it is the id that counts, as for an answer in Airflow.
    monkeypatch.setattr(SimpleAuthManagerUser, "get_name", lambda _: "a op")
    assert ask(LIMITS, "admin", "POST", json=loosening, headers=SAME_ORIGIN).status_code == 409
    assert _stored(deployed) == {}
    assert ask(LIMITS, "op", "POST", json=loosening, headers=SAME_ORIGIN).status_code == 200


def test_a_preview_is_that_of_the_command(ask: Ask, deployed: Deployment) -> None:
    deployed.copied("orders")
    asked = {"topic": "orders", "retention_bytes": "4KiB", "retention_ms": "-1"}
    shown = ask(f"{URL_PREFIX}/retention", params=asked).json()
    said = _command(deployed, "retention", "orders", "--retention-bytes", "4KiB", "--retention-ms", "-1")
    assert shown.pop("may") == {"alter": False}
    assert shown.pop("as_of_ms") <= said.pop("as_of_ms")
    assert shown == said
    assert shown["horizons"][0]["segments"] > 0
    assert _stored(deployed) == {}
    only = ask(f"{URL_PREFIX}/retention", params={**asked, "partitions": "1"}).json()
    assert {each["partition"] for each in only["partitions"]} == {1}


def test_a_backfill_is_that_of_the_command(ask: Ask, deployed: Deployment) -> None:
    with deployed.open() as app:
        app.configs.alter(ALL_BROKERS, {TOTAL: "1024"}, author="test")
        app.sizes.report()
    asked = {"topic": ["orders", "audit_log"], "quota": "2KiB"}
    shown = ask(f"{URL_PREFIX}/backfill", params=asked).json()
    said = _command(deployed, "backfill", "--topic", "orders", "--topic", "audit_log", "--quota", "2KiB")
    assert shown.pop("may") == {"start": False, "pause": False}
    assert shown.pop("as_of_ms") <= said.pop("as_of_ms")
    assert shown == said
    assert {topic["topic"] for topic in shown["topics"]} == {"orders", "audit_log"}
    assert shown["seconds"] == shown["bytes"] / 1024 == 2 * shown["asked_seconds"]
    assert ask(f"{URL_PREFIX}/backfill", "op").json()["may"] == {"start": True, "pause": True}
    assert {"orders", "audit_log"} < {topic["topic"] for topic in ask(f"{URL_PREFIX}/backfill").json()["topics"]}
    for query in ("topic=%3Cscript%3E", "quota=fast", "quota=-1", "quota=%3Cb%3E"):
        answer = ask(f"{URL_PREFIX}/backfill?{query}")
        assert (answer.status_code, list(answer.json())) == (400, ["detail"])
