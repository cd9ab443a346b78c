"""Which small changes a source file admits, and which are left out."""

import ast
import textwrap

import pytest

from tests.doubles.source_tree import ROOT, python_files
from tests.mutation.operators import Mutant, mutants_of


def changes(source: str, path: str = "include/tiering/model/x.py") -> list[tuple[str, str, str]]:
    """Operator, before and after of each mutant, in the order of the text."""
    found = mutants_of(path, textwrap.dedent(source))
    return [(mutant.operator, mutant.before, mutant.after) for mutant in found]


@pytest.mark.parametrize(
    ("expression", "operator", "before", "after"),
    [
        ("a < b", "comparison", "<", "<="),
        ("a <= b", "comparison", "<=", "<"),
        ("a > b", "comparison", ">", ">="),
        ("a >= b", "comparison", ">=", ">"),
        ("a == b", "comparison", "==", "!="),
        ("a != b", "comparison", "!=", "=="),
        ("a is b", "comparison", "is", "is not"),
        ("a is not b", "comparison", "is not", "is"),
        ("a in b", "comparison", "in", "not in"),
        ("a not  in b", "comparison", "not  in", "in"),
        ("a + b", "arithmetic", "+", "-"),
        ("a - b", "arithmetic", "-", "+"),
        ("a * b", "arithmetic", "*", "/"),
        ("a / b", "arithmetic", "/", "*"),
        ("a // b", "arithmetic", "//", "*"),
        ("a % b", "arithmetic", "%", "//"),
        ("a ** b", "arithmetic", "**", "*"),
        ("a << b", "arithmetic", "<<", ">>"),
        ("a >> b", "arithmetic", ">>", "<<"),
        ("a & b", "arithmetic", "&", "|"),
        ("a | b", "arithmetic", "|", "&"),
        ("a ^ b", "arithmetic", "^", "&"),
        ("a and b", "boolean", "and", "or"),
        ("a or b", "boolean", "or", "and"),
        ("not a", "boolean", "not ", ""),
        ("7", "constant", "7", "8"),
        ("0", "constant", "0", "1"),
        ("1_000", "constant", "1_000", "1001"),
        ("0.5", "constant", "0.5", "1.5"),
        ("True", "constant", "True", "False"),
        ("False", "constant", "False", "True"),
        ("a[:b]", "slice", "b", "(b) + 1"),
        ("a[b : c if d else e]", "slice", "c if d else e", "(c if d else e) + 1"),
    ],
)
def test_an_expression_is_changed(expression: str, operator: str, before: str, after: str) -> None:
    (found,) = mutants_of("x.py", f"x = {expression}\n")
    assert (found.operator, found.before, found.after) == (operator, before, after)
    assert ast.unparse(ast.parse(found.applied_to(f"x = {expression}\n"))) != f"x = {expression}"


def test_each_operator_of_a_chain_is_one_mutant() -> None:
    source = "x = a < b == (c) and (d or e) and f\n"
    found = mutants_of("x.py", source)
    assert [one.applied_to(source).removeprefix("x = ").strip() for one in found] == [
        "a <= b == (c) and (d or e) and f",
        "a < b != (c) and (d or e) and f",
        "a < b == (c) or (d or e) and f",
        "a < b == (c) and (d and e) and f",
        "a < b == (c) and (d or e) or f",
    ]


def test_an_operator_is_found_beside_comments_brackets_and_letters_of_more_than_a_byte() -> None:
    source = 'x = ("größer", (a  # a < b, or not\n    ) > b)\n'
    (found,) = mutants_of("x.py", source)
    assert (found.line, found.first_line, found.last_line) == (2, 1, 2)
    assert found.applied_to(source) == 'x = ("größer", (a  # a < b, or not\n    ) >= b)\n'


def test_statements_are_changed() -> None:
    assert changes(
        """
        def f(a, b=2):
            a.go(b)
            a += b
            if not a:
                raise ValueError(f"{a + 1} is wrong")
            try:
                return a.b
            except ValueError:
                raise
        """
    ) == [
        ("constant", "2", "3"),
        ("removed call", "a.go(b)", "pass"),
        ("arithmetic", "+=", "-="),
        ("boolean", "not ", ""),
        ("removed raise", 'raise ValueError(f"{a + 1} is wrong")', "pass"),
        ("returned value", "a.b", "None"),
        ("removed raise", "raise", "pass"),
    ]


