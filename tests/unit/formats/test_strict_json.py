"""JSON that a stranger may have written: each member has its type, or the document is damaged."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from include.tiering.errors import FormatError
from include.tiering.formats.strict_json import JsonObject, parse_object

Ask = Callable[[JsonObject], object]
VALUES: dict[str, Any] = {
    "text": "x",
    "number": 1,
    "one": True,
    "half": 1.5,
    "nothing": None,
    "array": [],
    "inner": {"number": 1},
    "several": [{"text": "y"}],
}
DOCUMENT = json.dumps(VALUES).encode()


def parsed(content: bytes = DOCUMENT, max_bytes: int = 1_000) -> JsonObject:
    return parse_object(content, max_bytes)


def test_members_by_name_and_type() -> None:
    document = parsed()
    assert list(document.names()) == list(VALUES)
    assert (document.has("text"), document.has("other")) == (True, False)
    assert (document.text("text"), document.boolean("one"), document.integer("number", 1, 1)) == ("x", True, 1)
    assert (document.value("nothing"), document.object("inner").integer("number", 0, 2)) == (None, 1)
    assert [one.text("text") for one in document.objects("several")] == ["y"]
    assert document.objects("array") == []


@pytest.mark.parametrize(
    ("ask", "accepted", "words"),
    [
        (lambda found, name: found.text(name), {"text"}, "is not a string"),
        (lambda found, name: found.boolean(name), {"one"}, "is neither true nor false"),
        (lambda found, name: found.integer(name, 0, 9), {"number"}, "is not an integer"),
        (lambda found, name: found.object(name), {"inner"}, "is not an object"),
        (lambda found, name: found.objects(name), {"array", "several"}, "is not an array of objects"),
    ],
    ids=["text", "boolean", "integer", "object", "objects"],
)
def test_a_value_of_another_type_is_refused(
    ask: Callable[[JsonObject, str], object], accepted: set[str], words: str
) -> None:
    for name in VALUES:
        if name in accepted:
            ask(parsed(), name)
            continue
        with pytest.raises(FormatError, match=f"^{name} {words}"):
            ask(parsed(), name)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda found: found.text("other"), "member other is missing"),
        (lambda found: found.object("inner").text("other"), r"member inner\.other is missing"),
        (lambda found: found.object("inner").text("number"), r"inner\.number is not a string"),
        (lambda found: found.objects("several")[0].boolean("text"), r"several\[0\]\.text is neither"),
        (lambda found: found.integer("number", 2, 9), r"number = 1 is outside 2\.\.9"),
        (lambda found: found.integer("number", -9, 0), r"number = 1 is outside -9\.\.0"),
        (lambda found: found.refuse_members_beyond(VALUES.keys() - {"half"}), "unknown member half"),
    ],
)
def test_the_message_says_where(ask: Ask, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        ask(parsed())


def test_all_members_known_is_fine() -> None:
    parsed().refuse_members_beyond({*VALUES, "another"})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"", "not JSON"),
        (b"{} {}", "not JSON"),
        (b'{"a": 1, "a": 2}', "two members of the same name"),
        (b'{"a": {"b": 1, "b": 1}}', "two members of the same name"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "a number with too many digits"),
    ],
    ids=["array", "text", "empty", "two", "twice", "twice inside", "NaN", "infinity", "UTF-8", "deep", "digits"],
)
def test_what_is_no_such_document_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parsed(content, 1_000_000)


def test_the_length_is_bounded() -> None:
    assert parsed(DOCUMENT, len(DOCUMENT)).has("text")
    with pytest.raises(FormatError, match=f"{len(DOCUMENT)} bytes of JSON: at most {len(DOCUMENT) - 1} are read"):
        parsed(DOCUMENT, len(DOCUMENT) - 1)


def test_a_long_number_is_not_repeated() -> None:
    with pytest.raises(FormatError, match="a = a number of more than 20 digits is outside"):
        parsed(b'{"a": ' + b"9" * 21 + b"}").integer("a", 0, 1)
