"""A pytest plugin, for `-p`: one module of the library is imported with a change, and only chosen tests run.

The work tree is not touched: the changed text lies elsewhere, and takes the place of the file's when it is imported.
Only this process sees it: what tests start as a program of its own runs unchanged.
"""

import json
import os
import resource
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import pytest

from tests.mutation.settings import TRIAL

_MEMORY_BYTES: Final = 8 << 30
_PATIENCE_SECONDS: Final = 30.0
_SLOWER: Final = 10.0
"""A test may take so many times longer than when it was recorded, and `_PATIENCE_SECONDS` more: fixtures that it shared
then may be its own now."""
_trial: Final[dict[str, Any]] = json.loads(Path(os.environ[TRIAL]).read_text())


class _ChangedFile(SourceFileLoader):
    """Compiles another text under the name of the file; nothing is cached."""

    def get_code(self, fullname: str) -> CodeType:
        code = compile(_trial["source"], self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class _ChangedFinder(MetaPathFinder):
    """Finds one module; its loader reads the changed text."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._name = Path(path).parent.name if Path(path).name == "__init__.py" else Path(path).stem

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.rpartition(".")[2] != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or os.path.realpath(spec.origin) != self._path:
            return None
        spec.loader = _ChangedFile(fullname, spec.origin)
        spec.cached = None
        return spec


# A change may make a loop endless that collects something.
resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
sys.meta_path.insert(0, _ChangedFinder(os.path.realpath(_trial["path"])))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test whose parameters have other names now, because the change names them, all run."""
    wanted: dict[str, float] = _trial["tests"]
    lost = {_without_parameters(test) for test in wanted.keys() - {item.nodeid for item in items}}
    chosen = [item for item in items if item.nodeid in wanted or _without_parameters(item.nodeid) in lost]
    for item in chosen:
        # In front of a longer limit: what waits for ever would take minutes.
        item.add_marker(pytest.mark.timeout(_PATIENCE_SECONDS + _SLOWER * wanted.get(item.nodeid, 0.0)), append=False)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file of tests that cannot be imported any more."""
    if report.failed:
        _answer(f"the import of {report.nodeid}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test that fails."""
    if report.failed:
        _answer(report.nodeid)


def _answer(noticed_by: str) -> None:
    """The first is told."""
    answer = Path(_trial["answer"])
    if not answer.exists():
        answer.write_text(noticed_by)


def _without_parameters(test: str) -> str:
    return test.partition("[")[0]
