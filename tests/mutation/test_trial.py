"""Trials over a small project of its own: recorded once, then changed and tried, in real processes."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from coverage import CoverageData

from tests.doubles.source_tree import ROOT
from tests.mutation import trial
from tests.mutation.executed import ExecutedLines, executed_lines
from tests.mutation.operators import Mutant, mutants_of
from tests.mutation.trial import Laboratory, Outcome

LIBRARY = "include/toy/numbers.py"
SOURCE = """\
LIMIT = 7


def clipped(number):
    return min(number, LIMIT)


def is_small(number):
    return number < 3


def never(number):
    return number + 1


def countdown(number):
    while number > 0:
        number -= 1
    return "done"


def limits():
    return [LIMIT]


def shared(number):
    return number + 4
"""
TESTS = """\
import os
import signal
from pathlib import Path

import pytest
from include.toy import numbers

@pytest.fixture(scope="module")
def shared():
    return numbers.shared(1)

def test_first_of_two(shared):
    assert shared > 0

def test_second_of_two(shared):
    assert shared == 5

def test_that_may_crash():
    if crashes := os.environ.get("CRASHES"):
        so_far = Path(os.environ["CRASHED"])
        so_far.write_text(so_far.read_text() + "x" if so_far.exists() else "x")
        if len(so_far.read_text()) <= int(crashes):
            os.kill(os.getpid(), signal.SIGSEGV)

def test_clipped(tmp_path):
    assert numbers.clipped(9) == 7

@pytest.mark.parametrize("number", [1, 5])
def test_is_small(number):
    assert numbers.is_small(number) == (number == 1)

def test_countdown():
    assert numbers.countdown(3) == "done"

@pytest.mark.parametrize("limit", numbers.limits())
def test_limits(limit):
    assert limit == 7

def test_that_fails_anyway():
    assert numbers.countdown(0) == "another"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    files = {
        LIBRARY: SOURCE,
        "include/__init__.py": "",
        "tests/unit/test_numbers.py": TESTS,
        "pytest.ini": "[pytest]\n",
    }
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


@pytest.fixture(scope="module")
def executed(project: Path) -> ExecutedLines:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        return executed_lines(project, project / "include", ["tests/unit"], 1)


