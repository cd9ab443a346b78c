"""Reports of mutants, and samples of them."""

from pathlib import Path
from typing import Any

import pytest

from tests.mutation import sample
from tests.mutation.operators import Mutant, mutants_of
from tests.mutation.report import Report
from tests.mutation.sample import draw
from tests.mutation.trial import Outcome, Result

# What a person and a program read of a run.

NOTICED, SURVIVED, NOT_RUN = Outcome.NOTICED, Outcome.SURVIVED, Outcome.NOT_RUN


def result(outcome: Outcome, path: str = "include/tiering/model/ids.py", line: int = 3, **rest: Any) -> Result:
    mutant = Mutant(path, line, line, line, "comparison", "<", "<=", 0, "    return a < b")
    return Result(mutant, outcome, **({"tests": 60, "seconds": 2.04} | rest))


RESULTS = [
    *(result(NOTICED, line=number, noticed_by="tests/unit/model/test_ids.py::test_order") for number in range(5)),
    result(SURVIVED, line=7, tests=400),
    result(NOTICED, "include/tiering/units.py"),
    result(NOT_RUN, "include/tiering/work/sql.py", 9, tests=0, seconds=0.0),
]
REPORT = Report(RESULTS, 19_612, 4, 61.26)


def test_the_text_names_what_nobody_noticed_and_counts_by_package() -> None:
    assert REPORT.text().splitlines() == [
        "survived:",
        "  include/tiering/model/ids.py:7: comparison `<` -> `<=` in `return a < b`",
        "",
        "on lines that no fast test runs:",
        "  include/tiering/work/sql.py:9: comparison `<` -> `<=` in `return a < b`",
        "",
        "package  noticed  survived  not run  score",
        "model          5         1        0  83.3 %",
        "units          1         0        0  100.0 %",
        "work           0         0        1",
        "",
        "8 of 19,612 possible mutants, seed 4: 6 noticed, 1 survived, 1 not run, in 61 s",
        "score 85.7 %, give or take 13.2 points (one standard error)",
    ]


def test_the_document_says_the_same() -> None:
    document = REPORT.document()
    mutants = document.pop("mutants")
    assert document == {
        "seed": 4,
        "possible": 19_612,
        "drawn": 8,
        "noticed": 6,
        "survived": 1,
        "not_run": 1,
        "score": 0.8571,
        "standard_error": 0.1323,
        "seconds": 61.3,
    }
    assert mutants[0] == {
        "file": "include/tiering/model/ids.py",
        "line": 0,
        "operator": "comparison",
        "before": "<",
        "after": "<=",
        "text": "return a < b",
        "outcome": "noticed",
        "noticed_by": "tests/unit/model/test_ids.py::test_order",
        "tests": 60,
        "seconds": 2.0,
    }
    assert [(one["outcome"], one["noticed_by"], one["tests"]) for one in mutants[5:]] == [
        ("survived", None, 400),
        ("noticed", None, 60),
        ("not run", None, 0),
    ]


def test_what_no_test_runs_has_no_score() -> None:
    report = Report([result(NOT_RUN, tests=0)], 10, 1, 0.5)
    assert (report.score, report.standard_error, report.document()["score"]) == (None, None, None)
    assert (
        report.text().splitlines()[-1] == "1 of 10 possible mutants, seed 1: 0 noticed, 0 survived, 1 not run, in 0 s"
    )


@pytest.mark.parametrize(("outcomes", "score"), [([NOTICED] * 3, 1.0), ([SURVIVED], 0.0), ([NOTICED, SURVIVED], 0.5)])
def test_the_score_is_the_share_of_the_noticed_among_those_that_ran(outcomes: list[Outcome], score: float) -> None:
    assert Report([result(one) for one in [*outcomes, NOT_RUN]], 10, 1, 1.0).score == score


# A sample is drawn by its seed, from all files alike, and holds nothing that is no Python.

FILES = [Path("include/a.py"), Path("include/b.py")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "a.py").write_text("".join(f"a{number} = {number}\n" for number in range(30)))
    (tmp_path / "include" / "b.py").write_text("".join(f"b{number} = {number}\n" for number in range(10)))
    return tmp_path


def test_the_same_seed_draws_the_same_mutants_in_the_order_of_the_files(root: Path) -> None:
    drawn = draw(root, FILES, 8, seed=5)
    assert (len(set(drawn.mutants)), drawn.possible) == (8, 40)
    assert drawn == draw(root, reversed(FILES), 8, seed=5)
    assert [(one.path, one.line) for one in drawn.mutants] == sorted((one.path, one.line) for one in drawn.mutants)
    assert drawn.mutants != draw(root, FILES, 8, seed=6).mutants


def test_more_than_there_are_are_all(root: Path) -> None:
    assert len(draw(root, FILES, 100, seed=1).mutants) == 40
    assert len(draw(root, FILES[1:], 100, seed=1).mutants) == 10


def test_every_mutant_may_be_drawn(root: Path) -> None:
    drawn = {one for seed in range(60) for one in draw(root, FILES, 5, seed).mutants}
    assert len(drawn) == 40


def test_what_is_no_python_is_passed_over(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Mutant("include/a.py", 1, 1, 1, "constant", "0", "(", 5, "a0 = 0")
    monkeypatch.setattr(sample, "mutants_of", lambda path, source: [broken, *mutants_of(path, source)])
    drawn = draw(root, FILES[:1], 100, seed=1)
    assert (len(drawn.mutants), broken in drawn.mutants) == (30, False)
