"""Which tests run which line: one run of all tests, kept below `.run/` for as long as no source changes.

A line that runs when its module is imported belongs to no test. For it those tests are asked that run another line of
the module, then those that run a line of a module which imports it, or that import it themselves, and so on. They are
many: those come first whose file names what the line defines, then those whose file shares most words with the path of
the module. A line that only a shared fixture runs belongs to all tests of the class, the file or the folder that shares
it.
"""

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from coverage import Coverage, CoverageData

from tests.mutation.operators import Mutant
from tests.mutation.settings import MEASURED, RECORDED, SECONDS_SUFFIX

_IMPORT_STEPS: Final = 3
"""So many modules may lie between a line that runs on import and a line that a test runs."""
_NO_TEST: Final = ""
_DEFINITION: Final = re.compile(r"([A-Za-z_]\w*)(?::[^=]*)?\s*=[^=]")
"""A constant of a module, on its first line."""
_ORDINARY_WORDS: Final = frozenset({"contract", "include", "property", "py", "test", "tests", "tiering", "unit"})


class ExecutedLines:
    """What one run of the tests showed.

    Args:
        root: the checkout.
        data: lines by file (absolute paths) and test.
        seconds: of each test that passed; others are never asked.
    """

    def __init__(self, root: Path, data: CoverageData, seconds: Mapping[str, float]) -> None:
        self.seconds = seconds
        self._root = root
        self._data = data
        self._tests_of_lines: dict[str, dict[int, set[str]]] = {}
        self._tests_of_shared: dict[str, Sequence[str]] = {}

    def tests_for(self, mutant: Mutant) -> Sequence[str]:
        """Tests that run the mutant's line, those first that are most likely to notice it; none: no test runs it.

        Of a statement over several lines those count that run any of them, if its own line has no code.
        """
        by_line = self._lines(mutant.path)
        around = range(mutant.first_line, mutant.last_line + 1)
        running = by_line.get(mutant.line) or set[str]().union(*(by_line.get(line, ()) for line in around))
        chosen = self._in_order(mutant.path, running - {_NO_TEST})
        if _NO_TEST in running:
            naming = self._files_that_name(self._defined(mutant))
            for tests in (self._tests_in(naming), *self._tests_near(mutant.path)):
                chosen += self._in_order(mutant.path, tests.difference(chosen))
            files = {test: test.partition("::")[0] for test in chosen}
            chosen.sort(key=lambda test: (files[test] not in naming, -_likeness(files[test], mutant.path)))
        return chosen

    def _defined(self, mutant: Mutant) -> str | None:
        """The name that the statement around a mutant defines for the module; None: it defines none."""
        first = (self._root / mutant.path).read_text().splitlines()[mutant.first_line - 1]
        found = _DEFINITION.match(first)
        return None if found is None else found[1]

    def _files_that_name(self, name: str | None) -> frozenset[str]:
        """Files of tests whose text has the name as a word."""
        word = re.compile(rf"\b{name}\b")
        return frozenset(file for file, text in self._texts.items() if name is not None and word.search(text))

    def _tests_in(self, files: Collection[str]) -> set[str]:
        return {test for file in files for test in self._tests_of_file[file]}

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        """Of files of tests."""
        paths = {file: self._root / file for file in self._tests_of_file}
        return {file: path.read_text() for file, path in paths.items() if path.is_file()}

    def _lines(self, path: str) -> dict[int, set[str]]:
        """Tests by line of a file; `_NO_TEST` where it runs on import."""
        if path not in self._tests_of_lines:
            found = self._data.contexts_by_lineno(str(self._root / path))
            self._tests_of_lines[path] = {
                line: set[str]().union(*map(self._tests_of, contexts)) for line, contexts in found.items()
            }
        return self._tests_of_lines[path]

    def _tests_of(self, context: str) -> Collection[str]:
        """Of a test itself, or of the class, the file or the folder that shares a fixture."""
        if context == _NO_TEST or context in self.seconds:
            return (context,)
        if context not in self._tests_of_shared:
            inside = (f"{context}::", f"{context}/")
            self._tests_of_shared[context] = [test for test in self.seconds if test.startswith(inside)]
        return self._tests_of_shared[context]

    def _in_order(self, path: str, tests: Iterable[str]) -> list[str]:
        """One of each file in turn, the quickest first; files first that share words with the path of the mutant."""
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in sorted(tests, key=lambda one: (self.seconds.get(one, 0.0), one)):
            if test in self.seconds:
                by_file[test.partition("::")[0]].append(test)
        likeness = {file: _likeness(file, path) for file in by_file}
        places = [
            (likeness[file] == 0, turn, -likeness[file], file, test)
            for file, found in by_file.items()
            for turn, test in enumerate(found)
        ]
        return [test for *_, test in sorted(places)]

    def _tests_near(self, path: str) -> Iterator[set[str]]:
        """Tests of the module, of those that import it, of those that import these, ..."""
        seen, modules = {path}, {path}
        for _ in range(_IMPORT_STEPS + 1):
            tests: set[str] = set()
            for module in modules:
                tests.update(self._tests_of_file.get(module, ()))
                tests.update(*self._lines(module).values())
            yield tests - {_NO_TEST}
            modules = set[str]().union(*(self._importers.get(module, ()) for module in modules)) - seen
            seen |= modules

    @cached_property
    def _tests_of_file(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for test in self.seconds:
            found[test.partition("::")[0]].append(test)
        return found

    @cached_property
    def _importers(self) -> Mapping[str, set[str]]:
        """Files that import a file, by its path."""
        files = {_module_name(file): str(file) for file in source_files(self._root)}
        found: dict[str, set[str]] = defaultdict(set)
        for file in files.values():
            for name in _imported((self._root / file).read_text()):
                if name in files:
                    found[files[name]].add(file)
        return found


def executed_lines(root: Path, measured: Path, tests: Sequence[str], processes: int) -> ExecutedLines:
    """Of the sources as they are: from `.run/`, or by running the tests once, which takes minutes.

    Args:
        root: the checkout.
        measured: the directory of the library, below `root`.
        tests: directories of tests, relative to `root`.
        processes: in which the tests run.

    Raises:
        RuntimeError: the tests could not be run.
    """
    kept = root / ".run" / "mutation"
    directory = kept / _version(root)
    if not directory.is_dir():
        unfinished = kept / "unfinished"
        shutil.rmtree(kept, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _record(root, measured, tests, processes, unfinished / "lines")
        unfinished.rename(directory)
    data = CoverageData(str(directory / "lines"))
    data.read()
    return ExecutedLines(root, data, json.loads((directory / f"lines{SECONDS_SUFFIX}").read_text()))


def source_files(root: Path) -> list[Path]:
    """Python files of the library, the benchmarks and the tests, but for those of this package, relative to `root`."""
    found = (file for directory in ("include", "benchmarks", "tests") for file in (root / directory).rglob("*.py"))
    return sorted(file.relative_to(root) for file in found if file.parent != Path(__file__).parent)


def _record(root: Path, measured: Path, tests: Sequence[str], processes: int, target: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.recording"]
    command += ["-n", str(processes), "--dist", "loadfile"] if processes > 1 else []
    environ = {**os.environ, MEASURED: str(measured), RECORDED: str(target), "HYPOTHESIS_PROFILE": "ci"}
    sys.stderr.write("which test runs which line? All of them are run once, with coverage: some minutes\n")
    ended = subprocess.run([*command, *tests], cwd=root, env=environ, stdout=sys.stderr, check=False)
    # 1: some tests failed. They are not asked later.
    if ended.returncode > 1:
        raise RuntimeError(f"pytest ended with exit code {ended.returncode}")
    combined = Coverage(data_file=str(target), config_file=False, messages=False)
    combined.combine([str(part) for part in target.parent.glob(f"{target.name}.*") if part.suffix != ".json"])
    combined.save()


def _version(root: Path) -> str:
    digest = hashlib.sha256()
    for file in source_files(root):
        digest.update(f"{file}\0".encode())
        digest.update((root / file).read_bytes())
    return digest.hexdigest()[:16]


def _module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(source: str) -> Iterator[str]:
    """Names of modules; a name that is imported from a package may be one, too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _likeness(file: str, path: str) -> int:
    return len(_words(file) & _words(path))


def _words(path: str) -> set[str]:
    separated = path.replace("/", " ").replace("_", " ").replace(".", " ")
    return set(separated.split()) - _ORDINARY_WORDS
