"""Names of topics and brokers that exist nowhere, and those of which that cannot be known."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.errors import SettingError
from include.tiering.operations.known_names import HOW_TO_ALLOW, KnownNames, Place, unknown_names
from include.tiering.operations.status import resume_hints
from include.tiering.settings import TieringSettings

LOG_DIR = Place(frozenset({"orders", "payments.eu"}))
ARCHIVE = Place(frozenset({"gone"}))
AWAY = Place(frozenset(), "/brokers/2: no such directory")


@pytest.mark.parametrize("asked", [(), ("orders",), ("gone", "orders"), ("payments.*",), ("*",), ("[op]rders",)])
def test_what_is_in_any_place_is_known(asked: tuple[str, ...]) -> None:
    assert unknown_names("topic", asked, [LOG_DIR, ARCHIVE]) == ()
    assert unknown_names("topic", asked, [LOG_DIR, ARCHIVE, AWAY]) == ()


def test_what_is_nowhere_is_refused_with_the_nearest_name_and_the_way_out() -> None:
    with pytest.raises(SettingError, match=r"^there is no topic ordrs, .*: did you mean orders\? .*--allow-unknown"):
        unknown_names("topic", ("orders", "ordrs"), [LOG_DIR, ARCHIVE], HOW_TO_ALLOW)
    with pytest.raises(SettingError, match=r"or the configs: did you mean orders\?$"):
        unknown_names("topic", ("ordrs",), [LOG_DIR, ARCHIVE])
    with pytest.raises(SettingError, match="there is no broker 77") as caught:
        unknown_names("broker", ("77",), [Place(frozenset({"1", "2"}))])
    assert "did you mean" not in str(caught.value)


def test_what_may_be_where_nobody_can_look_is_a_warning_that_says_where() -> None:
    (warning,) = unknown_names("topic", ("ordrs",), [LOG_DIR, AWAY, ARCHIVE])
    assert warning == ("topic ordrs is not known, and could not be looked up everywhere: /brokers/2: no such directory")


def test_a_pattern_that_matches_nothing_is_a_warning() -> None:
    assert unknown_names("topic", ("pay?",), [LOG_DIR, ARCHIVE]) == ("no topic matches pay?",)


def test_places_are_read_no_further_than_needed() -> None:
    def places() -> Iterator[Place]:
        yield LOG_DIR
        raise AssertionError("the next place was read")

    assert unknown_names("topic", ("orders",), places()) == ()


# Which places are asked for a topic, and which for a broker.


def known(**values: Mapping[ConfigEntity, Mapping[str, str]]) -> KnownNames:
    """No log dirs, no cluster; topic `archived` in the archive, and these dynamic configs."""
    stores = SimpleNamespace(
        registry=SimpleNamespace(names_in_use=lambda: {1: "archived"}),
        configs=SimpleNamespace(
            snapshot=lambda: SimpleNamespace(values=values["configs"]), history=lambda _entity, newest: []
        ),
        remote_log_sizes=SimpleNamespace(topic_names=lambda: {1: "archived", 2: "deleted"}),
    )
    cluster = SimpleNamespace(
        refresh=lambda: None,
        cluster_id=lambda: "cluster",
        topic_names=lambda: ["clustered"],
        topic_named=lambda _: None,
    )
    return KnownNames(
        settings=TieringSettings(log_dirs=()),
        stores=lambda: cast(Any, stores),
        cluster_metadata=lambda: cast(Any, cluster),
        brokers=None,
    )


CONFIGS: dict[ConfigEntity, Mapping[str, str]] = {
    ConfigEntity(EntityType.TOPICS, "configured"): {"retention.ms": "1"},
    ConfigEntity(EntityType.TOPICS): {"retention.ms": "1"},
    ConfigEntity(EntityType.BROKERS, "7"): {},
    ConfigEntity(EntityType.CLIENTS, "reader"): {},
}


@pytest.mark.parametrize("topic", ["archived", "clustered", "configured"])
def test_a_topic_is_known_from_any_of_its_places(topic: str) -> None:
    assert known(configs=CONFIGS).check_topics((topic,)) == ()
    assert known(configs=CONFIGS).check_entity(ConfigEntity(EntityType.TOPICS, topic)) == ()


def test_the_names_that_a_command_replaces_are_known_as_well() -> None:
    assert known(configs=CONFIGS).check_topics(("included",), included=("included",)) == ()


@pytest.mark.parametrize("other", ["7", "reader", "", "included"])
def test_a_name_of_another_kind_makes_no_topic_known(other: str) -> None:
    with pytest.raises(SettingError, match="there is no topic"):
        known(configs=CONFIGS).check_topics((other,), how=HOW_TO_ALLOW)


def test_a_broker_is_known_by_its_configs_and_a_topic_of_that_name_is_no_broker() -> None:
    names = known(configs={**CONFIGS, ConfigEntity(EntityType.TOPICS, "8"): {}})
    assert names.check_entity(ConfigEntity(EntityType.BROKERS, "7")) == ()
    for broker in ("8", "configured", "archived"):
        with pytest.raises(SettingError, match=f"there is no broker {broker}.*--allow-unknown"):
            names.check_entity(ConfigEntity(EntityType.BROKERS, broker))


@pytest.mark.parametrize(
    "entity",
    [ConfigEntity(EntityType.CLIENTS, "anybody"), *map(ConfigEntity, EntityType)],
    ids=str,
)
def test_clients_and_defaults_need_no_name(entity: ConfigEntity) -> None:
    assert known(configs={}).check_entity(entity) == ()


def test_a_topic_that_once_was_is_known_where_its_past_is_asked_for() -> None:
    names = known(configs={})
    for topic in ("archived", "clustered", "deleted"):
        assert names.check_past_topic(topic) == ()
    with pytest.raises(SettingError, match=r"there is no topic delete, .*: did you mean deleted\?$"):
        names.check_past_topic("delete")
    for pattern in ("del*", "", "a/b", "x" * 250):
        with pytest.raises(SettingError, match="is no topic"):
            names.check_past_topic(pattern)
    with pytest.raises(SettingError):
        names.check_topics(("deleted",))


def test_without_names_nothing_is_asked() -> None:
    assert known(configs={}).check_topics(None) == ()


@pytest.mark.parametrize(
    ("topic", "before", "paused", "hints"),
    [
        (None, {"*"}, set(), []),
        (None, {"*", "a"}, {"a"}, ["a is still paused by its name: ./tiering resume --topic a"]),
        (None, set(), set(), ["there was no pause of all topics"]),
        ("a", {"a"}, set(), []),
        (
            "b",
            {"a"},
            {"a"},
            ["b was not paused by its name", "a is still paused by its name: ./tiering resume --topic a"],
        ),
        ("a", {"*", "a"}, {"*"}, ["every topic is still paused by the pause of all topics: ./tiering resume"]),
    ],
)
def test_what_a_resume_leaves_paused(topic: str | None, before: set[str], paused: set[str], hints: list[str]) -> None:
    assert resume_hints(topic, before, paused) == hints
