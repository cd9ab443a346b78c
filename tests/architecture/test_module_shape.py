"""Modules stay small enough to read in one sitting, and say what they hold."""

import ast
from pathlib import Path

import pytest

from tests.doubles.source_tree import ROOT, python_files

_CEILING_LINES = 300
_SOURCES = python_files("include", "plugins", "dags", "spark_jobs", "local")


@pytest.mark.parametrize("file", _SOURCES, ids=str)
def test_a_module_has_one_subject(file: Path) -> None:
    text = (ROOT / file).read_text()
    assert len(text.splitlines()) <= _CEILING_LINES
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), "the first line says what the module holds"
