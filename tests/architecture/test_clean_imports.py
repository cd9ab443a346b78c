"""The nouns can be used anywhere: in a Spark executor, a triggerer, a script without any SDK."""

import subprocess
import sys

import pytest

from tests.doubles.source_tree import ROOT, python_files

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
