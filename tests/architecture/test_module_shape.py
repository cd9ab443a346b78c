"""Modules are what a reader looks for by name, small enough to read in one sitting, and say what they hold."""

import ast

from tests.doubles.source_tree import ROOT, python_files

_CEILING_LINES = 480
_SOURCES = {
    str(file): (ROOT / file).read_text() for file in python_files("include", "plugins", "dags", "spark_jobs", "local")
}


def test_a_module_has_one_subject() -> None:
    lengths = {file: len(text.splitlines()) for file, text in _SOURCES.items()}
    assert lengths
    assert not {file: lines for file, lines in lengths.items() if lines > _CEILING_LINES}


def test_a_module_says_what_it_holds() -> None:
    silent = [file for file, text in _SOURCES.items() if text.strip() and not ast.get_docstring(ast.parse(text))]
    assert not silent
