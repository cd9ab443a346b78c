"""The counters of the structure, and their limits."""

import importlib.util
import json
import threading
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Final

import pytest

from local.structure.__main__ import main
from local.structure.counters import COUNTERS, TRACED, Structure, measure
from local.structure.limits import beyond_limits, limits_of
from local.structure.source import SourceFile, read_project
from local.structure.trace import Trace
from local.structure.traced_segment import Recorder
from tests.doubles.source_tree import ROOT

# `make structure` counts what it says: small trees with known numbers.

FORWARDS: Final = '''"""Methods that only forward, and some that do not."""

from include.app.beta import rules
from include.app.beta.base import Base


class Service(Base[int]):
    """Forwards four times."""

    def one(self, a: int) -> int:
        """Pass it on."""
        return rules.check(a)

    def two(self, *parts: int, **named: int) -> None:
        self.other.call(*parts, now=self._now(), **named)

    def three(self, a: int) -> None:
        with self.transaction() as connection:
            rules.check(connection, a)

    def four(self):
        yield from self.other.all()

    def computes(self, a: int) -> int:
        return rules.check(a + 1)

    def binds(self, a: int) -> int:
        return rules.check(a, 1)

    def constructs(self, a: int) -> "Service":
        return Service(a)

    @classmethod
    def constructs_as_well(cls, a: int) -> "Service":
        return cls(a)

    def counts(self) -> int:
        return len(self.parts)

    def both(self, a: int) -> int:
        rules.check(a)
        return rules.check(a)

    @property
    def value(self) -> int:
        return self.other.value

    def _hidden(self, a: int) -> int:
        return rules.check(a)
'''
BASE: Final = '''"""A base with a mixin of another package."""

from typing import Generic, TypeVar

import include.app.gamma as other_name

T = TypeVar("T")


class Base(other_name.Mixin, Generic[T]):
    def inherited(self) -> None: ...

    def value(self) -> int: ...
'''
RULES: Final = '''"""Two
lines."""

import os

# A comment.


def check(*_):
    from ..gamma import mixin
'''
MIXIN: Final = '''import include.app.alpha.service

TEXT = """
# no comment

end
"""


class Mixin:
''' + "".join(f"    def method_{number}(self): ...\n" for number in range(28))
TREE: Final = {
    "include/__init__.py": "",
    "include/app/__init__.py": "",
    "include/app/alpha/__init__.py": "",
    "include/app/alpha/service.py": FORWARDS,
    "include/app/beta/__init__.py": "",
    "include/app/beta/base.py": BASE,
    "include/app/beta/rules.py": RULES,
    "include/app/gamma/__init__.py": "from include.app.gamma.mixin import Mixin\n",
    "include/app/gamma/mixin.py": MIXIN,
    "include/app/units.py": "class Mixin: ...\n\n\nclass _Hidden: ...\n",
    "plugins/use.py": "from include.app.alpha.service import Service\nimport json\n\n\nclass _Hidden: ...\n",
    "tests/test_it.py": "from include.app import units\n\n\nclass Service: ...\n",
    ".hidden/no.py": "this is not read",
}


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def structure(tmp_path: Path) -> Structure:
    return measure(read_project(written(tmp_path, TREE)))


def test_files_lines_and_imports(structure: Structure) -> None:
    files = {name: text for name, text in TREE.items() if name.startswith("include/")}
    lines = sorted(count for text in files.values() if (count := len(text.splitlines())))
    assert len(lines) == 6
    assert structure.values["files"] == len(files) == 10
    assert structure.values["median_lines"] == (lines[2] + lines[3]) / 2
    # Two in service, one each in base, rules (relative, in a function), gamma and mixin; `os`, `typing` do not count.
    assert structure.values["imports_per_100_lines"] == round(100 * 6 / sum(lines), 2)
    assert structure.files_by_folder == {"include": 10, "plugins": 1, "tests": 1}


def test_code_lines_are_no_comments_docstrings_and_blank_lines(structure: Structure) -> None:
    packages = structure.library_packages
    assert list(packages) == ["alpha", "beta", "gamma", "units"]
    # gamma: one import; then an import, three filled lines and a closing quote of a string, a class and its methods.
    assert packages["gamma"] == (2, 1 + 1 + 4 + 1 + 28)
    assert packages["units"] == (1, 2)
    assert structure.code_lines_by_folder["tests"] == 2
    assert structure.values["product_code_lines"] == structure.code_lines_by_folder["include"] + 3
    assert SourceFile(PurePosixPath("rules.py"), RULES).code_lines == 3


def test_packages_are_found_and_so_are_their_cycles(structure: Structure) -> None:
    assert structure.values["packages"] == 4
    assert structure.cycles == [["alpha", "beta", "gamma"]]
    assert (structure.values["cycles"], structure.values["packages_in_cycles"]) == (1, 3)


