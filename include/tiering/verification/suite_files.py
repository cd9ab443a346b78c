"""Suite files: the user's changes to the built-in suites, in the JSON of Great Expectations, without importing it.

A directory has at most one file `<suite>.json` for each suite. An expectation whose `meta.rule_id` is new is added as a
rule. One with the id of a built-in rule sets that rule's severity; its type and arguments must be those of the rule, so
that the id keeps its meaning. `meta.remove` of the suite lists built-in rules to leave out. Rules in `SAFETY_RULES` can
be neither removed nor made warnings.

This module checks all that can be checked without Great Expectations; `great_expectations_evaluator` lets it load the
added expectations, and tries them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from include.tiering.errors import FormatError, SettingError, printable
from include.tiering.formats.strict_json import JsonObject, parse_object
from include.tiering.model.segments import Depth
from include.tiering.settings.catalogue import nearest
from include.tiering.verification.measures import PartitionMeasure
from include.tiering.verification.rules import RULES, AreEqual, Expects, IsZero, Rule, Severity
from include.tiering.verification.suites import (
    ALL_SUITES,
    PARTITION_RULES,
    PARTITION_SUITES,
    REPORTED_ONLY,
    SAFETY_RULES,
    SIZE_SUITES,
    STORED_SUITES,
    Suite,
    segment_suites,
)

NO_FAULTS: Final = "expect_no_faults"
EQUAL_MEASURES: Final = "expect_equal_measures"
"""The types of the built-in expectations, which a file may use as well; for them a missing value breaks the rule."""

MAX_FILE_BYTES: Final = 1 << 20
_RULE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_RESERVED: Final = re.compile(r"[QS][0-9]{3}\Z")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SET_BY_SUITE: Final = frozenset({"batch_id", "catch_exceptions", "result_format", "windows"})
_REMOVE: Final = "remove"
_SUITE_MEMBERS: Final = frozenset({"name", "expectations", "meta", "id", "notes", "suite_parameters"})
_MEMBERS: Final = frozenset({"type", "kwargs", "meta", "severity", "description", "id", "notes", "rendered_content"})
_META: Final = frozenset({_REMOVE, "great_expectations_version"})


@dataclass(frozen=True, slots=True)
class SuitesInForce:
    """The suites that are evaluated: about segments, about partitions, about sizes, and about the store's listing."""

    segments: tuple[Suite, ...]
    partitions: tuple[Suite, ...] = PARTITION_SUITES
    sizes: tuple[Suite, ...] = SIZE_SUITES
    stored: tuple[Suite, ...] = STORED_SUITES

    @property
    def all(self) -> tuple[Suite, ...]:
        """Return all suites."""
        return (*self.segments, *self.partitions, *self.sizes, *self.stored)

    @property
    def has_expectations(self) -> bool:
        """Return whether Great Expectations has to load an expectation of a file."""
        return any(isinstance(rule.check, Expects) for suite in self.all for rule in suite.rules)

    @property
    def changes(self) -> str:
        """Return in one line what files change."""
        in_force = {rule.rule_id: rule for suite in self.all for rule in suite.rules}
        built_in = {rule.rule_id: rule for suite in ALL_SUITES for rule in suite.rules}
        changed = [
            f"{rule_id} is {rule.severity}"
            for rule_id, rule in in_force.items()
            if rule_id in built_in and rule.severity is not built_in[rule_id].severity
        ]
        found = {"added": in_force.keys() - built_in, "removed": built_in.keys() - in_force, "changed": changed}
        named = [f"{what} {', '.join(sorted(ids))}" for what, ids in found.items() if ids]
        return "; ".join(named) or "no file changes a rule"


def read_suites(directory: Path | str | None) -> SuitesInForce:
    """Return the built-in suites, changed by the files in `directory`; without a directory, unchanged.

    Raises:
        SettingError: the directory or a file in it cannot be read, or a file is wrong; the message has the file.
    """
    changes = {} if directory is None else _read_all(Path(directory))
    own_ids: dict[str, Path] = {}

    def changed(suites: Iterable[Suite]) -> tuple[Suite, ...]:
        return tuple(
            _changed(suite, changes[suite.name], own_ids) if suite.name in changes else suite for suite in suites
        )

    return SuitesInForce(
        changed(segment_suites()), changed(PARTITION_SUITES), changed(SIZE_SUITES), changed(STORED_SUITES)
    )


class Column(NamedTuple):
    """A column that an expectation can read. `optional`: the value may be missing."""

    kind: type[str] | type[int]
    optional: bool


def columns_of(measure: type) -> dict[str, Column]:
    """Return the columns of a class of measures by name: its attributes that are texts or numbers."""
    hints = get_type_hints(measure)
    kinds = {field.name: get_args(hints[field.name]) or (hints[field.name],) for field in fields(measure)}
    return {name: Column(kind[0], len(kind) > 1) for name, kind in kinds.items() if kind[0] in (str, int)}


