"""What was changed while jobs run wins over every other place, and says so."""

import pytest

from include.tiering.errors import SettingError
from include.tiering.settings import load_settings, with_dynamic
from include.tiering.settings.catalogue import by_name, canonical_value, dynamic_settings

ENVIRON = {"TIERING_COPIER__MAX__BATCHES": "4", "TIERING_COPIER__BATCH__MAX__SECONDS": "60"}


def test_a_dynamic_value_wins_over_the_environment_and_is_named_as_the_origin() -> None:
    static = load_settings(environ=ENVIRON)
    live = with_dynamic(static, {"tiering.copier.max.batches": "9", "queued.max.request.bytes": "1024"})
    assert (live.copier.max_batches, live.copier.batch_max_seconds, live.queue.max_bytes) == (9, 60, 1024)
    assert live.origin("tiering.copier.max.batches") == live.origin("queued.max.bytes") == "dynamic config"
    assert live.origin("tiering.copier.batch.max.seconds") == "environment TIERING_COPIER__BATCH__MAX__SECONDS"
    assert (static.copier.max_batches, static.origin("queued.max.bytes")) == (4, "default")


def test_a_dynamic_value_under_a_former_name_is_in_force_under_the_current_one() -> None:
    live = with_dynamic(load_settings(environ={}), {"tiering.unfinished.copy.expiry.ms": "90000"})
    assert live.abandoned_copy.expiry_ms == 90_000
    assert live.origin("tiering.abandoned.copy.expiry.ms") == "dynamic config"


def test_several_values_of_one_section() -> None:
    names = ("remote.log.manager.copy.quota.window.num", "remote.log.manager.copy.quota.window.size.seconds")
    live = with_dynamic(load_settings(environ={}), dict.fromkeys(names, "7"), origin="elsewhere")
    assert (live.copy_quota_window.num, live.copy_quota_window.size_seconds) == (7, 7)
    assert {live.origin(name) for name in names} == {"elsewhere"}


@pytest.mark.parametrize("name", ["tiering.copier.lease.ms", "cluster.name", "of.a.later.version"])
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
