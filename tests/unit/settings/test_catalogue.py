"""The table of settings: names and defaults are promises to users, so changing one must touch this file."""

from include.tiering.settings import TieringSettings
from include.tiering.settings.catalogue import all_settings, by_environment_name, by_name

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
    "tiering.expiration.max.share": "0.2",
    "tiering.expiration.min.bytes": "1073741824",
    "tiering.expiration.total.max.bytes": "1073741824",
    "tiering.expiration.max.whole.topics": "1",
    "tiering.clock.max.difference.ms": "300000",
    "tiering.clock.ignored.until.ms": "0",
    "tiering.expiration.batch.max.seconds": "600",
    "tiering.expiration.max.batches": "4",
    "tiering.audit.min.age.ms": "86400000",
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
    "metadata_topic.broker_id": "424242",
    "metadata_topic.settle_ms": "40000",
    "tiering.handover.hold.hours": "24",
    "tiering.handover.free.bytes": "-1",
    "tiering.handover.watch.seconds": "300",
    "tiering.handover.settle.seconds": "600",
    "tiering.handover.verify.deep.enable": "true",
    "tiering.handover.local.steps": "8",
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
}
DEPLOYMENT_SECTIONS = (
    "data_docs.",
    "sizes.",
    "prices.",
    "cluster.",
    "metadata_topic.",
    "topics.",
    "log_dirs",
    "remote_storage.",
    "metadata.",
    "airflow.",
)


def test_names_and_defaults() -> None:
    assert {setting.name: setting.default for setting in all_settings()} == DEFAULTS


def test_a_dynamic_setting_has_a_name_in_kafkas_style_and_says_its_unit() -> None:
    dynamic = {setting.name for setting in all_settings() if setting.dynamic}
    operational = {name for name in DEFAULTS if not name.startswith(DEPLOYMENT_SECTIONS)}
    assert dynamic == operational - {"tiering.copier.lease.ms", "remote.log.reader.threads"}
    without_unit = {name for name in operational if by_name()[name].unit is None}
    assert without_unit == {
        "tiering.copy.fairness.enable",
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
