"""Compares the JSON of a command with the shape that docs/json.md shows for it."""

import json
from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from typer.testing import Result

from include.tiering.cli.json_page import DOCUMENTS


def problems(value: Any, shape: Any, where: str = "$") -> Iterator[str]:
    """What is missing, unknown or of another type; a shape is a TypedDict or the type of a member."""
    origin, arguments = get_origin(shape), get_args(shape)
    if shape is Any:
        return
    if origin in (Union, UnionType):
        found = [list(problems(value, each, where)) for each in arguments]
        if all(found):
            yield from min(found, key=len)
    elif is_typeddict(shape):
        yield from _members(value, shape, where)
    elif origin is list and isinstance(value, list):
        for number, item in enumerate(value):
            yield from problems(item, arguments[0], f"{where}[{number}]")
    elif origin is dict and isinstance(value, dict):
        for name, item in value.items():
            yield from problems(item, arguments[1], f"{where}.{name}")
    elif origin is not None or not _is_a(value, shape):
        yield f"{where}: {value!r} is no {shape}"


def _is_a(value: Any, shape: type) -> bool:
    if isinstance(value, bool):
        return shape is bool
    return isinstance(value, (int, float) if shape is float else NoneType if shape is None else shape)


def _members(value: Any, shape: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {value!r} is no object"
        return
    hints = get_type_hints(shape)
    yield from (f"{where}.{name} is missing" for name in sorted(shape.__required_keys__ - value.keys()))
    yield from (f"{where}.{name} is unknown" for name in sorted(value.keys() - hints.keys()))
    for name in hints.keys() & value.keys():
        yield from problems(value[name], hints[name], f"{where}.{name}")


def checked(arguments: Sequence[str], result: Result) -> Result:
    """The result of a command, whose document, if it was asked for one and wrote one, has its documented shape."""
    if "--json" in arguments and result.stdout.startswith("{"):
        assert problems_of(arguments, json.loads(result.stdout)) == []
    return result


def problems_of(arguments: Sequence[str], document: Any) -> list[str]:
    """Problems of the document of a command line: it must have one of the shapes of its command."""
    shapes = next(DOCUMENTS[name] for name in arguments if name in DOCUMENTS)
    found = [list(problems(document, shape)) for shape in shapes.values()]
    return [] if [] in found else min(found, key=len)


def shape_name(arguments: Sequence[str], document: Any) -> str | None:
    """The heading of docs/json.md whose shape the document has, such as `verify --dry-run`."""
    command = next(name for name in arguments if name in DOCUMENTS)
    fitting = (
        options for options, shape in DOCUMENTS[command].items() if next(problems(document, shape), None) is None
    )
    return next((f"{command} {options}".rstrip() for options in fitting), None)