def test_inherited_methods_count_once(structure: Structure) -> None:
    name = "include.app.alpha.service.Service"
    # Eleven public ones of its own, of which `value` is inherited too; `inherited`; the mixin's through a package.
    assert structure.largest_classes[name] == 11 + 1 + 28
    assert structure.largest_classes["include.app.beta.base.Base"] == 2 + 28
    assert (structure.values["large_classes"], structure.values["most_methods"]) == (1, 40)


def test_methods_that_only_forward(structure: Structure) -> None:
    assert [name.rpartition(".")[2] for name in structure.forwarding_methods] == ["four", "one", "three", "two"]


def test_names_used_twice_and_small_modules(structure: Structure) -> None:
    assert structure.repeated_class_names == {"Mixin": ["include.app.gamma.mixin", "include.app.units"]}
    # The service has two importers, `units` only a test.
    assert structure.single_importer_modules == {
        "include.app.beta.base": "include.app.alpha.service",
        "include.app.beta.rules": "include.app.alpha.service",
    }


def test_the_command_prints_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = written(tmp_path, {**TREE, "pyproject.toml": "[tool.structure.limits]\nfiles = 12\n"})
    assert main(["--root", str(root), "--no-trace"]) == 0
    text = capsys.readouterr().out
    assert "     10  files in include/  (limit at most 12; target at most 330)\n" in text
    assert "  3  alpha, beta, gamma\n" in text
    assert main(["--root", str(root), "--no-trace", "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["values"]["files"] == 10
    assert document["cycles"] == [["alpha", "beta", "gamma"]]


def test_a_counter_beyond_its_limit_is_named() -> None:
    values = {"files": 3, "median_lines": 90}
    assert beyond_limits(values, {"files": 3, "median_lines": 90, "cycles": 0}) == []
    assert beyond_limits(values, {"files": 2, "median_lines": 91}) == [
        "files in include/: 3, allowed at most 2",
        "median lines of a file: 90, allowed at least 91",
    ]


def loaded(path: Path, **names: object) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    vars(module).update(names)
    spec.loader.exec_module(module)
    return module


def test_a_trace_holds_what_ran_of_include(tmp_path: Path) -> None:
    root = written(
        tmp_path,
        {
            "include/app/low/__init__.py": "def low(): return 1\n",
            "include/app/late.py": "def helper(): ...\n\n\nhelper()\n",
            "outside.py": "def through(function): return function()\n",
            "include/app/top.py": "def top(load, through, low):\n    through(low)\n    low()\n    load()\n",
        },
    )
    low = loaded(root / "include/app/low/__init__.py").low
    through = loaded(root / "outside.py").through
    top = loaded(root / "include/app/top.py").top
    recorder = Recorder(root)

    def run() -> None:
        top(lambda: loaded(root / "include/app/late.py"), through, low)

    with recorder.recording():
        run()
        for daemon in (False, True):
            thread = threading.Thread(target=low, daemon=daemon)
            thread.start()
            thread.join()
    assert recorder.document() == {
        # The import of `late` runs its helper, and is no part of the path; nor is the daemon thread.
        "threads": [["include.app.top", "include.app.low"], ["include.app.low"]],
        # Directly and through a function outside: one pair.
        "calls": [("include.app.top", "include.app.low")],
    }


def test_moves_and_returns_of_a_trace() -> None:
    path = ["x.a.one", "x.a.two", "x.b.one", "x.a.three", "x.c", "x.b.two", "x.b.three"]
    trace = Trace(
        [path, ["x.b.one", "x.a.one", "x.c.two", "x.a.four"]],
        [("x.a.one", "x.b.one"), ("x.a.two", "x.b.one"), ("x.a.one", "x.a.two"), ("x.b.one", "x.a.one")],
        lambda module: module.split(".")[1],
    )
    assert trace.values == {
        "trace_modules": 9,
        "trace_packages": 3,
        "trace_moves": 4 + 2,  # a b a c b, and of the other thread what is new: c a
        "trace_returns": 4,
        "trace_calls_between": 2,  # a to b, b to a
    }
    assert list(trace.packages) == ["a", "b", "c"]


# The structure gets no worse: every counter keeps the limit that pyproject.toml states for it. A counter that
# became better gets its new value as limit, in the same change. `make structure` prints them all.

LIMITS = limits_of(ROOT)


def test_no_counter_is_beyond_its_limit() -> None:
    assert not beyond_limits(measure(read_project(ROOT, with_tests=False)).values, LIMITS)


def test_every_limit_belongs_to_a_counter_and_every_target_has_a_limit() -> None:
    counters = {counter.key: counter for counter in (*COUNTERS, *TRACED)}
    assert LIMITS.keys() <= counters.keys()
    assert {key for key, counter in counters.items() if counter.target is not None} <= LIMITS.keys()