def kwargs_of(check: IsZero | AreEqual | Expects) -> dict[str, Any]:
    """Return the arguments of the expectation, without those that the suite adds."""
    if isinstance(check, Expects):
        loaded: dict[str, Any] = json.loads(check.kwargs)
        return loaded
    return dict(zip(("column", "other"), check.columns, strict=False))


def type_of(check: IsZero | AreEqual | Expects) -> str:
    """Return the name that Great Expectations has for the expectation."""
    if isinstance(check, Expects):
        return check.type
    return NO_FAULTS if isinstance(check, IsZero) else EQUAL_MEASURES


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    content: JsonObject

    def error(self, message: str) -> SettingError:
        return SettingError(f"{printable(str(self.path))}: {printable(message)}")


def _read_all(directory: Path) -> dict[str, _File]:
    """Return the files by the name of their suite."""
    known = [suite.name for suite in ALL_SUITES]
    found = {}
    try:
        for path in sorted(directory.iterdir()):
            if path.suffix != ".json":
                continue
            if path.stem not in known:
                raise SettingError(
                    f"{printable(str(path))}: there is no suite {printable(path.stem)}: {nearest(path.stem, known)}"
                )
            with path.open("rb") as opened:
                content = opened.read(MAX_FILE_BYTES + 1)
            found[path.stem] = _File(path, parse_object(content, MAX_FILE_BYTES))
    except OSError as error:
        raise SettingError(
            f"suites.path: {printable(str(error.filename))} cannot be read: {error.strerror}; correct or unset it"
        ) from error
    except FormatError as error:
        raise SettingError(f"{printable(str(path))}: {error}") from error
    return found


def _changed(suite: Suite, file: _File, own_ids: dict[str, Path]) -> Suite:
    try:
        removed = _removed(suite, file)
        entries = list(_entries(file))
    except FormatError as error:
        raise file.error(error.message) from error
    built_in = {rule.rule_id: rule for rule in suite.rules if rule.rule_id not in removed}
    own = []
    for entry in entries:
        if entry.rule_id in own_ids:
            raise file.error(f"{entry.rule_id} is used twice, first in {own_ids[entry.rule_id].name}")
        own_ids[entry.rule_id] = file.path
        if entry.rule_id in removed:
            raise file.error(f"{entry.rule_id} is both in meta.remove and among the expectations")
        if entry.rule_id in built_in:
            built_in[entry.rule_id] = _with_severity(built_in[entry.rule_id], entry, file)
        else:
            own.append(_own_rule(suite, entry, file))
    return replace(suite, rules=(*built_in.values(), *own))


