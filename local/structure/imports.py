"""Which module of the project imports which: resolved names, packages and the cycles between them.

Every import statement counts wherever it stands: at the top of a module, in a function, under ``TYPE_CHECKING``.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set

from local.structure.source import Project, SourceFile


class ImportGraph:
    """The imports among the files of one project."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._folders = {file.folder for file in project.files}
        self.statements: dict[str, int] = {}
        """By module: import statements that name something of the project."""
        self.imported: dict[str, set[str]] = {}
        """By module: the modules that it imports. A name of a package counts for the package's own module."""
        for file in project.product:
            self._read(file)

    def importers(self) -> dict[str, set[str]]:
        """By module: the product's modules that import it."""
        found: dict[str, set[str]] = {module: set() for module in self.imported}
        for importer, modules in self.imported.items():
            for module in modules - {importer}:
                found.setdefault(module, set()).add(importer)
        return found

    def packages(self) -> dict[str, set[str]]:
        """By package of the library: the other packages of the library that it imports."""
        found: dict[str, set[str]] = {}
        for importer, modules in self.imported.items():
            package = self._project.library_package_of(importer)
            if package is not None:
                others = {self._project.library_package_of(module) for module in modules}
                found.setdefault(package, set()).update(other for other in others if other not in {None, package})
        return found

    def _read(self, file: SourceFile) -> None:
        statements = 0
        imported: set[str] = set()
        for node in file.statements:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [name for name in self.names(file, node) if name.partition(".")[0] in self._folders]
                statements += bool(names)
                imported.update(module for name in names if (module := self.module_of(name)))
        self.statements[file.module] = statements
        self.imported[file.module] = imported

    def names(self, file: SourceFile, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        """Yield the dotted name of each thing that a statement of `file` imports."""
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        base = node.module or ""
        if node.level:
            package = file.module.split(".") if file.is_package else file.module.split(".")[:-1]
            base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)

    def module_of(self, name: str) -> str | None:
        """Return the module that a dotted name is, or is in; None if no file of the project holds it."""
        while name and name not in self._project.by_module:
            name = name.rpartition(".")[0]
        return name or None


def cycles(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node, the largest first, each sorted."""
    reachable = {node: _reachable(graph, node) for node in graph}
    groups = defaultdict(set)
    for node in graph:
        group = frozenset({node, *(other for other in reachable[node] if node in reachable.get(other, ()))})
        groups[group].add(node)
    return sorted((sorted(group) for group in groups if len(group) > 1), key=lambda group: (-len(group), group))


def _reachable(graph: Mapping[str, Set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for node in graph.get(waiting.pop(), set()) - found:
            found.add(node)
            waiting.append(node)
    return found
