"""Which tests are asked about a line, and in which order."""

from pathlib import Path

import pytest

from tests.mutation.executed import ExecutedLines
from tests.mutation.operators import Mutant, mutants_of

MODEL, USER, FAR = "include/tiering/model/ids.py", "include/tiering/tasks/plan.py", "include/tiering/work/far.py"
SOURCES = {
    MODEL: "LIMIT = 7\n\n\ndef ids(\n    a,\n):\n    return (\n        a,\n        1,\n    )\n",
    USER: "from include.tiering.model.ids import LIMIT\n\n\ndef plan():\n    return LIMIT\n",
    FAR: "from include.tiering.tasks import plan\n\n\ndef far():\n    return plan.plan()\n",
    "tests/unit/model/test_ids.py": "from include.tiering.model import ids\n",
    "tests/unit/tasks/test_plan.py": "import include.tiering.tasks.plan\n",
    "tests/unit/test_other.py": "",
}
OWN = [f"tests/unit/model/test_ids.py::test_{number}" for number in range(3)]
OTHER = "tests/unit/test_other.py::test_ids"
PLAN = "tests/unit/tasks/test_plan.py::test_plan"
OF_FAR = "tests/unit/test_far.py::test_far"
FAILED = "tests/unit/test_other.py::test_failed"
SECONDS = {OWN[0]: 0.3, OWN[1]: 0.1, OWN[2]: 0.2, OTHER: 0.01, PLAN: 0.1, OF_FAR: 0.1}


class Data:
    """As `CoverageData` answers."""

    def __init__(self, root: Path, lines: dict[str, dict[int, list[str]]]) -> None:
        self._lines = {str(root / path): found for path, found in lines.items()}

    def contexts_by_lineno(self, path: str) -> dict[int, list[str]]:
        return self._lines.get(path, {})


@pytest.fixture
def lines(tmp_path: Path) -> ExecutedLines:
    for path, source in SOURCES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    data = Data(
        tmp_path,
        {
            MODEL: {1: [""], 4: [""], 8: [*OWN, OTHER, FAILED]},
            USER: {1: [""], 4: [""], 5: [PLAN]},
            FAR: {1: [""], 5: [OF_FAR]},
        },
    )
    return ExecutedLines(tmp_path, data, SECONDS)  # type: ignore[arg-type]


def mutant(path: str, before: str) -> Mutant:
    return next(one for one in mutants_of(path, SOURCES[path]) if one.before == before)


def test_files_that_are_called_like_the_module_come_first_and_the_quickest_of_their_tests(lines: ExecutedLines) -> None:
    """Of a statement over several lines any line counts that runs; tests that failed are never asked."""
    assert lines.tests_for(mutant(MODEL, "1")) == [OWN[1], OWN[2], OWN[0], OTHER]


def test_files_take_turns(tmp_path: Path) -> None:
    seconds = {f"tests/unit/model/{file}.py::test_{number}": 1.0 for file in ("test_a", "test_b") for number in "123"}
    data = Data(tmp_path, {MODEL: {1: list(seconds)}})
    found = ExecutedLines(tmp_path, data, seconds).tests_for(mutant(MODEL, "7"))  # type: ignore[arg-type]
    assert [test.removeprefix("tests/unit/model/test_") for test in found] == [
        "a.py::test_1",
        "b.py::test_1",
        "a.py::test_2",
        "b.py::test_2",
        "a.py::test_3",
        "b.py::test_3",
    ]


def test_a_line_that_runs_on_import_is_asked_of_those_who_use_the_module_step_by_step(lines: ExecutedLines) -> None:
    found = lines.tests_for(mutant(MODEL, "7"))
    assert found == [OWN[1], OWN[2], OWN[0], OTHER, PLAN, OF_FAR]


def test_of_a_line_that_runs_on_import_those_come_first_that_are_called_like_the_module(tmp_path: Path) -> None:
    """Also if it is a package that others import, which lies a step further away."""
    schema = "include/tiering/database/schema"
    sources = {
        f"{schema}/runs.py": "LIMIT = 7\n",
        f"{schema}/__init__.py": "from include.tiering.database.schema.runs import LIMIT\n",
        "tests/unit/copying/test_a.py": "from include.tiering.database.schema.runs import LIMIT\n",
        "tests/unit/database/test_schema.py": "from include.tiering.database.schema import LIMIT\n",
    }
    for path, source in sources.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    near, alike = "tests/unit/copying/test_a.py::test_a", "tests/unit/database/test_schema.py::test_b"
    data = Data(tmp_path, {f"{schema}/runs.py": {1: [""]}, f"{schema}/__init__.py": {1: [""]}})
    lines = ExecutedLines(tmp_path, data, {near: 0.1, alike: 5.0})  # type: ignore[arg-type]
    assert lines.tests_for(mutants_of(f"{schema}/runs.py", "LIMIT = 7\n")[0]) == [alike, near]


@pytest.mark.parametrize(
    ("context", "found"),
    [
        ("tests/unit/model/test_ids.py", OWN),
        ("tests/unit/model", OWN),
        ("tests/unit", [*OWN, OTHER, PLAN, OF_FAR]),
        ("tests/unit/mod", []),
        (FAILED, []),
    ],
)
def test_what_a_shared_fixture_runs_is_asked_of_the_file_or_the_folder(
    tmp_path: Path, context: str, found: list[str]
) -> None:
    lines = ExecutedLines(tmp_path, Data(tmp_path, {MODEL: {9: [context]}}), SECONDS)  # type: ignore[arg-type]
    assert set(lines.tests_for(mutant(MODEL, "1"))) == set(found)


def test_a_line_that_nothing_runs_has_no_tests(lines: ExecutedLines) -> None:
    assert lines.tests_for(mutant(FAR, "plan.plan()")) == [OF_FAR]
    assert lines.tests_for(Mutant(FAR, 40, 40, 41, "constant", "1", "2", 0, "")) == []


@pytest.mark.parametrize(
    ("text", "comes_first"), [("ids.LIMIT == 7", True), ("'ids.LIMIT'", True), ("ids.LIMITS == 7", False)]
)
def test_a_file_that_names_what_the_line_defines_comes_first_even_if_it_imports_nothing(
    tmp_path: Path, lines: ExecutedLines, text: str, comes_first: bool
) -> None:
    (tmp_path / OF_FAR.partition("::")[0]).write_text(text)
    found = lines.tests_for(mutant(MODEL, "7"))
    assert (found[0] == OF_FAR) is comes_first
    assert sorted(found) == sorted([*OWN, OTHER, PLAN, OF_FAR])


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("LIMIT: Final = 7\n", True),
        ("LIMIT: Final[dict[str, int]] = {\n    1: 7,\n}\n", True),
        ("LIMIT = 7\n", True),
        ("if LIMIT == 7:\n    pass\n", False),
        ("def other(LIMIT=7):\n    pass\n", False),
    ],
)
def test_a_line_names_the_constant_that_its_statement_defines(tmp_path: Path, source: str, named: bool) -> None:
    (tmp_path / MODEL).parent.mkdir(parents=True)
    (tmp_path / MODEL).write_text(source)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("LIMIT")
    test = "tests/test_a.py::test_limit"
    found = ExecutedLines(tmp_path, Data(tmp_path, {MODEL: {1: [""], 2: [""]}}), {test: 1.0})  # type: ignore[arg-type]
    seven = next(one for one in mutants_of(MODEL, source) if one.before == "7")
    assert found.tests_for(seven) == ([test] if named else [])
