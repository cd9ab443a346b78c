"""A pytest plugin, for `-p`: which test runs which line, and how long each test takes. See `settings` and `executed`.

What is recorded is coverage data with a context for each test, and the seconds of each test that passed.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Final, TypeVar

import pytest
from coverage import Coverage

from tests.mutation.settings import MEASURED, RECORDED, SECONDS_SUFFIX

_Result = TypeVar("_Result")

_coverage: Final = Coverage(
    data_file=os.environ[RECORDED], data_suffix=True, config_file=False, source=[os.environ[MEASURED]], messages=False
)
# Before anything that is measured is imported: those lines are the context of no test.
_coverage.start()
_seconds: Final[dict[str, float]] = defaultdict(float)
_failed: Final[set[str]] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, _Result, _Result]:
    """Fixtures of a module or a session belong to the test that is the first to need them."""
    _coverage.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        _coverage.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _failed.add(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    _coverage.stop()
    _coverage.save()
    if not hasattr(session.config, "workerinput"):
        passed = {test: round(seconds, 4) for test, seconds in sorted(_seconds.items()) if test not in _failed}
        Path(os.environ[RECORDED] + SECONDS_SUFFIX).write_text(json.dumps(passed, indent=0))
