"""All small changes that can be made to a source file: each is one mutant.

What is left out changes nothing that a test could see, or only what people read: annotations, docstrings and texts,
calls of a logger, bodies of protocols, what only a type checker runs, lists of columns in migrations, and `strict` of a
`zip`, which like an `AssertionError` only says what never is.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
}
_BOOLEAN: Final[dict[type[ast.boolop], tuple[str, str]]] = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
_LOG_METHODS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_LOGGER: Final = re.compile(r"_?log(ger)?|for_\w+", re.IGNORECASE)
_COLUMNS: Final = re.compile(r"[Cc]olumn|\w*Constraint")
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to one file.

    Attributes:
        path: of the file, relative to the checkout.
        line: where the change begins, from 1.
        first_line, last_line: those of the statement around it, both inclusive; of a compound statement its header.
        operator: what kind of change.
        before, after: what stands there, and what takes its place.
        start: position in the file's bytes.
        text: the whole line, as it is.
    """

    path: str
    line: int
    first_line: int
    last_line: int
    operator: str
    before: str
    after: str
    start: int
    text: str

    def applied_to(self, source: str) -> str:
        """The file's text with the change. Raises ValueError if it is another text than the mutant was found in."""
        content, before = source.encode(), self.before.encode()
        if content[self.start : self.start + len(before)] != before:
            raise ValueError(f"{self.path}:{self.line} does not hold {self.before!r}")
        return (content[: self.start] + self.after.encode() + content[self.start + len(before) :]).decode()

    def __str__(self) -> str:
        change = f"{_short(self.before)} -> {_short(self.after)}"
        where = "" if self.before.strip() == self.text.strip() else f" in {_short(self.text)}"
        return f"{self.path}:{self.line}: {self.operator} {change}{where}"


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Every mutant of a file, in the order of the text. A few of them may be no Python."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda one: (one.start, one.operator, one.after))


