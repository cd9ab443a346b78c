"""Retention limits from what is set on a topic."""

import pytest

from include.tiering.configs.config_catalogue import config_on
from include.tiering.configs.config_store import ConfigEntity, EntityType, TopicRetention
from include.tiering.errors import SettingError


def test_what_is_not_set_is_kept_for_ever() -> None:
    assert TopicRetention.of({}) == TopicRetention(None, None)


def test_minus_one_is_for_ever_and_zero_is_a_limit() -> None:
    assert TopicRetention.of({"retention.ms": "-1", "retention.bytes": "0"}) == TopicRetention(None, 0)


def test_each_limit_has_its_name() -> None:
    configs = {"retention.ms": "604800000", "retention.bytes": "1024", "tiering.copy.max.bytes.per.second": "7"}
    assert TopicRetention.of(configs) == TopicRetention(604_800_000, 1024)


@pytest.mark.parametrize("name", ["local.retention.ms", "local.retention.bytes"])
def test_kafka_17236_and_17360_local_retention_limits_nothing_remote(name: str) -> None:
    """Nor can it be set here, and neither can the -2 that means: as the other one."""
    assert TopicRetention.of({name: "1"}) == TopicRetention(None, None)
    orders = ConfigEntity(EntityType.TOPICS, "orders")
    with pytest.raises(SettingError, match=r"unknown config local\.retention"):
        config_on(orders, name)
    with pytest.raises(SettingError, match="accepted: integer, -1"):
        config_on(orders, name.removeprefix("local.")).canonical("-2")
