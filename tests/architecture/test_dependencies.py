"""Dependencies: what is declared, what is imported, and where."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doubles.source_tree import ROOT, python_files, syntax_of

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


# One process imports the modules of each group, and forgets them and the SDKs before those of the next group. Packages
# of others that may be there stay: loading them again would be most of the time, and numpy cannot be loaded twice.
_HEAVY: Final = frozenset({"airflow", "pyspark", "boto3", "sqlalchemy", "great_expectations", "pandas"})
_USE_CASES: Final = (
    "copying",
    "expiration",
    "verification",
    "audit",
    "sizes",
    "metadata_sync",
    "handover",
    "recovery",
    "restoring",
    "reading",
)
_IMPORTER: Final = """
import importlib, sys
forgotten = {"include", *sys.argv[1:]}
for line in sys.stdin:
    for name in [name for name in sys.modules if name.partition(".")[0] in forgotten]:
        del sys.modules[name]
    for name in line.split():
        importlib.import_module(name)
    print(*{name.partition(".")[0] for name in sys.modules})
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """By package below ``include.tiering``: what its modules, those with its SQL left out, load. The model is first."""
    groups = {name: _modules_below(f"include/tiering/{name}") for name in ("model", "formats", *_USE_CASES)}
    for use_case in _USE_CASES:
        groups[use_case] = [
            name
            for name in groups[use_case]
            if not f".{name.rpartition('.')[2]}".startswith((".sql_", ".great_expectations_"))
            and not name.endswith(".store")
        ]
    assert "include.tiering.model.segments" in groups["model"]
    assert all(groups.values())
    of_use_cases = [groups[use_case] for use_case in _USE_CASES]
    model, formats, together = _loaded_by(
        [groups["model"], groups["formats"], [name for of in of_use_cases for name in of]]
    )
    # If all use cases together load nothing heavy, then none does: only otherwise is it worth asking each of them.
    by_use_case = _loaded_by(of_use_cases) if together & _HEAVY else [together] * len(_USE_CASES)
    return {"model": model, "formats": formats, **dict(zip(_USE_CASES, by_use_case, strict=True))}


def _loaded_by(groups: list[list[str]]) -> list[set[str]]:
    """Return the packages that are loaded when a fresh process has imported the modules of each group."""
    lines = "".join(f"{' '.join(modules)}\n" for modules in groups)
    command = [sys.executable, "-c", _IMPORTER, *_HEAVY]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_the_model_imports_no_sdk(loaded: dict[str, set[str]]) -> None:
    assert "include" in loaded["model"]
    assert not loaded["model"].intersection(_SDKS)


def test_formats_import_no_heavy_sdk(loaded: dict[str, set[str]]) -> None:
    assert not loaded["formats"] & _HEAVY


@pytest.mark.parametrize("use_case", _USE_CASES)
def test_a_use_case_without_its_sql_imports_no_heavy_sdk(use_case: str, loaded: dict[str, set[str]]) -> None:
    assert not loaded[use_case] & _HEAVY


# What is imported is declared: nothing arrives only because another package happens to need it.

_OWN: Final = frozenset({"include", "plugins", "dags", "spark_jobs", "local", "docker", "benchmarks", "tests"})
_PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
_RUNTIME: Final = _PROJECT["project"]["dependencies"]
_TESTS: Final = [*_RUNTIME, *_PROJECT["dependency-groups"]["test"], *_PROJECT["dependency-groups"]["java"]]
_OWN_ENVIRONMENT: Final = Path("tests/data/regenerate")


def _normal(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def _imported(file: Path) -> set[str]:
    names = {name for name, _ in syntax_of(file).imports if name}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - _OWN


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def _undeclared(files: list[Path], requirements: list[str]) -> list[str]:
    declared = {_normal(requirement) for requirement in requirements}
    return [
        f"{file}: {name}"
        for file in files
        for name in sorted(_imported(file))
        if not declared & {_normal(distribution) for distribution in _distributions().get(name, [name])}
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
    "include/tiering/formats/record_columns.py": frozenset({"numpy", "pyarrow"}),
    "include/tiering/formats/record_parser.py": frozenset({"numba", "numpy"}),
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
    "include/tiering/restoring/parquet_files.py": frozenset({"numpy", "pyarrow"}),
    "include/tiering/verification": frozenset({"numpy", "sqlalchemy"}),
    "include/tiering/kafka/cluster/kafka_records.py": frozenset({"confluent_kafka"}),
    "include/tiering/kafka/metadata_topic/kafka.py": frozenset({"confluent_kafka"}),
    "include/tiering/configs/airflow_api.py": frozenset({"httpx"}),
    "include/tiering/database": frozenset({"sqlalchemy", "alembic"}),
    "include/tiering/settings": frozenset({"annotated_types", "pydantic"}),
    "include/tiering/telemetry": frozenset(),
    "include/tiering/verification/great_expectations_evaluator.py": frozenset({"great_expectations", "pandas"}),
    "include/tiering/cli": frozenset({"typer", "rich"}),
    "include/tiering/app": frozenset({"sqlalchemy"}),
    "include/tiering/operations": frozenset({"sqlalchemy"}),
    "include/tiering/operations/exporters.py": frozenset({"opentelemetry", "prometheus_client"}),
    "include/tiering/recovery": frozenset({"sqlalchemy"}),
    "plugins": frozenset({"airflow", "fastapi", "httpx", "psutil", "pydantic", "starlette"}),
    "dags": frozenset({"airflow"}),
    "spark_jobs": frozenset({"numpy", "pyspark", "pandas", "pyarrow"}),
}


def _allowed_for(file: Path) -> frozenset[str]:
    for prefix in (file, *file.parents):
        for key in (str(prefix), str(prefix.with_suffix(""))):
            if key in _ALLOWED:
                return _ALLOWED[key]
    raise AssertionError(f"{file}: no rule for this place")


def _third_party_imports(file: Path) -> Iterator[tuple[str, int]]:
    for name, line in syntax_of(file).imports:
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in _OWN_PACKAGES:
            yield top, line


def test_third_party_packages_stay_where_they_belong() -> None:
    misplaced = [
        f"{file}:{line} {name}"
        for file in python_files("include", "plugins", "dags", "spark_jobs")
        for name, line in _third_party_imports(file)
        if name not in _allowed_for(file)
    ]
    assert not misplaced
