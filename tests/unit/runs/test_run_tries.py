"""No id of a planned run is that of two tries."""

from hypothesis import given
from hypothesis import strategies as st

from include.tiering.runs.deletion_run import id_of_try, is_try_of

RUNS = ["x", "x.1", "x.2", "x.2.1", "x.02", "x.", "x.1a", "xx", "y.2.2", "x.\u0662", "x.2\n"]
NAMES = st.one_of(st.sampled_from(RUNS), st.from_regex(r"\A[a.12]{1,6}\Z"))
NUMBERS = st.integers(1, 20)


def test_a_run_keeps_its_name_and_later_tries_are_numbered() -> None:
    assert [id_of_try("x", n) for n in (1, 2, 3)] == ["x", "x.2", "x.3"]


def test_a_name_that_looks_like_a_try_is_numbered_from_the_first_on() -> None:
    assert [id_of_try("x.2", n) for n in (1, 2)] == ["x.2.1", "x.2.2"]
    assert not is_try_of("x.2", "x.2")
    assert not is_try_of("x", "x.2.1")


def test_no_try_has_such_an_id() -> None:
    for planned in ("x.1", "x.02", "x.a", "x2", "y", "x.", "x.\u0662"):
        assert not is_try_of("x", planned)


@given(NAMES, NUMBERS, NAMES, NUMBERS)
def test_two_tries_have_two_ids(first: str, number: int, second: str, other: int) -> None:
    assert (id_of_try(first, number) == id_of_try(second, other)) == ((first, number) == (second, other))


@given(NAMES, NAMES, NUMBERS)
def test_each_try_is_that_of_its_run_alone(run_id: str, other: str, number: int) -> None:
    assert is_try_of(run_id, id_of_try(other, number)) == (run_id == other)
