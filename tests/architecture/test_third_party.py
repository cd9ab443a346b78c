"""Which third-party package may be imported where. import-linter checks the layers, this the edges of the tree."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.doubles.source_tree import ROOT, python_files

_OWN: Final = frozenset({"include", "plugins", "dags", "spark_jobs", "local", "tests", "tiering_airflow", "tiering_ui"})

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
            if top not in sys.stdlib_module_names and top not in _OWN:
                yield top, node.lineno


def test_third_party_packages_stay_where_they_belong() -> None:
    misplaced = [
        f"{file}:{line} {name}"
        for file in python_files("include", "plugins", "dags", "spark_jobs")
        for name, line in _third_party_imports(ROOT / file)
        if name not in _allowed_for(ROOT / file)
    ]
    assert not misplaced
