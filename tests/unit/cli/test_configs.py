"""`./tiering configs`: what it asks, shows, refuses, and ends with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.errors import (
    AirflowApiUnavailableError,
    BrokersRefusedError,
    BrokersUnavailableError,
    MetadataUnavailableError,
)
from tests.doubles.fake_app import FakeApp
from tests.doubles.memory_stores import ScriptedLedger, usage

Run = Callable[..., Result]
Document = Callable[..., Any]

COPY = "remote.log.manager.copy.max.bytes.per.second"
FETCH = "remote.log.manager.fetch.max.bytes.per.second"
CLIENT = "tiering.fetch.max.bytes.per.second"
BROKERS = ("--entity-type", "brokers", "--entity-default")
BROKER_1 = ("--entity-type", "brokers", "--entity-name", "1")
REPORTING = ("--entity-type", "clients", "--entity-name", "reporting")


def test_nobody_is_said_to_have_taken_what_is_read_at_a_start_only(run: Run, app: FakeApp) -> None:
    app.adapters.quota_ledger = ScriptedLedger(**{"host:1": 0})
    result = run("configs", "--alter", *BROKERS, "--add-config", "tiering.copier.batch.max.seconds=1")
    assert result.exit_code == 0
    assert "taken by" not in result.stdout
    assert "is read when a plan, batch or command starts, and running ones keep the old value" in result.stdout
    result = run("configs", "--alter", *BROKERS, "--add-config", "total.bytes.in.per.sec.threshold=10")
    assert "read again within half a second" in result.stdout


def test_thresholds_without_effect_are_named(run: Run, document: Document) -> None:
    """By the command that sets them, and by the one that shows them, until they have one."""
    total, topic = "total.bytes.in.per.sec.threshold", ("--entity-type", "topics", "--entity-name", "orders")
    words = f"{total} has no effect while topic quotas are off: set tiering.topic.quotas.enable=true"
    set_total = ("configs", "--alter", *BROKERS, "--add-config", f"{total}=10")
    assert words in run(*set_total).stdout
    assert document(*set_total)["notes"] == [words]
    assert words in run("configs", "--describe").stdout
    assert document("configs", "--describe")["notes"] == [words]
    other = run("configs", "--alter", *topic, "--add-config", "retention.ms=5")
    assert "no effect" not in other.stdout, "the change is of something else"
    result = run("configs", "--alter", *BROKERS, "--add-config", "tiering.topic.quotas.enable=true")
    assert "no effect" not in result.stdout
    assert document("configs", "--describe")["notes"] == []


def test_a_retention_names_the_command_that_shows_what_goes(run: Run) -> None:
    words = "./tiering expire --dry-run shows what expires by it now"
    topic = ("configs", "--alter", "--topic", "orders")
    assert words in run(*topic, "--add-config", "retention.bytes=5").stdout
    assert words not in run(*topic, "--delete-config", "retention.bytes").stdout


def test_alter_sets_and_removes_in_one_change(run: Run, app: FakeApp) -> None:
    app.adapters.quota_ledger = ScriptedLedger(**{"host:1": 0, "host:2": 1})
    assert run("configs", "--alter", *BROKERS, "--add-config", f"{COPY}=10,{FETCH}=20").exit_code == 0
    result = run(
        "configs", "--alter", *BROKERS, "--add-config", f"{COPY}=11", "--add-config", "queued.max.requests=7",
        "--delete-config", f"{FETCH}",
    )  # fmt: skip
    assert result.exit_code == 0
    assert app.adapters.stores.configs.of_entity(ALL_BROKERS) == {COPY: "11", "queued.max.requests": "7"}
    assert "brokers default: 3 configs changed, version 5; queued.max.requests is read when a plan" in result.stdout
    assert "running ones keep the old value; taken by 2 workers" in result.stdout
    assert "@" in app.adapters.stores.configs.history()[0].author


def test_alter_names_the_workers_that_have_not_taken_it(run: Run, document: Document, app: FakeApp) -> None:
    app.adapters.quota_ledger = ScriptedLedger(**{"host:1": 0, "host:2": None})
    arguments = ("configs", "--alter", *BROKER_1, "--add-config", f"{COPY}=10")
    result = run(*arguments)
    assert result.exit_code == 1
    assert "not taken by 1 of 2 workers: host:2" in result.stdout
    shown = document(*arguments)
    assert (shown["entity_type"], shown["entity_name"], shown["version"]) == ("brokers", "1", 1)
    assert shown["changed"] == []
    assert shown["taken_by"] == [{"worker_id": "host:1", "version": 1}]
    assert shown["not_taken_by"] == [{"worker_id": "host:2", "version": 0}]


def test_alter_is_refused_by_a_rule_with_the_numbers(run: Run, app: FakeApp) -> None:
    run("configs", "--alter", *BROKERS, "--add-config", f"{FETCH}=1000")
    result = run("configs", "--alter", *REPORTING, "--add-config", f"{CLIENT}=1000")
    assert result.exit_code == 1
    assert f"client reporting: {CLIENT} = 1000 is not below brokers default: {FETCH} = 1000" in result.stderr
    assert app.adapters.stores.configs.of_entity(ConfigEntity(EntityType.CLIENTS, "reporting")) == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--alter", "--broker", "1", "--topic", "orders", "--add-config", f"{COPY}=1"), "--broker and --topic both"),
        (
            ("--describe", "--broker", "1", "--entity-type", "brokers"),
            "--broker and --entity-type both name an entity",
        ),
        (("--describe", "--broker-defaults", "--client-defaults"), "--broker-defaults and --client-defaults both"),
        (("--describe", "--client", ""), "'' is no client"),
        (("--alter", "--broker-defaults", "--all", "--add-config", f"{COPY}=1"), "--all goes with --describe"),
        (
            ("--bootstrap-server", "localhost:9092", "--describe", "--broker", "1"),
            "leave --bootstrap-server out: these configs are stored in this platform's database",
        ),
        (("--bootstrap-controller", "localhost:9093", "--describe"), "add --target brokers"),
        (("--command-config", "client.properties", "--describe"), "leave --command-config out"),
        ((), "either --describe or --alter"),
        (("--alter", "--describe"), "either --describe or --alter"),
        (("--alter", "--add-config", f"{COPY}=1"), "--alter needs --entity-type"),
        (
            ("--alter", "--entity-type", "brokers", "--add-config", f"{COPY}=1"),
            "--alter needs --entity-type and one of",
        ),
        (("--alter", *BROKERS), "--alter needs --add-config"),
        (("--alter", *BROKERS, "--history", "--add-config", f"{COPY}=1"), "--history goes with --describe"),
        (("--alter", *BROKERS, "--entity-name", "1", "--add-config", f"{COPY}=1"), "exclude each other"),
        (("--alter", *BROKERS, "--add-config", COPY), "NAME=VALUE is needed"),
        (("--alter", *BROKERS, "--add-config", f"{COPY}=1", "--delete-config", COPY), "changed twice"),
        (("--alter", *BROKERS, "--add-config", f"{COPY}=1,{COPY}=2"), "changed twice"),
        (("--alter", *BROKERS, "--add-config", f"{COPY}=fast"), f"'fast': accepted: integer, 1 to {2**63 - 1}"),
        (("--alter", *BROKERS, "--add-config", "remote.log.copy=1"), "unknown config remote.log.copy"),
        (("--alter", *BROKER_1, "--add-config", "queued.max.requests=1"), "it belongs to brokers: default"),
        (("--describe", "--add-config", f"{COPY}=1"), "go with --alter"),
        (("--describe", "--entity-name", "1"), "need --entity-type"),
        (("--describe", "--entity-type", "users"), "accepted: brokers, topics, clients"),
        (("--describe", "--entity-type", "brokers", "--entity-name", "one"), "'one' is no broker"),
        (
            ("--alter", *BROKERS, "--dry-run", "--add-config", f"{COPY}=1"),
            "--dry-run goes with --alter --target brokers",
        ),
        (("--describe", "--target", "brokers", "--dry-run"), "--dry-run goes with --alter --target brokers"),
        (("--describe", "--target", "both", "--entity-type", "topics"), "--target both is for brokers"),
        (("--alter", "--target", "brokers", *REPORTING, "--add-config", f"{COPY}=1"), "exist only on this platform"),
        (
            ("--alter", "--target", "both", *BROKERS, "--add-config", "queued.max.bytes=1"),
            "no config of tiered storage",
        ),
    ],
)
def test_usage(run: Run, app: FakeApp, arguments: tuple[str, ...], words: str) -> None:
    result = run("configs", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert app.adapters.stores.configs.history() == []


def test_a_database_that_is_away_is_worth_retrying(run: Run, app: FakeApp) -> None:
    app.fails = MetadataUnavailableError("no answer")
    assert run("configs", "--alter", *BROKERS, "--add-config", f"{COPY}=1").exit_code == 3


def test_describe_says_where_each_value_comes_from(run: Run, document: Document, app: FakeApp) -> None:
    run("configs", "--alter", *BROKERS, "--add-config", f"{COPY}=10,{FETCH}=20,tiering.copy.fairness.enable=no")
    run("configs", "--alter", *BROKER_1, "--add-config", f"{COPY}=11")
    broker = {item["name"]: item for item in document("configs", "--describe", *BROKER_1)["configs"]}
    assert {name: (item["value"], item["source"]) for name, item in broker.items()} == {
        COPY: (11, "dynamic broker 1"),
        FETCH: (20, "dynamic default"),
        "total.bytes.in.per.sec.threshold": (2**63 - 1, "default"),
    }
    assert broker[COPY]["unit"] == "bytes a second"
    environ = {"TIERING_COPIER__MAX__BATCHES": "3"}
    default = {item["name"]: item for item in document("configs", "--describe", *BROKERS, **environ)["configs"]}
    assert {
        name: (default[name]["value"], default[name]["source"])
        for name in (COPY, "tiering.copy.fairness.enable", "tiering.copier.max.batches", "queued.max.requests")
    } == {
        COPY: (10, "dynamic default"),
        "tiering.copy.fairness.enable": (False, "dynamic default"),
        "tiering.copier.max.batches": (3, "environment TIERING_COPIER__MAX__BATCHES"),
        "queued.max.requests": (500, "default"),
    }


def test_describe_of_a_type_shows_its_default_and_every_named_entity(run: Run, document: Document) -> None:
    run("configs", "--alter", *REPORTING, "--add-config", f"{CLIENT}=10")
    run("configs", "--alter", *BROKER_1, "--add-config", f"{COPY}=11")
    shown = document("configs", "--describe", "--entity-type", "clients")
    assert [(item["entity_name"], item["value"]) for item in shown["configs"]] == [
        (None, 2**63 - 1),
        ("reporting", 10),
    ]
    assert [change["entity_type"] for change in shown["history"]] == ["clients"]
    everything = document("configs", "--describe")
    named = {(item["entity_type"], item["entity_name"]) for item in everything["configs"] if item["entity_name"]}
    assert named == {("brokers", "1"), ("clients", "reporting")}


def test_describe_shows_who_changed_what(run: Run, document: Document, app: FakeApp) -> None:
    for value in range(1, 26):
        run("configs", "--alter", *BROKERS, "--add-config", f"{COPY}={value}")
    latest = document("configs", "--describe", *BROKERS)["history"]
    assert [(change["old_value"], change["new_value"]) for change in latest] == [
        (value - 1, value) for value in range(6, 26)
    ]
    assert len(document("configs", "--describe", *BROKERS, "--history")["history"]) == 25
    text = run("configs", "--describe", *BROKERS).stdout
    assert "2023-11-14 22:13:20 UTC" in text
    assert app.adapters.stores.configs.history()[0].author in text


def test_what_a_later_version_has_set_is_shown_and_can_be_removed(run: Run, document: Document, app: FakeApp) -> None:
    app.adapters.stores.configs.alter(ALL_BROKERS, {"of.a.later.version": "x"}, author="ann")
    shown = document("configs", "--describe", *BROKERS)["configs"][-1]
    assert (shown["name"], shown["value"], shown["source"]) == ("of.a.later.version", "x", "dynamic, unknown here")
    assert run("configs", "--alter", *BROKERS, "--delete-config", "of.a.later.version").exit_code == 0
    assert app.adapters.stores.configs.of_entity(ALL_BROKERS) == {}


def test_status_shows_what_was_changed_live(run: Run, document: Document, app: FakeApp) -> None:
    run("configs", "--alter", *BROKERS, "--add-config", "tiering.copier.max.batches=3")
    shown = {item["name"]: item for item in document("status", TIERING_COPIER__MAX__BATCHES="9")["settings"]}
    assert shown["tiering.copier.max.batches"]["value"] == 3
    assert shown["tiering.copier.max.batches"]["origin"] == "dynamic config"
    app.fails = MetadataUnavailableError("no answer")
    static = {item["name"]: item for item in document("status", TIERING_COPIER__MAX__BATCHES="9")["settings"]}
    assert static["tiering.copier.max.batches"]["value"] == 9


def test_help_teaches_by_example(run: Run) -> None:
    shown = run("configs", "--help").stdout
    assert "--add-config" in shown
    assert "remote.log.manager.copy.max.bytes.per.second=52428800" in shown
    assert "0 done, 1 refused by a rule" in shown.replace("\n", " ")


COPIER = "remote.log.manager.copier.thread.pool.size"


def test_the_size_of_a_pool_is_changed_in_airflow(run: Run, document: Document, app: FakeApp) -> None:
    app.adapters.pools.known["remote_log_copier"] = usage(2, running=2, scheduled=3)
    app.adapters.pools.executor_parallelism = 4
    result = run("configs", "--alter", *BROKERS, "--add-config", f"{COPIER}=6")
    assert result.exit_code == 0
    assert "remote_log_copier has 6 slots: 3 of 3 waiting jobs start" in result.stdout
    assert "warning: remote_log_copier has 6 slots, the executor runs 4 tasks at once" in result.stdout
    assert "2 slots stay empty" in result.stdout
    assert app.adapters.pools.resized == [("remote_log_copier", 6)]
    assert app.adapters.stores.configs.of_entity(ALL_BROKERS) == {}
    shown = {config["name"]: config for config in document("configs", "--describe", *BROKERS)["configs"]}
    assert (shown[COPIER]["value"], shown[COPIER]["source"], shown[COPIER]["unit"]) == (6, "Airflow pool", "slots")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--add-config", f"{COPIER}=-1"), 2, "integer, 0 (a pause) to"),
        (("--delete-config", COPIER), 1, "a pool always has a size"),
        (("--add-config", f"{COPIER}=3,{COPY}=5"), 2, "change them one after the other"),
    ],
)
def test_a_size_that_makes_no_sense_is_refused(
    run: Run, app: FakeApp, arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = run("configs", "--alter", *BROKERS, *arguments)
    assert (result.exit_code, app.adapters.pools.resized) == (code, [])
    assert words in result.stderr


def test_without_airflow_a_size_cannot_be_changed_but_is_shown(run: Run, document: Document, app: FakeApp) -> None:
    document("pools")
    app.adapters.pools.fails = AirflowApiUnavailableError("away")
    result = run("configs", "--alter", *BROKERS, "--add-config", f"{COPIER}=6")
    assert (result.exit_code, result.stderr) == (3, "error: away\n")
    shown = {config["name"]: config for config in document("configs", "--describe", *BROKERS)["configs"]}
    assert (shown[COPIER]["value"], shown[COPIER]["source"]) == (2, "Airflow pool, as seen last")


def test_kafkas_own_configs_change_only_when_the_target_says_so(run: Run, app: FakeApp) -> None:
    arguments = ("configs", "--alter", *BROKERS, "--add-config", f"{COPY}=10")
    assert run(*arguments).exit_code == 0
    assert app.adapters.brokers.calls == []
    result = run(*arguments, "--target", "brokers")
    assert result.exit_code == 0
    assert app.adapters.brokers.broker_configs_set[None] == {COPY: "10"}
    assert f"Kafka's own {COPY} changed on the default of all brokers: in force on 1 broker" in result.stdout
    assert "dynamic default of all brokers" in result.stdout
    assert len(app.adapters.stores.configs.history()) == 1


def test_both_are_changed_by_one_command_and_shown_apart(run: Run, document: Document, app: FakeApp) -> None:
    shown = document("configs", "--alter", "--target", "both", *BROKERS, "--add-config", f"{COPY}=10")
    assert app.adapters.stores.configs.of_entity(ALL_BROKERS) == {COPY: "10"}
    assert app.adapters.brokers.broker_configs_set[None] == {COPY: "10"}
    assert [change["new_value"] for change in shown["platform"]["changed"]] == [10]
    (broker,) = shown["brokers"]["brokers"]
    assert (broker["broker_id"], broker["old_value"], broker["old_source"]) == (1, str(2**63 - 1), "default")
    assert (broker["new_value"], broker["taken"]) == ("10", True)
    described = document("configs", "--describe", "--target", "both", *BROKERS)
    assert {"platform", "brokers"} == described.keys()


def test_what_brokers_refuse_is_not_changed_here_either(run: Run, app: FakeApp) -> None:
    app.adapters.brokers.fail("alter_broker_configs", BrokersRefusedError("configs of broker 1: invalid request"))
    result = run("configs", "--alter", "--target", "both", *BROKERS, "--add-config", f"{COPY}=10")
    assert result.exit_code == 1
    assert app.adapters.stores.configs.history() == []


def test_brokers_that_go_away_after_our_own_change_are_said_to_be_unchanged(run: Run, app: FakeApp) -> None:
    def goes_away(method: str) -> None:
        if method == "alter_broker_configs":
            app.adapters.brokers.fail("describe", BrokersUnavailableError("no bootstrap server answers"))

    app.adapters.brokers.after_call = goes_away
    result = run("configs", "--alter", "--target", "both", *BROKERS, "--add-config", f"{COPY}=10")
    assert result.exit_code == 3
    assert "this platform's configs were changed" in result.stderr
    assert "Kafka's were not: no bootstrap server answers" in result.stderr
    assert app.adapters.stores.configs.of_entity(ALL_BROKERS) == {COPY: "10"}


def test_a_dry_run_says_what_would_be(run: Run, document: Document, app: FakeApp) -> None:
    arguments = ("configs", "--alter", "--target", "brokers", "--dry-run", *BROKER_1, "--add-config", f"{COPY}=10")
    assert "would be changed on broker 1: the brokers accept it; nothing was changed" in run(*arguments).stdout
    assert document(*arguments)["brokers"][0]["requested"] == "10"
    assert app.adapters.brokers.broker_configs_set == {None: {}}


def test_kafkas_own_configs_are_listed_with_the_release(run: Run) -> None:
    shown = run("configs", "--describe", "--target", "brokers").stdout
    assert "Kafka 4.2" in shown
    assert COPY in shown


# Habits of those who know kafka-configs.


def test_short_options_name_an_entity(run: Run, app: FakeApp) -> None:
    assert run("configs", "--alter", "--broker", "1", "--add-config", f"{COPY}=10MiB").exit_code == 0
    assert run("configs", "--alter", "--broker-defaults", "--add-config", f"{COPY}=1MiB").exit_code == 0
    assert run("configs", "--alter", "--client", "reporting", "--add-config", f"{CLIENT}=5").exit_code == 0
    assert run("configs", "--alter", "--client-defaults", "--add-config", f"{CLIENT}=6").exit_code == 0
    assert run("configs", "--alter", "--topic", "orders", "--add-config", "retention.ms=7d").exit_code == 0
    assert app.adapters.stores.configs.snapshot().values == {
        ConfigEntity(EntityType.BROKERS, "1"): {COPY: "10485760"},
        ALL_BROKERS: {COPY: "1048576"},
        ConfigEntity(EntityType.CLIENTS, "reporting"): {CLIENT: "5"},
        ConfigEntity(EntityType.CLIENTS): {CLIENT: "6"},
        ConfigEntity(EntityType.TOPICS, "orders"): {"retention.ms": "604800000"},
    }


def test_describe_names_what_a_value_hides(run: Run, document: Document) -> None:
    environ = {"TIERING_COPIER__MAX__BATCHES": "3"}
    run("configs", "--alter", *BROKERS, "--add-config", f"{COPY}=10,tiering.copier.max.batches=5")
    run("configs", "--alter", "--broker", "1", "--add-config", f"{COPY}=11")
    broker = {item["name"]: item for item in document("configs", "--describe", "--broker", "1")["configs"]}
    assert broker[COPY]["synonyms"] == [
        {"name": COPY, "value": 11, "source": "dynamic broker 1"},
        {"name": COPY, "value": 10, "source": "dynamic default"},
        {"name": COPY, "value": 2**63 - 1, "source": "default"},
    ]
    default = {item["name"]: item for item in document("configs", "--describe", *BROKERS, **environ)["configs"]}
    assert [(one["value"], one["source"]) for one in default["tiering.copier.max.batches"]["synonyms"]] == [
        (5, "dynamic default"),
        (3, "environment TIERING_COPIER__MAX__BATCHES"),
        (16, "default"),
    ]
    text = run("configs", "--describe", "--broker", "1").stdout
    assert "10 (dynamic default), unlimited (default)" in text


def test_a_topic_without_a_copy_lag_has_that_of_the_brokers(run: Run, document: Document) -> None:
    run("configs", "--alter", *BROKERS, "--add-config", "log.remote.copy.lag.ms=1h")
    shown = {item["name"]: item for item in document("configs", "--describe", "--topic", "orders")["configs"]}
    assert shown["remote.copy.lag.ms"]["value"] == 3_600_000
    assert shown["remote.copy.lag.ms"]["synonyms"][0]["name"] == "log.remote.copy.lag.ms"
    assert shown["remote.copy.lag.bytes"]["value"] == -1
    assert shown["retention.ms"]["value"] == -1


def test_all_shows_settings_that_only_a_restart_changes(document: Document) -> None:
    def names(*arguments: str) -> set[str]:
        return {item["name"] for item in document("configs", "--describe", *BROKERS, *arguments)["configs"]}

    assert {"tiering.copier.lease.ms", "metadata.url"} <= names("--all") - names()
    static = document("configs", "--describe", "--all", TIERING_REMOTE_STORAGE__SECRET_ACCESS_KEY="hush")["configs"]
    shown = {item["name"]: item for item in static}
    assert shown["tiering.copier.lease.ms"]["value"] == 30_000
    assert shown["remote_storage.secret_access_key"]["value"] == "***"


def test_a_file_holds_what_to_set(run: Run, app: FakeApp, tmp_path: Path) -> None:
    file = tmp_path / "quotas.properties"
    file.write_text(f"# both\n! and\n\n{COPY} = 50MiB\n{FETCH}=20\n")
    arguments = ("configs", "--alter", "--broker-defaults", "--add-config-file", str(file))
    assert run(*arguments, "--add-config", "queued.max.requests=7").exit_code == 0
    assert app.adapters.stores.configs.of_entity(ALL_BROKERS) == {
        COPY: "52428800",
        FETCH: "20",
        "queued.max.requests": "7",
    }
    twice = run(*arguments, "--add-config", f"{COPY}=1")
    assert (twice.exit_code, "changed twice" in twice.stderr) == (2, True)
    file.write_text("no value\n")
    wrong = run(*arguments)
    assert (wrong.exit_code, "no value: NAME=VALUE is needed" in wrong.stderr) == (2, True)
    file.write_bytes(b"\xff\xfe")
    assert "no UTF-8 text" in run(*arguments).stderr
    file.unlink()
    assert "No such file" in run(*arguments).stderr


def test_deleting_what_is_not_set_is_refused_and_changes_nothing(run: Run, app: FakeApp) -> None:
    run("configs", "--alter", *BROKERS, "--add-config", f"{COPY}=10,queued.max.bytes=5")
    result = run("configs", "--alter", *BROKERS, "--delete-config", f"{COPY},{FETCH}")
    assert result.exit_code == 1
    assert f"{FETCH} cannot be deleted on brokers default: it has no value there" in result.stderr
    assert app.adapters.stores.configs.of_entity(ALL_BROKERS) == {COPY: "10", "queued.max.bytes": "5"}
    assert run("configs", "--alter", *BROKER_1, "--delete-config", COPY).exit_code == 1
    for _ in ("done", "repeated, as after a store that could not be claimed"):
        assert run("configs", "--alter", *BROKERS, "--delete-config", "queued.max.request.bytes").exit_code == 0
    assert app.adapters.stores.configs.of_entity(ALL_BROKERS) == {COPY: "10"}
