"""What is imported is declared: nothing arrives only because another package happens to need it."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

from tests.doubles.source_tree import ROOT, python_files

_OWN: Final = frozenset({"include", "plugins", "dags", "spark_jobs", "local", "docker", "benchmarks", "tests"})
_PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
_RUNTIME: Final = _PROJECT["project"]["dependencies"]
_TESTS: Final = [*_RUNTIME, *_PROJECT["dependency-groups"]["test"], *_PROJECT["dependency-groups"]["java"]]
_OWN_ENVIRONMENT: Final = Path("tests/data/regenerate")
_DISTRIBUTIONS: Final = packages_distributions()


def _normal(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def _imported(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse((ROOT / file).read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - _OWN


def _undeclared(files: list[Path], requirements: list[str]) -> list[str]:
    declared = {_normal(requirement) for requirement in requirements}
    return [
        f"{file}: {name}"
        for file in files
        for name in sorted(_imported(file))
        if not declared & {_normal(distribution) for distribution in _DISTRIBUTIONS.get(name, [name])}
    ]


def test_every_import_of_the_platform_has_its_requirement() -> None:
    assert not _undeclared(python_files("include", "plugins", "dags", "spark_jobs", "docker"), _RUNTIME)


def test_every_import_of_local_programs_benchmarks_and_tests_has_its_requirement() -> None:
    files = [file for file in python_files("local", "benchmarks", "tests") if not file.is_relative_to(_OWN_ENVIRONMENT)]
    assert not _undeclared(files, _TESTS)
