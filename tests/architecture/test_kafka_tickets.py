"""The page of Kafka's bugs names tests that exist, and each ticket's test says which one it is."""

import ast
import re
from functools import cache
from typing import Final

import pytest

from tests.doubles.source_tree import ROOT

_PAGE: Final = (ROOT / "docs" / "kafka-tickets.md").read_text()
_TEST: Final = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_ROWS: Final = [line for line in _PAGE.splitlines() if _TEST.search(line)]


@cache
def _functions(path: str) -> dict[str, str]:
    """Names of a module's functions, those in classes too, with name and docstring as one text."""
    tree = ast.parse((ROOT / path).read_text())
    found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {one.name: f"{one.name} {ast.get_docstring(one) or ''}" for one in found}


def test_there_are_tickets_and_tests() -> None:
    assert len(set(re.findall(r"KAFKA-\d+", _PAGE))) > 20
    assert len(_ROWS) > 30


@pytest.mark.parametrize("row", _ROWS)
def test_every_named_test_exists(row: str) -> None:
    assert [(path, name) for path, name in _TEST.findall(row) if name not in _functions(path)] == []


@pytest.mark.parametrize("row", [row for row in _ROWS if row.startswith("| KAFKA-")])
def test_the_tests_of_a_ticket_say_its_number(row: str) -> None:
    said = [_functions(path)[name] for path, name in _TEST.findall(row)]
    tickets = re.findall(r"KAFKA-(\d+)", row.split("|")[1])
    assert tickets
    assert [one for one in tickets for text in said if one not in text] == []
