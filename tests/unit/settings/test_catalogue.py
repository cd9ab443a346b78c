"""The catalogue of settings, dynamic settings, and secrets among them."""

import json
from pathlib import Path

import pytest

from include.tiering.errors import SettingError
from include.tiering.settings import TieringSettings, load_settings, with_dynamic
from include.tiering.settings.catalogue import (
    all_settings,
    by_environment_name,
    by_name,
    canonical_value,
    dynamic_settings,
)
from include.tiering.settings.fields import mask_url

# The table of settings: names and defaults are promises to users, so changing one must touch this file.

DEFAULTS = {
    "cluster.name": "kafka",
    "cluster.bootstrap_servers": "unset",
    "cluster.security_protocol": "PLAINTEXT",
    "cluster.sasl_mechanism": "unset",
    "cluster.sasl_username": "unset",
    "cluster.sasl_password": "unset",
    "cluster.ssl_ca_location": "unset",
    "cluster.ssl_certificate_location": "unset",
    "cluster.ssl_key_location": "unset",
    "cluster.ssl_key_password": "unset",
    "cluster.request_timeout_ms": "10000",
    "metadata_topic.bootstrap_servers": "unset",
    "metadata_topic.security_protocol": "unset",
    "metadata_topic.sasl_mechanism": "unset",
    "metadata_topic.sasl_username": "unset",
    "metadata_topic.sasl_password": "unset",
    "metadata_topic.ssl_ca_location": "unset",
    "metadata_topic.ssl_certificate_location": "unset",
    "metadata_topic.ssl_key_location": "unset",
    "metadata_topic.ssl_key_password": "unset",
    "metadata_topic.request_timeout_ms": "unset",
    "topics.include": "[]",
    "log_dirs": "[]",
    "leaders.max_bytes_per_second": "104857600",
    "leaders.find_bytes": "17179869184",
    "leaders.settle_ms": "60000",
    "leaders.spool_directory": "unset",
    "leaders.spool_max_bytes": "4294967296",
    "remote_storage.url": "unset",
    "remote_storage.endpoint_url": "unset",
    "remote_storage.region": "unset",
    "remote_storage.layout": "aiven",
    "remote_storage.key_prefix": "empty",
    "remote_storage.chunk_size": "4194304",
    "remote_storage.compression_enabled": "false",
    "remote_storage.compression_heuristic_enabled": "false",
    "remote_storage.encryption_key_pairs": "[]",
    "remote_storage.encryption_key_pair_id": "unset",
    "remote_storage.encryption_enabled": "false",
    "remote_storage.custom_metadata_fields_include": "[]",
    "remote_storage.custom_metadata_max_bytes": "128",
    "remote_storage.kafka_release": "unset",
    "remote_storage.access_key_id": "unset",
    "remote_storage.secret_access_key": "unset",
    "remote_storage.session_token": "unset",
    "metadata.url": "sqlite:///$XDG_STATE_HOME/tiering/metadata.sqlite (~/.local/state if unset)",
    "airflow.url": "http://localhost:8080",
    "airflow.login_file": "unset",
    "airflow.token": "unset",
    "tiering.copier.batch.max.seconds": "600",
    "tiering.copier.max.batches": "16",
    "tiering.copier.max.transfers": "16",
    "tiering.copier.total.max.transfers": "256",
    "tiering.copier.lease.ms": "30000",
    "tiering.copy.fairness.enable": "true",
    "queued.max.requests": "500",
    "queued.max.bytes": "-1",
    "remote.log.manager.copy.quota.window.num": "61",
    "remote.log.manager.copy.quota.window.size.seconds": "1",
    "remote.log.manager.fetch.quota.window.num": "11",
    "remote.log.manager.fetch.quota.window.size.seconds": "1",
    "tiering.topic.quotas.enable": "false",
    "remote.log.reader.threads": "10",
    "tiering.read.max.segments": "16",
    "tiering.expiration.max.share": "0.2",
    "tiering.expiration.min.bytes": "1073741824",
    "tiering.expiration.total.max.bytes": "1073741824",
    "tiering.expiration.max.whole.topics": "1",
    "tiering.clock.max.difference.ms": "300000",
    "tiering.clock.ignored.until.ms": "0",
    "tiering.expiration.batch.max.seconds": "600",
    "tiering.expiration.max.batches": "4",
    "tiering.audit.min.age.ms": "86400000",
    "tiering.audit.orphans.fail.enable": "true",
    "tiering.abandoned.copy.expiry.ms": "86400000",
    "tiering.on.topic.delete": "keep",
    "tiering.superseded.hold.ms": "86400000",
    "tiering.superseded.max.copies": "1",
    "tiering.tombstone.ms": "7776000000",
    "tiering.verdict.max.age.ms": "7776000000",
    "tiering.verify.share": "0.02",
    "tiering.verify.period.ms": "86400000",
    "tiering.verify.max.bytes": "1099511627776",
    "tiering.verify.max.missing.segments": "3",
    "tiering.verify.max.missing.total": "20",
    "tiering.verify.tasks": "8",
    "tiering.verify.max.batches": "4",
    "metadata_topic.broker_id": "424242",
    "metadata_topic.settle_ms": "40000",
    "tiering.handover.hold.hours": "24",
    "tiering.handover.free.bytes": "-1",
    "tiering.handover.watch.seconds": "300",
    "tiering.handover.settle.seconds": "600",
    "tiering.handover.verify.deep.enable": "true",
    "tiering.handover.brokers.count.once": "false",
    "tiering.handover.local.steps": "8",
    "suites.path": "unset",
    "data_docs.path": "unset",
    "data_docs.keep_runs": "200",
    "data_docs.keep_days": "90",
    "sizes.history_path": "unset",
    "sizes.history_days": "400",
    "prices.currency": "USD",
    "prices.gib_month": "unset",
    "prices.put_requests": "unset",
    "prices.get_requests": "unset",
    "prices.delete_requests": "unset",
    "restore.directory": "unset",
    "restore.into": "unset",
}
DEPLOYMENT_SECTIONS = (
    "data_docs.",
    "sizes.",
    "prices.",
    "restore.",
    "cluster.",
    "metadata_topic.",
    "topics.",
    "suites.",
    "log_dirs",
    "leaders.",
    "remote_storage.",
    "metadata.",
    "airflow.",
)


