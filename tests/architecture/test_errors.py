"""The drawing at the head of `errors.py` is the truth: parents, and what is worth retrying."""

import ast
import inspect
from pathlib import Path

from include.tiering import errors
from include.tiering.errors import TieringError
from tests.doubles.source_tree import ROOT, python_files


def _drawn() -> dict[str, tuple[str | None, bool]]:
    """Class name -> (parent's name, marked as retriable), read from the drawing."""
    drawn: dict[str, tuple[str | None, bool]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        words = line.lstrip("|` -").split()
        if not words or not words[0].endswith("Error") or not words[0][0].isupper():
            continue
        depth = (len(line) - len(line.lstrip("|` -"))) // 4
        path = [*path[:depth], words[0]]
        drawn[words[0]] = (path[depth - 1] if depth else None, "(retriable)" in line)
    return drawn


def _defined() -> dict[str, tuple[str | None, bool]]:
    return {
        name: (None if item is TieringError else item.__bases__[0].__name__, item.retriable)
        for name, item in inspect.getmembers(errors, inspect.isclass)
        if issubclass(item, TieringError)
    }


def test_every_error_is_drawn_under_its_parent_with_its_retriability() -> None:
    assert _drawn() == _defined()


def test_errors_live_in_one_module() -> None:
    elsewhere = [
        f"{file}:{node.lineno} {node.name}"
        for file in python_files("include")
        if file != Path("include/tiering/errors.py")
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and node.bases
    ]
    assert not elsewhere
