"""Which changes loosen a limit of deletions."""

import pytest

from include.tiering.configs.config_store import ALL_BROKERS, ConfigChange, ConfigEntity, EntityType
from include.tiering.configs.rules import deletion_limits, loosened_limits, loosenings
from include.tiering.settings import TieringSettings, with_dynamic
from include.tiering.settings.fields import Loosens

SETTINGS = TieringSettings()
SHARE = "tiering.expiration.max.share"
LOOSER = {
    SHARE: ("0.2", "0.3"),
    "tiering.expiration.min.bytes": ("1073741824", "9223372036854775807"),
    "tiering.expiration.total.max.bytes": ("0", "1073741824"),
    "tiering.expiration.max.whole.topics": ("1", "2"),
    "tiering.clock.max.difference.ms": ("300000", "300001"),
    "tiering.clock.ignored.until.ms": ("0", "1800000000000"),
    "tiering.superseded.hold.ms": ("9223372036854775807", "9223372036854775806"),
    "tiering.abandoned.copy.expiry.ms": ("7200000", "60000"),
    "tiering.tombstone.ms": ("7776000000", "172800000"),
    "tiering.audit.min.age.ms": ("86400000", "0"),
    "tiering.on.topic.delete": ("expire:30d", "expire:9d"),
    "tiering.verify.max.missing.segments": ("3", "1000000"),
    "tiering.verify.max.missing.total": ("20", "21"),
}


def _words(before: dict[str, str], after: dict[str, str], settings: TieringSettings = SETTINGS) -> list[str]:
    return [str(one) for one in loosened_limits({ALL_BROKERS: before}, {ALL_BROKERS: after}, settings)]


def test_every_limit_has_an_example_here() -> None:
    """A new one needs one, and with it a thought about its direction."""
    assert {config.name for config in deletion_limits()} == set(LOOSER)
    upwards = {config.name for config in deletion_limits() if config.loosens is Loosens.UPWARDS}
    assert upwards == {
        SHARE,
        "tiering.expiration.min.bytes",
        "tiering.expiration.total.max.bytes",
        "tiering.expiration.max.whole.topics",
        "tiering.clock.max.difference.ms",
        "tiering.clock.ignored.until.ms",
        "tiering.verify.max.missing.segments",
        "tiering.verify.max.missing.total",
    }


@pytest.mark.parametrize("name", LOOSER)
def test_one_way_loosens_and_the_other_does_not(name: str) -> None:
    tight, loose = LOOSER[name]
    assert _words({name: tight}, {name: loose}) == [f"{name} {tight} -> {loose}"]
    assert _words({name: loose}, {name: tight}) == []
    assert _words({name: loose}, {name: loose}) == []


def test_keeping_for_ever_is_the_tightest_of_all() -> None:
    name = "tiering.on.topic.delete"
    assert _words({}, {name: "expire:99999d"}) == [f"{name} keep -> expire:99999d"]
    assert _words({name: "expire:1d"}, {name: "keep"}) == []
    assert _words({name: "expire:1d"}, {}) == []


def test_what_is_removed_counts_by_what_the_settings_say() -> None:
    careful = with_dynamic(SETTINGS, {SHARE: "0.05"})
    assert _words({SHARE: "0.3"}, {}) == []
    assert _words({SHARE: "0.1"}, {}) == [f"{SHARE} 0.1 -> 0.2"]
    assert _words({SHARE: "0.1"}, {}, careful) == []
    assert _words({}, {SHARE: "0.1"}, careful) == [f"{SHARE} 0.05 -> 0.1"]


def test_what_is_no_limit_loosens_nothing() -> None:
    assert _words({}, {"tiering.copier.max.batches": "100", "unknown here": "x"}) == []
    topics = {ConfigEntity(EntityType.TOPICS, "orders"): {"retention.ms": "1"}}
    assert loosened_limits({}, topics, SETTINGS) == ()


def test_a_history_tells_who_loosened_what_and_when_whatever_came_after() -> None:
    def change(old: str | None, new: str | None, author: str, at_ms: int) -> ConfigChange:
        return ConfigChange(ALL_BROKERS, SHARE, old, new, author, at_ms)

    history = [
        change(None, "0.9", "long ago", 5),
        change("0.9", None, "ann", 10),
        change(None, "1.0", "ben", 20),
        change("1.0", None, "ben", 30),
    ]
    (found,) = loosenings(history, SETTINGS, since_ms=10)
    assert (str(found.limit), found.author, found.at_ms) == (f"{SHARE} 0.2 -> 1.0", "ben", 20)
    assert str(found) == f"`{SHARE}` 0.2 -> 1.0, by ben at 1970-01-01 00:00:00 UTC"
    assert len(loosenings(history, SETTINGS, since_ms=0)) == 2
