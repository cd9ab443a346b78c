"""The Python files of a checkout, parsed, and how many lines of code they hold."""

import ast
import io
import os
import tokenize
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

TEST_FOLDERS: Final = frozenset({"tests", "benchmarks"})
"""Folders that are not part of the product. The only numbers about them are those of files and code lines."""

_LIBRARY: Final = "include"
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    """A Python file. `path` is relative to the checkout."""

    path: PurePosixPath
    text: str

    @property
    def folder(self) -> str:
        """The top-level folder of the checkout that holds the file."""
        return self.path.parts[0]

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def module(self) -> str:
        """The dotted name under which the file is imported."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if self.is_package else parts)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @cached_property
    def statements(self) -> list[ast.AST]:
        """The module and every statement in it at any depth. Expressions contain no statements."""
        found: list[ast.AST] = [self.tree]
        for node in found:
            for block in _BLOCKS:
                found.extend(getattr(node, block, ()))
        return found

    @cached_property
    def code_lines(self) -> int:
        """The number of lines that hold code: neither blank, nor only a comment, nor part of a docstring."""
        lines = self.text.splitlines()
        filled = {number for number, line in enumerate(lines, start=1) if line.strip()}
        # A line that begins with # may be part of a string. The tokenizer shows that, but it is slow, so it runs only
        # if there is such a line.
        hashes = {number for number in filled if lines[number - 1].lstrip().startswith("#")}
        return len(filled - set(self._docstring_lines()) - (self._comment_lines() & hashes if hashes else set()))

    def _comment_lines(self) -> set[int]:
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}

    def _docstring_lines(self) -> Iterator[int]:
        for node in self.statements:
            if isinstance(node, _Documented) and node.body and is_docstring(node.body[0]):
                yield from range(node.body[0].lineno, (node.body[0].end_lineno or node.body[0].lineno) + 1)


class Project:
    """The Python files of one checkout, by module name."""

    def __init__(self, files: Collection[SourceFile]) -> None:
        self.files = sorted(files, key=lambda file: file.path)
        self.by_module = {file.module: file for file in self.files}
        self.library = _library_package(self.files)

    @property
    def product(self) -> list[SourceFile]:
        """All files except those of tests and benchmarks."""
        return [file for file in self.files if file.folder not in TEST_FOLDERS]

    @property
    def include(self) -> list[SourceFile]:
        return [file for file in self.files if file.folder == _LIBRARY]

    def library_package_of(self, module: str) -> str | None:
        """Return the folder or module directly below the library's root that holds `module`.

        Returns:
            ``copying`` for ``include.tiering.copying.rules``, ``units`` for ``include.tiering.units``; None for the
            library's root itself and for all that is outside of it.
        """
        inside = module.removeprefix(self.library + ".")
        return inside.partition(".")[0] if inside != module else None


def read_project(root: Path, *, with_tests: bool = True) -> Project:
    """Read every Python file below the visible folders of a checkout, but none directly in the checkout.

    Args:
        root: the checkout.
        with_tests: whether tests and benchmarks are read, too. Most files are tests, and parsing is slow.
    """
    folders = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    wanted = [folder for folder in folders if with_tests or folder not in TEST_FOLDERS]
    return Project([file for folder in wanted for file in _files_below(root, folder)])


def is_docstring(statement: ast.stmt) -> bool:
    """Return whether a statement consists of a string only."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _files_below(root: Path, folder: str) -> Iterator[SourceFile]:
    for directory, subdirectories, names in os.walk(root / folder):
        subdirectories[:] = sorted(n for n in subdirectories if not n.startswith(".") and n != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(directory, name)
                yield SourceFile(PurePosixPath(path.relative_to(root).as_posix()), path.read_text())


def _library_package(files: Collection[SourceFile]) -> str:
    """Return the package that holds the library's packages.

    The search descends from `include` as long as a package has nothing but an `__init__.py` and one folder.
    """
    package = PurePosixPath(_LIBRARY)
    while True:
        below = {
            file.path.relative_to(package).parts[0]
            for file in files
            if file.path.is_relative_to(package) and file.path != package / "__init__.py"
        }
        if len(below) != 1 or (only := below.pop()).endswith(".py"):
            return ".".join(package.parts)
        package /= only