def _removed(suite: Suite, file: _File) -> frozenset[str]:
    content = file.content
    content.refuse_members_beyond(_SUITE_MEMBERS)
    if content.text("name") != suite.name:
        raise FormatError(f"name is {content.text('name')!r}; in a file of this name it must be {suite.name!r}")
    if _optional(content, "suite_parameters"):
        raise FormatError("suite_parameters are not supported: write the values into the expectations")
    if _optional(content, "meta") is None:
        return frozenset()
    meta = content.object("meta")
    meta.refuse_members_beyond(_META)
    removed = _optional(meta, _REMOVE) or []
    if not isinstance(removed, list) or not all(isinstance(rule_id, str) for rule_id in removed):
        raise FormatError("meta.remove is not an array of rule ids")
    known = [rule.rule_id for rule in suite.rules]
    for rule_id in removed:
        if rule_id not in known:
            raise FormatError(f"meta.remove: the suite {suite.name} has no rule {rule_id}: {nearest(rule_id, known)}")
        if rule_id in SAFETY_RULES:
            raise FormatError(f"meta.remove: {_protected(rule_id, 'removed')}")
    return frozenset(removed)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One expectation of a file; `severity` is None if the file has none."""

    rule_id: str
    type: str
    kwargs: Mapping[str, Any]
    severity: Severity | None
    description: str | None


def _entries(file: _File) -> Iterator[_Entry]:
    for number, content in enumerate(file.content.objects("expectations")):
        content.refuse_members_beyond(_MEMBERS)
        place = f"expectations[{number}]"
        rule_id = content.object("meta").text("rule_id")
        if not _RULE_ID.match(rule_id):
            raise FormatError(
                f"{place}.meta.rule_id is {rule_id!r}; accepted are 1 to 100 letters, digits, '_', '-' and '.', "
                "the first a letter or a digit"
            )
        given, description = _optional(content, "severity"), _optional(content, "description")
        if given is not None and given not in tuple(Severity):
            raise FormatError(f"{place}.severity is {given!r}; accepted are {' and '.join(Severity)}")
        if description is not None and not isinstance(description, str):
            raise FormatError(f"{place}.description is not a string")
        yield _Entry(
            rule_id,
            content.text("type"),
            _kwargs(content),
            None if given is None else Severity(str(given)),
            description,
        )


def _with_severity(rule: Rule, entry: _Entry, file: _File) -> Rule:
    """Return the built-in rule with the severity of the file."""
    kwargs = {name: value for name, value in entry.kwargs.items() if name != "identity"}
    if (entry.type, kwargs) != (type_of(rule.check), kwargs_of(rule.check)):
        raise file.error(
            f"{rule.rule_id} is a built-in rule, {type_of(rule.check)} with {json.dumps(kwargs_of(rule.check))}: a "
            "file may change only its severity; give an expectation of your own another rule_id"
        )
    severity = entry.severity or rule.severity
    if rule.rule_id in SAFETY_RULES and severity is not rule.severity:
        raise file.error(_protected(rule.rule_id, "made a warning"))
    return replace(rule, severity=severity)


def _protected(rule_id: str, what: str) -> str:
    return (
        f"{rule_id} cannot be {what}: brokers' segments are deleted because their copies pass it. This holds "
        f"for all critical built-in rules but {', '.join(sorted(REPORTED_ONLY))}"
    )


def _own_rule(suite: Suite, entry: _Entry, file: _File) -> Rule:
    place = f"expectation {entry.rule_id}"
    if _RESERVED.match(entry.rule_id):
        known = [rule.rule_id for rule in suite.rules]
        raise file.error(
            f"{place}: the suite {suite.name} has no rule {entry.rule_id}, and ids of this form are reserved for "
            f"built-in rules ({nearest(entry.rule_id, known)})"
        )
    for name in _SET_BY_SUITE.intersection(entry.kwargs):
        raise file.error(f"{place}: {name} cannot be set: leave it out")
    if entry.kwargs.get("mostly", 1) != 1:
        raise file.error(f"{place}: mostly is {entry.kwargs['mostly']}; each measure keeps or breaks a rule by itself")
    columns = _columns(suite, entry, file)
    depths = frozenset(depth for depth in Depth if all(depth in _depths_of(column) for column in columns))
    if not depths:
        raise file.error(f"{place}: no depth measures all of {', '.join(columns)}")
    return Rule(
        entry.rule_id,
        suite.rules[0].level,
        _check(entry, columns),
        entry.description or f"{entry.type} {json.dumps(entry.kwargs)}",
        entry.severity or Severity.CRITICAL,
        depths,
    )


def _check(entry: _Entry, columns: Sequence[str]) -> IsZero | AreEqual | Expects:
    kwargs = {name: value for name, value in entry.kwargs.items() if name != "identity"}
    if entry.type == NO_FAULTS and list(kwargs) == ["column"]:
        return IsZero(kwargs["column"])
    if entry.type == EQUAL_MEASURES and sorted(kwargs) == ["column", "other"]:
        return AreEqual(kwargs["column"], kwargs["other"])
    return Expects(entry.type, json.dumps(kwargs, sort_keys=True), tuple(columns))


def _columns(suite: Suite, entry: _Entry, file: _File) -> list[str]:
    """Return the columns of the expectation, then those of its row condition; each is a column of the measure."""
    known = columns_of(suite.measure)
    kwargs, place = entry.kwargs, f"expectation {entry.rule_id}"
    several = kwargs.get("column_list", [])
    named = [kwargs[name] for name in ("column", "other", "column_A", "column_B") if name in kwargs]
    named += several if isinstance(several, list) else [several]
    for column in named:
        if not isinstance(column, str) or column not in known:
            raise file.error(
                f"{place}: {json.dumps(column)} is not a column of {suite.name}: {nearest(str(column), list(known))}"
            )
    if not named:
        raise file.error(f"{place}: {entry.type} names no column; a rule is about columns of single measures")
    if suite.measure is PartitionMeasure and not any(column in _WITH_FAULTS for column in named):
        raise file.error(
            f"{place}: a rule about a partition needs one of {', '.join(sorted(_WITH_FAULTS))}: only for these it is "
            "known at which segments it is broken"
        )
    words = _WORD.findall(str(kwargs.get("row_condition") or ""))
    return list(dict.fromkeys([*named, *(word for word in words if word in known)]))


def _depths_of(column: str) -> frozenset[Depth]:
    """Return the depths at which the column is measured."""
    of_rules = [rule.depths for rule in RULES if column in rule.check.columns]
    return frozenset().union(*of_rules) if of_rules else frozenset(Depth)


_WITH_FAULTS: Final = frozenset(column for rule in PARTITION_RULES for column in rule.check.columns)


def _kwargs(content: JsonObject) -> dict[str, Any]:
    kwargs = content.object("kwargs")
    return {name: kwargs.value(name) for name in kwargs.names()}


def _optional(content: JsonObject, name: str) -> object:
    return content.value(name) if content.has(name) else None