@pytest.fixture
def laboratory(project: Path, executed: ExecutedLines, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    return Laboratory(project, executed)


def mutant(before: str, line: int) -> Mutant:
    return next(one for one in mutants_of(LIBRARY, SOURCE) if (one.before, one.line) == (before, line))


def test_each_line_has_the_tests_that_run_it_and_no_failing_one(executed: ExecutedLines) -> None:
    def names(before: str, line: int) -> set[str]:
        return {test.partition("::")[2] for test in executed.tests_for(mutant(before, line))}

    assert names("<", 9) == {"test_is_small[1]", "test_is_small[5]"}
    assert names(">", 17) == {"test_countdown"}
    assert names("+", 13) == set()
    assert "test_clipped" in names("7", 1)


def test_what_a_shared_fixture_runs_has_all_tests_that_may_share_it(
    executed: ExecutedLines, laboratory: Laboratory
) -> None:
    """Not only the first, for which it was set up."""
    of_shared = mutant("+", 27)
    assert {"test_first_of_two", "test_second_of_two"} <= {
        test.partition("::")[2] for test in executed.tests_for(of_shared)
    }
    result = laboratory.try_mutant(of_shared)
    assert (result.outcome, result.noticed_by) == (
        Outcome.NOTICED,
        "tests/unit/test_numbers.py::test_first_of_two",
    )
    second = laboratory.try_mutant(mutant("4", 27))
    assert (second.outcome, second.noticed_by) == (
        Outcome.NOTICED,
        "tests/unit/test_numbers.py::test_second_of_two",
    )


def test_a_version_is_recorded_once(project: Path, executed: ExecutedLines) -> None:
    again = executed_lines(project, project / "include", ["no such tests"], 1)
    assert again.seconds == executed.seconds
    assert len(list((project / ".run" / "mutation").iterdir())) == 1


def compiled_library(project: Path) -> dict[str, bytes]:
    """What Python keeps of its modules, by name: the recording wrote it, and no trial may put its change there."""
    found = {file.name: file.read_bytes() for file in (project / "include").rglob("*.pyc")}
    assert any(name.startswith("numbers.") for name in found)
    return found


@pytest.mark.parametrize(
    ("before", "line", "outcome", "by"),
    [
        ("7", 1, Outcome.NOTICED, "tests/unit/test_numbers.py::test_clipped"),
        ("number < 3", 9, Outcome.NOTICED, "tests/unit/test_numbers.py::test_is_small[1]"),
        ("<", 9, Outcome.SURVIVED, None),
        ("+", 13, Outcome.NOT_RUN, None),
    ],
)
def test_a_mutant_is_noticed_by_the_tests_of_its_line_or_not(
    project: Path, laboratory: Laboratory, before: str, line: int, outcome: Outcome, by: str | None
) -> None:
    compiled = compiled_library(project)
    result = laboratory.try_mutant(mutant(before, line))
    assert (result.outcome, result.noticed_by) == (outcome, by)
    assert (project / LIBRARY).read_text() == SOURCE
    assert compiled_library(project) == compiled


def test_survivors_are_tried_with_further_tests(project: Path, executed: ExecutedLines, laboratory: Laboratory) -> None:
    first = Laboratory(project, executed, first=1, most=1).try_mutant(mutant("number < 3", 9))
    assert (first.tests, first.outcome) == (1, Outcome.NOTICED)
    unnoticed = Laboratory(project, executed, first=1, most=2).try_mutant(mutant("<", 9))
    assert (unnoticed.tests, unnoticed.outcome) == (2, Outcome.SURVIVED)


class Chosen(ExecutedLines):
    """Always the same tests."""

    def __init__(self, root: Path, *tests: str) -> None:
        super().__init__(root, CoverageData(no_disk=True), dict.fromkeys(tests, 1.0))

    def tests_for(self, mutant: Mutant) -> Sequence[str]:
        return list(self.seconds)


def test_a_test_whose_parameters_are_called_otherwise_now_is_run(project: Path, laboratory: Laboratory) -> None:
    """The change itself names them."""
    chosen = Chosen(project, "tests/unit/test_numbers.py::test_limits[7]")
    result = Laboratory(project, chosen).try_mutant(mutant("7", 1))
    assert (result.outcome, result.noticed_by) == (Outcome.NOTICED, "tests/unit/test_numbers.py::test_limits[8]")


def test_a_module_that_cannot_be_imported_any_more_is_noticed(project: Path, laboratory: Laboratory) -> None:
    result = laboratory.try_mutant(mutant("[LIMIT]", 23))
    assert (result.outcome, result.noticed_by) == (Outcome.NOTICED, "the import of tests/unit/test_numbers.py")


def test_what_does_not_end_is_noticed_and_ended(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_START_SECONDS", 3.0)
    # Far longer than a busy machine takes to start and end the process: whoever waited for it would be seen.
    monkeypatch.setattr(trial, "_GOODBYE_SECONDS", 600.0)
    began = time.monotonic()
    result = laboratory.try_mutant(mutant("-=", 18))
    assert (result.outcome, result.noticed_by) == (Outcome.NOTICED, "its time, 3 s")
    assert time.monotonic() - began < trial._GOODBYE_SECONDS


@pytest.mark.parametrize(("crashes", "outcome", "by"), [(1, Outcome.SURVIVED, None), (2, Outcome.NOTICED, "signal 11")])
def test_a_crash_counts_if_it_comes_again(
    project: Path,
    tmp_path: Path,
    laboratory: Laboratory,
    monkeypatch: pytest.MonkeyPatch,
    crashes: int,
    outcome: Outcome,
    by: str | None,
) -> None:
    monkeypatch.setenv("CRASHES", str(crashes))
    monkeypatch.setenv("CRASHED", str(tmp_path / "crashed"))
    chosen = Chosen(project, "tests/unit/test_numbers.py::test_that_may_crash")
    result = Laboratory(project, chosen).try_mutant(mutant("+", 13))
    assert (result.outcome, result.noticed_by) == (outcome, by)


def test_without_a_change_nothing_fails(laboratory: Laboratory) -> None:
    assert laboratory.control(mutant("number < 3", 9)) is None


def test_a_change_is_no_control(project: Path, executed: ExecutedLines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tests fail without any: nothing that they say of a mutant counts."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    failing = "tests/unit/test_numbers.py::test_that_fails_anyway"
    assert Laboratory(project, Chosen(project, failing)).control(mutant("-=", 18)) == failing


def test_tests_that_cannot_be_run_are_no_answer(project: Path, laboratory: Laboratory) -> None:
    renamed = Chosen(project, "tests/unit/test_numbers.py::test_that_was_renamed")
    with pytest.raises(RuntimeError, match=r"none of 1 tests of include/toy/numbers\.py could be run"):
        Laboratory(project, renamed).try_mutant(mutant("<", 9))