@pytest.mark.parametrize(
    "source",
    [
        '"""Words: 1 + 1 > 2."""\n',
        "x: int | None = None\n",
        "def f(a: Literal[1], *, b: 'int | None') -> tuple[int, int]: ...\n",
        "def f() -> None:\n    return g()\n",
        "def f():\n    return None\n",
        "def f():\n    return\n",
        "if TYPE_CHECKING:\n    x = 1\n",
        "if __name__ == '__main__':\n    x = 1\n",
        "class C(Protocol):\n    def f(self, a: int = 1) -> int: ...\n",
        "class C(Protocol[T]):\n    x = 1\n",
        "_log.warning('%d of %d', 1, a + b)\n",
        "self._logger.info('x', a > b)\n",
        "for_partition(_log, a.b).warning('%s', error)\n",
        "Callback = Callable[[str], None] | None\n",
        "Number = int | float\n",
        "x = a + 'text'\n",
        "x = f'{a + 1}'\n",
        "raise AssertionError('unreachable')\n",
        "x = 'text'\n",
        "x = None\n",
        "x = ...\n",
        "x = -a\n",
        "found = zip(a, b, strict=True)\n",
    ],
)
def test_what_changes_nothing_that_a_test_could_see_is_left_out(source: str) -> None:
    assert changes(source) == []


def test_what_stands_beside_it_is_not() -> None:
    assert changes("if TYPE_CHECKING:\n    x = 1\nelse:\n    x = 2\n") == [("constant", "2", "3")]
    assert changes("class C(Base):\n    x: int = 1\n") == [("constant", "1", "2")]
    assert changes("@dataclass(frozen=True)\nclass C:\n    x: int = 1\n") == [("constant", "1", "2")]
    assert changes("@total(order=True)\nclass C:\n    x: str\n") == [("constant", "True", "False")]
    assert changes("found = taken(a, strict=True)\n") == [("constant", "True", "False")]
    assert changes("found = zip(a(1), strict=True)\n") == [("constant", "1", "2")]
    assert changes("x = flags | other\n") == [("arithmetic", "|", "&")]
    assert changes("catalog.info(1)\n") == [("removed call", "catalog.info(1)", "pass"), ("constant", "1", "2")]


@pytest.mark.parametrize("path", ["include/tiering/database/migrations/versions/r1.py", "include/tiering/x.py"])
def test_columns_of_migrations_are_left_out(path: str) -> None:
    source = """
    def upgrade() -> None:
        op.create_table("t", sa.Column("a", sa.String(length=22), nullable=False), sa.PrimaryKeyConstraint("a", x=1))
        op.execute(1)
    """
    found = [(operator, before) for operator, before, _ in changes(source, path) if operator == "constant"]
    in_columns = [("constant", "22"), ("constant", "False"), ("constant", "1")]
    assert found == [*([] if "migrations" in path else in_columns), ("constant", "1")]


def test_the_lines_of_a_mutant_are_those_of_its_statement() -> None:
    source = textwrap.dedent(
        """\
        @decorated(1)
        def f(
            a=2,
        ):
            if (
                a == 3
            ):
                return g(
                    a,
                    4,
                )
            while a: go()
        """
    )
    where = {mutant.before: (mutant.line, mutant.first_line, mutant.last_line) for mutant in mutants_of("x.py", source)}
    assert where["1"] == (1, 1, 4)
    assert where["2"] == (3, 1, 4)
    assert where["=="] == where["3"] == (6, 5, 7)
    assert where["4"] == (10, 8, 11)
    assert where["go()"] == (12, 12, 12)


def test_a_mutant_says_what_was_changed_and_where() -> None:
    source = "def f(a, b):\n    return a < b\n"
    comparison = next(one for one in mutants_of("x.py", source) if one.operator == "comparison")
    assert str(comparison) == "x.py:2: comparison `<` -> `<=` in `return a < b`"
    (negation,) = mutants_of("x.py", "x = not a\n")
    assert str(negation) == "x.py:1: boolean `not` -> nothing in `x = not a`"
    (call,) = mutants_of("x.py", "go()\n")
    assert str(call) == "x.py:1: removed call `go()` -> `pass`"
    (long,) = mutants_of("x.py", f"go({'a' * 100})\n")
    assert str(long) == f"x.py:1: removed call `go({'a' * 54}...` -> `pass`"


def test_a_mutant_is_of_one_text() -> None:
    (mutant,) = mutants_of("x.py", "x = 1\n")
    assert mutant.applied_to("x = 1\ny = 2\n") == "x = 2\ny = 2\n"
    with pytest.raises(ValueError, match=r"x\.py:1 does not hold '1'"):
        mutant.applied_to("y = 2\n")


def test_every_file_of_the_library_can_be_changed_where_a_mutant_says() -> None:
    sizes: dict[str, int] = {}
    for file in python_files("include")[::10]:
        source = (ROOT / file).read_text()
        for mutant in mutants_of(str(file), source):
            assert mutant.first_line <= mutant.line <= mutant.last_line
            assert mutant.text == source.splitlines()[mutant.line - 1]
            assert mutant.applied_to(source) != source
            sizes[mutant.operator] = sizes.get(mutant.operator, 0) + 1
    assert set(sizes) == {
        "arithmetic",
        "boolean",
        "comparison",
        "constant",
        "removed call",
        "removed raise",
        "returned value",
        "slice",
    }


def test_mutants_are_values() -> None:
    assert mutants_of("x.py", "x = 1\n") == [Mutant("x.py", 1, 1, 1, "constant", "1", "2", 4, "x = 1")]
