"""Thresholds: what fits, who shares what, who is refused."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import SettingError
from include.tiering.quotas.topic_quotas import check_thresholds, is_refused, shared_threshold, thresholds

TOPICS = st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 10**12), max_size=6)


def test_topics_without_a_threshold_share_what_is_left_equally():
    found = thresholds(100, {"orders": 40, "clicks": 20}, ["orders", "audit", "logs", "mails"])
    share = Fraction(40, 3)
    assert found == {"orders": 40, "audit": share, "logs": share, "mails": share}


def test_a_new_topic_takes_a_share_and_an_explicit_one_gives_its_share_back():
    assert thresholds(100, {}, ["a"]) == {"a": 100}
    assert thresholds(100, {}, ["a", "b"]) == {"a": 50, "b": 50}
    assert thresholds(100, {"b": 10}, ["a", "b"]) == {"a": 90, "b": 10}


def test_nothing_is_shared_without_a_total_or_when_the_explicit_ones_took_it_all():
    assert thresholds(None, {"a": 7}, ["a", "b"]) == {"a": 7}
    assert thresholds(10, {"a": 10}, ["a", "b"]) == {"a": 10, "b": 0}
    assert shared_threshold(10, {"a": 30}, 2) == 0


def test_what_fits_exactly_is_accepted():
    check_thresholds(100, {"a": 60, "b": 40})
    check_thresholds(None, {"a": 10**18})
    check_thresholds(0, {})


@pytest.mark.parametrize(
    ("change", "total", "explicit"),
    [
        ("the total is lowered", 99, {"a": 60, "b": 40}),
        ("one is raised", 100, {"a": 61, "b": 40}),
        ("a new topic brings its own", 100, {"a": 60, "b": 40, "c": 1}),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(change, total, explicit):
    with pytest.raises(SettingError) as refused:
        check_thresholds(total, explicit)
    for number in (sum(explicit.values()), total, sum(explicit.values()) - total, *explicit.values()):
        assert str(number) in str(refused.value)


def test_of_many_topics_the_largest_are_named():
    with pytest.raises(SettingError, match=r"topic-99 199, .* and 95 more"):
        check_thresholds(1, {f"topic-{number}": 100 + number for number in range(100)})


@pytest.mark.parametrize(("total", "explicit"), [(-1, {}), (10, {"a": -1}), (None, {"a": -1})])
def test_negative_thresholds_are_refused(total, explicit):
    with pytest.raises(SettingError, match="negative"):
        check_thresholds(total, explicit)


@given(total=st.integers(0, 10**12), explicit=TOPICS, others=st.sets(st.text(min_size=4, max_size=5), max_size=6))
def test_all_thresholds_together_are_the_total_to_the_byte(total, explicit, others):
    if sum(explicit.values()) > total:
        with pytest.raises(SettingError):
            check_thresholds(total, explicit)
        return
    check_thresholds(total, explicit)
    found = thresholds(total, explicit, [*explicit, *others])
    assert sum(found.values()) == (total if others else sum(explicit.values()))


@pytest.mark.parametrize(
    ("total_rate", "total", "topic_rate", "topic", "refused"),
    [
        (100.1, 100, 50.1, 50, True),
        (100.0, 100, 50.1, 50, False),
        (100.1, 100, 50.0, 50, False),
        (99.0, 100, 80.0, 50, False),
        (100.1, None, 50.1, 50, False),
        (100.1, 100, 50.1, None, False),
        (0.0, 0, 0.0, 0, False),
        (10.0, 9, 3.4, Fraction(10, 3), True),
    ],
)
def test_refused_only_if_both_are_exceeded(total_rate, total, topic_rate, topic, refused):
    assert is_refused(total_rate, total, topic_rate, topic) is refused
