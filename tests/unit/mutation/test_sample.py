"""A sample is drawn by its seed, from all files alike, and holds nothing that is no Python."""

from pathlib import Path

import pytest

from tests.mutation import sample
from tests.mutation.operators import Mutant, mutants_of
from tests.mutation.sample import draw

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
