"""Dependencies: what is declared, what is imported, and where."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doubles.source_tree import ROOT, python_files

# The nouns can be used anywhere: in a Spark executor, a triggerer, a script without any SDK.

_SDKS = (
    "airflow",
    "pyspark",
    "boto3",
    "sqlalchemy",
    "great_expectations",
    "pandas",
    "numpy",
    "google_crc32c",
    "pydantic",
)


def _modules_below(directory: str) -> list[str]:
    return [".".join(file.with_suffix("").parts) for file in python_files(directory) if file.name != "__init__.py"]


def _loaded_by(modules: list[str]) -> set[str]:
    program = f"import sys; {'; '.join(f'import {name}' for name in modules)}; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_model_imports_no_sdk() -> None:
    modules = _modules_below("include/tiering/model")
    assert "include.tiering.model.segments" in modules
    assert not _loaded_by(modules).intersection(_SDKS)


def test_formats_import_no_heavy_sdk() -> None:
    heavy = {"airflow", "pyspark", "boto3", "sqlalchemy", "great_expectations", "pandas"}
    assert not _loaded_by(_modules_below("include/tiering/formats")).intersection(heavy)


@pytest.mark.parametrize(
    "use_case",
    ["copying", "expiration", "verification", "audit", "sizes", "metadata_sync", "handover", "recovery", "reading"],
)
def test_a_use_case_without_its_sql_imports_no_heavy_sdk(use_case: str) -> None:
    heavy = {"airflow", "pyspark", "boto3", "sqlalchemy", "great_expectations", "pandas"}
    modules = [
        name
        for name in _modules_below(f"include/tiering/{use_case}")
        if not f".{name.rpartition('.')[2]}".startswith((".sql_", ".great_expectations_"))
        and not name.endswith(".store")
    ]
    assert modules
    assert not _loaded_by(modules).intersection(heavy)


# What is imported is declared: nothing arrives only because another package happens to need it.

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


# Which third-party package may be imported where. import-linter checks the layers, this the edges of the tree.

_OWN_PACKAGES: Final = frozenset(
    {"include", "plugins", "dags", "spark_jobs", "local", "tests", "tiering_airflow", "tiering_ui"}
)

# Longest matching path wins. A new package in a new place is a decision: add it here.
_ALLOWED: Final[dict[str, frozenset[str]]] = {
    "include/tiering": frozenset(),
    "include/tiering/formats": frozenset({"google_crc32c", "cramjam", "numpy"}),
    "include/tiering/formats/records.py": frozenset({"cramjam", "pyarrow"}),
    "include/tiering/remote_storage/layouts/key_ring.py": frozenset({"Crypto", "cryptography"}),
    "include/tiering/kafka/log_dirs": frozenset({"google_crc32c"}),
    "include/tiering/remote_storage": frozenset({"google_crc32c"}),
    "include/tiering/remote_storage/inventory": frozenset({"pyarrow"}),
    "include/tiering/remote_storage/s3": frozenset({"boto3", "botocore", "google_crc32c", "urllib3"}),
    "include/tiering/segments": frozenset({"sqlalchemy"}),
    "include/tiering/runs": frozenset({"sqlalchemy"}),
    "include/tiering/quotas": frozenset({"sqlalchemy"}),
    "include/tiering/configs": frozenset({"sqlalchemy"}),
    "include/tiering/audit": frozenset({"sqlalchemy"}),
    "include/tiering/expiration": frozenset({"sqlalchemy"}),
    "include/tiering/handover": frozenset({"sqlalchemy"}),
    "include/tiering/metadata_sync": frozenset({"sqlalchemy"}),
    "include/tiering/sizes": frozenset({"sqlalchemy"}),
    "include/tiering/verification": frozenset({"numpy", "sqlalchemy"}),
    "include/tiering/kafka/cluster/kafka_records.py": frozenset({"confluent_kafka"}),
    "include/tiering/kafka/metadata_topic/kafka.py": frozenset({"confluent_kafka"}),
    "include/tiering/configs/airflow_api.py": frozenset({"httpx"}),
    "include/tiering/database": frozenset({"sqlalchemy", "alembic"}),
    "include/tiering/settings": frozenset({"annotated_types", "pydantic"}),
    "include/tiering/telemetry": frozenset({"prometheus_client"}),
    "include/tiering/verification/great_expectations_evaluator.py": frozenset({"great_expectations", "pandas"}),
    "include/tiering/cli": frozenset({"typer", "rich"}),
    "include/tiering/app": frozenset({"sqlalchemy"}),
    "include/tiering/operations": frozenset({"sqlalchemy"}),
    "include/tiering/recovery": frozenset({"sqlalchemy"}),
    "plugins": frozenset({"airflow", "fastapi", "httpx", "psutil", "pydantic", "starlette"}),
    "dags": frozenset({"airflow"}),
    "spark_jobs": frozenset({"pyspark", "pandas", "pyarrow"}),
}


def _allowed_for(file: Path) -> frozenset[str]:
    path = file.relative_to(ROOT)
    for prefix in (path, *path.parents):
        for key in (str(prefix), str(prefix.with_suffix(""))):
            if key in _ALLOWED:
                return _ALLOWED[key]
    raise AssertionError(f"{path}: no rule for this place")


def _third_party_imports(file: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in _OWN_PACKAGES:
                yield top, node.lineno


def test_third_party_packages_stay_where_they_belong() -> None:
    misplaced = [
        f"{file}:{line} {name}"
        for file in python_files("include", "plugins", "dags", "spark_jobs")
        for name, line in _third_party_imports(ROOT / file)
        if name not in _allowed_for(ROOT / file)
    ]
    assert not misplaced
