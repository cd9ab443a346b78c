"""The classes of the product: public methods with inherited ones, methods that only forward, names used twice."""

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from local.structure.imports import ImportGraph
from local.structure.source import Project, SourceFile, is_docstring

_Method = ast.FunctionDef | ast.AsyncFunctionDef
_Import = ast.Import | ast.ImportFrom
_BUILTINS: Final = frozenset(dir(builtins))


@dataclass(frozen=True)
class Class:
    """A class at the top level of a module."""

    module: str
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return f"{self.module}.{self.node.name}"

    @property
    def is_public(self) -> bool:
        return not self.node.name.startswith("_")

    @property
    def public_methods(self) -> list[_Method]:
        """Its own functions and properties without a leading underscore."""
        return [node for node in self.node.body if isinstance(node, _Method) and not node.name.startswith("_")]


class Classes:
    """All classes of the product. Bases are resolved if they are classes of the project."""

    def __init__(self, project: Project, graph: ImportGraph) -> None:
        self._graph = graph
        self._names = {file.module: dict(_names_in(graph, file)) for file in project.product}
        self.by_name = {found.name: found for file in project.product for found in _classes_of(file)}

    def public_methods(self) -> dict[str, int]:
        """Return, by class, the number of its public functions and properties, own and inherited, each name once."""
        return {name: len(self._public_names(name, set())) for name in self.by_name}

    def forwarding(self) -> list[str]:
        """Return the public methods of public classes that only pass their arguments on; see `only_forwards`."""
        return sorted(
            f"{name}.{method.name}"
            for name, found in self.by_name.items()
            if found.is_public
            for method in found.public_methods
            if only_forwards(method)
        )

    def used_twice(self) -> dict[str, list[str]]:
        """Return each public class name that more than one module defines, with these modules."""
        modules: dict[str, list[str]] = defaultdict(list)
        for found in self.by_name.values():
            if found.is_public:
                modules[found.node.name].append(found.module)
        return {name: sorted(where) for name, where in sorted(modules.items()) if len(where) > 1}

    def _public_names(self, name: str, seen: set[str]) -> set[str]:
        if name in seen:
            return set()
        seen.add(name)
        found = self.by_name[name]
        own = {method.name for method in found.public_methods}
        bases = [base for node in found.node.bases if (base := self._class_named(found.module, node)) is not None]
        return own.union(*(self._public_names(base, seen) for base in bases))

    def _class_named(self, module: str, node: ast.expr) -> str | None:
        """Return the name of the project's class that a base class is, or None. ``Base[int]`` is ``Base``."""
        if isinstance(node, ast.Subscript):
            node = node.value
        dotted = _dotted(node)
        if dotted is None:
            return None
        first, _, rest = dotted.partition(".")
        full = self._names[module].get(first, f"{module}.{first}")
        return self._followed(f"{full}.{rest}" if rest else full)

    def _followed(self, name: str) -> str | None:
        """Return where a name is defined, following imports from module to module; None if not in the project."""
        for _ in range(10):
            if name in self.by_name:
                return name
            module = self._graph.module_of(name)
            if module is None or module == name:
                return None
            inside = name.removeprefix(f"{module}.")
            if (imported := self._names.get(module, {}).get(inside)) is None:
                return None
            name = imported
        return None


def only_forwards(method: _Method) -> bool:
    """Tell whether a method does nothing but call one other function with what it got.

    That is a body of one statement, apart from its docstring and `with` blocks around it, that calls a function and
    returns, yields or ignores its result. Its arguments are names, attributes, or calls of the same kind
    (``self._now_ms(connection)``). Three kinds of methods do not count: those that call a class or a built-in function,
    because that is a computation; those that pass a constant, because the method gives the call a name; and those that
    only return an attribute, because they call nothing.
    """
    body = [statement for statement in method.body if not is_docstring(statement)]
    while len(body) == 1 and isinstance(body[0], ast.With | ast.AsyncWith):
        body = body[0].body
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    value = body[0].value
    while isinstance(value, ast.Await | ast.YieldFrom):
        value = value.value
    return isinstance(value, ast.Call) and _passes_on(value)


def _passes_on(call: ast.Call) -> bool:
    function = _dotted(call.func)
    if function is None or function in {*_BUILTINS, "cls"} or function.rpartition(".")[2].lstrip("_")[:1].isupper():
        return False
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return all(_is_plain(argument) for argument in arguments)


def _is_plain(argument: ast.expr) -> bool:
    if isinstance(argument, ast.Starred):
        argument = argument.value
    if isinstance(argument, ast.Call):
        return _passes_on(argument)
    return _dotted(argument) is not None


def _dotted(node: ast.expr) -> str | None:
    """Return ``a.b.c`` for a name or attributes of a name; None for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _classes_of(file: SourceFile) -> Iterator[Class]:
    return (Class(file.module, node) for node in file.tree.body if isinstance(node, ast.ClassDef))


def _names_in(graph: ImportGraph, file: SourceFile) -> Iterator[tuple[str, str]]:
    """Yield each name that a module imports, with the dotted name for which it stands."""
    for node in file.tree.body:
        if isinstance(node, _Import):
            for alias, full in zip(node.names, graph.names(file, node), strict=True):
                if alias.asname or isinstance(node, ast.ImportFrom):
                    yield alias.asname or alias.name, full
                else:
                    first = full.partition(".")[0]
                    yield first, first