class _Finder(ast.NodeVisitor):
    """Collects mutants in `found`; what is left out is not visited."""

    def __init__(self, path: str, source: str) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._content = source.encode()
        self._line_starts = [0]
        for line in self._content.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._statement: tuple[int, int] = (1, 1)
        self._returns_nothing = False
        self._is_migration = "migrations" in PurePath(path).parts

    def visit(self, node: ast.AST) -> None:
        outer = self._statement
        if isinstance(node, ast.stmt):
            self._statement = _header(node)
        super().visit(node)
        self._statement = outer

    # --- what is left out ---

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer = self._returns_nothing
        self._returns_nothing = isinstance(node.returns, ast.Constant) and node.returns.value is None
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(part)
        self._returns_nothing = outer

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """How a dataclass is made (`frozen`, `slots`) is what a type checker and the modules' own tests look at."""
        if not any(_name(base) == "Protocol" for base in node.bases):
            made = (
                one for one in node.decorator_list if not (isinstance(one, ast.Call) and _name(one.func) == "dataclass")
            )
            for part in (*made, *node.bases, *node.keywords, *node.body):
                self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and _name(node.annotation) != "TypeAlias":
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if _name(node.test) == "TYPE_CHECKING" or ast.unparse(node.test) == "__name__ == '__main__'":
            for other in node.orelse:
                self.visit(other)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_log(node) or (self._is_migration and _COLUMNS.fullmatch(_name(node.func))):
            return
        left_out = "strict" if _name(node.func) == "zip" else None
        for part in (node.func, *node.args, *(keyword for keyword in node.keywords if keyword.arg != left_out)):
            self.visit(part)

    # --- what is changed ---

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, comparison, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            self._replace_between(left, right, "comparison", *_COMPARISONS[type(comparison)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not _is_type(node) and not _is_text(node.left) and not _is_text(node.right):
            self._replace_between(node.left, node.right, "arithmetic", *_ARITHMETIC.get(type(node.op), ("", "")))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        before, after = _ARITHMETIC.get(type(node.op), ("", ""))
        if before and not _is_text(node.value):
            self._replace_between(node.target, node.value, "arithmetic", f"{before}=", f"{after}=")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._replace_between(left, right, "boolean", *_BOOLEAN[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(self._start(node), self._start(node.operand), "boolean", "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace_node(node, "constant", str(not node.value))
        elif isinstance(node.value, int | float):
            self._replace_node(node, "constant", repr(node.value + 1))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Positions inside of an f-string are not those of the file."""

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.slice, ast.Slice) and node.slice.upper is not None:
            upper = node.slice.upper
            self._replace_node(upper, "slice", f"({self._text(upper)}) + 1")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        is_none = isinstance(node.value, ast.Constant) and node.value.value is None
        if node.value is not None and not is_none and not self._returns_nothing:
            self._replace_node(node.value, "returned value", "None")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Words of an error are not changed, nor what says that a place is never reached."""
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if error is None or _name(error) != "AssertionError":
            self._replace_node(node, "removed raise", "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Call) and not _is_log(value):
            self._replace_node(node, "removed call", "pass")
        self.generic_visit(node)

    # --- positions ---

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._line_starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._line_starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        return self._content[self._start(node) : self._end(node)].decode()

    def _replace_node(self, node: ast.expr | ast.stmt, operator: str, after: str) -> None:
        self._replace(self._start(node), self._end(node), operator, after)

    def _replace_between(self, left: ast.expr, right: ast.expr, operator: str, before: str, after: str) -> None:
        """An operator that stands between two operands, of which either may be in parentheses."""
        start, end = self._end(left), self._start(right)
        words = before.replace(" ", r"\s+")
        edge = r"\b" if before[:1].isalpha() else ""
        between = _without_comments(self._content[start:end].decode())
        found = re.search(f"{edge}{words}{edge}" if edge else re.escape(before), between) if before else None
        if found is not None:
            at = start + len(between[: found.start()].encode())
            self._replace(at, at + len(found[0].encode()), operator, after)

    def _replace(self, start: int, end: int, operator: str, after: str) -> None:
        line = self._content.count(b"\n", 0, start) + 1
        before = self._content[start:end].decode()
        text = self._content[self._line_starts[line - 1] : self._line_starts[line]].decode().rstrip()
        self.found.append(Mutant(self._path, line, *self._statement, operator, before, after, start, text))


def _header(statement: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement, without the statements in it."""
    assert statement.end_lineno is not None
    first = statement.lineno
    if isinstance(statement, ast.FunctionDef | ast.ClassDef) and statement.decorator_list:
        first = statement.decorator_list[0].lineno
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if not body:
        return first, statement.end_lineno
    begin = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else body[0].lineno
    return first, max(first, begin - 1)


def _name(node: ast.expr) -> str:
    """The last name of `a.b.c`; empty for what is no name."""
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_log(call: ast.Call) -> bool:
    """`_log.warning(...)`, `for_partition(...).info(...)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _LOG_METHODS:
        return False
    logger = call.func.value
    return _LOGGER.fullmatch(_name(logger.func if isinstance(logger, ast.Call) else logger)) is not None


def _is_type(node: ast.expr) -> bool:
    """`str | None`, `Callable[[int], bytes] | Path`: it is evaluated, and means a type."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr) and (_is_type(node.left) or _is_type(node.right))
    if isinstance(node, ast.Constant):
        return node.value is None
    name = _name(node)
    return name in {
        "bool",
        "bytes",
        "dict",
        "float",
        "frozenset",
        "int",
        "list",
        "object",
        "set",
        "str",
        "tuple",
        "type",
    }


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _without_comments(text: str) -> str:
    """With blanks in their place."""
    return re.sub(r"#[^\n]*", lambda comment: " " * len(comment[0]), text)


def _short(text: str) -> str:
    """On one line, and not longer than a person reads."""
    line = " ".join(text.split())
    if not line:
        return "nothing"
    return f"`{line if len(line) <= _SHOWN else line[: _SHOWN - 3] + '...'}`"
