"""Pages below docs/ agree with the code."""

import ast
import re
import tomllib
from functools import cache
from typing import Any, Final

import pytest

from include.tiering.app import App
from include.tiering.audit.finding import FindingKind
from include.tiering.audit.record import Guard
from include.tiering.copying.plan import HeldBack
from include.tiering.expiration.plan import Waits
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.operations.readiness import NotReady
from include.tiering.settings import TieringSettings
from include.tiering.verification.rules import NOT_OPENED
from tests.doubles.damages.catalogue import CATALOGUE, NOT_CAUGHT
from tests.doubles.damages.damage import ANY, RULES_BY_ID, Damage, level_of
from tests.doubles.damages.page import PAGE, page
from tests.doubles.source_tree import ROOT

# docs/architecture.md says what the import contracts enforce, and names only what is there.

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
    "thirteen",
    "fourteen",
    "fifteen",
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


def _section(heading: str, page: str = _PAGE) -> str:
    found = re.search(rf"^#+ {heading}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
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


# README.md's short table of changes says where each begins, and leads to the rows with all of its files.

_CHANGES: Final = _tables(_section("Where to change what", (ROOT / "README.md").read_text()))[0]


def test_the_short_table_of_changes_is_short() -> None:
    assert 8 <= len(_CHANGES) <= 10


@pytest.mark.parametrize("row", _CHANGES, ids=lambda row: row[0])
def test_a_change_begins_in_the_files_that_its_row_on_the_page_names(row: list[str]) -> None:
    """The row of the page is in the section to which the short table leads."""
    anchor = row[2].partition("docs/architecture.md#")[2].partition(")")[0]
    headings = re.findall(r"^### (.+)$", _section("Where to make a change"), re.MULTILINE)
    heading = next(one for one in headings if re.sub(r"[^a-z -]", "", one.lower()).replace(" ", "-") == anchor)
    rows = _section(heading).partition("\n### ")[0]
    assert [name for name in _quoted(row[1]) if f"`{name}`" not in rows and not (_LIBRARY / name).is_dir()] == []


# The page of damages is the catalogue that the fault injection goes through, and the catalogue is large enough.

_ALL = [damage for damages in CATALOGUE.values() for damage in damages]


def test_the_page_is_what_the_catalogue_says() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


def test_every_level_and_every_rule_fails_something() -> None:
    """But Q105: it takes bytes that rot below an S3 server, which has a test of its own. Q270 is about no damage."""
    assert {level_of(rule) for damage in _ALL for rule in damage.rules} == {
        *("object", "segment", "partition", "size", "audit")
    }
    told = {rule for damage in _ALL for rule in damage.rules}
    assert set(RULES_BY_ID) - told == {"Q105", NOT_OPENED}


def test_every_kind_names_the_rule_that_finds_it() -> None:
    assert [damage.name for damage in _ALL if not damage.rules] == []
    assert [damage.name for damages in NOT_CAUGHT.values() for damage in damages if damage.rules] == []
    assert [damage.name for damage in _ALL if not _is_told_at_its_depth(damage)] == []


def test_no_kind_is_listed_twice() -> None:
    for damages in CATALOGUE.values():
        assert len({damage.name for damage in damages}) == len(damages)


def _is_told_at_its_depth(damage: Damage) -> bool:
    first = RULES_BY_ID.get(damage.rules[0])
    if first is None or damage.depth is ANY:
        return True
    return damage.depth in first.depths


# The page of Kafka's bugs names tests that exist, and each ticket's test says which one it is.

_TICKETS: Final = (ROOT / "docs" / "kafka-tickets.md").read_text()
_TEST: Final = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_ROWS: Final = [line for line in _TICKETS.splitlines() if _TEST.search(line)]


@cache
def _functions(path: str) -> dict[str, str]:
    """Names of a module's functions, those in classes too, with name and docstring as one text."""
    tree = ast.parse((ROOT / path).read_text())
    found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {one.name: f"{one.name} {ast.get_docstring(one) or ''}" for one in found}


def test_there_are_tickets_and_tests() -> None:
    assert len(set(re.findall(r"KAFKA-\d+", _TICKETS))) > 20
    assert len(_ROWS) > 30


@pytest.mark.parametrize("row", _ROWS)
def test_every_named_test_exists(row: str) -> None:
    assert [(path, name) for path, name in _TEST.findall(row) if name not in _functions(path)] == []


@pytest.mark.parametrize("row", [row for row in _ROWS if row.startswith("| KAFKA-")])
def test_the_tests_of_a_ticket_say_its_number(row: str) -> None:
    said = [_functions(path)[name] for path, name in _TEST.findall(row)]
    tickets = re.findall(r"KAFKA-(\d+)", row.split("|")[1])
    assert tickets
    assert [one for one in tickets for text in said if one not in text] == []


# Whatever the platform says to a person has its entry in the runbook, in the same words.

_RUNBOOK: Final = (ROOT / "docs" / "runbook.md").read_text()


def test_every_reason_why_a_segment_is_not_eligible_has_an_entry() -> None:
    assert [reason.message for reason in IneligibleReason if reason.message not in _RUNBOOK] == []


def test_every_reason_why_a_partition_is_held_back_has_an_entry() -> None:
    assert [reason.message for reason in HeldBack if reason.message not in _RUNBOOK] == []


def test_every_reason_why_a_partition_is_not_ready_has_an_entry() -> None:
    assert [reason.message for reason in NotReady if f"| {reason.message} |" not in _RUNBOOK] == []


def test_every_reason_why_a_partition_waits_to_expire_has_an_entry() -> None:
    assert [reason.message for reason in Waits if f"| {reason.message} |" not in _RUNBOOK] == []


def test_every_kind_of_finding_and_every_guard_of_an_audit_has_an_entry() -> None:
    assert [kind.value for kind in FindingKind if kind.value not in _RUNBOOK] == []
    assert [guard.value for guard in Guard if f"| {guard.value} |" not in _RUNBOOK] == []


def test_every_readiness_check_has_an_entry() -> None:
    names = list(App(TieringSettings()).deployment_checks.probes("a pool", None, needs_log_dirs=True))
    assert names
    assert [name for name in names if f"| {name} |" not in _RUNBOOK] == []
