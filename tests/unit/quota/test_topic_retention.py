"""Retention limits from what is set on a topic."""

from include.tiering.quota.topic_retention import TopicRetention


def test_what_is_not_set_is_kept_for_ever() -> None:
    assert TopicRetention.of({}) == TopicRetention(None, None)


def test_minus_one_is_for_ever_and_zero_is_a_limit() -> None:
    assert TopicRetention.of({"retention.ms": "-1", "retention.bytes": "0"}) == TopicRetention(None, 0)


def test_each_limit_has_its_name() -> None:
    configs = {"retention.ms": "604800000", "retention.bytes": "1024", "tiering.copy.max.bytes.per.second": "7"}
    assert TopicRetention.of(configs) == TopicRetention(604_800_000, 1024)