def test_names_and_defaults() -> None:
    assert {setting.name: setting.default for setting in all_settings()} == DEFAULTS


def test_a_dynamic_setting_has_a_name_in_kafkas_style_and_says_its_unit() -> None:
    dynamic = {setting.name for setting in all_settings() if setting.dynamic}
    operational = {name for name in DEFAULTS if not name.startswith(DEPLOYMENT_SECTIONS)}
    windows = {name for name in operational if ".quota.window." in name}
    assert dynamic == operational - windows - {"tiering.copier.lease.ms", "remote.log.reader.threads"}
    without_unit = {name for name in operational if by_name()[name].unit is None}
    assert without_unit == {
        "tiering.audit.orphans.fail.enable",
        "tiering.copy.fairness.enable",
        "tiering.handover.brokers.count.once",
        "tiering.handover.verify.deep.enable",
        "tiering.topic.quotas.enable",
        "tiering.on.topic.delete",
    }


def test_every_setting_says_what_it_is_for_and_what_it_accepts() -> None:
    assert [
        setting.name for setting in all_settings() if not (setting.sentence.endswith(".") and setting.accepts)
    ] == []


def test_environment_names_are_distinct_and_short() -> None:
    assert len({setting.environment_name for setting in all_settings()}) == len(DEFAULTS)
    assert len(by_environment_name()) == len(by_name()) == len(DEFAULTS) + 2, "two aliases"
    assert by_name()["tiering.copier.lease.ms"].environment_name == "TIERING_COPIER__LEASE__MS"
    assert by_name()["remote_storage.url"].environment_name == "TIERING_REMOTE_STORAGE__URL"


def test_the_former_name_of_the_expiry_of_abandoned_copies_leads_to_the_same_setting() -> None:
    assert by_name()["tiering.unfinished.copy.expiry.ms"] is by_name()["tiering.abandoned.copy.expiry.ms"]
    named = by_environment_name()["TIERING_UNFINISHED__COPY__EXPIRY__MS"]
    assert named.name == "tiering.abandoned.copy.expiry.ms"


def test_kafkas_later_name_of_the_byte_bound_leads_to_the_same_setting() -> None:
    assert by_name()["queued.max.request.bytes"] is by_name()["queued.max.bytes"]
    assert by_environment_name()["TIERING_QUEUED__MAX__REQUEST__BYTES"].name == "queued.max.bytes"


def test_no_name_is_the_prefix_of_another_so_that_nesting_is_unambiguous() -> None:
    names = sorted(by_name())
    assert [(a, b) for a in names for b in names if b.startswith(a + ".")] == []


def test_every_row_leads_to_a_value() -> None:
    settings = TieringSettings()
    assert by_name()["tiering.copier.lease.ms"].value(settings) == 30_000
    assert by_name()["topics.include"].shown(settings) == []


