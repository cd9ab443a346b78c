"""No test checks how fast this machine is: it waits long for what has to come, and measures nothing.

What takes how long is for benchmarks. A machine that stands still for a few seconds breaks a test that waits a few.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.doubles.source_tree import ROOT, python_files

MEASURING: Final = {"perf_counter", "perf_counter_ns", "process_time", "process_time_ns", "thread_time"}
WAITING: Final = {"wait", "join", "result", "acquire", "wait_for"}
"""Their timeout may be the first argument."""
LEAST_SECONDS: Final = 60
ELSEWHERE: Final = {"browser", "data", "simulation"}
"""Of these, simulations report what they cost, and the others are not run by `make test`."""


def _files() -> list[Path]:
    return [file for file in python_files("tests") if file.parts[1] not in ELSEWHERE]


def _calls(file: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield name, node


def _timeouts(name: str, call: ast.Call) -> Iterator[float]:
    """Numbers of seconds. Less than one is a look whether something does not come."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "timeout"]
    given += call.args[:1] if name in WAITING else []
    for value in given:
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and value.value is not True:
            yield value.value


def test_nothing_is_measured() -> None:
    assert [f"{file}:{call.lineno}" for file in _files() for name, call in _calls(file) if name in MEASURING] == []


def test_nothing_that_has_to_come_is_waited_for_less_than_a_minute() -> None:
    impatient = [
        f"{file}:{call.lineno}: {seconds} s"
        for file in _files()
        for name, call in _calls(file)
        for seconds in _timeouts(name, call)
        if 1 <= seconds < LEAST_SECONDS
    ]
    assert impatient == []
