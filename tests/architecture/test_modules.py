"""Modules: their shape, their errors and how tests wait."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from include.tiering import errors
from include.tiering.errors import TieringError
from tests.doubles.source_tree import ROOT, Call, python_files, syntax_of

# Modules are what a reader looks for by name, small enough to read in one sitting, and say what they hold.

_CEILING_LINES = 480
_SOURCES = {
    str(file): (ROOT / file).read_text() for file in python_files("include", "plugins", "dags", "spark_jobs", "local")
}


def test_a_module_has_one_subject() -> None:
    lengths = {file: len(text.splitlines()) for file, text in _SOURCES.items()}
    assert lengths
    assert not {file: lines for file, lines in lengths.items() if lines > _CEILING_LINES}


def test_a_module_says_what_it_holds() -> None:
    silent = [file for file, text in _SOURCES.items() if text.strip() and not syntax_of(Path(file)).has_docstring]
    assert not silent


# The drawing at the head of `errors.py` is the truth: parents, and what is worth retrying.


def _drawn() -> dict[str, tuple[str | None, bool]]:
    """Class name -> (parent's name, marked as retriable), read from the drawing."""
    drawn: dict[str, tuple[str | None, bool]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        words = line.lstrip("|` -").split()
        if not words or not words[0].endswith("Error") or not words[0][0].isupper():
            continue
        depth = (len(line) - len(line.lstrip("|` -"))) // 4
        path = [*path[:depth], words[0]]
        drawn[words[0]] = (path[depth - 1] if depth else None, "(retriable)" in line)
    return drawn


def _defined() -> dict[str, tuple[str | None, bool]]:
    return {
        name: (None if item is TieringError else item.__bases__[0].__name__, item.retriable)
        for name, item in inspect.getmembers(errors, inspect.isclass)
        if issubclass(item, TieringError)
    }


def test_every_error_is_drawn_under_its_parent_with_its_retriability() -> None:
    assert _drawn() == _defined()


def test_errors_live_in_one_module() -> None:
    elsewhere = [
        f"{file}:{line} {name}"
        for file in python_files("include")
        if file != Path("include/tiering/errors.py")
        for name, line in syntax_of(file).classes
        if name.endswith("Error")
    ]
    assert not elsewhere


# No test checks how fast this machine is: it waits long for what has to come, and measures nothing. What takes how
# long is for benchmarks. A machine that stands still for a few seconds breaks a test that waits a few.

MEASURING: Final = {"perf_counter", "perf_counter_ns", "process_time", "process_time_ns", "thread_time"}
WAITING: Final = {"wait", "join", "result", "acquire", "wait_for"}
"""Their timeout may be the first argument."""
LEAST_SECONDS: Final = 60
ELSEWHERE: Final = {"browser", "data", "simulation"}
"""Of these, simulations report what they cost, and the others are not run by `make test`."""


def _files() -> list[Path]:
    return [file for file in python_files("tests") if file.parts[1] not in ELSEWHERE]


def _timeouts(call: Call) -> Iterator[float]:
    """Numbers of seconds. Less than one is a look whether something does not come."""
    yield from call.timeouts
    if call.name in WAITING:
        yield from call.first


def test_nothing_is_measured() -> None:
    measured = [f"{file}:{call.line}" for file in _files() for call in syntax_of(file).calls if call.name in MEASURING]
    assert measured == []


def test_nothing_that_has_to_come_is_waited_for_less_than_a_minute() -> None:
    impatient = [
        f"{file}:{call.line}: {seconds} s"
        for file in _files()
        for call in syntax_of(file).calls
        for seconds in _timeouts(call)
        if 1 <= seconds < LEAST_SECONDS
    ]
    assert impatient == []
