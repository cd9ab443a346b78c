"""The counters as text: each with its value, its limit, its target and what it counts."""

from collections.abc import Iterable, Iterator, Mapping

from local.structure.counters import COUNTERS, TRACED, Counter, Structure


def text_of(structure: Structure, limits: Mapping[str, float]) -> str:
    """Return the report of one checkout.

    Args:
        structure: what was counted.
        limits: by key of the counter, what the tests allow today; a counter without an entry is not limited.
    """
    return "\n".join(_lines(structure, limits)) + "\n"


def _lines(structure: Structure, limits: Mapping[str, float]) -> Iterator[str]:
    yield "Structure of the code. A limit is what the tests allow today, a target is what a counter shall become."
    yield "With --json the methods and modules behind the counters are printed, too."
    yield ""
    yield from _counters(COUNTERS, structure.values, limits)
    yield ""
    yield "The five classes with most public methods (functions and properties, own and inherited):"
    yield from (f"  {count:>7,}  {name}" for name, count in structure.largest_classes.items())
    if structure.cycles:
        yield ""
        yield "Packages that import each other in a cycle:"
        yield from (f"  {len(group):>7,}  {', '.join(group)}" for group in structure.cycles)
    if structure.repeated_class_names:
        yield ""
        yield "Class names used twice:"
        yield from (f"  {name}: {', '.join(where)}" for name, where in structure.repeated_class_names.items())
    yield ""
    yield "By top-level folder: files, and lines of code without comments, docstrings and blank lines:"
    yield from (
        f"  {structure.files_by_folder[folder]:>7,}{lines:>9,}  {folder}/"
        for folder, lines in structure.code_lines_by_folder.items()
    )
    yield ""
    yield "By package of the library, the same:"
    yield from (
        f"  {files:>7,}{lines:>9,}  {package}" for package, (files, lines) in structure.library_packages.items()
    )
    if structure.trace:
        yield ""
        yield "One segment from scan to verdict: plan a copy, copy a batch, verify it (file store, SQLite)."
        yield ""
        yield from _counters(TRACED, structure.values, limits)
        yield ""
        yield "Modules of each package on this path:"
        yield from (f"  {len(modules):>7,}  {package}" for package, modules in structure.trace["packages"].items())


def _counters(counters: Iterable[Counter], values: Mapping[str, float], limits: Mapping[str, float]) -> Iterator[str]:
    for counter in counters:
        side = "at least" if counter.at_least else "at most"
        limit = f"limit {side} {_number(limits[counter.key])}" if counter.key in limits else ""
        target = "" if counter.target is None else f"target {side} {_number(counter.target)}"
        stated = "; ".join(filter(None, [limit, target]))
        yield f"  {_number(values[counter.key]):>7}  {counter.title}{f'  ({stated})' if stated else ''}"
        yield f"           {counter.says}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) or not value.is_integer() else f"{int(value):,}"
