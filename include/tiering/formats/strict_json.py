"""Strict parsing of JSON from untrusted sources: limited in size, with a check of each member's type and range."""

import json
from collections.abc import Collection, Iterable
from typing import NoReturn

from include.tiering.errors import FormatError, printable


class JsonObject:
    """One object of a document. `path` is its place in the document; messages begin a member's name with it."""

    def __init__(self, members: dict[str, object], path: str = "") -> None:
        self._members = members
        self._path = path

    def has(self, name: str) -> bool:
        return name in self._members

    def names(self) -> Iterable[str]:
        return self._members.keys()

    def refuse_members_beyond(self, known: Collection[str]) -> None:
        """Raise FormatError if there is a member outside of `known`."""
        for name in self._members:
            if name not in known:
                raise FormatError(f"unknown member {self._path}{printable(name)[:64]}")

    def value(self, name: str) -> object:
        """Return a member; null is None. Raises FormatError if it is missing."""
        if name not in self._members:
            raise FormatError(f"member {self._path}{name} is missing")
        return self._members[name]

    def object(self, name: str) -> "JsonObject":
        value = self.value(name)
        if not isinstance(value, dict):
            raise FormatError(f"{self._path}{name} is not an object")
        return JsonObject(value, f"{self._path}{name}.")

    def objects(self, name: str) -> "list[JsonObject]":
        """Return a member that is an array of objects."""
        value = self.value(name)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise FormatError(f"{self._path}{name} is not an array of objects")
        return [JsonObject(item, f"{self._path}{name}[{number}].") for number, item in enumerate(value)]

    def text(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str):
            raise FormatError(f"{self._path}{name} is not a string")
        return value

    def boolean(self, name: str) -> bool:
        value = self.value(name)
        if not isinstance(value, bool):
            raise FormatError(f"{self._path}{name} is neither true nor false")
        return value

    def integer(self, name: str, lowest: int, highest: int) -> int:
        """Return a member that is an integer from `lowest` to `highest`, both inclusive."""
        value = self.value(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise FormatError(f"{self._path}{name} is not an integer")
        if not lowest <= value <= highest:
            raise FormatError(f"{self._path}{name} = {_shortened(value)} is outside {lowest}..{highest}")
        return value


def parse_object(content: bytes, max_bytes: int) -> JsonObject:
    """Parse a document that is one JSON object.

    Raises:
        FormatError: it is too long, not UTF-8, not JSON, nested too deeply or not an object, has a member twice, or
            has a number with too many digits.
    """
    if len(content) > max_bytes:
        raise FormatError(f"{len(content)} bytes of JSON: at most {max_bytes} are read")
    try:
        document = json.loads(
            content.decode("utf-8"), object_pairs_hook=_unique_members, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError as error:
        raise FormatError("not UTF-8", error.start) from error
    except json.JSONDecodeError as error:
        raise FormatError(f"not JSON: {error.msg}", error.pos) from error
    except RecursionError as error:
        raise FormatError("the JSON is nested too deeply") from error
    except ValueError as error:
        raise FormatError("the JSON has a number with too many digits") from error
    if not isinstance(document, dict):
        raise FormatError("not a JSON object")
    return JsonObject(document)


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise FormatError("a JSON object has two members of the same name")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise FormatError(f"{name} is not JSON")


def _shortened(value: int) -> str:
    return str(value) if abs(value) < 10**20 else "a number of more than 20 digits"
