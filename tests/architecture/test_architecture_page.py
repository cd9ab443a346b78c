"""docs/architecture.md says what the import contracts enforce, and names only what is there."""

import re
import tomllib
from typing import Any, Final

import pytest

from tests.doubles.source_tree import ROOT

_PAGE: Final = (ROOT / "docs" / "architecture.md").read_text()
_LIBRARY: Final = ROOT / "include" / "tiering"
_CONTRACTS: Final[dict[str, dict[str, Any]]] = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}
_INDEPENDENCE: Final = next(one for one in _CONTRACTS.values() if one["type"] == "independence")
_NUMBERS: Final = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
_THIRD_PARTIES: Final = {
    "SQL": "sqlalchemy",
    "Great Expectations": "great_expectations",
    "Airflow": "airflow",
    "boto3": "boto3",
    "SQLAlchemy": "sqlalchemy",
    "PySpark": "pyspark",
    "SDKs of object stores": "boto3",
    "object stores": "boto3",
}
"""What the page says that a layer never uses, as the module of which the contracts speak."""


def _section(heading: str) -> str:
    found = re.search(rf"^#+ {heading}\n(.*?)(?=^## |\Z)", _PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {heading!r}"
    return found.group(1)


def _tables(text: str) -> list[list[list[str]]]:
    """Each table as its rows of cells, without the heading and the line below it."""
    tables = re.findall(r"^\|[^\n]*\|\n\|[-|]+\|\n((?:\|[^\n]*\|\n)+)", text, re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()] for table in tables]


def _quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_layers_are_those_of_the_contract() -> None:
    contract = _CONTRACTS["Imports point downward"]
    assert contract["containers"] == ["include.tiering"]
    assert contract["exhaustive"]
    wanted = [{name.strip() for name in re.split(r"[:|]", layer)} for layer in contract["layers"]]
    names = [_quoted(cells[1]) for cells in _tables(_section("Layers"))[0]]
    shown = [{name for name in row if not re.search(r"[/.]", name)} for row in names]
    assert shown == wanted


def test_the_use_cases_are_those_that_are_independent() -> None:
    named = {cells[1] for cells in _tables(_section("Layers"))[0] if cells[0] == "use cases"}
    independent = {module.rpartition(".")[2] for module in _INDEPENDENCE["modules"]}
    assert set(_quoted(named.pop())) == independent
    assert {_quoted(cells[0])[0] for cells in _tables(_section("Use cases"))[0]} == independent


def test_as_many_pairs_are_excepted_as_it_says() -> None:
    pairs = {
        tuple(side.strip().split(".")[2] for side in exception.split("->"))
        for exception in _INDEPENDENCE["ignore_imports"]
    }
    assert f"except for {_NUMBERS[len(pairs)]} pairs" in _PAGE


@pytest.mark.parametrize("row", _tables(_section("Layers"))[1], ids=lambda row: row[0])
def test_what_a_layer_never_uses_is_forbidden_to_it(row: list[str]) -> None:
    """By a contract of import-linter, if the page names a third party."""
    never = {module for words, module in _THIRD_PARTIES.items() if re.search(rf"\b{words}\b", row[2])}
    for folder in ["include"] if row[0] == "use cases" else _quoted(row[0]):
        assert never <= _forbidden_to(folder.strip("/")), f"{folder}: the page says {row[2]!r}"


def _forbidden_to(folder: str) -> set[str]:
    """The library's own folders are forbidden what all of it is."""
    wider = f"include.tiering.{folder}"
    sources = {wider, "include"} if (_LIBRARY / folder).is_dir() else {folder}
    forbidding = [one for one in _CONTRACTS.values() if one["type"] == "forbidden"]
    return {module for one in forbidding if sources & set(one["source_modules"]) for module in one["forbidden_modules"]}


def test_every_package_is_in_a_table() -> None:
    named = {
        name.strip("/").removesuffix(".py")
        for table in _tables(_section("Packages"))
        for row in table
        for name in _quoted(row[0])
    }
    firsts = {name.partition("/")[0] for name in named}
    there = {path.name for path in _LIBRARY.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    there |= {path.stem for path in _LIBRARY.glob("*.py") if path.stem != "__init__"}
    assert there <= firsts


def test_every_module_that_it_names_is_there() -> None:
    missing = []
    for table in _tables(_PAGE):
        for row in table:
            folder = next((name for name in _quoted(row[0]) if (_LIBRARY / name).is_dir()), "")
            for name in re.findall(r"`([\w/.*]+\.py)`", "|".join(row)):
                places = (ROOT, _LIBRARY, _LIBRARY / folder, ROOT / "plugins" / "tiering_airflow", ROOT / "spark_jobs")
                if not any(any(place.glob(name)) for place in places) and not any(_LIBRARY.rglob(name)):
                    missing.append(name)
    assert not missing
