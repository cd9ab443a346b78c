"""A pytest plugin, for `-p`: which test runs which line, and how long each test takes. See `settings` and `executed`.

What is recorded is coverage data with a context for each test, and the seconds of each test that passed. The context of
what several tests share, a fixture of a wider scope, is the id of the class, the file or the folder of these tests.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
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
_contexts: Final = [""]
"""The last one is recorded."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, _Result, _Result]:
    with _context(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, _Result, _Result]:
    """It is set up for the first test that needs it; each of the others may notice a change of what it runs."""
    place = fixturedef.baseid if fixturedef.scope == "session" else request.node.nodeid
    with _context(place or _contexts[-1]):
        return (yield)


@contextmanager
def _context(name: str) -> Iterator[None]:
    _contexts.append(name)
    _coverage.switch_context(name)
    try:
        yield
    finally:
        _contexts.pop()
        _coverage.switch_context(_contexts[-1])


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