# What was changed while jobs run wins over every other place, and says so.

ENVIRON = {"TIERING_COPIER__MAX__BATCHES": "4", "TIERING_COPIER__BATCH__MAX__SECONDS": "60"}


def test_a_dynamic_value_wins_over_the_environment_and_is_named_as_the_origin() -> None:
    static = load_settings(environ=ENVIRON)
    live = with_dynamic(static, {"tiering.copier.max.batches": "9", "queued.max.request.bytes": "1024"})
    assert (live.copier.max_batches, live.copier.batch_max_seconds, live.queue.max_bytes) == (9, 60, 1024)
    assert live.origin("tiering.copier.max.batches") == live.origin("queued.max.bytes") == "dynamic config"
    assert live.origin("tiering.copier.batch.max.seconds") == "environment TIERING_COPIER__BATCH__MAX__SECONDS"
    assert (static.copier.max_batches, static.origin("queued.max.bytes")) == (4, "default")


@pytest.mark.parametrize("name", ["tiering.copier.max.batches", "tiering.expiration.max.batches"])
def test_a_number_of_batches_that_an_earlier_version_stored_is_lowered(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    live = with_dynamic(load_settings(environ={}), {name: "2000000"})
    assert by_name()[name].value(live) == 1024
    assert f"{name} is stored as 2000000: 1024 is used" in caplog.text
    with pytest.raises(SettingError, match="accepted: integer, at least 1, at most 1024"):
        with_dynamic(load_settings(environ={}), {name: "0"})


def test_a_dynamic_value_under_a_former_name_is_in_force_under_the_current_one() -> None:
    live = with_dynamic(load_settings(environ={}), {"tiering.unfinished.copy.expiry.ms": "90000"})
    assert live.abandoned_copy.expiry_ms == 90_000
    assert live.origin("tiering.abandoned.copy.expiry.ms") == "dynamic config"


def test_several_values_of_one_section() -> None:
    names = ("tiering.copier.max.batches", "tiering.copier.batch.max.seconds")
    live = with_dynamic(load_settings(environ={}), dict.fromkeys(names, "7"), origin="elsewhere")
    assert (live.copier.max_batches, live.copier.batch_max_seconds) == (7, 7)
    assert {live.origin(name) for name in names} == {"elsewhere"}


@pytest.mark.parametrize(
    "name",
    ["tiering.copier.lease.ms", "remote.log.manager.copy.quota.window.num", "cluster.name", "of.a.later.version"],
)
def test_what_is_no_dynamic_setting_is_passed_over(name: str) -> None:
    static = load_settings(environ={})
    assert with_dynamic(static, {name: "7000"}).model_dump() == static.model_dump()


@pytest.mark.parametrize(
    ("name", "text", "canonical"),
    [
        ("queued.max.requests", " 007 ", "7"),
        ("queued.max.bytes", "-1", "-1"),
        ("tiering.copy.fairness.enable", "FALSE", "false"),
        ("tiering.topic.quotas.enable", "yes", "true"),
        ("tiering.on.topic.delete", " expire:30d ", "expire:30d"),
        ("tiering.on.topic.delete", "keep", "keep"),
    ],
)
def test_a_value_is_stored_in_one_form(name: str, text: str, canonical: str) -> None:
    assert canonical_value(by_name()[name], text) == canonical


@pytest.mark.parametrize(
    ("name", "text", "accepted"),
    [
        ("queued.max.bytes", "0", "accepted: integer, 1 to 9223372036854775807, or -1 (bytes)"),
        ("queued.max.requests", "2147483648", "accepted: integer, at least 1, at most 2147483647 (requests)"),
        ("remote.log.manager.copy.quota.window.num", "3601", "at most 3600 (samples)"),
        ("tiering.copy.fairness.enable", "", "is '': accepted: true or false"),
        ("tiering.on.topic.delete", "expire", "accepted: keep, or expire:Nd with N days from 1 to 99999"),
        ("tiering.on.topic.delete", "expire:0d", "accepted: keep, or expire:Nd"),
        ("tiering.on.topic.delete", "expire:30", "is 'expire:30': accepted: keep, or expire:Nd"),
        ("tiering.on.topic.delete", "delete", "accepted: keep, or expire:Nd"),
        ("tiering.tombstone.ms", "86400000", "at least 172800000"),
        ("tiering.copier.max.batches", "1025", "at least 1, at most 1024 (batches)"),
        ("tiering.expiration.max.batches", "1025", "at least 1, at most 1024 (batches)"),
        ("tiering.copier.max.batches", "9" * 5_000, f"is {'9' * 100!r}: accepted"),
        ("tiering.copier.max.batches", "1\x1b[2J", r"is '1\\x1b[2J': accepted"),
    ],
)
def test_a_refusal_says_what_is_accepted(name: str, text: str, accepted: str) -> None:
    with pytest.raises(SettingError) as refused:
        canonical_value(by_name()[name], text)
    assert str(refused.value).startswith(name)
    assert accepted in str(refused.value)


def test_no_dynamic_setting_is_a_secret_or_a_list() -> None:
    assert dynamic_settings()
    assert [setting.name for setting in dynamic_settings() if setting.secret or setting.is_list] == []


@pytest.mark.parametrize(("value", "days"), [("keep", None), ("expire:1d", 1), ("expire:99999d", 99_999)])
def test_days_after_which_deleted_topics_expire(value: str, days: int | None) -> None:
    settings = with_dynamic(load_settings(environ={}), {"tiering.on.topic.delete": value})
    assert settings.on_topic.expire_after_days == days


# No secret leaves the settings by print, error, JSON or file mode.

SECRET = "hunter2"
SECRET_ENVIRON = {
    "TIERING_METADATA__URL": f"postgresql+psycopg://tiering:{SECRET}@db:5432/tiering?sslpassword={SECRET}",
    "TIERING_REMOTE_STORAGE__SECRET_ACCESS_KEY": SECRET,
    "TIERING_REMOTE_STORAGE__SESSION_TOKEN": SECRET,
}


def test_neither_text_nor_shown_values_hold_a_secret() -> None:
    settings = load_settings(environ=SECRET_ENVIRON)
    shown = {setting.name: setting.shown(settings) for setting in all_settings()}
    assert SECRET not in f"{settings!r} {settings} {shown} {settings.model_dump_json()}"
    assert shown["metadata.url"] == "postgresql+psycopg://tiering:***@db:5432/tiering?sslpassword=***"
    assert shown["remote_storage.secret_access_key"] == "***"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TIERING_METADATA__URL", f"mysql://u:{SECRET}@h/db"),
        ("TIERING_METADATA__URL", f"sqlite://u:{SECRET}@h/db"),
        ("TIERING_REMOTE_STORAGE__URL", f"s3://key:{SECRET}@bucket/prefix"),
        ("TIERING_REMOTE_STORAGE__URL", f"s3://bucket/prefix?secret={SECRET}"),
        ("TIERING_REMOTE_STORAGE__ENDPOINT_URL", f"https://key:{SECRET}@host"),
        ("TIERING_METADATA__URL", f"postgresql://[{SECRET}"),
    ],
)
def test_no_error_repeats_a_secret(variable: str, text: str) -> None:
    with pytest.raises(SettingError) as caught:
        load_settings(environ={variable: text})
    assert variable in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("sqlite:////state/metadata.sqlite", "sqlite:////state/metadata.sqlite"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("postgresql://user:p@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user:p/@:?@host/db", "postgresql://user:***@host/db"),
        (
            "postgresql://host/db?user=a&password=b&sslmode=require",
            "postgresql://host/db?user=a&password=***&sslmode=require",
        ),
        ("sqlite:////odd:name@x", "sqlite:////odd:name@x"),
    ],
)
def test_masking_of_a_url(url: str, masked: str) -> None:
    assert mask_url(url) == masked


def test_a_file_with_a_secret_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(f'[remote_storage]\nsecret_access_key = "{SECRET}"\n')
    file.chmod(0o640)
    with pytest.raises(
        SettingError, match=r"mode 0640\): chmod 600 it, or set TIERING_REMOTE_STORAGE__SECRET"
    ) as caught:
        load_settings(file, environ={})
    assert SECRET not in str(caught.value)
    file.chmod(0o600)
    secret = load_settings(file, environ={}).remote_storage.secret_access_key
    assert secret is not None
    assert secret.get_secret_value() == SECRET


def test_a_file_without_a_secret_may_be_read_by_all(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text('metadata.url = "postgresql://user@host/db"\n')
    file.chmod(0o644)
    assert load_settings(file, environ={}).origin("metadata.url") == f"file {file}"


def test_every_value_is_shown_in_a_form_that_json_has(tmp_path: Path) -> None:
    """A path is none by itself: `./tiering status` shows all settings."""
    loaded = load_settings(environ={"TIERING_AIRFLOW__LOGIN_FILE": str(tmp_path / "login.json")})
    shown = {setting.name: setting.shown(loaded) for setting in all_settings()}
    assert json.loads(json.dumps(shown))["airflow.login_file"] == str(tmp_path / "login.json")
