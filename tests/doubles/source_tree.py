"""The project's own source files, for tests about the source."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def python_files(*directories: str) -> list[Path]:
    """Python files below these directories, relative to the checkout, in a stable order."""
    found = (file for directory in directories for file in (ROOT / directory).rglob("*.py"))
    return sorted(file.relative_to(ROOT) for file in found if "__pycache__" not in file.parts)


@dataclass(frozen=True, slots=True)
class Call:
    """`name` without what is before its last dot; numbers given for `timeout`, and as the first positional argument."""

    name: str
    line: int
    timeouts: tuple[float, ...]
    first: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Syntax:
    """What tests ask about the syntax of a file.

    `imports`: dotted names of absolute and relative imports, with their lines; "" for ``from . import name``.
    `classes`: names of classes with bases, with their lines.
    """

    has_docstring: bool
    imports: tuple[tuple[str, int], ...]
    classes: tuple[tuple[str, int], ...]
    calls: tuple[Call, ...]


@cache
def syntax_of(file: Path) -> Syntax:
    """Parse a file, relative to the checkout, once per process: there are hundreds, and several tests about each."""
    tree = ast.parse((ROOT / file).read_text())
    imports: list[tuple[str, int]] = []
    classes: list[tuple[str, int]] = []
    calls: list[Call] = []
    for node in _inner_nodes(tree):
        if isinstance(node, ast.Import):
            imports += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.module or "", node.lineno))
        elif isinstance(node, ast.ClassDef) and node.bases:
            classes.append((node.name, node.lineno))
        elif isinstance(node, ast.Call):
            calls.append(_call(node))
    return Syntax(ast.get_docstring(tree) is not None, tuple(imports), tuple(classes), tuple(calls))


_LEAVES: Final = (ast.Name, ast.Constant, ast.alias)


def _inner_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may have others below them, in no particular order: `ast.walk` takes three times as long."""
    left: list[object] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += node
        elif isinstance(node, ast.AST) and not isinstance(node, _LEAVES):
            yield node
            left += [getattr(node, name, None) for name in node._fields]


def _call(node: ast.Call) -> Call:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    timeouts = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
    return Call(name, node.lineno, _numbers(timeouts), _numbers(node.args[:1]))


def _numbers(values: list[ast.expr]) -> tuple[float, ...]:
    constants = (value.value for value in values if isinstance(value, ast.Constant))
    return tuple(value for value in constants if isinstance(value, int | float) and value is not True)
