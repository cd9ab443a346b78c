"""Names of topics and brokers that exist nowhere, and those of which that cannot be known."""

from collections.abc import Iterator

import pytest

from include.tiering.errors import SettingError
from include.tiering.operations.known_names import HOW_TO_ALLOW, Place, unknown_names
from include.tiering.operations.status import resume_hints

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
