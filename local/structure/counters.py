"""What is counted about the structure, with the target of each counter."""

from collections import Counter as Tally
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from local.structure.classes import Classes
from local.structure.imports import ImportGraph, cycles
from local.structure.source import Project

MOST_METHODS: Final = 30
"""A class with more public methods than this is too large."""
SMALL_MODULE_LINES: Final = 80
"""A module with fewer lines than this, and one importer, could be a part of its importer."""


@dataclass(frozen=True)
class Counter:
    """One number about the structure.

    Args:
        key: its name in JSON and in the table of limits.
        title: what a reader calls it.
        target: what the number should become; None if only its growth is of interest.
        says: one sentence about what is counted.
        at_least: whether target and limit are lower bounds; else they are upper bounds.
    """

    key: str
    title: str
    target: float | None
    says: str
    at_least: bool = False

    def keeps(self, value: float, limit: float) -> bool:
        """Tell whether `value` is on the right side of `limit`, the limit itself included."""
        return value >= limit if self.at_least else value <= limit


COUNTERS: Final = (
    Counter("files", "files in include/", 330, "Python files, empty ones included."),
    Counter("median_lines", "median lines of a file", 150, "Of the files in include/ that are not empty.", True),
    Counter(
        "imports_per_100_lines",
        "internal imports per 100 lines",
        2.9,
        "Import statements in include/ that name a module of the project, per 100 lines of include/.",
    ),
    Counter("packages", "packages of the library", None, "Folders and single modules directly below its root."),
    Counter(
        "cycles",
        "cycles between packages",
        0,
        "Groups of packages of the library in which each imports every other, directly or through others.",
    ),
    Counter("packages_in_cycles", "packages in a cycle", 0, "Packages of the library that are in such a group."),
    Counter(
        "large_classes",
        "classes above 30 public methods",
        0,
        "Classes of the product with more than 30 public functions and properties, own and inherited from classes of"
        " the project.",
    ),
    Counter(
        "most_methods",
        "most public methods of a class",
        MOST_METHODS,
        "Public functions and properties, counted as above, of the class that has most.",
    ),
    Counter(
        "forwarding_methods",
        "methods that only forward",
        None,
        "Public methods of public classes of the product whose body is one call that passes arguments on.",
    ),
    Counter(
        "repeated_class_names",
        "class names used twice",
        0,
        "Public class names that more than one module of the product defines.",
    ),
    Counter(
        "single_importer_modules",
        "small modules, one importer",
        1,  # cli/sizes.py, which is named like its use case
        "Modules of include/ of fewer than 80 lines that exactly one module of the product imports.",
    ),
    Counter(
        "product_code_lines",
        "lines of code of the product",
        None,
        "Lines without comments, docstrings and blank lines in all folders but tests/ and benchmarks/.",
    ),
)
# Targets are half the modules and a third of the returns that were counted before use cases got packages of their own.
TRACED: Final = (
    Counter(
        "trace_modules",
        "modules on a segment's path",
        99,
        "Modules of include/ of which a function ran, from the scan to the verdict of one segment.",
    ),
    Counter("trace_packages", "packages on a segment's path", None, "Packages of the library that hold these modules."),
    Counter(
        "trace_moves",
        "moves between packages",
        None,
        "In the order in which these modules were entered: how often the next one is in another package.",
    ),
    Counter(
        "trace_returns",
        "returns to a package",
        29,
        "Moves into a package that was left before.",
    ),
    Counter(
        "trace_calls_between",
        "calls between packages",
        None,
        "Pairs of packages of which the first calls a function of the second, each pair counted once.",
    ),
)


@dataclass(frozen=True)
class Structure:
    """All counters of one checkout, and the lists behind them."""

    values: Mapping[str, float]
    largest_classes: Mapping[str, int]
    cycles: list[list[str]]
    repeated_class_names: Mapping[str, list[str]]
    files_by_folder: Mapping[str, int]
    code_lines_by_folder: Mapping[str, int]
    library_packages: Mapping[str, tuple[int, int]]
    """Files and lines of code of each package of the library."""
    forwarding_methods: list[str]
    single_importer_modules: Mapping[str, str]
    """By module: the only module that imports it."""
    trace: Mapping[str, Any] = field(default_factory=dict)


def measure(project: Project) -> Structure:
    """Compute the counters that need only the source, which are all except those of the trace."""
    graph = ImportGraph(project)
    classes = Classes(project, graph)
    methods = classes.public_methods()
    package_graph = graph.packages()
    groups = cycles(package_graph)
    forwarding = classes.forwarding()
    repeated = classes.used_twice()
    single = _small_with_one_importer(project, graph)
    include = project.include
    lines = [file.lines for file in include]
    code_lines = _code_lines(project)
    statements = sum(graph.statements[file.module] for file in include)
    values = {
        "files": len(include),
        "median_lines": median([count for count in lines if count] or [0]),
        "imports_per_100_lines": round(100 * statements / max(sum(lines), 1), 2),
        "packages": len(package_graph),
        "cycles": len(groups),
        "packages_in_cycles": sum(map(len, groups)),
        "large_classes": sum(count > MOST_METHODS for count in methods.values()),
        "most_methods": max(methods.values(), default=0),
        "forwarding_methods": len(forwarding),
        "repeated_class_names": len(repeated),
        "single_importer_modules": len(single),
        "product_code_lines": sum(code_lines[folder] for folder in {file.folder for file in project.product}),
    }
    return Structure(
        values,
        largest_classes=dict(sorted(methods.items(), key=lambda item: (-item[1], item[0]))[:5]),
        cycles=groups,
        repeated_class_names=repeated,
        files_by_folder=dict(sorted(Tally(file.folder for file in project.files).items())),
        code_lines_by_folder=code_lines,
        library_packages=_library_packages(project),
        forwarding_methods=forwarding,
        single_importer_modules=single,
    )


def _code_lines(project: Project) -> dict[str, int]:
    found: Tally[str] = Tally()
    for file in project.files:
        found[file.folder] += file.code_lines
    return dict(sorted(found.items()))


def _library_packages(project: Project) -> dict[str, tuple[int, int]]:
    files: Tally[str] = Tally()
    code_lines: Tally[str] = Tally()
    for file in project.include:
        if (package := project.library_package_of(file.module)) is not None:
            files[package] += 1
            code_lines[package] += file.code_lines
    return {package: (files[package], code_lines[package]) for package in sorted(files)}


def _small_with_one_importer(project: Project, graph: ImportGraph) -> dict[str, str]:
    importers = graph.importers()
    return {
        file.module: next(iter(importers[file.module]))
        for file in project.include
        if not file.is_package and file.lines < SMALL_MODULE_LINES and len(importers[file.module]) == 1
    }
